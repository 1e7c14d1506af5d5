"""Waiting time of a user, in fresh processes with empty caches: imports, compilation, draws."""

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
# The plugin is not imported; imported, with nutpie as the sampler; pymc_fastlogp.sample.
WAYS = ("off", "import", "sample")
# Of the draws, in seconds.
PATIENCE = 60


class Wait(NamedTuple):
    """Seconds by the clock.

    Attributes
    ----------
    imports : float
        Of PyMC, of nutpie (not by ``sample``, which needs no import of it) and of the plugin (not by ``off``).
    compilation : float
        From the call to the start of sampling; by ``sample`` with the conversion of the draws.
    draws : float, optional
        Of 4 chains of 1000 draws after 1000 of tuning, on two cores; None where it was given up after
        :data:`PATIENCE` seconds.
    """

    imports: float
    compilation: float
    draws: float | None

    @property
    def total(self) -> float:
        """The sum, which is a lower bound where there is no time of the draws."""
        return sum(self.parts)

    @property
    def parts(self) -> tuple[float, float, float]:
        """The three, with :data:`PATIENCE` for draws that were given up."""
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
    """Return the wait of each way, one process after the other.

    Raises
    ------
    RuntimeError
        If a process fails, as where the model cannot be pickled.
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
    """Show progress in a terminal; in a notebook it would leave an empty output."""
    console = Console(stderr=True)
    return track(
        list(ways),
        "fresh processes",
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _in_fresh_process(model: Path, way: str, freeze_model: bool) -> Wait:
    done = subprocess.run(
        # -P: the folder of the child has modules that others may have, too.
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
    """Return the environment of a process that begins with an empty folder for all that is kept, and where the plugin, which a model may import, is on or off."""
    # Here, since it imports a part of the kernel.
    from pymc_fastlogp.model_cache import store

    own = dict(os.environ)
    own.pop(patching.ENVIRONMENT_VARIABLE, None)
    # A folder of the user's may have the model; whether models are kept at all is part of the wait.
    if own.get(store.ENVIRONMENT_VARIABLE, "").lower() not in OFF:
        own.pop(store.ENVIRONMENT_VARIABLE, None)
    flags = f"{own.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}".lstrip(",")
    path = os.pathsep.join(sys.path)
    return own | {
        ENVIRONMENT_VARIABLE: str(int(is_on)),
        "PYTENSOR_FLAGS": flags,
        "PYTHONPATH": path,
    }
