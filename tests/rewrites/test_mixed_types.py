"""Rules about rows compute in the type of the Op that they take apart: integers do not go round, digits are not lost."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from tests.fuzz.evaluation import off_in_numpy, on_by_kernels
from tests.rewrites.conftest import pregrad

N_ROWS, N_GROUPS = 300, 7
RNG = np.random.default_rng(0)
GROUP = RNG.integers(N_GROUPS, size=N_ROWS)
W, C = RNG.normal(size=N_ROWS), RNG.normal(1e3, size=N_ROWS)

# In NumPy with numbers of float64 they are what they should be.
FORMS = {
    "sum": lambda a, b: (a[GROUP] + W + b[GROUP]).sum(),
    "difference": lambda a, b: (C - a[GROUP] - b[GROUP]).sum(),
    "product": lambda a, b: (W * a[GROUP] * b[GROUP]).sum(),
    "nested product": lambda a, b: (a[GROUP] * (W * b[GROUP])).sum(),
    "product and quotient": lambda a, b: (W * a[GROUP] / b[GROUP]).sum(),
    "quotient": lambda a, b: (W / a[GROUP] + b[GROUP]).sum(),
    "square of a sum": lambda a, b: ((C - W * a[GROUP] - b[GROUP]) ** 2).sum(),
    "square of a product": lambda a, b: ((C - a[GROUP] * (W * b[GROUP])) ** 2).sum(),
    "square of a shared product": lambda a, b: ((C - a[0] * (W * b[0])) ** 2).sum(),
    "square with a divisor": lambda a, b: (((C - W * a[GROUP]) / b[GROUP]) ** 2).sum(),
}
# What upstream computes in few bits goes round there, and has to here.
GOING_ROUND = {
    "sum": lambda a, b: (W + (a[GROUP] + b[GROUP])).sum(),
    "product": lambda a, b: (W * (a[GROUP] * b[GROUP])).sum(),
    "square": lambda a, b: (W * a[GROUP] ** 2).sum() + b.sum(),
    "square of a sum": lambda a, b: ((C - (a[GROUP] + b[GROUP])) ** 2).sum(),
}
TYPES = (
    ("int8", "int8"),
    ("int8", "float32"),
    ("int32", "int32"),
    ("float32", "float32"),
    ("float32", "float64"),
)
LARGE = {"int8": 120, "int32": 2_000_000_000}


def entries(dtype):
    rng = np.random.default_rng(len(dtype))
    if dtype in LARGE:
        return rng.integers(LARGE[dtype] // 2, LARGE[dtype], size=N_GROUPS).astype(dtype)
    return rng.normal(3.0, size=N_GROUPS).astype(dtype)


def graph(form, types):
    inputs = [pt.tensor(x, dtype=t, shape=(N_GROUPS,)) for x, t in zip("ab", types, strict=True)]
    return inputs, [form(*inputs)]


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("name", FORMS)
def test_no_digit_is_lost(name, types):
    values = [entries(dtype) for dtype in types]
    exact = FORMS[name](*(x.astype("float64") for x in values))
    [off] = off_in_numpy(*graph(FORMS[name], types))(*values)
    [on] = on_by_kernels(*graph(FORMS[name], types))(*values)
    assert on.dtype == off.dtype == "float64"
    assert abs(on - exact) <= 4 * abs(off - exact) + 1e-13 * abs(exact)
    rewritten = pregrad(graph(FORMS[name], types)[1][0], on=True)
    constants = [x for x in ancestors([rewritten]) if isinstance(x, Constant)]
    assert max(x.data.size for x in constants) < N_ROWS, "no rule has fired"


@pytest.mark.parametrize("types", [("int8", "int8"), ("int8", "uint8"), ("int32", "int32")])
@pytest.mark.parametrize("name", GOING_ROUND)
def test_what_goes_round_upstream_goes_round_here(name, types):
    rng = np.random.default_rng(0)
    values = [
        rng.integers(np.iinfo(t).max // 2, np.iinfo(t).max, size=N_GROUPS).astype(t) for t in types
    ]
    [off] = off_in_numpy(*graph(GOING_ROUND[name], types))(*values)
    [on] = on_by_kernels(*graph(GOING_ROUND[name], types))(*values)
    np.testing.assert_allclose(on, off, rtol=1e-13)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_no_rows_are_no_error(shape):
    """Rules about log-Gamma look at what rows read before they look at how many there are."""
    of_length_one = (1,) * len(shape)
    a, b = pt.tensor("a", shape=of_length_one), pt.tensor("b", shape=shape)
    value = (pt.gammaln(a + b) - pt.gammaln(b)).sum()
    [on] = on_by_kernels([a, b], [value])(np.full(of_length_one, 2.0), np.zeros(shape))
    assert on == 0.0
