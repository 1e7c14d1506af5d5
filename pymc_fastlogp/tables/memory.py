"""Memory that is free on this machine, within the limits of its container."""

from pathlib import Path

# Where the operating system does not tell.
ASSUMED = 4_000_000_000
CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the number of bytes that a process can allocate without swapping."""
    limits = [_available(), _left_in_cgroup()]
    return min((x for x in limits if x is not None), default=ASSUMED)


def _available() -> int | None:
    """Return the available memory of Linux."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = (line.split() for line in lines if line.startswith("MemAvailable:"))
    return next((1024 * int(kilobytes) for _, kilobytes, *_ in sizes), None)


def _left_in_cgroup() -> int | None:
    """Return the memory that the limit of a container leaves, None without a limit."""
    try:
        limit, used = (int((CGROUP / f"memory.{x}").read_text()) for x in ("max", "current"))
        parts = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such limit, or "max"
        return None
    # The kernel takes back its cache of files.
    return max(limit - used + int(parts.get("file", 0)), 0)


def as_text(n_bytes: float) -> str:
    """Return a number of bytes with a unit, as ``"1.5 GB"``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes / 1e3:.1f} kB"
