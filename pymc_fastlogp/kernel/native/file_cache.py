"""A folder of files that several processes share: each is whole or absent, and what was used longest ago goes first.

A file is read, and its time of modification set to now, by each process that uses it. Several processes may read, write
and delete at once: a file that is gone is made again, and no file is seen before it is complete. Each begins with the hash of what
follows, so that a file which was cut off or changed is as good as none. What is read is executed, so a folder to which others than its owner may
write is left alone.

To add up the sizes takes longer than to write a file where there are thousands. So not each write does, but each with the chance that
all of them together do it about once in :data:`SHARE` of the limit; one that is as large as that always does.
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

DIGEST = sha256().digest_size
# Of the limit, what is written between two looks at the folder, on average, and what there may so be too much.
SHARE = 1 / 128
# Ends the name of a file that is being written, or whose writer was killed.
UNFINISHED = ".unfinished"

logger = logging.getLogger("pymc_fastlogp")


class BoundedFiles(NamedTuple):
    """Files of a folder.

    Attributes
    ----------
    folder : Path
        Where they are; made when the first is written.
    prefix : str
        How all their names begin.
    limit : int
        Bytes that all of them together may have, and now and then a few hundredths more.
    """

    folder: Path
    prefix: str
    limit: int

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it is not there or not what was written."""
        path = self.folder / name
        if not is_private(self.folder):
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            logger.info("%s is damaged and made again", path.name)
            return None
        with suppress(OSError):  # where others own the file, they say what is used
            os.utime(path)
        return content[DIGEST:]

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, whose name begins with the prefix, and delete what is too much."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
            if not is_private(self.folder):
                return
            with NamedTemporaryFile(
                dir=self.folder, prefix=self.prefix, suffix=UNFINISHED, delete=False
            ) as file:
                digest = sha256(content).digest()
                try:
                    file.write(digest + content)
                    file.flush()
                except OSError:
                    Path(file.name).unlink()
                    raise
            Path(file.name).replace(self.folder / name)
            if self._is_to_look(digest, len(content)):
                self.evict()
        except OSError as error:
            logger.info("%s is not kept on disk: %s", name, error)

    def _is_to_look(self, digest: bytes, size: int) -> bool:
        """Return whether a file of this hash and size is one after which the sizes are added up: a hash is as good as a die."""
        thrown = int.from_bytes(digest[:8]) / 2**64
        return thrown * self.limit * SHARE < size

    def found(self) -> Iterator[tuple[os.DirEntry, os.stat_result]]:
        """Yield the files, also those that a process left unfinished, and what the system says of them."""
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                if entry.name.startswith(self.prefix):
                    with suppress(FileNotFoundError):  # another process may have deleted it
                        yield entry, entry.stat()

    def evict(self) -> None:
        """Delete files until the others are within the limit."""
        files = [(x.st_mtime_ns, x.st_size, entry.path) for entry, x in self.found()]
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            Path(path).unlink(missing_ok=True)
            excess -= size


def is_private(folder: Path) -> bool:
    """Return whether the user alone may write to a folder; it need not be there. Windows has no such bits."""
    try:
        status = folder.stat()
    except OSError:
        return True
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        _warn_once(folder, "which is another user's: name one of your own")
        return False
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _warn_once(folder, "to which others may write: chmod go-w it")
        return False
    return True


@cache
def _warn_once(folder: Path, reason: str) -> None:
    logger.warning("Nothing is kept in %s, %s.", folder, reason)
