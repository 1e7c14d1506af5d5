"""Wait of a user in fresh processes with empty caches: imports, compilation, draws."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import track

from pymc_fastlogp import patching
from pymc_fastlogp.config import ENVIRONMENT_VARIABLE, OFF

if TYPE_CHECKING:
    import pymc as pm

CHILD = Path(__file__).with_name("wait_child.py")
# Without the plugin; with its import, sampled by nutpie; by pymc_fastlogp.sample.
WAYS = ("off", "import", "sample")
# Seconds after which the draws are given up.
PATIENCE = 60


class Wait(NamedTuple):
    """Seconds of wall time of each part of a user's wait.

    Attributes
    ----------
    imports : float
        Imports of PyMC, of nutpie (except for ``sample``) and of the plugin (except for ``off``).
    compilation : float
        From the call to the start of sampling; for ``sample`` including the conversion of the draws.
    draws : float, optional
        4 chains of 1000 draws after 1000 tuning steps, on two cores; None if given up after
        :data:`PATIENCE` seconds.
    """

    imports: float
    compilation: float
    draws: float | None

    @property
    def total(self) -> float:
        """The sum of all parts, a lower bound if the draws were given up."""
        return sum(self.parts)

    @property
    def parts(self) -> tuple[float, float, float]:
        """The three parts, with :data:`PATIENCE` for draws that were given up."""
        return self.imports, self.compilation, PATIENCE if self.draws is None else self.draws

    def __str__(self) -> str:
        draws = f"more than {PATIENCE}" if self.draws is None else f"{self.draws:.1f}"
        more = "more than " if self.draws is None else ""
        return (
            f"{more}{self.total:.1f} s (imports {self.imports:.1f}, compilation {self.compilation:.1f},"
            f" 4 x (1000 + 1000) draws {draws})"
        )


def measure_wait(
    model: "pm.Model", *, freeze_model: bool, ways: Iterable[str] = WAYS
) -> dict[str, Wait]:
    """Measure the wait of each way, one process after the other.

    Raises
    ------
    RuntimeError
        If a process fails, for example because the model cannot be pickled.
    """
    import cloudpickle

    try:
        pickled = cloudpickle.dumps(model)
    except Exception as error:
        raise RuntimeError(f"{error}: pass wait=False to benchmark") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pickle")
        path.write_bytes(pickled)
        return {way: _in_fresh_process(path, way, freeze_model) for way in _shown(ways)}


def _shown(ways: Iterable[str]) -> Iterable[str]:
    """Show progress in a terminal only: a notebook would keep an empty output."""
    console = Console(stderr=True)
    return track(
        list(ways),
        "measuring the wait",
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _in_fresh_process(model: Path, way: str, freeze_model: bool) -> Wait:
    done = subprocess.run(
        # -P: modules in the folder of the child would shadow others of the same name.
        [
            sys.executable,
            "-P",
            "-W",
            "ignore",
            CHILD,
            model,
            way,
            str(freeze_model),
            str(PATIENCE),
        ],
        env=_environment(model.parent / way, is_on=way != "off"),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RuntimeError(
            f"the process that measures the wait failed ({last}): pass wait=False to benchmark"
        )
    return Wait(**json.loads(done.stdout.splitlines()[-1]))


def _environment(folder: Path, *, is_on: bool) -> dict[str, str]:
    """Return the environment of a process with an empty cache folder and the plugin on or off, since unpickling a model may import the plugin."""
    # A lazy import, since the store imports a part of the kernel.
    from pymc_fastlogp.model_cache import store

    own = dict(os.environ)
    own.pop(patching.ENVIRONMENT_VARIABLE, None)
    # The user's cache folder may have the model; a cache that is switched off stays off.
    if own.get(store.ENVIRONMENT_VARIABLE, "").lower() not in OFF:
        own.pop(store.ENVIRONMENT_VARIABLE, None)
    flags = f"{own.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}".lstrip(",")
    path = os.pathsep.join(sys.path)
    return own | {
        ENVIRONMENT_VARIABLE: str(int(is_on)),
        "PYTENSOR_FLAGS": flags,
        "PYTHONPATH": path,
    }
