"""Object code on disk, beside PyTensor's own cache: bounded, what was used longest ago goes first.

A file is read, and its time of modification set to now, by each process that uses it. Several processes may read, write
and delete at once: a file that is gone is compiled again, and no file is seen before it is complete.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from pytensor.configdefaults import config

PREFIX = "pymc_fastlogp.kernel."
# Bytes of all files together, some thousand kernels: each has 10 to 100 thousand. A matter of disk space, not of speed.
LIMIT = 256 * 2**20

logger = logging.getLogger("pymc_fastlogp")


def read(name: str) -> bytes | None:
    """Return the code of a function, None if it is not there."""
    path = _path(name)
    try:
        code = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # where others own the file, they say what is used
        os.utime(path)
    return code


def write(name: str, code: bytes) -> None:
    """Keep the code of a function, whose name begins with the prefix, and delete what is too much."""
    path = _path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=PREFIX, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)
        _evict(path.parent)
    except OSError as error:
        logger.info("a kernel is not kept on disk: %s", error)


def _path(name: str) -> Path:
    return config.base_compiledir / "numba" / f"{name}.o"


def _evict(folder: Path) -> None:
    """Delete files until the others are within the limit; those that a process left unfinished, too."""
    found = []
    for entry in os.scandir(folder):
        if entry.name.startswith(PREFIX):
            with suppress(FileNotFoundError):
                found.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
    excess = sum(size for _, size, _ in found) - LIMIT
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        Path(path).unlink(missing_ok=True)
        excess -= size
