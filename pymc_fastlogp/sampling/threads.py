"""Number of helper threads of a model."""

import os

ENVIRONMENT_VARIABLE = "PYMC_FASTLOGP_THREADS"


def n_helpers(threads: int | None, n_chains: int | None = None) -> int:
    """Return the number of helper threads for all chains.

    Parameters
    ----------
    threads : int, optional
        Threads per chain; by default the environment variable, or 1.
    n_chains : int, optional
        Chains that run at the same time; by default as many as the CPUs of the process allow.

    Raises
    ------
    ValueError
        If the number of threads is not a positive integer.
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE, "1") if threads is None else threads
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        name = "threads" if threads is not None else ENVIRONMENT_VARIABLE
        raise ValueError(f"{name} is {given!r}: give a number of threads from 1.")
    if n_chains is None:
        n_chains = max(1, _n_cpus() // number)
    return (number - 1) * n_chains


def _n_cpus() -> int:
    """Return the number of CPUs that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
