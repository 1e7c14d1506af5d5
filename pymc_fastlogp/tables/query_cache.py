"""Results of the queries of a table on disk: levels, first rows and summaries, which a later process finds in place of reading the table.

The key of a result is a hash of

- the source: path, size and time of change of each local file, the key that the user gave, and the length of a frame in memory;
- names and dtypes of the columns of the table, and the dtype of floats;
- for rows that were added to a table, the key of that table, whose levels their codes refer to;
- the query, such as the columns of the distinct rows.

Results from a source without local files and without a key are not stored. A file holds arrays, no Python objects, and a file that is
damaged or not complete counts as missing, see :mod:`pymc_fastlogp.file_cache`.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from io import BytesIO
from typing import Any

import numpy as np
from pytensor.configdefaults import config

from pymc_fastlogp.file_cache import ENVIRONMENT_VARIABLE, BoundedFiles, cache_folder
from pymc_fastlogp.tables.cells import AllRows, Cells, Summary
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.source import Source

PREFIX = "pymc_fastlogp.table."
# Number of the format of files, and of the arithmetic of summaries: files with another number are not found.
FORMAT = 3
# Bytes of all results.
LIMIT = 512 * 2**20
# Larger results are not stored: a few of them would evict all others.
LARGEST = LIMIT // 4

KINDS: dict[str, Any] = {kind.__name__: kind for kind in (AllRows, Cells, Factors)}

logger = logging.getLogger("pymc_fastlogp")


def files() -> BoundedFiles | None:
    """Return the files of the cache, None if the cache is disabled."""
    folder = cache_folder()
    return None if folder is None else BoundedFiles(folder, PREFIX, LIMIT)


class QueryCache:
    """Results of the queries of one table on disk.

    Parameters
    ----------
    source : Source
        The rows.
    schema : mapping of str to dtype
        Columns of the table.
    extends : QueryCache, optional
        Cache of the table whose levels the codes of this table are positions of.
    """

    def __init__(
        self, source: Source, schema: Mapping[str, Any], extends: "QueryCache | None" = None
    ):
        columns = [(name, str(dtype)) for name, dtype in schema.items()]
        above = None if extends is None else extends._identity
        is_known = source.files or source.key is not None
        known = [FORMAT, source.files, source.key, source.n_rows, columns, config.floatX, above]
        self._identity: list[Any] | None = (
            known if is_known and (extends is None or above is not None) else None
        )

    def read(self, *query: Any) -> dict[str, np.ndarray] | None:
        """Return the arrays of a result, None if they are not on disk."""
        cache = files()
        if cache is None or self._identity is None:
            return None
        content = cache.read(self._name(query))
        if content is None:
            return None
        try:
            with np.load(BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # NumPy raises errors of its own, of zipfile and of zlib
            logger.info(
                "a table is read again, since its file in the cache is not readable: %s", error
            )
            return None

    def write(self, arrays: Mapping[str, np.ndarray], *query: Any) -> None:
        """Write the arrays of a result, if the source has a key and the cache is enabled."""
        cache = files()
        if cache is None or self._identity is None:
            return
        n_bytes = sum(x.nbytes for x in arrays.values())
        if n_bytes > LARGEST:
            logger.info("a result of a table is not stored on disk: it has %d bytes", n_bytes)
            return
        buffer = BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        error = cache.write(self._name(query), buffer.getvalue())
        if error is not None:
            logger.warning(
                "the distinct rows of a table were not stored in %s, so that the next process reads the table again: %s;"
                " free some space, or name another folder by %s.",
                cache.folder,
                error.strerror or error,
                ENVIRONMENT_VARIABLE,
            )

    def _name(self, query: tuple[Any, ...]) -> str:
        content = json.dumps([self._identity, query])
        return PREFIX + sha256(content.encode()).hexdigest()


def arrays_of(summary: Any) -> dict[str, np.ndarray]:
    """Return the fields of a summary as arrays. A dictionary of arrays has an array for each entry, below the name of the field."""
    arrays = {"kind": np.array(type(summary).__name__)}
    for field in fields(summary):
        value = getattr(summary, field.name)
        if isinstance(value, Mapping):
            arrays |= {f"{field.name}/{key}": x for key, x in value.items()}
        else:
            arrays[field.name] = np.asarray(value)
    return arrays


def summary_of(arrays: Mapping[str, np.ndarray]) -> Summary:
    """Return the summary of :func:`arrays_of`."""
    kind = KINDS[str(arrays["kind"])]
    values: dict[str, Any] = {}
    for field in fields(kind):
        value = arrays.get(field.name)
        if value is None:
            below = f"{field.name}/"
            values[field.name] = {
                key.removeprefix(below): x for key, x in arrays.items() if key.startswith(below)
            }
        else:
            values[field.name] = (*value.tolist(),) if value.dtype.kind == "U" else value
    return kind(**values)
