"""Machine, package versions and memory of a measurement."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

PACKAGES = (
    "pymc",
    "pytensor",
    "numba",
    "llvmlite",
    "nutpie",
    "jax",
    "numpyro",
    "stanli",
    "numpy",
    "pymc-fastlogp",
)
# The widest first: a CPU with AVX-512 has AVX2 and SSE2 too.
VECTOR_BITS = (("avx512f", 512), ("avx", 256), ("sse2", 128), ("neon", 128))


def context() -> dict[str, Any]:
    """Return date, machine and versions, with which the JSON of a measurement begins."""
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "machine": machine(), "versions": versions()}


def machine() -> dict[str, str | int | None]:
    """Return CPU, cores, width of its vectors in bits, and operating system."""
    return {
        "cpu": _cpu_model(),
        "llvm_cpu": llvm.get_host_cpu_name(),
        "cores": os.cpu_count(),
        "vector_bits": _vector_bits(),
        "os": platform.platform(),
    }


def versions() -> dict[str, str | None]:
    """Return the versions of Python and the packages, None where one is missing, and the commit."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found | {"commit": _commit()}


def process_memory(kind: str) -> int:
    """Return a figure of this process's memory in bytes, by its name in ``/proc/self/status``; Linux only."""
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(f"{kind}:")]
    return int(line.split()[1]) * 1024


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _vector_bits() -> int | None:
    features = llvm.get_host_cpu_features()
    return next((bits for name, bits in VECTOR_BITS if features.get(name)), None)


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
