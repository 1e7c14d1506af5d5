"""Measurements in fresh processes: their environment, and a call of a function in one of them."""

import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ON_ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_ENABLE_X64": "1",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
}
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pymc_fastlogp"


def environment(
    folder: str | Path, *, flags: str = "", kept: str | None = None, one_core: bool = False
) -> dict[str, str]:
    """Return the environment variables of a process with bytecode, as of an installed package, and with its own caches.

    Parameters
    ----------
    folder : path
        Folder of PyTensor's cache and of the plugin's.
    flags : str
        Flags of PyTensor in addition to those that are set.
    kept : str, optional
        Folder of compiled models, "0" for none.
    one_core : bool
        Restrict libraries to one thread.
    """
    from pymc_fastlogp.config import ENVIRONMENT_VARIABLE as SWITCH
    from pymc_fastlogp.model_cache.store import ENVIRONMENT_VARIABLE

    _write_bytecode()
    all_flags = (os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={folder}", flags)
    variables = {**os.environ, "PYTENSOR_FLAGS": ",".join(filter(None, all_flags))}
    # A user's settings would add models of other runs, or switch the plugin off.
    for name in (ENVIRONMENT_VARIABLE, SWITCH):
        variables.pop(name, None)
    variables |= ON_ONE_CORE if one_core else {}
    variables |= {} if kept is None else {ENVIRONMENT_VARIABLE: kept}
    # This variable would make each process parse what it imports.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def call(
    function: Callable[..., Any],
    *arguments: Any,
    folder: str | Path | None = None,
    timeout: float | None = None,
    **options: Any,
) -> Any:
    """Return the result of a function, called in a fresh process that imports only its module.

    Parameters
    ----------
    function : callable
        Function of a module that is not the main one.
    *arguments
        Its arguments; they and the result pass as JSON.
    folder : path, optional
        Folder of the caches; by default a new one, which is deleted.
    timeout : float, optional
        Seconds after which the process is killed.
    **options
        Options of :func:`environment`.

    Raises
    ------
    RuntimeError
        If the function fails.
    subprocess.TimeoutExpired
        If the process was killed.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as own:
            return call(function, *arguments, folder=own, timeout=timeout, **options)
    target = (function.__module__, function.__qualname__)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", __name__, *target, json.dumps(arguments)],
        cwd=ROOT,
        env=environment(folder, **options),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode != 0:
        [*_, last] = done.stderr.strip().splitlines() or [""]
        raise RuntimeError(f"{'.'.join(target)}: exit status {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


@cache
def _write_bytecode() -> None:
    compileall.compile_dir(PACKAGE, quiet=2)


if __name__ == "__main__":
    module, name, arguments = sys.argv[1:]
    print(json.dumps(getattr(import_module(module), name)(*json.loads(arguments))))
