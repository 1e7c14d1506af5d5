"""Lengths that are known only at run time, such as 1 and negative lengths: upstream's value or exception."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.linalg import solve_triangular

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.expressions import Length
from pymc_fastlogp.kernel.ir.loops import Check
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.lower.broadcast import broadcast_shape
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import is_known_at_call
from pymc_fastlogp.kernel.passes import optimize
from tests.kernel.native_kernel import compile_native

RNG = np.random.default_rng(0)
LOWER = np.tril(RNG.normal(size=(3, 3))) + 4 * np.eye(3)
I3, I1, J2 = np.array([0, 2, 3]), np.array([0]), np.array([1, 2])


def of(*shape):
    return RNG.normal(size=shape)


# What each takes are arrays of which no length is known.
ELEMWISE = {
    "the second of length 1": (lambda x, y: (pt.exp(x) * pt.tanh(y)).sum() * 2, of(5), of(1)),
    "the first of length 1": (lambda x, y: (pt.exp(x) * pt.tanh(y)).sum() * 2, of(1), of(5)),
    "gathered by a part of a constant": (
        lambda x, n: pt.exp(x)[pt.constant(I3)[:n]].sum() * 2,
        of(3),
        np.array(2),
    ),
    "both of length 1": (lambda x, y: (pt.exp(x) * pt.tanh(y)).sum() * 2, of(1), of(1)),
    "no element and one": (lambda x, y: (pt.exp(x) * pt.tanh(y)).sum() * 2, of(0), of(1)),
    "a matrix and a row": (lambda x, y: (pt.exp(x) * pt.tanh(y)).sum() * 2, of(5, 3), of(1)),
    "one column": (lambda x, y: (pt.exp(x) * pt.tanh(y)).sum() * 2, of(5, 1), of(3)),
    "a column": (lambda x, y: (pt.exp(x) * pt.tanh(y)[:, None]).sum() * 2, of(5, 3), of(1)),
    "gathered": (lambda x, i, y: pt.exp(x[i] + y).sum() * 2, of(5), I3, of(1)),
    "gathered by one": (lambda x, i, y: pt.exp(x[i] + y).sum() * 2, of(5), I1, of(3)),
    "gathered by two": (lambda x, i, j: pt.exp(x[i, j]).sum() * 2, of(5, 3), I1, J2),
}
SHAPES = {
    "Alloc": (lambda x, m, n: pt.alloc(pt.tanh(x), m, n) * 2, of(1), np.array(4), np.array(3)),
    "Alloc, static": (lambda x: pt.alloc(pt.tanh(x), 3, 4) * 2, of(1)),
    "Alloc of a negative length": (
        lambda x, n: pt.cumsum(pt.alloc(pt.tanh(x), n) * x).sum(),
        np.array(1.0),
        np.array(-100_000),
    ),
    "zeros of a negative length": (
        lambda x, n: pt.cumsum(pt.zeros(n)[2:].set(pt.tanh(x))).sum(),
        np.array(1.0),
        np.array(-1),
    ),
    "Join of rows": (lambda x, y: pt.join(0, pt.exp(x), pt.tanh(y)) * 2, of(2, 3), of(2, 1)),
    "Join of columns": (lambda x, y: pt.join(1, pt.exp(x), pt.tanh(y)) * 2, of(2, 3), of(1, 3)),
    "Join behind one": (lambda x, y: pt.join(1, pt.exp(x), pt.tanh(y)) * 2, of(1, 3), of(2, 3)),
    "stack": (lambda x, y: pt.stack([pt.exp(x), pt.tanh(y)]) * 2, of(3), of(1)),
    "Split": (
        lambda x, n: pt.cumsum(pt.split(pt.exp(x), n, n_splits=2)[0] * 2),
        of(3),
        np.array([-1, 4]),
    ),
}
PRODUCTS = {
    "matrix and one": (lambda x, y: pt.dot(pt.exp(x), pt.tanh(y)) * 2, of(4, 3), of(1)),
    "one column and vector": (lambda x, y: pt.dot(pt.exp(x), pt.tanh(y)) * 2, of(4, 1), of(3)),
    "one and vector": (lambda x, y: pt.dot(pt.exp(x), pt.tanh(y)) * 2, of(1), of(3)),
    "matrices": (lambda x, y: pt.dot(pt.exp(x), pt.tanh(y)) * 2, of(4, 3), of(1, 2)),
    "batches": (lambda x, y: pt.matmul(pt.exp(x), pt.tanh(y)) * 2, of(2, 4, 3), of(2, 1, 2)),
    "one column to factorize": (lambda x: pt.linalg.cholesky(pt.exp(x)) * 2, of(3, 1)),
    "one to solve for": (
        lambda x, y: solve_triangular(x, pt.tanh(y), lower=True, b_ndim=1) * 2,
        LOWER,
        of(1),
    ),
    "a batch of one": (
        lambda x, y: solve_triangular(x, pt.tanh(y), lower=True, b_ndim=2) * 2,
        LOWER[None],
        of(2, 3, 2),
    ),
}
# Upstream repeats.
WRITES = {
    "set of a slice": (lambda x, y: pt.exp(x)[1:].set(pt.tanh(y)) * 2, of(5), of(1)),
    "inc of a slice": (lambda x, y: pt.exp(x)[1:].inc(pt.tanh(y)) * 2, of(5), of(1)),
    "slice, two": (lambda x, y: pt.exp(x)[1:].inc(pt.tanh(y)) * 2, of(5), of(2)),
    "one of a slice": (lambda x, y: pt.exp(x)[1:].set(pt.tanh(y)) * 2, of(2), of(4)),
    "inc of a row": (lambda x, y: pt.exp(x)[0].inc(pt.tanh(y)) * 2, of(5, 3), of(1)),
    "set of rows": (lambda x, y: pt.exp(x)[1:].set(pt.tanh(y)) * 2, of(5, 3), of(1, 3)),
    "inc by an input": (lambda x, i, y: pt.exp(x)[i].inc(y) * 2, of(5), I3, of(1)),
    "inc by a sum": (lambda x, i, y: pt.exp(x)[i].inc(y.sum(0)) * 2, of(5), I3, of(2, 1)),
    "used for two": (
        lambda x, i, y: [pt.exp(x)[i].inc(pt.tanh(y)), pt.exp(x)[i].set(pt.tanh(y))],
        of(5),
        I3,
        of(1),
    ),
    "rows": (lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)) * 2, of(5, 3), I3, of(1)),
    "columns": (
        lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)[:, None]) * 2,
        of(5, 3),
        I3,
        of(1),
    ),
    "part of rows": (
        lambda x, i, y: pt.exp(x)[i, 1:].inc(pt.tanh(y)) * 2,
        of(5, 3),
        I3,
        of(1, 2),
    ),
    "axes apart": (
        lambda x, i, j, y: pt.exp(x)[i, :, j].inc(pt.tanh(y)) * 2,
        of(5, 3, 4),
        J2,
        J2,
        of(1, 3),
    ),
}
# Upstream raises: one loop computes and writes.
FUSED_WRITES = {
    "inc": (lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)) * 2, of(5), I3, of(1)),
    "set": (lambda x, i, y: pt.exp(x)[i].set(pt.tanh(y)) * 2, of(5), I3, of(1)),
    "set at constants": (lambda x, y: pt.exp(x)[I3].set(pt.tanh(y)) * 2, of(5), of(1)),
    "set at constants, too many": (lambda x, y: pt.exp(x)[I3].set(pt.tanh(y)) * 2, of(5), of(9)),
    "read too": (lambda x, i, y: [pt.exp(x)[i].inc(pt.tanh(y)), pt.tanh(y) + 1], of(5), I3, of(1)),
    "one index": (lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)) * 2, of(5), I1, of(3)),
    "one row": (lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)) * 2, of(5, 3), I3, of(1, 3)),
    "columns": (lambda x, i, y: pt.exp(x)[:, i].inc(pt.tanh(y)) * 2, of(5, 3), J2, of(1)),
    "two indices": (
        lambda x, i, j, y: pt.exp(x)[i, j].inc(pt.tanh(y)) * 2,
        of(5, 3),
        J2,
        J2,
        of(1),
    ),
    "a matrix of indices": (
        lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)) * 2,
        of(5),
        np.array([[0, 2], [1, 1]]),
        of(1, 2),
    ),
    "all is well": (lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)) * 2, of(5), I3, of(3)),
}


def reshaped(x, *lengths):
    return pt.exp(x).reshape(lengths) * 2


RESHAPE = {
    "to 3, 2": (lambda x, k: reshaped(x, k, 2), of(6), np.array(3)),
    "to -1, 2": (lambda x, k: reshaped(x, k, 2), of(6), np.array(-1)),
    "to another negative number": (lambda x, k: reshaped(x, k, 2), of(6), np.array(-2)),
    "of nothing": (lambda x, k: reshaped(x, k, 2), of(0), np.array(-1)),
    "with a rest": (lambda x, k: reshaped(x, k, 4), of(6), np.array(-1)),
    "to -1": (lambda x, k: reshaped(x, k), of(2, 3), np.array(-1)),
    "to -1, -1": (lambda x, m, n: reshaped(x, m, n), of(1), np.array(-1), np.array(-1)),
    "to -1, 3": (lambda x, m, n: reshaped(x, m, n), of(6), np.array(-1), np.array(3)),
    "to 3, 0 of nothing": (lambda x, m, n: reshaped(x, m, n, -1), of(0), np.array(3), np.array(0)),
    "to 3, 0 of six": (lambda x, m, n: reshaped(x, m, n, -1), of(6), np.array(3), np.array(0)),
    "read by others": (lambda x, k, y: reshaped(x, k, 2) * y, of(6), np.array(-1), of(3, 2)),
    "read by too few": (lambda x, k, y: reshaped(x, k, 2) * y, of(6), np.array(-1), of(1, 2)),
}
CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "Elemwise": ELEMWISE,
        "shape": SHAPES,
        "product": PRODUCTS,
        "write": WRITES,
        "write in a loop": FUSED_WRITES,
        "reshape": RESHAPE,
    }.items()
    for name, case in cases.items()
}
# Upstream's code for Numba reads or writes what it should not, its Python code raises. An index array of length 1 it repeats
# only where nothing is computed of what is read.
STRICTER = {
    "a batch of one product": (lambda x, y: pt.matmul(pt.exp(x), y) * 2, of(1, 4, 3), of(2, 3, 2)),
    "one column for rows": (lambda x, i, y: pt.exp(x)[i].inc(pt.tanh(y)), of(5, 3), I3, of(3, 1)),
    "one index of two": (lambda x, i, j: pt.exp(x)[i, j], of(5, 3), I1, J2),
    "read beyond the end": (lambda x: pt.exp(x)[I3].sum() * 2, of(3)),
    "set beyond the end": (lambda x, y: pt.exp(x)[I3].set(pt.tanh(y)) * 2, of(3), of(3)),
}


def compiled(build, *arrays, on=True):
    inputs = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in arrays]
    with switched(on), pytensor.config.change_flags(on_opt_error="raise"):
        return pytensor.function(inputs, build(*inputs), mode="NUMBA")


def programs(function):
    nodes = function.maker.fgraph.apply_nodes
    return [node.op.build_program() for node in nodes if isinstance(node.op, FusedKernel)]


def outcome(function, arrays):
    """Return the class of the exception, or the values."""
    try:
        found = function(*arrays)
    except Exception as error:
        return type(error)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("name", CASES)
def test_value_or_error_is_upstreams(name):
    build, *arrays = CASES[name]
    function = compiled(build, *arrays)
    assert programs(function)
    found, expected = (outcome(f, arrays) for f in (function, compiled(build, *arrays, on=False)))
    if isinstance(expected, type):
        assert found is expected
    else:
        assert not isinstance(found, type)
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("name", STRICTER)
def test_raises_where_upstream_should(name):
    build, *arrays = STRICTER[name]
    function = compiled(build, *arrays)
    assert programs(function)
    assert outcome(function, arrays) is (IndexError if "beyond" in name else ValueError)


@pytest.mark.parametrize("name", CASES)
def test_lengths_are_checked_before_anything_is_written(name):
    build, *arrays = CASES[name]
    for program in programs(compiled(build, *arrays)):
        statements = [statement for loop in program.steps for statement in loop.body]
        written = next(k for k, s in enumerate(statements) if not isinstance(s, Check))
        late = [s for s in statements[written:] if isinstance(s, Check)]
        assert not any(is_known_at_call(check.condition) for check in late)


def test_the_common_length_is_that_of_the_first_array():
    """Otherwise the code of a graph, and its cache key, would differ between processes."""
    lengths = [Length(k, 0) for k in range(8)]
    for k in range(8):
        shapes = [(n,) for n in lengths[k:] + lengths[:k]]
        assert broadcast_shape(Context({}, lambda *_: []), shapes, [(False,)] * 8) == shapes[0]


@pytest.mark.parametrize("first", ["open", "known"])
def test_an_axis_whose_length_another_part_of_a_join_knows_broadcasts(first):
    a, b = pt.vector("a"), pt.vector("b", shape=(1,))
    parts = [a, b] if first == "open" else [b, a]
    joined = pt.stack(parts, axis=0)
    outer = joined * joined.T
    fgraph = FunctionGraph([a, b], [outer], clone=True)
    kernel = compile_native(optimize(lower(fgraph, [None, None])))
    x, y = np.array([3.0]), np.array([-2.0])
    values = [x, y] if first == "open" else [y, x]
    np.testing.assert_array_equal(kernel(x, y)[0], np.outer(values, values))
    with pytest.raises(ValueError, match=r"length|dimensions"):
        kernel(np.ones(2), y)
