"""Models on disk: what is kept under a key, see :mod:`pymc_fastlogp.model_cache.key`.

The folder belongs to the user alone. One that others may write to is left alone: what is read is executed. The environment variable
``PYMC_FASTLOGP_CACHE`` names another folder, or is ``0`` for none; ``1`` is the default.
"""

import logging
import os
import pickle
from pathlib import Path
from typing import Any

from pytensor.configdefaults import config

from pymc_fastlogp.config import OFF, ON
from pymc_fastlogp.kernel.native.file_cache import BoundedFiles

ENVIRONMENT_VARIABLE = "PYMC_FASTLOGP_CACHE"
PREFIX = "pymc_fastlogp.model."
# Ends the key of what leads to a model and is none.
SHAPES = ".shapes"
# Bytes of all files together; a model has 50 to 500 thousand, more if its kernels read large constants.
LIMIT = 512 * 2**20
# A record that is larger is made again: a few of them would push out all others.
LARGEST = LIMIT // 8

logger = logging.getLogger("pymc_fastlogp")


def files() -> BoundedFiles | None:
    """Return where models are, None if they are not kept."""
    named = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if named.lower() in OFF or not config.numba__cache:
        return None
    is_default = not named or named.lower() in ON
    folder = config.base_compiledir / "pymc_fastlogp" if is_default else Path(named).expanduser()
    return BoundedFiles(folder, PREFIX, LIMIT)


def read[T](key: str, kind: type[T]) -> T | None:
    """Return what is kept under a key, None if there is nothing of this kind that can be used."""
    place = files()
    if place is None:
        return None
    content = place.read(PREFIX + key)
    if content is None:
        return None
    try:
        found = pickle.loads(content)
    except Exception as error:  # unpickling raises whatever a class raises
        logger.info("a model on disk is not readable and is compiled again: %s", error)
        return None
    return found if isinstance(found, kind) else None


def write(key: str, record: Any) -> None:
    """Keep a record, or a part of one, if there is a place for it."""
    place = files()
    if place is None:
        return
    try:
        content = pickle.dumps(record)
    except Exception as error:  # a coordinate may be any object
        logger.info("the model is not kept on disk: %s", error)
        return
    if len(content) > LARGEST:
        logger.info("the model is not kept on disk: it has %d bytes", len(content))
    else:
        place.write(PREFIX + key, content)
