"""The environment of a process that measures what a user waits for in one that has just begun."""

import compileall
import os
from functools import cache
from pathlib import Path

from pymc_fastlogp.config import ENVIRONMENT_VARIABLE as SWITCH
from pymc_fastlogp.model_cache.store import ENVIRONMENT_VARIABLE

ON_ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_ENABLE_X64": "1",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
}
PACKAGE = Path(__file__).parents[1] / "pymc_fastlogp"


def environment(
    folder: str | Path, *, flags: str = "", kept: str | None = None, one_core: bool = False
) -> dict[str, str]:
    """Return the variables of a process whose modules have bytecode, as those of an installed package, and whose caches lie in a folder.

    Parameters
    ----------
    folder : path
        Of PyTensor's cache, and of the plugin's with it.
    flags : str
        Of PyTensor, besides those that are set.
    kept : str, optional
        Where models are kept: another folder, or "0" for nowhere.
    one_core : bool
        Whether libraries may use one thread only.
    """
    _write_bytecode()
    all_flags = (os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={folder}", flags)
    variables = {**os.environ, "PYTENSOR_FLAGS": ",".join(filter(None, all_flags))}
    # What a user has set: models of other runs, and the plugin off where it is measured.
    for name in (ENVIRONMENT_VARIABLE, SWITCH):
        variables.pop(name, None)
    variables |= ON_ONE_CORE if one_core else {}
    variables |= {} if kept is None else {ENVIRONMENT_VARIABLE: kept}
    # Set where nothing may be written, it would have each process parse what it imports.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


@cache
def _write_bytecode() -> None:
    compileall.compile_dir(PACKAGE, quiet=2)
