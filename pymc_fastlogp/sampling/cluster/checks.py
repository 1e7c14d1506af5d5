"""Checks of a client of Dask, and of versions and CPUs of its workers."""

import logging
import platform
import sys
from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

logger = logging.getLogger("pymc_fastlogp")

PACKAGES = "pymc", "pytensor", "pymc_fastlogp", "numpy"


def refuse(client: Any) -> None:
    """Raise TypeError for an object that is no client of Dask, and ValueError for a client that has no workers or cannot be called."""
    # Whoever has a client has imported Dask.
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(client, distributed.Client):
        raise TypeError(
            f"workers is {type(client).__name__}: give a client of Dask, as distributed.Client(...) returns it."
        )
    if client.asynchronous:
        raise ValueError("workers is an asynchronous client: give one without asynchronous=True.")
    if client.status != "running":
        raise ValueError(f"workers is a client that is {client.status}: give one that is running.")
    if not client.nthreads():
        raise ValueError(
            "workers is a client without workers: start some, and call client.wait_for_workers(1)."
        )


def environment() -> dict[str, str]:
    """Return what the machine code and the results of this process depend on, by name."""
    from llvmlite import binding

    from pymc_fastlogp.kernel.native.target import features
    from pymc_fastlogp.registration import is_enabled

    versions = {name: import_module(name).__version__ for name in PACKAGES}
    return versions | {
        "Python": platform.python_version(),
        "CPU": binding.get_host_cpu_name(),
        "CPU features": features(),
        "pymc_fastlogp is": "on" if is_enabled() else "off",
    }


def check_environments(client: Any) -> None:
    """Warn in one line of versions and CPUs that differ between workers, or from this process.

    Raises
    ------
    RuntimeError
        If a worker has not this package, or has the plugin switched off.
    """
    found = client.run(environment, on_error="return")
    for address, x in found.items():
        if isinstance(x, Exception):
            raise RuntimeError(
                f"the worker {address} can't import pymc_fastlogp: {x}; install the packages of this process there."
            )
        if x["pymc_fastlogp is"] == "off":
            raise RuntimeError(f"pymc_fastlogp is switched off on the worker {address}.")
    text = differences(found, environment())
    if text:
        logger.warning("Workers differ, so draws may depend on the worker of a shard: %s.", text)


def differences(workers: Mapping[str, Mapping[str, str]], here: Mapping[str, str]) -> str:
    """Return the properties that differ, as ``"pymc 6.4.0 on 2 workers, 6.3.0 on tcp://..."``; CPUs are compared among workers."""
    texts = []
    for name in here:
        places = defaultdict[str, list[str]](list)
        for address, properties in workers.items():
            places[properties[name]].append(address)
        named = {x: y[0] if len(y) == 1 else f"{len(y)} workers" for x, y in places.items()}
        if not name.startswith("CPU") and here[name] not in places:
            named[here[name]] = "the client"
        if len(named) < 2:
            continue
        # A list of features says less than the names of the CPUs.
        if name == "CPU features":
            texts.append("CPU features are not the same")
        else:
            texts.append(f"{name} " + ", ".join(f"{x} on {y}" for x, y in named.items()))
    return "; ".join(texts)
