"""The name of a kernel's code, under which it is found on disk."""

from pathlib import Path

import pymc_fastlogp.kernel
from pymc_fastlogp.kernel.native.code import compiler, hash_of_sources


def test_the_name_depends_on_the_source_of_the_whole_compiler(monkeypatch):
    """Else code of an earlier version would be taken from disk."""
    read = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), read_bytes(path))[1])
    hash_of_sources.cache_clear()
    compiler.__wrapped__()
    assert {*Path(pymc_fastlogp.kernel.__file__).parent.rglob("*.py")} <= {*read}
