"""The norms of rows that were divided by their norms are one: proved, not computed."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError

from pymc_fastlogp.config import switched
from tests.rewrites.conftest import PYTHON, assert_left_alone, assert_rewritten, pregrad

RULE = "fastlogp_unit_norms"
ROWS = np.array([1, 2, 2, 3, 3, 3])
N = 4

v = pt.vector("v", shape=(6,))
w = pt.vector("w", shape=(6,))
one = pt.ones(N)


def norms_of(divided, sums_of, rows=ROWS, unit=1.0, base=one):
    """Return the squares of ``divided`` over the norms of ``sums_of``, summed by rows."""
    norm = pt.sqrt(base[ROWS].inc(sums_of**2))
    return pt.sqr(unit / norm)[rows].inc(pt.sqr(divided / norm[rows]))


sums = one[ROWS].inc(v**2)
proved = pt.switch(pt.isnan(sums), np.nan, pt.switch(pt.isinf(sums), 0.0, 1.0))

# Two triangles: which of them, and which row.
PLACES = np.array([0, 0, 1, 1, 1, 0]), np.array([1, 2, 1, 3, 3, 3])
ones = pt.ones((2, N))


def norms_in_batch(divided, sums_of, places=PLACES):
    norm = pt.sqrt(ones[PLACES].inc(sums_of**2))
    return pt.sqr(1.0 / norm)[places].inc(pt.sqr(divided / norm[places]))


sums_in_batch = ones[PLACES].inc(v**2)
proved_in_batch = pt.switch(
    pt.isnan(sums_in_batch), np.nan, pt.switch(pt.isinf(sums_in_batch), 0.0, 1.0)
)

FIRES = {
    "batch": (norms_in_batch(v, v) > 0.5, proved_in_batch > 0.5),
    "compared": (norms_of(v, v) > 0.5, proved > 0.5),
    "close to one": (
        (norms_of(v, v) > 0.999) & (norms_of(v, v) < 1.001),
        (proved > 0.999) & (proved < 1.001),
    ),
}
REFUSES = {
    "other vector": norms_of(w, v) > 0.5,
    "other rows": norms_of(v, v, rows=ROWS[::-1].copy()) > 0.5,
    "batch, other vector": norms_in_batch(w, v) > 0.5,
    "batch, other matrices": norms_in_batch(v, v, places=(PLACES[0][::-1].copy(), PLACES[1])) > 0.5,
    "other numerator": norms_of(v, v, unit=2.0) > 0.5,
    "norms from two": norms_of(v, v, base=one + 1) > 0.5,
    "needed as a number": norms_of(v, v),
    "needed as a number, further on": pt.exp(norms_of(v, v)).sum(),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


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
