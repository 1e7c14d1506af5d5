"""Cores that a process may use: affinity, hyperthreads, and quotas of both versions of control groups."""

import os

import pytest

from pymc_fastlogp.sampling import usable_cores as module
from pymc_fastlogp.sampling.usable_cores import usable_cores

V1, V2 = "3:memory:/jobs\n2:cpu,cpuacct:{}\n1:cpuset:/\n0::/\n", "0::{}\n"


@pytest.fixture
def eight_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)}, raising=False)
    monkeypatch.setattr(module, "_n_cpus", lambda: 8)


@pytest.fixture
def tree(tmp_path):
    """Write files below a root, and return the root."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return write


def v2(path, limits):
    """Return the files of a process in a group of version 2, with ``cpu.max`` by group."""
    groups = {f"sys/fs/cgroup{group}/cpu.max": text for group, text in limits.items()}
    return {"proc/self/cgroup": V2.format(path), **groups}


def v1(path, limits, mount="cpu,cpuacct"):
    """Return the files of a process in a group of version 1, with quota and period by group."""
    files = {"proc/self/cgroup": V1.format(path)}
    for group, (quota, period) in limits.items():
        for name, number in (("quota", quota), ("period", period)):
            files[f"sys/fs/cgroup/{mount}{group}/cpu.cfs_{name}_us"] = f"{number}\n"
    return files


NESTED = {"": "max 100000", "/a": "350000 100000", "/a/b": "max 100000", "/a/b/c": "600000 100000"}
LIMITED = {
    "no control groups": ({}, 8),
    "version 2, without a limit": (v2("/a", {"/a": "max 100000\n"}), 8),
    "version 2": (v2("/a", {"/a": "400000 100000\n"}), 4),
    "version 2, part of a core": (v2("/a", {"/a": "20000 100000\n"}), 1),
    "version 2, rounded down": (v2("/a", {"/a": "250000 100000\n"}), 2),
    "version 2, more than all cores": (v2("/a", {"/a": "9900000 100000\n"}), 8),
    "version 2, a limit above": (v2("/a/b/c", NESTED), 3),
    "version 2, a group with its own namespace": (v2("/", {"": "200000 100000"}), 2),
    "version 2, a group outside of the mount": (v2("/../other", {"": "200000 100000"}), 2),
    "version 2, a path of the host": (v2("/host/pod", {"": "300000 100000"}), 3),
    "version 1": (v1("/a", {"/a": (150_000, 50_000)}), 3),
    "version 1, without a limit": (v1("/a", {"/a": (-1, 100_000)}), 8),
    "version 1, a limit above": (v1("/a/b", {"/a": (200_000, 100_000), "/a/b": (-1, 100_000)}), 2),
    "version 1, mounted by one controller": (v1("/a", {"/a": (200_000, 100_000)}, "cpu"), 2),
    "version 1, a path of the host": (v1("/docker/1", {"": (500_000, 100_000)}), 5),
    "files without numbers": (v2("/a", {"/a": "many 100000"}), 8),
    "a period of zero": (v1("/a", {"/a": (100_000, 0)}), 8),
}


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize("name", LIMITED)
def test_quotas_limit_the_cores(name, tree):
    files, expected = LIMITED[name]
    assert usable_cores(tree(files)) == expected


def test_affinity_limits_the_cores(tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 6}, raising=False)
    monkeypatch.setattr(module, "_n_cpus", lambda: 8)
    assert usable_cores(tree({})) == 3


@pytest.mark.usefixtures("eight_cpus")
def test_hyperthreads_of_a_core_count_once(tree):
    siblings = {module.SIBLINGS.format(k): f"{k % 4},{k % 4 + 4}\n" for k in range(8)}
    assert usable_cores(tree(siblings)) == 4


def test_python_may_lower_the_number(tree, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)}, raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 2, raising=False)
    assert usable_cores(tree({})) == 2


def test_systems_without_affinity_have_all_cpus(tree, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(module, "_n_cpus", lambda: 6)
    assert usable_cores(tree({})) == 6


def test_this_process_may_use_a_core():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
