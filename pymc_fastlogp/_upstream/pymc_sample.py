"""What is private in ``pm.sample``, which :func:`pymc_fastlogp.sample` does in the same way.

A file of its own: where one of these names is gone, ``pm.sample`` samples, and all else works.
"""

from pymc.backends.arviz import patch_nutpie_idata
from pymc.progress_bar.progress import NutpieProgressBarManager
from pymc.sampling.mcmc import setup_cores_blas_cores
from pymc.sampling.parallel import _cpu_count as cpu_count
from pymc.sampling.parallel import (
    _initialize_multiprocessing_context as initialize_multiprocessing_context,
)

__all__ = [
    "NutpieProgressBarManager",
    "cpu_count",
    "initialize_multiprocessing_context",
    "patch_nutpie_idata",
    "setup_cores_blas_cores",
]
