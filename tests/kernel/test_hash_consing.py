"""Hash-consing: equal expressions are one object, in whatever thread they are made."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Index
from pymc_fastlogp.kernel.ir.traversal import loaded

N_THREADS = 8


@pytest.fixture
def switched_often():
    """Let threads take turns as often as Python allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def by_all_threads(make):
    """Return what each of eight threads makes, all at once."""
    barrier = Barrier(N_THREADS)

    def run(_):
        barrier.wait()
        return make()

    with ThreadPoolExecutor(N_THREADS) as pool:
        return list(pool.map(run, range(N_THREADS)))


class Axis:
    """A value during the hash of which other threads run."""

    def __hash__(self):
        time.sleep(0.001)
        return 1


def test_threads_share_one_object():
    axis = Axis()
    assert len(set(by_all_threads(lambda: Index(axis)))) == 1


def test_threads_build_identical_expressions(switched_often):
    def chain():
        expr = Index(0)
        for k in range(2000):
            expr = Compute(ps.add, (expr, Const(k, "int64")), "int64")
        return expr

    chains = by_all_threads(chain)
    assert len(set(chains)) == 1
    assert by_all_threads(lambda: loaded([chains[0]])) == [set()] * N_THREADS


@pytest.mark.parametrize("values", [(1, 1.0), (0.0, -0.0), (1, True)])
def test_equal_numbers_of_different_identity_differ(values):
    first, second = (Const(value, "float64") for value in values)
    assert first is not second
