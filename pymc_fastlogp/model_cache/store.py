"""Files of the model cache: records by key, see :mod:`pymc_fastlogp.model_cache.key`.

Records contain machine code, so the folder has to belong to the user alone; a folder that others may write to is not used.
"""

import logging
import pickle
from typing import Any

from pymc_fastlogp.file_cache import ENVIRONMENT_VARIABLE as ENVIRONMENT_VARIABLE
from pymc_fastlogp.file_cache import BoundedFiles, cache_folder
from pymc_fastlogp.model_cache.record import Record

PREFIX = "pymc_fastlogp.model."
# Suffix of the key of a graph of shapes, which leads to the key of a record.
SHAPES = ".shapes"
# Total size in bytes. A record has 50 to 500 kB, more with large constants.
LIMIT = 512 * 2**20
# Larger records are not cached: a few of them would evict all others.
LARGEST = LIMIT // 8

logger = logging.getLogger("pymc_fastlogp")


def files() -> BoundedFiles | None:
    """Return the files of the cache, None if the cache is disabled."""
    folder = cache_folder()
    return None if folder is None else BoundedFiles(folder, PREFIX, LIMIT)


def read_record(key: str | None) -> Record | None:
    """Return the cached record of a key, None if there is no key or no usable record."""
    record = None if key is None else read(key, Record)
    if record is not None:
        logger.info("the model is found on disk")
    return record


def read[T](key: str, kind: type[T]) -> T | None:
    """Return the cached object of a key, None if there is no usable object of this type."""
    cache = files()
    if cache is None:
        return None
    content = cache.read(PREFIX + key)
    if content is None:
        return None
    try:
        cached = pickle.loads(content)
    except Exception as error:  # unpickling raises whatever a class raises
        logger.info("a model on disk is not readable and is compiled again: %s", error)
        return None
    return cached if isinstance(cached, kind) else None


def write(key: str | None, record: Any) -> None:
    """Write a record or a graph of shapes, if there is a key and the cache is enabled."""
    cache = files()
    if key is None or cache is None:
        return
    arrays: list[pickle.PickleBuffer] = []
    try:
        without_arrays = pickle.dumps(record, protocol=5, buffer_callback=arrays.append)
    except Exception as error:  # a coordinate may be any object
        logger.info("the model is not cached on disk: %s", error)
        return
    n_bytes = len(without_arrays) + sum(x.raw().nbytes for x in arrays)
    if n_bytes > LARGEST:
        logger.info("the model is not cached on disk: it has %d bytes", n_bytes)
    else:
        cache.write(PREFIX + key, pickle.dumps(record))
