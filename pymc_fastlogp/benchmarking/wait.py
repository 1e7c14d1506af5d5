"""Wait of a user in fresh processes with empty caches: imports, compilation, draws."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from pymc_fastlogp import patching
from pymc_fastlogp.config import ENVIRONMENT_VARIABLE, OFF

if TYPE_CHECKING:
    import pymc as pm

CHILD = Path(__file__).with_name("wait_child.py")
# Without the plugin; with its import, sampled by nutpie; by pymc_fastlogp.sample.
WAYS = ("off", "import", "sample")
# Seconds of all ways together.
SECONDS = 60.0
PARTS = {
    "imports": "imports",
    "compilation": "compilation",
    "draws": "4 x (1000 + 1000) draws",
}


class Wait(NamedTuple):
    """Seconds of wall time of each part of a user's wait; None for parts that were not finished.

    Attributes
    ----------
    imports : float, optional
        Imports of PyMC, of nutpie (except for ``sample``) and of the plugin (except for ``off``).
    compilation : float, optional
        From the call to the start of sampling; for ``sample`` including the conversion of the draws.
    draws : float, optional
        4 chains of 1000 draws after 1000 tuning steps, on two cores.
    given_up : float, optional
        Seconds after which the process was stopped; None if it finished.
    """

    imports: float | None
    compilation: float | None
    draws: float | None
    given_up: float | None = None

    @property
    def total(self) -> float:
        """The sum of all parts, a lower bound if the process was stopped."""
        return sum(self.parts)

    @property
    def parts(self) -> tuple[float, float, float]:
        """The three parts; the time up to the stop belongs to the first unfinished part."""
        parts = [self.imports, self.compilation, self.draws]
        known = sum(x for x in parts if x is not None)
        if self.given_up is not None and None in parts:
            parts[parts.index(None)] = max(0.0, self.given_up - known)
        imports, compilation, draws = (x or 0.0 for x in parts)
        return imports, compilation, draws

    def __str__(self) -> str:
        said = []
        for (field, words), seconds in zip(PARTS.items(), self.parts, strict=True):
            is_finished = getattr(self, field) is not None
            said.append(f"{words} {'' if is_finished else 'more than '}{seconds:.1f}")
            if not is_finished:
                break
        more = "" if self.given_up is None else "more than "
        return f"{more}{self.total:.1f} s ({', '.join(said)})"


def measure_wait(
    model: "pm.Model",
    *,
    freeze_model: bool,
    ways: Iterable[str] = WAYS,
    seconds: float = SECONDS,
    show: Callable[[str], None] = lambda _: None,
) -> dict[str, Wait]:
    """Measure the wait of each way, one process after the other.

    Parameters
    ----------
    model : pymc.Model
        The model.
    freeze_model : bool
        Whether data are constants.
    ways : iterable of str
        Some of :data:`WAYS`.
    seconds : float
        Time of all processes. Each is stopped after its share of the time that is left, the fastest way first.
    show : callable
        Function that shows a line of progress.

    Raises
    ------
    RuntimeError
        If a process fails, for example because the model cannot be pickled.
    """
    import cloudpickle

    ways = list(ways)
    try:
        pickled = cloudpickle.dumps(model)
    except Exception as error:
        raise RuntimeError(f"{error}: pass wait=False to benchmark") from error
    waits = {}
    end = monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pickle")
        path.write_bytes(pickled)
        for n_done, way in enumerate(reversed(ways)):
            patience = max(0.0, end - monotonic()) / (len(ways) - n_done)
            show(f"waiting for {way} in a fresh process, at most {patience:.0f} s")
            waits[way] = _in_fresh_process(path, way, freeze_model, patience)
    return {way: waits[way] for way in ways}


def _in_fresh_process(model: Path, way: str, freeze_model: bool, patience: float) -> Wait:
    # -P: modules in the folder of the child would shadow others of the same name.
    command = [sys.executable, "-P", "-W", "ignore", str(CHILD), str(model), way, str(freeze_model)]
    environment = _environment(model.parent / way, is_on=way != "off")
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        # Bytes on POSIX, even with text=True.
        written = output.decode() if isinstance(output, bytes) else output
        return _wait_of(written, given_up=patience)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RuntimeError(
            f"the process that measures the wait failed ({last}): pass wait=False to benchmark"
        )
    return _wait_of(done.stdout)


def _wait_of(output: str, given_up: float | None = None) -> Wait:
    """Return the seconds that a child has written, a line of JSON for each finished part."""
    seconds: dict[str, float] = {}
    for line in output.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            seconds |= json.loads(line)
    imports, compilation, draws = (seconds.get(part) for part in PARTS)
    return Wait(imports, compilation, draws, given_up)


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
