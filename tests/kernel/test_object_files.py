"""Object code on disk: found again, bounded, and safe for processes that share it."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from pymc_fastlogp.file_cache import DIGEST, BoundedFiles
from pymc_fastlogp.kernel.native.machine_code import object_files
from pymc_fastlogp.kernel.native.object_files import PREFIX, read, write


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder for four files of 1000 bytes, each with its hash before it."""
    files = BoundedFiles(tmp_path, PREFIX, 4 * (1000 + DIGEST))
    monkeypatch.setattr(object_files, "_bounded_files", lambda: files)
    return tmp_path


def name(k):
    return f"{PREFIX}{k}"


def code(k):
    return bytes([k % 256]) * 1000


def size(folder):
    return sum(file.stat().st_size for file in folder.glob(f"{PREFIX}*"))


def test_written_code_is_read(folder):
    assert read(name(1)) is None
    write(name(1), code(1))
    assert read(name(1)) == code(1)
    assert [file.name for file in folder.iterdir()] == [f"{name(1)}.o"]


def test_least_recently_used_file_is_evicted_first(folder):
    for k in range(4):
        write(name(k), code(k))
        os.utime(folder / f"{name(k)}.o", (k, k))
    assert read(name(0)) == code(0)
    write(name(4), code(4))
    assert [k for k in range(5) if read(name(k))] == [0, 2, 3, 4]


def test_small_files_are_bounded_without_listing(monkeypatch, tmp_path):
    files = BoundedFiles(tmp_path, PREFIX, 1000 * 132)
    looks = []
    evict = BoundedFiles.evict
    monkeypatch.setattr(BoundedFiles, "evict", lambda self: [looks.append(1), evict(self)])
    largest = 0
    for k in range(3000):
        files.write(name(k), k.to_bytes(100))
        if k % 50 == 0:
            largest = max(largest, size(tmp_path))
    assert 200 < len(looks) < 600
    assert 0.9 * files.limit < largest < 1.1 * files.limit


def test_files_of_others_stay(folder):
    other = folder / "numba_funcified_fgraph.nbc"
    other.write_bytes(bytes(10_000))
    for k in range(10):
        write(name(k), code(k))
    assert other.exists()
    assert size(folder) == 4 * (1000 + DIGEST)


def test_unfinished_files_are_deleted(folder):
    left = folder / f"{PREFIX}unfinished"
    left.write_bytes(bytes(3000))
    os.utime(left, (0, 0))
    write(name(1), code(1))
    assert left.exists()
    write(name(2), code(2))
    assert not left.exists()


def test_concurrent_reads_and_writes_are_whole(folder):
    """Threads test the same as processes, because only the files are shared."""

    def run(seed):
        for k in range(seed, seed + 200):
            found = read(name(k % 7))
            assert found in (None, code(k % 7))
            write(name(k % 7), code(k % 7))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))
    write(name(0), code(0))
    assert size(folder) <= 4 * (1000 + DIGEST)


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    files = BoundedFiles(tmp_path / "file", PREFIX, 4000)
    monkeypatch.setattr(object_files, "_bounded_files", lambda: files)
    with caplog.at_level("INFO", "pymc_fastlogp"):
        write(name(1), code(1))
    assert read(name(1)) is None
    assert "was not written" in caplog.text


def test_damaged_file_is_ignored(folder):
    write(name(1), code(1))
    path = folder / f"{name(1)}.o"
    whole = path.read_bytes()
    for content in (b"", whole[:-1], bytes(len(whole)), whole[:40] + b"x" + whole[41:]):
        path.write_bytes(content)
        assert read(name(1)) is None
