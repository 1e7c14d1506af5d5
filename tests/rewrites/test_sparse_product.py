"""Products with constant sparse matrices become gathers, with the same value and gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from pytensor import sparse
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_fastlogp.analysis.column_blocks import MAX_SPARSE_BLOCKS
from tests.rewrites.conftest import PYTHON, nodes_of, pregrad

N, Q = 60, 9
rng = np.random.default_rng(0)
LEVEL, OTHER = rng.integers(0, Q, N), rng.integers(0, 4, N)


def dummies(level, n_levels, values=1.0, dtype="float64"):
    values = np.broadcast_to(values, len(level)).astype(dtype)
    return scipy.sparse.csr_matrix(
        (values, (np.arange(len(level)), level)), shape=(len(level), n_levels)
    )


def joined(*blocks, form="csr"):
    return scipy.sparse.hstack(blocks).asformat(form)


ONE, TWO = dummies(LEVEL, Q), dummies(OTHER, 4)
# The matrix and its number of blocks.
MATRICES = {
    "dummies": (ONE, 1),
    "columns": (joined(ONE, form="csc"), 1),
    "two factors": (joined(ONE, TWO), 2),
    "slopes": (joined(ONE, dummies(LEVEL, Q, rng.normal(size=N))), 2),
    "a missing level": (joined(ONE[:, 1:], TWO), 2),
    "an empty column": (joined(scipy.sparse.csr_matrix((N, 2)), ONE), 1),
    "a band": (scipy.sparse.diags([1.0, -2.0, 1.0], [0, 1, 2], shape=(N - 2, N)).tocsr(), 3),
    "integers": (dummies(LEVEL, Q, 3, "int8"), 1),
    "single precision": (dummies(LEVEL, Q, 0.1, "float32"), 1),
    "stored zeros": (dummies(LEVEL, Q, np.arange(N) % 3), 1),
    "infinite entries": (dummies(LEVEL, Q, np.where(np.arange(N) == 4, np.inf, 1.0)), 1),
    "repeated entries": (
        scipy.sparse.csr_matrix(
            (rng.normal(size=2 * N), np.repeat(LEVEL, 2), np.arange(0, 2 * N + 1, 2)), shape=(N, Q)
        ),
        1,
    ),
    "a row without entries": (
        scipy.sparse.csr_matrix(np.vstack([np.zeros(Q), ONE.toarray()[1:]])),
        1,
    ),
}
SPELLINGS = {
    "a vector": lambda x, b: sparse.dot(x, b),
    "a column": lambda x, b: sparse.structured_dot(x, b[:, None])[:, 0],
    "a column, flat": lambda x, b: sparse.dot(x, b[:, None]).ravel(),
    "a matrix": lambda x, b: sparse.structured_dot(x, pt.stack([b, b**2], axis=1)),
    "from the left": lambda x, b: sparse.dot(b, x.T),
    "a row": lambda x, b: sparse.dot(b[None], x.T)[0],
    "rows": lambda x, b: sparse.dot(pt.stack([b, b**2]), x.T),
}


def product_of(matrix, spelling):
    b = pt.vector("b", shape=(matrix.shape[1],))
    return b, SPELLINGS[spelling](sparse.as_sparse_variable(matrix), b)


def has_sparse(out):
    return any(isinstance(x.type, sparse.SparseTensorType) for x in ancestors([out]))


def evaluated(out, b, value, *, on):
    """Return the value of an expression, and the gradient of a weighted sum."""
    out = pregrad(out, on=on)
    total = (0.5 * out + out**2).sum()
    function = pytensor.function([b], [out, pytensor.grad(total, b)], mode=PYTHON)
    with np.errstate(all="ignore"):
        return function(value)


def assert_same(out, b, value):
    found, expected = (evaluated(out, b, value, on=on) for on in (True, False))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", MATRICES)
def test_products_become_a_gather_for_each_block(name, spelling):
    matrix, n_blocks = MATRICES[name]
    b, out = product_of(matrix, spelling)
    rewritten = pregrad(out, on=True)
    assert not has_sparse(rewritten)
    assert len(nodes_of(rewritten, AdvancedSubtensor)) == n_blocks
    assert_same(out, b, rng.normal(size=matrix.shape[1]))


def test_dummies_become_an_index():
    b, out = product_of(ONE, "a vector")
    found = pregrad(out, on=True)
    assert isinstance(found.owner_op, AdvancedSubtensor)
    table, index = found.owner.inputs
    assert table is b
    np.testing.assert_array_equal(index.data, LEVEL)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["a missing level", "slopes", "stored zeros"])
def test_coefficients_that_are_not_finite_spoil_the_rows_that_read_them_alone(name, value):
    matrix, _ = MATRICES[name]
    b, out = product_of(matrix, "a vector")
    at = rng.normal(size=matrix.shape[1])
    at[2] = value
    assert_same(out, b, at)


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_random_blocks(n, q, n_blocks, seed):
    random = np.random.default_rng(seed)
    blocks = [dummies(random.integers(0, q, n), q, random.normal(size=n)) for _ in range(n_blocks)]
    matrix = joined(*blocks, form=random.choice(["csr", "csc"]))
    b, out = product_of(matrix, random.choice(list(SPELLINGS)))
    assert_same(out, b, random.normal(size=q * n_blocks))


def neighbors():
    """Return a random graph, whose rows have different numbers of entries."""
    upper = scipy.sparse.triu(scipy.sparse.random(N, N, 0.1, random_state=0), 1)
    return (upper + upper.T).tocsr()


REFUSED = {
    "rows of different lengths": neighbors(),
    "more blocks than rows can gather": joined(
        *(dummies(rng.integers(0, 3, N), 3) for _ in range(MAX_SPARSE_BLOCKS + 1))
    ),
    "no entries": scipy.sparse.csr_matrix((3, 4)),
    "complex entries": dummies(LEVEL, Q, 1j, "complex128"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_matrices(name):
    _, out = product_of(REFUSED[name], "a vector")
    assert has_sparse(pregrad(out, on=True))


def test_refuses_shared_and_computed_matrices_and_unknown_lengths():
    b = pt.vector("b", shape=(Q,))
    shared = pytensor.shared(ONE, name="matrix")
    computed = sparse.as_sparse_variable(ONE) * pt.scalar("scale")
    unknown = sparse.dot(sparse.as_sparse_variable(ONE), pt.vector("unknown"))
    two = sparse.dot(computed.T, sparse.as_sparse_variable(ONE))
    for out in (sparse.dot(shared, b), sparse.dot(computed, b), unknown, two):
        assert has_sparse(pregrad(out, on=True))
