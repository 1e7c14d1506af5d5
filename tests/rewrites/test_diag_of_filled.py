"""The diagonal of a filled matrix is read from the vector that holds it."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)

RULE = "fastlogp_diag_of_filled"
N = 3
ROWS, COLS = np.tril_indices(N)
STRICT = np.tril_indices(N, -1)
DIAG = np.arange(N)
ORDER = np.array([1, 2, 0])
ON_DIAGONAL = np.array([0, 2, 5])

packed = pt.vector("packed", shape=(6,))
low = pt.vector("low", shape=(3,))
diag = pt.vector("diag", shape=(N,))
s = pt.scalar("s")
full = pt.matrix("full", shape=(N, N))
index = pt.lvector("index", shape=(6,))
k = pt.lscalar("k")
any_length = pt.vector("any_length")
packeds = pt.matrix("packeds", shape=(2, 6))
diags = pt.matrix("diags", shape=(2, N))
many = pt.matrix("many", shape=(11_112, 6))

VALUES = {
    packed: np.linspace(-1.0, 2.0, 6),
    low: np.linspace(-1.0, 1.0, 3),
    diag: np.linspace(0.5, 2.0, N),
    s: np.array(0.7),
    packeds: np.linspace(-1.0, 2.0, 12).reshape(2, 6),
    diags: np.linspace(0.5, 2.0, 6).reshape(2, N),
}

zeros = pt.zeros((N, N))
triangle = zeros[ROWS, COLS].set(packed)
strict = zeros[STRICT].set(low)
two = pt.zeros((2, N, N))[:, ROWS, COLS].set(packeds)
two_strict = pt.zeros((2, N, N))[:, *STRICT].set(diags)

FIRES = {
    "packed triangle": (pt.diagonal(triangle), packed[ON_DIAGONAL]),
    "its own set": (pt.exp(pt.diagonal(strict[DIAG, DIAG].set(diag))), pt.exp(diag)),
    "set in another order": (
        pt.diagonal(strict[ORDER, ORDER].set(diag)),
        diag[np.argsort(ORDER)],
    ),
    "below a later set": (pt.diagonal(zeros[DIAG, DIAG].set(diag)[STRICT].set(low)) * s, diag * s),
    "scalar": (pt.diagonal(strict[DIAG, DIAG].set(s)) + low, pt.alloc(s, N) + low),
    "nothing but the fill": (pt.diagonal(strict) + diag, pt.zeros(N) + diag),
    "other diagonal": (
        pt.diagonal(two, offset=-1, axis1=1, axis2=2),
        packeds.reshape((12,))[np.array([[1, 4], [7, 10]])],
    ),
    "a value that is repeated for a batch": (
        pt.diagonal(pt.zeros((2, N, N))[:, ROWS, COLS].set(packed), axis1=1, axis2=2),
        packed[np.stack([ON_DIAGONAL, ON_DIAGONAL])],
    ),
    "batch": (
        pt.diagonal(two, axis1=1, axis2=2),
        packeds.reshape((12,))[np.stack([ON_DIAGONAL, ON_DIAGONAL + 6])],
    ),
    "with an axis of length one": (
        pt.log(pt.diagonal(triangle[None], axis1=1, axis2=2)),
        pt.log(packed[ON_DIAGONAL][None]),
    ),
    "its own set, with two axes of length one": (
        pt.exp(pt.diagonal(strict[DIAG, DIAG].set(diag)[None, None], axis1=2, axis2=3)),
        pt.exp(diag[None, None]),
    ),
    "scalar, with an axis of length one": (
        pt.diagonal(strict[DIAG, DIAG].set(s)[None], axis1=1, axis2=2) + low,
        pt.alloc(s, 1, N) + low,
    ),
    "batch, its own set": (
        pt.exp(pt.diagonal(two_strict[:, DIAG, DIAG].set(diags), axis1=1, axis2=2)),
        pt.exp(diags),
    ),
    "batch, scalar": (
        pt.diagonal(two_strict[:, DIAG, DIAG].set(s), axis1=1, axis2=2) + diags,
        pt.alloc(s, 2, N) + diags,
    ),
    "batch, nothing but the fill": (
        pt.diagonal(two_strict, axis1=1, axis2=2) + diags,
        pt.zeros((2, N)) + diags,
    ),
    "not square": (pt.diagonal(pt.zeros((N, N + 2))[ROWS, COLS].set(packed)), packed[ON_DIAGONAL]),
}

REFUSES = {
    "full matrix": pt.diagonal(full),
    "full matrix with an axis of length one": pt.diagonal(full[None], axis1=1, axis2=2),
    "diagonal of the axis of length one": pt.diagonal(triangle[None], axis1=0, axis2=1),
    "part of the diagonal": pt.diagonal(zeros[STRICT[0], STRICT[0]].set(low)),
    "constants of another type": pt.diagonal(full[DIAG, DIAG].set(DIAG + 1)),
    "half of the diagonal": pt.diagonal(full[ROWS[1:], COLS[1:]].set(packed[1:])),
    "root that is no fill": pt.diagonal(full[STRICT].set(low)),
    "nothing but what is multiplied by zero": pt.diagonal(
        (full * np.tri(N, k=-1))[np.array([2]), np.array([0])].set(pt.stack([s]))
    ),
    "runtime index": pt.diagonal(zeros[index, COLS].set(packed)),
    "duplicates": pt.diagonal(zeros[ROWS, ROWS].set(packed)),
    "other axes of a batch": pt.diagonal(two, axis1=0, axis2=1),
    "no diagonal": pt.diagonal(pt.zeros((1, 0))[:k].inc(any_length)),
    "large batch": pt.diagonal(pt.zeros((11_112, N, N))[:, ROWS, COLS].set(many), axis1=1, axis2=2),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=0)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_infinity_times_zero_on_the_diagonal_is_nan():
    out = REFUSES["nothing but what is multiplied by zero"]
    at = {full: np.diag([np.nan, np.inf, 1.0]), s: np.array(0.7)}
    assert_same_value_and_gradient(out, at, rtol=0)
    with np.errstate(invalid="ignore"):
        found = pregrad(out, on=True).eval(at, mode=PYTHON)
    np.testing.assert_array_equal(found, [np.nan, np.nan, 0])


def test_gradient_has_no_matrix_of_zeros():
    """The point of doing it before the gradient: nothing flows into what is not on the diagonal."""
    out = pregrad(pt.log(pt.diagonal(strict[DIAG, DIAG].set(diag))).sum(), on=True)
    assert low not in ancestors([out])
    gradient = pytensor.grad(out, diag)
    assert max(x.type.ndim for x in ancestors([gradient])) == 1
