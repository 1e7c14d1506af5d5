"""A kernel raises upstream's errors; unsupported graphs are refused with a reason."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import sparse
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.tensor.basic import AllocDiag, Split
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import fill_diagonal
from pytensor.tensor.linalg import cho_solve, solve_triangular
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i

from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.lower import UnsupportedError, is_supported, lower
from pymc_fastlogp.kernel.lower.table import TABLE
from tests.kernel.lowering import case, compiled

X = np.arange(5.0)


def kernel_of(build, *arrays, known=()):
    graph = case(build, *arrays)
    inputs = graph.inputs(static=False)
    fgraph = FunctionGraph(inputs, graph.outputs(inputs), clone=True)
    return compiled(fgraph, graph.arrays, known)


RAISES = {
    "an index beyond the end": (IndexError, lambda x, i: x[i] * 2, [0, 5]),
    "an index before the start": (IndexError, lambda x, i: x[i] * 2, [0, -6]),
    "a scalar index": (IndexError, lambda x, i: x[i] * 2, 5),
    "a scatter beyond the end": (IndexError, lambda x, i: x[i].inc(1.0), [0, 5]),
    "a set before the start": (IndexError, lambda x, i: x[i].set(1.0), [-6]),
    "lengths of Elemwise": (ValueError, lambda x, y: x + y, [1.0, 2.0]),
    "lengths of an Alloc": (ValueError, lambda x, n: pt.alloc(x, n).sum(), 4),
    "lengths of a set": (ValueError, lambda x, y: x[1:].set(y), [1.0, 2.0]),
    "lengths that the graph compares, before an index beyond the end": (
        ValueError,
        lambda x, y: x[0] + CheckAndRaise(ValueError, "too short")(y, pt.eq(y.shape[0], 3))[[2]],
        [1.0, 2.0],
    ),
    "a shape that is specified": (
        AssertionError,
        lambda x, n: pt.specify_shape(x, (n,)).sum(),
        4,
    ),
    "axes of a FillDiagonal": (
        ValueError,
        lambda x, n: fill_diagonal(pt.alloc(x[0], n, n, 3), 1.0).sum(),
        2,
    ),
    "elements of a Reshape": (ValueError, lambda x, n: x.reshape((n, 2)).sum(), 2),
    "elements of a Reshape whose number is no integer": (
        ValueError,
        lambda x, n: x[5:].reshape((n, n))[:1, :1].sum(),
        2**32,
    ),
    "an axis that is dropped": (ValueError, lambda x, y: pt.squeeze(y, axis=0) + x, [1.0, 2.0]),
    "an axis that is dropped, without elements": (
        ValueError,
        lambda x, y: pt.squeeze(y, axis=0) + x,
        np.zeros(0),
    ),
    "rows of a small triangular system": (
        np.linalg.LinAlgError,
        lambda x, y: solve_triangular(np.tri(3), y, lower=True, b_ndim=1) + x[0],
        [1.0, 2.0],
    ),
    "rows of a large triangular system": (
        np.linalg.LinAlgError,
        lambda x, y: solve_triangular(np.tri(40), y, lower=True, b_ndim=1) + x[0],
        [1.0, 2.0],
    ),
    "rows of a system with a factor": (
        np.linalg.LinAlgError,
        lambda x, y: cho_solve((np.tri(3), True), y, b_ndim=1) + x[0],
        [1.0, 2.0],
    ),
    "an Assert": (AssertionError, lambda x, y: Assert("no")(x * 2, pt.all(y > 0)), [1.0, -1.0]),
}


@pytest.mark.parametrize("name", RAISES)
def test_raises_as_upstream(name):
    error, build, value = RAISES[name]
    values = np.array(value)
    with pytest.raises(error):
        kernel_of(build, X, values)(X, values)


def test_a_position_beside_a_constant_is_an_error_of_the_call():
    run = kernel_of(lambda x: x * pt.constant([1.0, 2.0, 3.0])[pt.constant([5])], X)
    with pytest.raises(IndexError):
        run(X)


def test_raises_the_message_of_the_check():
    run = kernel_of(lambda x: CheckAndRaise(ValueError, "sigma > 0")(x * 2, pt.all(x > 0)), X)
    np.testing.assert_array_equal(run(X + 1)[0], 2 * (X + 1))
    with pytest.raises(ValueError, match=r"^sigma > 0$"):
        run(X)


@pytest.mark.parametrize(
    ("build", "value", "reason"),
    [
        (lambda x, n: pt.alloc(x[0], n[1]), np.array([3, 4]), "whose own length is not static"),
        # Its length would be read before the index 0 is checked.
        (
            lambda x, n: pt.cumsum(pt.arange(n[0])).sum(),
            np.array([3, 4]),
            "whose own length is not static",
        ),
        (lambda x, n: x[:: n + 1], np.array(1), "step"),
        (lambda x, y: pt.alloc(x[0], y.sum().astype("int64")).sum(), X, "computed from data"),
        # It has three lengths for two parts, of which the first two fit.
        (lambda x, n: Split(2, 0)(x, pt.stack([n, 5 - n, n])), np.array(2), "unequal lengths"),
    ],
)
def test_refuses_with_a_reason(build, value, reason):
    with pytest.raises(UnsupportedError, match=reason):
        kernel_of(build, X, value)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x[pt.gt(x, 1)],
        lambda x: pt.inc_subtensor(x[np.array([0, 0])], 1.0, ignore_duplicates=True),
        lambda x: pt.cumsum(x.astype("int8")),
        lambda x: x.astype("complex128"),
        lambda x: pt.sum(x.astype("uint8"), dtype="uint8"),
        lambda x: pt.inc_subtensor(x.astype("int64")[1:], x[1:]),
        lambda x: pt.inc_subtensor(x.astype("int64")[[0, 1]], x[:2]),
        lambda x: pt.inc_subtensor(pt.gt(x, 0)[1:], x[1:].astype("int64")),
        pt.sort,
    ],
    ids=[
        "mask",
        "duplicates ignored",
        "small integers",
        "complex",
        "uint64 inside",
        "floats added to integers",
        "floats added to integers at indices",
        "integers added to truth values",
        "sort",
    ],
)
def test_unsupported_ops_are_refused(build):
    node = build(pt.dvector("x")).owner
    assert not is_supported(node)


@pytest.mark.parametrize(("axes", "is_covered"), [((0, 1), False), ((1, 2), True)])
def test_diagonals_of_a_batch_are_covered_along_trailing_axes(axes, is_covered):
    one, several = pt.dmatrix("one"), pt.dtensor3("several")
    diagonals = AllocDiag(axis1=axes[0], axis2=axes[1], offset=0)(one)
    assert is_supported(vectorize_graph(diagonals, {one: several}).owner) == is_covered


def test_readers_of_sparse_matrices_are_refused():
    matrix = sparse.csr_matrix("matrix")
    checked = Assert("no")(matrix, pt.all(pt.dvector("x") > 0))
    readers = [Shape()(matrix), Shape_i(0)(matrix), checked]
    assert not any(is_supported(x.owner) for x in readers)


def test_an_unexpected_exception_about_a_node_is_contained(monkeypatch, caplog):
    def supports(node):
        raise KeyError("nobody expected this")

    monkeypatch.setitem(TABLE, CAReduce, TABLE[CAReduce]._replace(supports=supports))
    node = pt.dvector("x").sum().owner
    with pytensor.config.change_flags(on_opt_error="warn"):
        assert not is_supported(node)
    [warning] = caplog.messages
    assert "Sum" in warning
    assert "KeyError: 'nobody expected this'" in warning
    with pytensor.config.change_flags(on_opt_error="raise"), pytest.raises(KeyError):
        is_supported(node)


@pytest.mark.parametrize(
    ("left", "right", "is_covered"),
    [
        ((12, 50), (50, 50), True),
        ((13, 13), (13, 13), False),
        ((12, 52), (52, 53), False),
        ((128, 1024), (1024, 1), True),
        ((1, 1024), (1024, 128), True),
        ((1, 1024), (1024, 129), False),
        ((None, 2), (2, 1), False),
    ],
)
def test_large_products_of_other_types_than_blas_takes(left, right, is_covered):
    x, y = (pt.tensor(shape=shape, dtype="float32") for shape in (left, right))
    assert is_supported(Dot()(x, y).owner) == is_covered


def test_checks_are_in_the_order_of_the_arrays():
    """The text of a program, which code on disk is found by, is the same in every process."""
    vectors = [pt.vector(f"x{k}") for k in range(6)]
    graph = FrozenFunctionGraph.from_io(vectors, [pt.add(*vectors)])
    text = as_text(lower(graph, [None] * 6))
    assert re.findall(r"EQ\((.*)\) bool", text) == [
        f"len(x0, 0), len(x{k}, 0)" for k in range(1, 6)
    ]
