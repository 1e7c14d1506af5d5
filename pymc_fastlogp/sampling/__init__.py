"""Public functions that compile and sample a model.

``nutpie.compile_pymc_model`` spends most of its time in Numba, which types, lowers and optimizes the functions around one call of a kernel. Here
PyTensor rewrites the same graphs, so a callback calls the same machine code of the same kernel, and draws are bit-identical. LLVM compiles the
callback directly. Numba compiles a graph only if the graph needs other Ops than one kernel.

.. code-block:: text

    compile_model               compile_pymc_model
    request, pipeline           arguments and stages of a compilation
    sample, routing             sample, and the tables that select sampler and compiler
    by_nutpie, nuts_settings    models for nutpie, its settings, and its draws with the messages of pm.sample
    cluster                     likelihoods of tables on the workers of Dask
    threads                     number of helper threads
    log_likelihood              compute_log_likelihood
    row_log_likelihood          log_likelihood_to_zarr
    predictions                 predict_to_parquet
    reparametrize               reparametrize
    compile_kwargs              compile_kwargs: the same callbacks in nutpie's own compilation
    draws, zarr_store           draws of nutpie as the groups that pm.sample returns
    progress, convergence       progress bars and log lines, checks after sampling
    diagnosis                   causes of a failed start
"""

from pymc_fastlogp.sampling.compile_kwargs import compile_kwargs
from pymc_fastlogp.sampling.compile_model import compile_pymc_model
from pymc_fastlogp.sampling.log_likelihood import compute_log_likelihood
from pymc_fastlogp.sampling.predictions import predict_to_parquet
from pymc_fastlogp.sampling.reparametrize import reparametrize
from pymc_fastlogp.sampling.row_log_likelihood import log_likelihood_to_zarr
from pymc_fastlogp.sampling.sample import sample

__all__ = [
    "compile_kwargs",
    "compile_pymc_model",
    "compute_log_likelihood",
    "log_likelihood_to_zarr",
    "predict_to_parquet",
    "reparametrize",
    "sample",
]
