"""Frozen dataclasses of which equal ones are the same object."""

import threading
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary


class Interned:
    """Base of frozen dataclasses of which equal ones are the same object."""

    _made: ClassVar[WeakValueDictionary] = WeakValueDictionary()
    _lock: ClassVar = threading.Lock()

    def __new__(cls, *values: Any) -> Self:
        """Return the object that was made of these values before, or a new one."""
        # 1 == 1.0 == True and 0.0 == -0.0, but they are not the same constant.
        key = (cls, *map(_as_key, values))
        with cls._lock:  # else two threads may make two
            made = cls._made.get(key)
            if made is None:
                made = cls._made[key] = super().__new__(cls)
        return made


def _as_key(value: Any) -> Any:
    return (type(value), repr(value)) if isinstance(value, bool | int | float) else value
