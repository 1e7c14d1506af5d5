"""Parts of a table on disk: levels, first rows and distinct rows, which a later process finds in place of reading the table.

The key of a part is a hash of

- the source: path, size and time of change of each local file, and the key that the user gave;
- names and dtypes of the columns of the table, and the dtype of floats;
- the part, such as the columns of the distinct rows.

Parts of a source without local files and without a key are not stored. A file holds arrays, no Python objects, and a file that is
damaged or not complete counts as missing, see :mod:`pymc_fastlogp.file_cache`.
"""

import json
import logging
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from typing import Any

import numpy as np
from pytensor.configdefaults import config

from pymc_fastlogp.file_cache import ENVIRONMENT_VARIABLE, BoundedFiles, cache_folder
from pymc_fastlogp.tables.source import Source

PREFIX = "pymc_fastlogp.table."
# Number of the format of parts: files of another format are not found.
FORMAT = 1
# Bytes of all parts.
LIMIT = 512 * 2**20
# Larger parts are not stored: a few of them would evict all others.
LARGEST = LIMIT // 4

logger = logging.getLogger("pymc_fastlogp")


def summary_files() -> BoundedFiles | None:
    """Return the files of parts of tables, None if the cache is disabled."""
    folder = cache_folder()
    return None if folder is None else BoundedFiles(folder, PREFIX, LIMIT)


class StoredParts:
    """Parts of one table on disk.

    Parameters
    ----------
    source : Source
        The rows.
    schema : mapping of str to dtype
        Columns of the table.
    """

    def __init__(self, source: Source, schema: Mapping[str, Any]):
        columns = [(name, str(dtype)) for name, dtype in schema.items()]
        known = [FORMAT, source.files, source.key, columns, config.floatX]
        self._identity = known if source.files or source.key is not None else None

    def read(self, *part: Any) -> dict[str, np.ndarray] | None:
        """Return the arrays of a part, None if they are not on disk."""
        files = summary_files()
        if files is None or self._identity is None:
            return None
        content = files.read(self._name(part))
        if content is None:
            return None
        try:
            with np.load(BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # NumPy raises errors of its own, of zipfile and of zlib
            logger.info("a part of a table on disk is not readable and is read again: %s", error)
            return None

    def write(self, arrays: Mapping[str, np.ndarray], *part: Any) -> None:
        """Write the arrays of a part, if the source has a key and the cache is enabled."""
        files = summary_files()
        if files is None or self._identity is None:
            return
        n_bytes = sum(x.nbytes for x in arrays.values())
        if n_bytes > LARGEST:
            logger.info("a part of a table is not stored on disk: it has %d bytes", n_bytes)
            return
        buffer = BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        error = files.write(self._name(part), buffer.getvalue())
        if error is not None:
            logger.warning(
                "the distinct rows of a table were not stored in %s, so that the next process reads the table again: %s;"
                " free some space, or name another folder by %s.",
                files.folder,
                error.strerror or error,
                ENVIRONMENT_VARIABLE,
            )

    def _name(self, part: tuple[Any, ...]) -> str:
        content = json.dumps([self._identity, part])
        return PREFIX + sha256(content.encode()).hexdigest()
