"""Folder of files that several processes share, with a limit of total size and eviction of the least recently used files.

Each use of a file sets its modification time to the current time. Processes may read, write and delete files concurrently: a missing file is
written again, and a file becomes visible only when it is complete. A file begins with the hash of its content, so a
truncated or changed file counts as missing. The contents are executed, so a folder that other users can write to is not used.

The environment variable ``PYMC_FASTLOGP_CACHE`` names another folder, or is ``0`` to disable the cache; the default is ``1``.

With thousands of files, the sum of their sizes takes longer than one write. So a write triggers eviction with probability proportional to its size,
and eviction runs about once per :data:`SHARE` of the limit. A file as large as this share always triggers eviction.
"""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from pytensor.configdefaults import config

from pymc_fastlogp.config import OFF, ON

ENVIRONMENT_VARIABLE = "PYMC_FASTLOGP_CACHE"
DIGEST = sha256().digest_size
# Mean volume that is written between two evictions, as a fraction of the limit. The folder may exceed the limit by about this fraction.
SHARE = 1 / 128
# Suffix of a file that is being written, or whose writer was killed.
UNFINISHED = ".unfinished"

logger = logging.getLogger("pymc_fastlogp")


def cache_folder() -> Path | None:
    """Return the folder of the cache, None if the cache is disabled."""
    named = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if named.lower() in OFF or not config.numba__cache:
        return None
    is_default = not named or named.lower() in ON
    return config.base_compiledir / "pymc_fastlogp" if is_default else Path(named).expanduser()


class BoundedFiles(NamedTuple):
    """Files of a folder with a limit of total size.

    Attributes
    ----------
    folder : Path
        The folder, which the first write creates.
    prefix : str
        Common prefix of the file names.
    limit : int
        Bytes of all files. The total may exceed the limit temporarily, see :data:`SHARE`.
    """

    folder: Path
    prefix: str
    limit: int

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if the file is missing or damaged."""
        path = self.folder / name
        if not is_private(self.folder):
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            logger.info("The cache file %s is damaged and will be replaced.", path.name)
            return None
        with suppress(OSError):  # fails if another user owns the file
            os.utime(path)
        return content[DIGEST:]

    def write(self, name: str, content: bytes) -> OSError | None:
        """Write a file, whose name begins with the prefix, and evict files if necessary; return the error if the file was not written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
            if not is_private(self.folder):
                return None
            with NamedTemporaryFile(
                dir=self.folder, prefix=self.prefix, suffix=UNFINISHED, delete=False
            ) as file:
                digest = sha256(content).digest()
                try:
                    file.write(digest)
                    file.write(content)
                    file.flush()
                except BaseException:  # an interrupt, too
                    Path(file.name).unlink()
                    raise
            Path(file.name).replace(self.folder / name)
            if self._triggers_eviction(digest, len(content)):
                self.evict()
        except OSError as error:
            logger.info("The cache file %s was not written: %s", name, error)
            return error
        return None

    def _triggers_eviction(self, digest: bytes, size: int) -> bool:
        """Return whether the write of a file triggers eviction; its hash serves as the random number."""
        uniform = int.from_bytes(digest[:8]) / 2**64
        return uniform * self.limit * SHARE < size

    def found(self) -> Iterator[tuple[os.DirEntry, os.stat_result]]:
        """Yield the files with their status, including files that a process left unfinished."""
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                if entry.name.startswith(self.prefix):
                    with suppress(FileNotFoundError):  # another process may have deleted the file
                        yield entry, entry.stat()

    def evict(self) -> None:
        """Delete the least recently used files until the limit holds."""
        files = [(x.st_mtime_ns, x.st_size, entry.path) for entry, x in self.found()]
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            Path(path).unlink(missing_ok=True)
            excess -= size


def is_private(folder: Path) -> bool:
    """Return whether only the user can write to a folder, or the folder does not exist. Windows has no permission bits."""
    try:
        status = folder.stat()
    except OSError:
        return True
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        _warn_once(folder, "because another user owns this folder. Choose a folder of your own")
        return False
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _warn_once(
            folder,
            "because other users can write to this folder. Remove that permission with chmod go-w",
        )
        return False
    return True


@cache
def _warn_once(folder: Path, reason: str) -> None:
    logger.warning("Nothing is cached in %s, %s.", folder, reason)
