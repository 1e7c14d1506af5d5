"""Faster log densities and gradients for hierarchical PyMC models.

The import enables the rewrites in ``pm.sample``, ``nutpie.compile_pymc_model`` and every
other compilation by PyTensor. ``PYMC_FASTLOGP=0`` in the environment keeps the rewrites disabled;
:func:`disable` and :func:`disabled` switch them off.
"""

from pymc_fastlogp.benchmarking import BenchmarkResult, benchmark
from pymc_fastlogp.config import disable, disabled, enable
from pymc_fastlogp.explanation import Explanation, Kernels, Outcome, Outside, explain
from pymc_fastlogp.many import Fit, sample_many
from pymc_fastlogp.patching import (
    is_wanted_by_environment,
    patch_pymc,
    patched_pymc,
    unpatch_pymc,
)
from pymc_fastlogp.registration import is_enabled, register
from pymc_fastlogp.sampling import (
    compile_kwargs,
    compile_pymc_model,
    compute_log_likelihood,
    log_likelihood_to_zarr,
    predict_to_parquet,
    reparametrize,
    sample,
)
from pymc_fastlogp.tables import Table, table
from pymc_fastlogp.verification import Verification, WorstEntry, verify

__version__ = "0.2.0"

__all__ = [
    "BenchmarkResult",
    "Explanation",
    "Fit",
    "Kernels",
    "Outcome",
    "Outside",
    "Table",
    "Verification",
    "WorstEntry",
    "benchmark",
    "compile_kwargs",
    "compile_pymc_model",
    "compute_log_likelihood",
    "disable",
    "disabled",
    "enable",
    "explain",
    "is_enabled",
    "log_likelihood_to_zarr",
    "patch_pymc",
    "patched_pymc",
    "predict_to_parquet",
    "reparametrize",
    "sample",
    "sample_many",
    "table",
    "unpatch_pymc",
    "verify",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


register()
if is_wanted_by_environment():
    patch_pymc()
