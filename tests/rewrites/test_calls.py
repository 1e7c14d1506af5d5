"""Rules visit shared subgraphs once: their calls are counted for two lengths of a chain."""

import sys

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

import pymc_fastlogp
from pymc_fastlogp.analysis.algebra import count_leaves
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.checks.fold_checks_by_range import local_fold_checks_by_range
from pymc_fastlogp.rewrites.gaussian.gaussian_rows import NAME, local_gaussian_rows
from pymc_fastlogp.rewrites.gaussian.squares import MOST_MONOMIALS
from pymc_fastlogp.rewrites.linalg.cholesky_of_inverse import is_symmetric
from pymc_fastlogp.rewrites.linalg.gram_of_scaled import local_gram_of_scaled
from pymc_fastlogp.rewrites.loggamma.rising_factorial import local_rising_factorial
from pymc_fastlogp.rewrites.packed_matrices.lift_cost import FEW_ENTRIES, pays
from pymc_fastlogp.rewrites.packed_matrices.packed_array import packed
from pymc_fastlogp.rewrites.packed_matrices.unit_norms import local_unit_norms
from pymc_fastlogp.rewrites.rows.refusals import TOO_MANY_PRODUCTS
from pymc_fastlogp.rewrites.rows.row_rewriter import RowRewriter, Walk
from pymc_fastlogp.rewrites.scalars.log_of_product import sum_of_logs, with_one_exponential
from pymc_fastlogp.rewrites.switches.switch_to_zero import is_scaled_exp, local_switch_to_zero

PACKAGE = pymc_fastlogp.__path__[0]
MOST_CALLS = 200_000
N = 100
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, N))
FORTH, BACK = RNG.permutation(N), RNG.permutation(N)

v = pt.vector("v", shape=(N,))
few = pt.vector("few", shape=(3,))
k = pt.scalar("k")
stretched = pt.vector("stretched")
TENTH = pt.constant(np.array([0.1]))
flags = pt.vector("flags", shape=(N,), dtype="bool")


class Endless(BaseException):
    """Not an error, which PyTensor would print and go on."""


def calls(f, most):
    """Return how many functions of the package are called, which fails if it is more than a limit: it may never end."""
    n = 0

    def count(frame, event, arg):
        nonlocal n
        n += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)
        if n > most:
            raise Endless

    sys.setprofile(count)
    try:
        f()
    except Endless:
        pytest.fail(f"more than {most} calls")
    finally:
        sys.setprofile(None)
    return n


def assert_calls_are_few(probe, n, times):
    """Compare what two lengths take, of which the second is twice the first."""
    short = calls(probe(n), MOST_CALLS)
    assert short > 0
    calls(probe(2 * n), times * short)


def chain(step, start, n):
    for _ in range(n):
        start = step(start)
    return start


def logistic(y):
    return y * (1.5 - y)


def twice(y):
    """Return two products that are multiplied, which PyTensor would make one of if nothing else read them."""
    return (y * 2.0) * (y * 3.0)


def graph_of(*outputs):
    return FunctionGraph(outputs=[*outputs], clone=False)


def transformed(rule, x):
    """Apply a rule to the node that makes ``x``."""
    fgraph = graph_of(x)
    return lambda: rule.transform(fgraph, x.owner)


def by_rows(rule, x):
    """Apply a rule about rows."""
    fgraph = graph_of(x)
    return lambda: RowRewriter(Walk(rule)).rewrite(fgraph)


def lift_is_worth_it(n):
    """Ask about arithmetic of a filled matrix that ends in a product, so that all that follows is looked at."""
    rows = np.arange(N)
    entries = pt.vector("entries", shape=(N,))
    filled = pt.zeros((N, N))[rows, rows * 7 % N].set(entries)
    assert N * N > FEW_ENTRIES
    negative = -filled
    fgraph = graph_of(pt.dot(chain(logistic, negative, n), v))
    return lambda: pays(fgraph, negative.owner, filled, packed(filled))


def check_is_decided(n):
    """Decide a comparison of a vector that may be empty, which truth values are made of."""
    condition = pt.exp(stretched) < -1.0
    out = chain(lambda c: (c & flags) | c, condition, n)
    fgraph = graph_of(out)
    return lambda: local_fold_checks_by_range.transform(fgraph, condition.owner)


def square_of_products(n):
    return pt.sqr(Y - chain(lambda x: x + 0.1 * k * x, pt.constant(X), n)).sum()


def norms_are_one(n):
    """Look at norms that arithmetic is made of, and then a truth value."""
    zeros, diagonal = pt.zeros((3, 3)), [0, 1, 2]
    filled = zeros[[1, 2, 2], [0, 0, 1]].set(few)[diagonal, diagonal].set(1.0)
    norms = pt.sqrt(pt.sum(filled**2, axis=1))
    units = pt.sum((filled / norms[:, None]) ** 2, axis=1)
    fgraph = graph_of(pt.eq(chain(logistic, units, n), 7.0))
    return lambda: local_unit_norms.transform(fgraph, units.owner)


def zero_is_seen(n):
    """Ask whether a sum of what is zero is zero."""
    rate = pt.exp(v)
    out = pt.switch(pt.eq(rate, 0), 0.0, chain(lambda y: y + y * TENTH, rate, n))
    return transformed(local_switch_to_zero, out)


def matrix_is_symmetric(n):
    x = chain(logistic, k * (np.eye(4) + 1), n)
    fgraph = graph_of(x)
    return lambda: is_symmetric(fgraph, x)


def scales_are_found(n):
    column, row = few[:, None], few[None]
    outer = chain(lambda y: (y * column) * (y * row), column * row, n)
    root = pt.matrix("root", shape=(3, 3))
    return transformed(local_gram_of_scaled, pt.linalg.cholesky(outer * pt.dot(root, root.T)))


def positions_are_known(n):
    """Ask about some entries of what is written to again and again, in other places each time."""
    x = pt.exp(v)
    for i in range(n):
        x = x[i::3].set(0.5) + x
    return lambda: is_nonnegative(x, np.arange(N))


PROBES = {
    "lift": lift_is_worth_it,
    "check": check_is_decided,
    "norms": norms_are_one,
    "zero": zero_is_seen,
    "symmetric": matrix_is_symmetric,
    "scales": scales_are_found,
    "exponentials": lambda n: lambda: is_scaled_exp(chain(twice, pt.exp(v), n)),
    "factors": lambda n: lambda: with_one_exponential(chain(twice, pt.exp(v), n)),
    "leaves": lambda n: lambda: count_leaves(chain(twice, v, n), ps.Mul),
    "logarithm": lambda n: lambda: sum_of_logs(pt.log(chain(twice, pt.exp(v), n))),
    "nonlinear square": lambda n: by_rows(
        local_gaussian_rows,
        pt.sqr(Y - chain(lambda x: x + 0.1 * k * x * (1 - x), pt.constant(X), n)).sum(),
    ),
    "square in products": lambda n: by_rows(
        local_gaussian_rows, chain(lambda y: (y * k) * (y * X), pt.sqr(v - X), n).sum()
    ),
    "factors of a square": lambda n: by_rows(
        local_gaussian_rows, pt.sqr(Y - chain(lambda y: (y * k) * (y * X), v, n)).sum()
    ),
}


# What doubles at each step until there are too many of them, which there are at 12.
LIMITED = {
    "ranges": positions_are_known,
    "views": lambda n: by_rows(
        local_gaussian_rows,
        pt.sqr(Y - chain(lambda x: 0.5 * x[FORTH] + 0.3 * x[BACK], v, n)).sum(),
    ),
    "monomials": lambda n: by_rows(local_gaussian_rows, square_of_products(n)),
}


@pytest.mark.parametrize("probe", PROBES)
def test_calls_grow_with_the_length_of_a_chain(probe):
    assert_calls_are_few(PROBES[probe], 8, times=3)


@pytest.mark.parametrize("probe", LIMITED)
def test_calls_are_limited(probe):
    assert_calls_are_few(LIMITED[probe], 12, times=3)


def test_too_many_products_are_refused():
    with collected() as found:
        by_rows(local_gaussian_rows, square_of_products(12))()
    [refusal] = [decision.refusal for decision in found if decision.rule == NAME]
    assert refusal.text == TOO_MANY_PRODUCTS.about(most=MOST_MONOMIALS).text


@pytest.mark.parametrize("of_pairs", [False, True])
def test_terms_of_a_sum_are_listed_once(of_pairs):
    def probe(n):
        x = pt.vector("x", shape=(n,))
        rates = [pt.exp(x[i]) for i in range(n)]
        others = [-pt.gammaln(a + 2.0) if of_pairs else pt.sqr(a) for a in rates]
        # The others first: it takes long to get to the first log-Gamma.
        return by_rows(local_rising_factorial, pt.add(*others, *map(pt.gammaln, rates)))

    assert_calls_are_few(probe, 20, times=2.5)
