"""Processes that share the folder of models and of object code, and are killed at random moments.

Run as ``python -m tests.callbacks.kills N`` with ``PYTENSOR_FLAGS=base_compiledir=...`` naming an empty folder: one process imports everything, and then has ``N``
children, eight at a time, which compile models, keep them and object code on disk, and delete files of both until they are killed. It exits with an error if a
child said a wrong value or ended otherwise than by the kill.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pytensor.configdefaults import config

import pymc_fastlogp
from tests.callbacks import models

FOLDER = Path(config.base_compiledir) / "pymc_fastlogp"
# Which model, and whether it is frozen.
CASES = ((models.one_number, True), (models.hierarchy, True), (models.hierarchy, False))
AT_ONCE = 8
# Seconds: a model takes 0.02 from disk and 0.5 to 1 to be compiled on an idle core, so kills come before, within and after.
LONGEST = 3.0
# Of the files, how many go each time: most models are compiled, some are found.
DELETED = 0.3


def said(case) -> str:
    """Compile a model and return its name and its logp at the first initial point, to the last bit."""
    make, is_frozen = case
    compiled = pymc_fastlogp.compile_pymc_model(make(), freeze_model=is_frozen)
    value, gradient = compiled.logp_dlogp(compiled.initial_point_func(0))
    return f"{make.__name__} {is_frozen} {value!r} {gradient.tobytes().hex()}\n"


class Child(NamedTuple):
    """A process, what it writes to, and when it is killed."""

    pid: int
    reads: int
    deadline: float


def works(seed: int, writes: int) -> None:
    """Compile models and delete files until killed."""
    rng = random.Random(seed)
    while True:
        os.write(writes, said(rng.choice(CASES)).encode())
        for path in FOLDER.glob("pymc_fastlogp.*"):
            if rng.random() < DELETED:
                path.unlink(missing_ok=True)


def started(seed: int, deadline: float) -> Child:
    reads, writes = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writes)
        return Child(pid, reads, deadline)
    status = 1
    try:
        works(seed, writes)
    finally:
        os._exit(status)


def killed(child: Child) -> list[str]:
    """Kill a process and return the lines that it wrote, the last one perhaps in part."""
    time.sleep(max(0.0, child.deadline - time.monotonic()))
    os.kill(child.pid, signal.SIGKILL)
    content = b"".join(iter(lambda: os.read(child.reads, 65536), b""))
    os.close(child.reads)
    _, status = os.waitpid(child.pid, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        sys.exit(f"a child ended with status {status}")
    return content.decode().splitlines()


def main(n_kills: int) -> None:
    expected = {said(case) for case in CASES}
    rng = random.Random(20261123)
    children: list[Child] = []
    n_lines = 0
    for i in range(n_kills + AT_ONCE):
        if len(children) == AT_ONCE or i >= n_kills:
            children.sort(key=lambda child: child.deadline)
            lines = killed(children.pop(0))
            n_lines += len(lines)
            wrong = [x for x in lines if not any(y.startswith(x) for y in expected)]
            if wrong:
                sys.exit(f"a child said {wrong[0]}")
        if i < n_kills:
            children.append(started(i, time.monotonic() + rng.uniform(0, LONGEST)))
    if {said(case) for case in CASES} != expected:
        sys.exit("another value after all kills")
    print(f"{n_kills} kills, {n_lines} models")


if __name__ == "__main__":
    if FOLDER.exists():
        sys.exit(f"{FOLDER} is in use: set PYTENSOR_FLAGS=base_compiledir=... to an empty folder")
    main(int(sys.argv[1]))
