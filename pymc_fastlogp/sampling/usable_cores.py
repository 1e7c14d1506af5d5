"""Number of cores that this process may use.

On Linux three settings limit a process:

- the CPU affinity, a set of CPUs. Hyperthreads of one core share its arithmetic units, so a core counts once.
- ``cpu.max`` of version 2 of the control groups: ``max``, or microseconds of CPU time and of the period, such as ``150000 100000`` for 1.5 CPUs [1]_.
- ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us`` of version 1; a negative quota is no limit [2]_.

A group is limited by all groups above, too. ``/proc/self/cgroup`` has a line ``number:controllers:path`` for each hierarchy, without controllers for
version 2 [3]_. A container may see paths of its host that it has not mounted. The groups on such a path that exist are read, and the root of the mount,
which is the group of the container.

.. [1] https://docs.kernel.org/admin-guide/cgroup-v2.html
.. [2] https://docs.kernel.org/scheduler/sched-bwc.html
.. [3] https://man7.org/linux/man-pages/man7/cgroups.7.html
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MEMBERSHIP, GROUPS = "proc/self/cgroup", "sys/fs/cgroup"
SIBLINGS = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, at least 1.

    Parameters
    ----------
    root : Path
        Root of the file system.
    """
    return max(1, int(min(_n_cores(root), *_quotas(root), _n_cpus())))


def _n_cpus() -> int:
    """Return the number of CPUs of this process, which the option ``-X cpu_count`` of Python may lower."""
    count = getattr(os, "process_cpu_count", os.cpu_count)  # from Python 3.13
    return count() or 1


def _n_cores(root: Path) -> int:
    """Return the number of cores of the CPUs of this process."""
    if not hasattr(os, "sched_getaffinity"):
        return _n_cpus()
    return len({_read(root / SIBLINGS.format(x)) or str(x) for x in os.sched_getaffinity(0)})


def _quotas(root: Path) -> Iterator[float]:
    """Yield the numbers of CPUs to which control groups limit this process."""
    for line in (_read(root / MEMBERSHIP) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount = root / GROUPS
        elif "cpu" in controllers.split(","):
            mount = root / GROUPS / controllers
            mount = mount if mount.exists() else root / GROUPS / "cpu"
        else:
            continue
        names = [name for name in path.split("/") if name]
        # A path with `..` is outside of the mount.
        above = [] if ".." in names else names
        for k in range(len(above) + 1):
            yield from _quota(mount.joinpath(*above[:k]))


def _quota(group: Path) -> Iterator[float]:
    """Yield the quota of one control group in CPUs, if the group is limited."""
    words = (_read(group / "cpu.max") or "").split()
    if not words:
        words = [_read(group / f"cpu.cfs_{x}_us") or "" for x in ("quota", "period")]
    with suppress(ValueError, ZeroDivisionError):
        quota, period = map(int, words)
        if quota > 0:
            yield quota / period


def _read(path: Path) -> str | None:
    """Return the content of a file, None if the file cannot be read."""
    with suppress(OSError):
        return path.read_text().strip()
    return None
