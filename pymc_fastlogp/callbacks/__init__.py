"""nutpie's callbacks as LLVM functions around a kernel: a model compiled without Numba where that can be, and sampled.

What ``nutpie.compile_pymc_model`` spends most of its time on is Numba, which types, lowers and optimises a function around one
call. Here PyTensor rewrites the same graphs, so a callback calls the same machine code of the same kernel, and draws are
equal bit for bit; only what is around the call is written directly:

.. code-block:: text

    plan:       a rewritten graph as one call of a kernel, or which Op it needs besides
    numba_graph:  such a graph as one call of what Numba makes of it
    user_data:  the memory that nutpie hands to each call: addresses of code, constants and shared data
    emit:       the two C functions that nutpie calls
    zarr_store: draws on disk, opened as those in memory
    labels:     dimensions and coordinates of what is stored
    loaded:     a record in memory, as nutpie's library samples it
    mapped:     the same in other coordinates
    compiled:   what nutpie samples from
    trace:      from the draws of nutpie's library to what ``sample`` returns
    compile:    ``compile_pymc_model``
    parametrise:  ``parametrise``
    sample:     ``sample``
    door:       the same callbacks where nutpie compiles the model itself
    kwargs:     ``compile_kwargs``, which open the door

So nutpie's code around a graph is never compiled by Numba, and the graph itself only where it is more than a kernel.
"""

from pymc_fastlogp.callbacks.compile import compile_pymc_model
from pymc_fastlogp.callbacks.kwargs import compile_kwargs
from pymc_fastlogp.callbacks.parametrise import parametrise
from pymc_fastlogp.callbacks.sample import sample

__all__ = ["compile_kwargs", "compile_pymc_model", "parametrise", "sample"]
