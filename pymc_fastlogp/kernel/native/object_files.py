"""Object code on disk, in a folder beside PyTensor's own caches that is the user's alone."""

from collections.abc import Callable

from pytensor.configdefaults import config

from pymc_fastlogp.kernel.native.file_cache import BoundedFiles

PREFIX = "pymc_fastlogp.kernel."
# Bytes of all files together, some thousand kernels: each has 10 to 100 thousand. A matter of disk space, not of speed.
LIMIT = 256 * 2**20


def read_or_make(name: str, make: Callable[[], bytes]) -> bytes:
    """Return the code of a function, made and kept unless it is there; PyTensor's switch of its cache is ours."""
    if not config.numba__cache:
        return make()
    code = read(name)
    if code is None:
        code = make()
        write(name, code)
    return code


def read(name: str) -> bytes | None:
    """Return the code of a function, None if it is not there."""
    return _files().read(f"{name}.o")


def write(name: str, code: bytes) -> None:
    """Keep the code of a function, whose name begins with the prefix, and delete what is too much."""
    _files().write(f"{name}.o", code)


def _files() -> BoundedFiles:
    return BoundedFiles(config.base_compiledir / "pymc_fastlogp", PREFIX, LIMIT)
