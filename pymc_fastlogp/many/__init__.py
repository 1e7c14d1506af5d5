"""``sample_many``: one model with many data sets, or many models, on the workers of an executor.

.. code-block:: text

    sample_many    sample_many: from arguments to tasks, and from outcomes to fits
    fit            Fit, the result of one data set
    task           tasks, and their fits in a worker
    reuse          machine code in memory for models that differ in their data alone
    pools          tasks on an executor, or on worker processes that are started again
    store          fits on disk
    progress       progress bar, or log lines
"""

from pymc_fastlogp.many.fit import Fit
from pymc_fastlogp.many.sample_many import sample_many

__all__ = ["Fit", "sample_many"]
