"""Number of threads of a chain, and of helper threads of a model."""

import os
from multiprocessing import parent_process

from pymc_fastlogp.sampling.usable_cores import usable_cores

ENVIRONMENT_VARIABLE = "PYMC_FASTLOGP_THREADS"
# Chains of `nutpie.sample` by default.
CHAINS = 6


def threads_per_chain(threads: int | None, n_chains: int, n_cores: int | None = None) -> int:
    """Return the number of threads of a chain.

    Parameters
    ----------
    threads : int, optional
        The number, if the user gives one; by default the environment variable, or else the share of a chain in the cores.
    n_chains : int
        Chains that run at the same time.
    n_cores : int, optional
        Cores for all chains; by default, and at most, those that this process may use.

    Raises
    ------
    ValueError
        If the number of threads is not a positive integer.
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE) if threads is None else threads
    if given is None:
        return _share(n_chains, n_cores)
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        name = "threads" if threads is not None else ENVIRONMENT_VARIABLE
        raise ValueError(f"{name} is {given!r}: give a number of threads from 1.")
    return number


def _share(n_chains: int, n_cores: int | None) -> int:
    """Return the number of cores for each chain, at least 1."""
    if parent_process() is not None:
        return 1  # other worker processes may use the other cores
    usable = usable_cores()
    return max(1, min(usable, n_cores or usable) // max(1, n_chains))


def n_helpers(threads: int | None, n_chains: int | None = None, n_cores: int | None = None) -> int:
    """Return the number of helper threads for all chains.

    Parameters
    ----------
    threads, n_cores : int, optional
        As for :func:`threads_per_chain`.
    n_chains : int, optional
        Chains that run at the same time. If not known, the threads of a chain are those with the chains of ``nutpie.sample``, and the chains with helpers
        are as many as the cores allow.

    Raises
    ------
    ValueError
        If the number of threads is not a positive integer.
    """
    number = threads_per_chain(threads, n_chains or CHAINS, n_cores)
    return (number - 1) * (n_chains or max(1, usable_cores() // number))
