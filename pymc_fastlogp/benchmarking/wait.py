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

from pymc_fastlogp.config import ENVIRONMENT_VARIABLE, OFF

if TYPE_CHECKING:
    import pymc as pm

CHILD = Path(__file__).with_name("wait_child.py")
ENTRY_POINT = "pymc_fastlogp.sample"
SIDES = ("off", "on", ENTRY_POINT)
# Of the draws, in seconds.
PATIENCE = 60


class Wait(NamedTuple):
    """Seconds by the clock.

    Attributes
    ----------
    imports : float
        Of PyMC, nutpie and the plugin, unless it is off.
    compilation : float
        From the call to a compiled model.
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
    model: "pm.Model", *, freeze_model: bool, sides: Iterable[str] = SIDES
) -> dict[str, Wait]:
    """Return the wait of each side, one process after the other.

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
        return {side: _in_fresh_process(path, side, freeze_model) for side in _shown(sides)}


def _shown(sides: Iterable[str]) -> Iterable[str]:
    """Show progress in a terminal; in a notebook it would leave an empty output."""
    console = Console(stderr=True)
    return track(
        list(sides),
        "fresh processes",
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _in_fresh_process(model: Path, side: str, freeze_model: bool) -> Wait:
    done = subprocess.run(
        # -P: the folder of the child has modules that others may have, too.
        [
            sys.executable,
            "-P",
            "-W",
            "ignore",
            CHILD,
            model,
            side,
            str(freeze_model),
            str(PATIENCE),
        ],
        env=_environment(model.parent / side, is_on=side != "off"),
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
