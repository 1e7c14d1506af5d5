"""Cache folders that cannot be written make a compilation slower, not wrong. ``tests/callbacks/test_store.py`` has other faults of the folder."""

import ctypes
import os
import resource
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.conftest import REPOSITORY, with_flags

SAYS = """
    import pymc_fastlogp
    from tests.faults.compare import directly, logp_and_gradient
    from tests.faults.models import grouped
    print(repr(directly(grouped())[0]), repr(logp_and_gradient(grouped())[0]))
    """


def as_nobody_special():
    """Take from what is executed next the right of root to write to any file; others have none."""
    cap_dac_override, drop_from_bounding_set = 1, 24
    ctypes.CDLL(None).prctl(drop_from_bounding_set, cap_dac_override, 0, 0, 0)


def with_a_full_disk():
    """Let no file grow beyond some bytes: writing more fails, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def says(folder, prepared=None):
    flags = {
        "PYTHONPATH": str(REPOSITORY),
        "PYTENSOR_FLAGS": with_flags(f"base_compiledir={folder.parent / 'pytensor'}"),
        "PYMC_FASTLOGP_CACHE": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", dedent(SAYS)],
        env=os.environ | flags,
        preexec_fn=prepared,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [False, True], ids=["empty", "with the model"])
def test_read_only_cache_folder_is_ignored(is_warm, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir(mode=0o700)
    expected = says(folder if is_warm else tmp_path / "other").stdout
    before = sorted(x.name for x in folder.iterdir())
    assert bool(before) == is_warm
    folder.chmod(0o500)
    done = says(folder, as_nobody_special)
    folder.chmod(0o700)
    assert done.stdout == expected != "", done.stderr
    assert sorted(x.name for x in folder.iterdir()) == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits are as Linux has them")
def test_full_disk_is_ignored(tmp_path):
    expected = says(tmp_path / "other").stdout
    folder = tmp_path / "models"
    done = says(folder, with_a_full_disk)
    assert done.stdout == expected != "", done.stderr
    assert list(folder.iterdir()) == []
