"""Row rules compute in the dtype of the Op that they take apart: integers do not overflow, and digits are not lost."""

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
FEW = (np.arange(N_ROWS) % 3 + 2).astype("int8")

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
    "numerator": lambda a, b: (a[GROUP] * FEW / b[GROUP]).sum(),
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


# Of other rules, by what they read: graphs of two inputs, and the types and values of these.
U8 = RNG.integers(130, 250, size=N_ROWS).astype("uint8")
Y = RNG.integers(0, 5, size=N_ROWS)
OTHER_GROUP = RNG.integers(N_GROUPS, size=N_ROWS)
K = np.array([[2.0, 0.5], [0.5, 1.0]])
ROOT = np.linalg.cholesky(K)
SMALL = np.array([1.5, 2.5, 3.0, 1.0, 2.0, 1.25, 3.5])
BYTES = np.array([130, 150, 170, 190, 200, 140, 131], dtype="uint8")
HALF = np.array([60, 70, 80, 90, 99, 65, 75], dtype="int8")
TRUTHS = np.array([1, 0, 1, 1, 0, 1, 0], dtype=bool)
YES = np.array(True)
JOINED, RISEN = np.tile(HALF, 6), np.tile(SMALL, 6)


def log_gammas(low, high):
    return pt.gammaln(high) - pt.gammaln(low)


def triangle(x):
    n = int(np.sqrt(2 * x.type.shape[0]))
    return pt.zeros((n, n), dtype=x.type.dtype)[np.tril_indices(n)].set(x)


OTHERS = {
    "joined integers": (lambda a, b: pt.sqr(pt.join(0, a, b)).sum(), JOINED, RISEN),
    "joined float32": (lambda a, b: pt.exp(pt.join(0, a, b)).sum(), RISEN.astype("float32"), RISEN),
    "joined truths": (lambda a, b: pt.exp(-pt.join(0, a, b)).sum(), np.tile(TRUTHS, 6), RISEN),
    "joined in all": (lambda a, b: pt.all(pt.join(0, a, b) * 2 > -9) * 1.0, JOINED, RISEN),
    "bytes subtracted": (
        lambda a, b: (log_gammas(a[GROUP], a[GROUP] + Y) - b[OTHER_GROUP]).sum(),
        SMALL,
        BYTES,
    ),
    "known bytes subtracted": (
        lambda a, b: (log_gammas(a[GROUP], a[GROUP] + Y) - U8).sum() + b.sum(),
        SMALL,
        SMALL,
    ),
    "truths subtracted": (
        lambda a, b: (log_gammas(a[GROUP], a[GROUP] + Y) - b[OTHER_GROUP]).sum(),
        SMALL,
        TRUTHS,
    ),
    "log-Gammas of fewer bits beside others": (
        lambda a, b: (log_gammas(a[GROUP], a[GROUP] + Y.astype("int8")) - b[OTHER_GROUP]).sum(),
        SMALL.astype("float32"),
        SMALL,
    ),
    "bytes added to an argument": (
        lambda a, b: log_gammas(a[GROUP], a[GROUP] + b[GROUP] + b[OTHER_GROUP]).sum(),
        SMALL,
        HALF,
    ),
    "a product that goes round": (
        lambda a, b: log_gammas(a[GROUP], a[GROUP] + 3 * b[OTHER_GROUP]).sum(),
        SMALL,
        BYTES,
    ),
    "a scale of few bits": (
        lambda a, b: pt.linalg.cholesky(a[0] * pt.constant(K)).sum() + b.sum(),
        np.full(7, 3, dtype="int8"),
        SMALL,
    ),
    "scales of few bits": (
        lambda a, b: pt.linalg.cholesky(pt.constant(K) * a[0] * a[1]).sum() + b.sum(),
        np.full(7, 12, dtype="int8"),
        SMALL,
    ),
    "a divisor of few bits": (
        lambda a, b: pt.linalg.cholesky(pt.constant(K) / a[0]).sum() + b.sum(),
        np.full(7, 3, dtype="int8"),
        SMALL,
    ),
    "a scale of float32": (
        lambda a, b: pt.linalg.cholesky(a[0] * pt.constant(K)).sum() + b.sum(),
        np.full(7, 3.1, dtype="float32"),
        SMALL,
    ),
    "scales of few bits in a system": (
        lambda a, b: pt.linalg.solve_triangular(
            pt.constant(ROOT) * a[0] * a[1], b[:2], lower=True
        ).sum(),
        np.full(7, 12, dtype="int8"),
        SMALL,
    ),
    "a scale of float32 in a system": (
        lambda a, b: pt.linalg.solve_triangular(a[0] * pt.constant(ROOT), b[:2], lower=True).sum(),
        np.full(7, 3.1, dtype="float32"),
        SMALL,
    ),
    "bytes below a Gram matrix": (
        lambda a, b: pt.linalg.cholesky(
            (triangle(pt.exp(b)) @ triangle(pt.exp(b)).T) / (a[:2, None] * a[:2])
        ).sum(),
        BYTES[-2:],
        SMALL[:3],
    ),
    "joined float32 that cancels": (
        lambda a, b: pt.join(0, a, b).sum(),
        np.repeat(np.float32([1e8, 0.125]), 50),
        np.repeat(np.float32([-1e8, 0.125]), 50),
    ),
    "increments with more digits": (
        lambda a, b: pt.ones(4, dtype="float32")[1:].inc(a) * b,
        np.array([1e-9 - 1, 2, 3]),
        SMALL[:4],
    ),
    "bytes moved to a triangle": (
        lambda a, b: triangle(pt.concatenate([a[5:], a[:5]])).sum(axis=1) + b.sum(),
        (np.arange(210) % 100 + 1).astype("int8"),
        SMALL,
    ),
    "the diagonal of bytes": (
        lambda a, b: pt.diagonal(triangle(pt.concatenate([a[5:], a[:5]]))) + b.sum(),
        (np.arange(210) % 100 + 1).astype("int8"),
        SMALL,
    ),
    "the last row of bytes": (
        lambda a, b: (triangle(pt.concatenate([a[5:], a[:5]])) + 1)[-1] + b.sum(),
        (np.arange(210) % 100 + 1).astype("int8"),
        SMALL,
    ),
    "joined unsigned bytes in a triangle": (
        lambda a, b: triangle(pt.concatenate([a[3:], a[:3]])) * np.uint8(2) + b.sum(),
        BYTES[:6] // 2,
        SMALL,
    ),
    "truths in a triangle": (
        lambda a, b: pt.switch(np.eye(3), YES, pt.switch(np.tri(3), triangle(a), ~YES)) + b.sum(),
        TRUTHS[:6],
        SMALL,
    ),
    "exponents": (
        lambda a, b: pt.log(abs(W) * (pt.exp(a)[GROUP] / pt.exp(b)[OTHER_GROUP])).sum(),
        BYTES // 5,
        BYTES[::-1] // 4,
    ),
    "exponents of truths": (
        lambda a, b: pt.log(abs(W) * (pt.exp(a)[GROUP] / pt.exp(b)[OTHER_GROUP])).sum(),
        TRUTHS,
        TRUTHS[::-1],
    ),
    "numerators": (
        lambda a, b: (((b / pt.exp(a) + a) - (b + b[::-1] * a)) * pt.exp(a) * b[::-1] * b).sum(),
        SMALL,
        BYTES,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_rules_agree_on_mixed_dtypes(name):
    """Each of these was another number, or an error of the rewriter."""
    form, *values = OTHERS[name]

    def graph():
        inputs = [
            pt.tensor(x, dtype=v.dtype, shape=v.shape) for x, v in zip("ab", values, strict=True)
        ]
        return inputs, [form(*inputs)]

    [off] = off_in_numpy(*graph())(*values)
    [on] = on_by_kernels(*graph())(*values)
    np.testing.assert_allclose(on, off, rtol=2e-7 if "exponents" in name else 1e-13)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("name", FORMS)
def test_mixed_dtypes_lose_no_digits(name, types):
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
def test_integer_overflow_is_that_of_upstream(name, types):
    rng = np.random.default_rng(0)
    values = [
        rng.integers(np.iinfo(t).max // 2, np.iinfo(t).max, size=N_GROUPS).astype(t) for t in types
    ]
    [off] = off_in_numpy(*graph(GOING_ROUND[name], types))(*values)
    [on] = on_by_kernels(*graph(GOING_ROUND[name], types))(*values)
    np.testing.assert_allclose(on, off, rtol=1e-13)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_arrays_raise_no_error(shape):
    """Rules about log-Gamma look at what rows read before they look at how many there are."""
    of_length_one = (1,) * len(shape)
    a, b = pt.tensor("a", shape=of_length_one), pt.tensor("b", shape=shape)
    value = (pt.gammaln(a + b) - pt.gammaln(b)).sum()
    [on] = on_by_kernels([a, b], [value])(np.full(of_length_one, 2.0), np.zeros(shape))
    assert on == 0.0
