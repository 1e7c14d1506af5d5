"""Norms of rows that were divided by their norms are replaced by one."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError

from pymc_fastlogp.config import switched
from tests.rewrites.conftest import PYTHON, assert_left_alone, assert_rewritten, pregrad

RULE = "fastlogp_unit_norms"
N = 4
ROWS, COLS = np.tril_indices(N, -1)
DIAG = np.arange(N)

v = pt.vector("v", shape=(6,))
w = pt.vector("w", shape=(6,))
d = pt.vector("d", shape=(N,))
vs = pt.matrix("vs", shape=(2, 6))
k = pt.lscalar("k")


def triangle(of, diagonal=1.0):
    """Return a triangle, or a batch of them, with its diagonal set last."""
    zeros = pt.zeros((*of.type.shape[:-1], N, N))
    return zeros[..., ROWS, COLS].set(of)[..., DIAG, DIAG].set(diagonal)


def norms_of(divided, by, axis=-1, root=pt.sqrt):
    """Return the squares of the one over the norms of the other, summed along an axis."""
    quotient = divided / pt.expand_dims(root((by**2).sum(axis=axis)), axis)
    return (quotient**2).sum(axis=axis)


def proved(sums):
    return pt.switch(pt.isnan(sums), np.nan, pt.switch(pt.isinf(sums), 0.0, 1.0))


x, batch = triangle(v), triangle(vs)
sums = pt.ones(N)[ROWS].inc(v**2)
FIRST, ROWS_OF_2 = np.repeat([0, 1], 6), np.tile(ROWS, 2)
sums_in_batch = pt.ones((2, N))[FIRST, ROWS_OF_2].inc((vs**2).reshape((12,)))
by_norm = x / pt.linalg.norm(x, axis=-1, ord=2)[..., None]

FIRES = {
    "compared": (norms_of(x, x) > 0.5, proved(sums) > 0.5),
    "close to one": (
        (norms_of(x, x) > 0.999) & (norms_of(x, x) < 1.001),
        (proved(sums) > 0.999) & (proved(sums) < 1.001),
    ),
    "columns": (norms_of(x, x, axis=0) > 0.5, proved(pt.ones(N)[COLS].inc(v**2)) > 0.5),
    "batch": (norms_of(batch, batch) > 0.5, proved(sums_in_batch) > 0.5),
    "as a power": (norms_of(x, x, root=lambda s: s**0.5) > 0.5, proved(sums) > 0.5),
    "by pt.linalg.norm": ((by_norm**2).sum(axis=-1) > 0.5, proved(sums) > 0.5),
}
REFUSES = {
    "other vector": norms_of(triangle(w), x) > 0.5,
    "other rows": norms_of(x, x[::-1]) > 0.5,
    "other axis": (pt.sqr(x / pt.sqrt((x**2).sum(axis=1))[:, None]).sum(axis=0)) > 0.5,
    "repeated along the other axis": (pt.sqr(x / pt.sqrt((x**2).sum(axis=1))).sum(axis=1)) > 0.5,
    "batch, other matrices": norms_of(batch, batch[::-1]) > 0.5,
    "other numerator": norms_of(triangle(v, 2.0), x) > 0.5,
    "another power": norms_of(x, x, root=lambda s: s**0.25) > 0.5,
    "other root": norms_of(x, x, root=pt.exp) > 0.5,
    "rows that may be near zero": norms_of(triangle(v, d), triangle(v, d)) > 0.5,
    "rows of small numbers": norms_of(triangle(v, 1e-160), triangle(v, 1e-160)) > 0.5,
    "nan is told from zero": pt.isnan(norms_of(x, x)),
    "zero is told from nan": norms_of(x, x) < 2,
    "by a truth value that is no number's alone": (norms_of(x, x) < 2) & (d > 0),
    "a root as often as only the call knows": pt.sqr(
        x[:1] / ((x[:1] ** 2).sum(axis=1) ** pt.alloc(0.5, k))[:, None]
    ).sum(axis=1)
    > 0.5,
    "needed as a number": norms_of(x, x),
    "needed as a number, further on": pt.exp(norms_of(x, x)).sum(),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("of", [lambda n: 1 / n, lambda n: 1 // n, pt.log])
def test_constant_division_by_zero_does_not_warn(of):
    out = of(norms_of(x, x)) < 3
    assert pregrad(out, on=True).eval({v: np.ones(6)}, mode=PYTHON).all()


@pytest.mark.parametrize("bad", [1e-300, 1e8, 1e153, 1e200, -1e200, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 2, 5])
def test_fails_where_upstream_fails(bad, place):
    """Squares of 1e200 overflow; the row of zeros that is left has no norm of one."""
    at = np.linspace(-1.0, 2.0, 6)
    at[place] = bad
    with np.errstate(all="ignore"):
        off, on = (
            pytensor.function([v], pregrad(FIRES["close to one"][0].all(), on=on), mode=PYTHON)(at)
            for on in (False, True)
        )
    assert on == off == (abs(bad) < 1e154)


@pytest.fixture(scope="module", params=[(2, 2), (5, 5), (3, 2, 2), (2, 4, 4)], ids=str)
def lkj(request):
    with pm.Model() as model:
        pm.LKJCorr("L", n=request.param[-1], eta=2.0, shape=request.param)
    sides = {}
    for on in (False, True):
        with switched(on):
            sides[on] = pytensor.function(
                model.continuous_value_vars, pregrad(model.logp(), on=on), mode="FAST_COMPILE"
            )
    return sides


@pytest.mark.parametrize("bad", [1e200, np.inf, np.nan])
def test_lkj_corr_raises_what_upstream_raises(lkj, bad):
    [x] = lkj[True].maker.fgraph.inputs
    point = np.linspace(-1.0, 1.0, np.prod(x.type.shape)).reshape(x.type.shape)
    point.flat[point.size // 3] = bad
    for side in lkj.values():
        with np.errstate(all="ignore"), pytest.raises(ParameterValueError, match="LKJCorr"):
            side(point)


def test_lkj_corr_does_not_divide_by_norms(lkj):
    """Neither the check nor the log-Jacobian needs a norm: one log of each sum is all."""
    ops = [str(node.op) for node in lkj[True].maker.fgraph.apply_nodes]
    assert not any("True_div" in op or "Sqrt" in op for op in ops)
    assert sum("Log" in op for op in ops) == 1
