"""Ops that rearrange arrays, and Ops that make arrays from lengths."""

import numpy as np
import pytensor.tensor as pt
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
    scalar_from_tensor,
    tensor_from_scalar,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp, FillDiagonal, fill_diagonal
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape, shape

from tests.kernel.covered.data import integers, positive, reals
from tests.kernel.lowering import case

CASES = {
    DimShuffle: {
        "transpose": case(lambda x: x.T + 1, reals(3, 5)),
        "a new axis": case(lambda x: x[:, None] + x, reals(5)),
        "a new axis of a scalar": case(lambda x: x[None] + 1, reals()),
        "an axis less": case(lambda x: x.squeeze(1) + 1, reals(5, 1)),
        "three axes": case(lambda x: x.dimshuffle(2, "x", 0, 1) * 2, reals(2, 3, 4)),
        "a transpose alone": case(lambda x: x.T, reals(3, 5)),
        "a transpose with no elements": case(lambda x: x.T, reals(0, 5)),
    },
    SpecifyShape: {
        "a vector": case(lambda x: pt.specify_shape(x, (5,)) + 1, reals(5)),
        "one axis of two": case(lambda x: pt.specify_shape(x, (None, 3)) + 1, reals(5, 3)),
        "of an input length": case(
            lambda x, n: (pt.specify_shape(x, (n,)) + 1).sum(),
            reals(5),
            np.array(5),
            gradient=False,
        ),
        "of nothing": case(lambda x: pt.specify_shape(x, (0,)) + 1, reals(0)),
        "so that it broadcasts": case(
            lambda x, y: pt.specify_shape(x, (1,)) + y, reals(1), reals(4)
        ),
    },
    TensorFromScalar: {
        "of an index": case(lambda i: tensor_from_scalar(scalar_from_tensor(i)) + 1, integers()),
        "of a float": case(lambda x: tensor_from_scalar(scalar_from_tensor(x)) * 2, reals()),
    },
    ScalarFromTensor: {
        "to an index": case(lambda x, i: x[scalar_from_tensor(i)] + 1, reals(5), np.array(-1))
    },
    Alloc: {
        "of a scalar": case(lambda x: pt.alloc(x, 3, 4), reals()),
        "of a row": case(lambda x: pt.alloc(x, 3, 4) * 2, reals(4)),
        "of a column": case(lambda x: pt.alloc(x, 3, 4) * 2, reals(3, 1)),
        "of an input length": case(lambda x, n: (pt.alloc(x, n) * 2).sum(), reals(), np.array(7)),
        "whose length is an input": case(lambda x, n: pt.alloc(x, n) * 2, reals(), np.array(7)),
        "of an element of an input": case(
            lambda x, n: (pt.alloc(x, n[1]) * 2).sum(), reals(), np.array([3, 5]), runtime=False
        ),
        "whose length is an element of an input": case(
            lambda x, n: pt.alloc(x, n[1], n[-2]) * 2, reals(), np.array([3, 5]), runtime=False
        ),
        "with an empty axis": case(lambda x: pt.alloc(x, 3, 0), reals()),
        "of integers": case(lambda x: pt.alloc(x, 3), integers()),
    },
    AllocEmpty: {
        "and all set": case(lambda x: AllocEmpty("float64")(Shape_i(0)(x))[:].set(x), reals(5)),
        "of one": case(lambda x: AllocEmpty("float64")(Shape_i(0)(x))[:].set(x), reals(1)),
        "of nothing": case(lambda x: AllocEmpty("float64")(Shape_i(0)(x))[:].set(x), reals(0)),
    },
    Reshape: {
        "to a matrix": case(lambda x: x.reshape((3, 4)) + 1, reals(12)),
        "to a vector": case(lambda x: pt.exp(x).reshape((12,)) + 1, reals(3, 4)),
        "with one length open": case(lambda x: x.reshape((-1, 4)) + 1, reals(12)),
        "to a vector of open length": case(lambda x: (x * 2).reshape((-1,)) + 1, reals(3, 4)),
        "to a scalar": case(lambda x: x.reshape(()) + 1, reals(1, 1)),
        "with no elements": case(lambda x: x.reshape((4, 0)) + 1, reals(0, 3)),
        "of a transpose": case(lambda x: x.T.reshape((12,)) + 1, reals(3, 4)),
        "three axes to two": case(lambda x: x.reshape((6, 4)) * 2, reals(2, 3, 4)),
    },
    Join: {
        "vectors": case(lambda x, y: pt.join(0, x, y * 2), reals(3), reals(5)),
        "one and none": case(lambda x, y: pt.join(0, x, y), reals(3), reals(0)),
        "rows": case(lambda x, y: pt.join(0, x, y), reals(3, 4), reals(1, 4)),
        "columns": case(lambda x, y: pt.join(1, x, y), reals(3, 4), reals(3, 2)),
        "of different types": case(lambda x, y: pt.join(0, x, y), reals(3), integers(4)),
        "and a use": case(lambda x, y: pt.exp(pt.join(0, x, y)).sum(), reals(3), reals(5)),
        "pieces of one vector": case(
            lambda x: pt.join(0, x[:2], pt.exp(x[2:4]), x[4:].sum()[None]), reals(7)
        ),
    },
    Split: {
        "a vector": case(lambda x: pt.split(x, [2, 3]), reals(5)),
        "columns": case(lambda x: pt.split(x, [1, 3], axis=1), reals(2, 4)),
        "lengths that are an input": case(
            lambda x, n: [part.sum() for part in pt.split(pt.exp(x), n, n_splits=2)],
            reals(5),
            [2, 3],
            runtime=False,
            gradient=False,
        ),
        "a part without elements": case(lambda x: pt.split(x, [0, 5]), reals(5)),
    },
    MakeVector: {
        "of scalars": case(lambda x, y: pt.stack([x, y * 2, x]), reals(), reals()),
        "of one": case(lambda x: pt.stack([x]), reals()),
        "of none": case(lambda x: [MakeVector("float64")(), x * 2], reals()),
        "of different types": case(lambda x, y: pt.stack([x, y]), reals(), integers()),
    },
    FillDiagonal: {
        "a matrix": case(lambda x, v: fill_diagonal(pt.exp(x), v), reals(4, 4), 2.0),
        "a number": case(lambda x: fill_diagonal(x, 1.0) * 2, reals(3, 3)),
        "a wide matrix": case(lambda x, v: fill_diagonal(pt.exp(x), v), reals(3, 5), 2.0),
        "a tall matrix": case(lambda x, v: fill_diagonal(pt.exp(x), v), reals(7, 3), 2.0),
        "of one row": case(lambda x, v: fill_diagonal(pt.exp(x), v), reals(1, 3), 2.0),
        "of nothing": case(lambda x, v: fill_diagonal(pt.exp(x), v), reals(0, 0), 2.0),
        "of integers": case(lambda x: fill_diagonal(x * 2, 1), integers(3, 3)),
        "of three axes": case(
            lambda x, v: fill_diagonal(pt.exp(x), v), reals(3, 3, 3), 2.0, gradient=False
        ),
    },
    ExtractDiag: {
        "of a square": case(lambda x: pt.diagonal(x) * 2, reals(4, 4)),
        "above": case(lambda x: pt.diagonal(x, offset=1) * 2, reals(4, 6)),
        "below": case(lambda x: pt.diagonal(x, offset=-2) * 2, reals(4, 3)),
        "outside": case(lambda x: pt.diagonal(x, offset=9) * 2, reals(4, 3)),
        "of one element": case(lambda x: pt.diagonal(x) * 2, reals(1, 1)),
        "of nothing": case(lambda x: pt.diagonal(x) * 2, reals(0, 0)),
        "of each matrix": case(lambda x: pt.diagonal(x, axis1=1, axis2=2) * 2, reals(2, 4, 3)),
    },
    Eye: {
        "square": case(lambda x: pt.eye(4) * x, reals(4, 4)),
        "above": case(lambda x: pt.eye(4, 5, 1) * x, reals(4, 5)),
        "of one element": case(lambda x: pt.eye(1) * x, reals(1, 1)),
        "of nothing": case(lambda x: pt.eye(0) * x, reals(0, 0)),
        "of an input length": case(lambda x, n: (pt.eye(n) * x).sum(), reals(), np.array(3)),
        "of integers": case(lambda x: pt.eye(3, dtype="int32") * x, integers(3)),
    },
    Shape: {
        "of a matrix": case(lambda x: shape(x) * 2, reals(3, 4)),
        "of what is computed": case(lambda x: shape(pt.exp(x)[1:])[0] * x, reals(5)),
        "of one element": case(lambda x: shape(x)[0] * x, reals(1)),
        "of nothing": case(lambda x: [shape(x), x * 2], reals(0, 3)),
    },
    Shape_i: {
        "of a vector": case(lambda x: Shape_i(0)(x) * x, reals(5)),
        "of one element": case(lambda x: Shape_i(0)(x) * x, reals(1)),
        "of nothing": case(lambda x: [Shape_i(0)(x), x * 2], reals(0)),
        "of what is computed": case(lambda x: Shape_i(0)(pt.exp(x)[1:]), reals(5)),
    },
    ARange: {
        "up to a number": case(lambda x: pt.arange(5) * x, reals(5)),
        "up to an input": case(lambda x, n: (pt.arange(n) * x).sum(), reals(), np.array(5)),
        "whose length is an input": case(lambda x, n: pt.arange(n) * x, reals(), np.array(5)),
        "empty": case(lambda x, n: (pt.arange(n) * x).sum(), reals(), np.array(0)),
        "up to a sum of three": case(
            lambda n, m: pt.arange(1, pt.add(n, 2, m)) * 2, np.array(1), np.array(2)
        ),
        "from and with a step": case(
            lambda x, a, b: (pt.arange(a, b, 4) * x).sum(), 0.02, np.array(3), np.array(20)
        ),
        "backwards": case(
            lambda x, a, b: (pt.arange(a, b, -3) * x).sum(), 0.02, np.array(9), np.array(-2)
        ),
        "of one element": case(lambda x: pt.arange(1) + x, reals(1)),
        "of nothing": case(lambda x: pt.arange(0) + x, reals(0)),
        "up to a length": case(lambda x: x * pt.arange(Shape_i(0)(x)), reals(6)),
        "of float64": case(
            lambda x, n: (pt.arange(n, dtype="float64") * x).sum(), reals(), np.array(4)
        ),
        "lower triangle": case(lambda x: pt.tril(x), reals(4, 4)),
        "upper triangle, moved": case(lambda x: pt.triu(x, 1), reals(4, 5)),
    },
    CumOp: {
        "sum": case(lambda x: pt.cumsum(x), reals(7)),
        "sum along an axis": case(lambda x: pt.cumsum(x, axis=0), reals(5, 3)),
        "sum along the last axis": case(lambda x: pt.cumsum(pt.exp(x), axis=1), reals(5, 3)),
        "sum of one": case(lambda x: pt.cumsum(x, axis=0), reals(1)),
        "sum of none": case(lambda x: pt.cumsum(x, axis=0), reals(0)),
        "sum of many": case(lambda x: pt.cumsum(x, axis=0), reals(700)),
        "sum of many rows": case(lambda x: pt.cumsum(x, axis=1), reals(30, 70)),
        "sum of integers": case(lambda x: pt.cumsum(x, axis=0), integers(9)),
        "sum of float32": case(lambda x: pt.cumsum(x, axis=0), reals(80, dtype="float32")),
        "sum of a matrix": case(lambda x: pt.cumsum(x), reals(3, 5)),
        "product of one": case(lambda x: pt.cumprod(x, axis=0), positive(1)),
        "product of none": case(lambda x: pt.cumprod(x, axis=0), positive(0)),
        "product": case(lambda x: pt.cumprod(x, axis=0), positive(9)),
        "sum of many and other work": case(
            lambda x, y: [pt.cumsum(pt.exp(x) * y), (pt.exp(x) * y).sum()],
            reals(90),
            reals(90) / 90,
        ),
        "product of many": case(lambda x: pt.cumprod(x, axis=0), positive(90)),
    },
    CheckAndRaise: {
        "holds": case(lambda x: CheckAndRaise(ValueError, "no")(x * 2, pt.all(x > -99)), reals(5)),
        "of one": case(lambda x: CheckAndRaise(ValueError, "no")(x * 2, pt.all(x > -99)), reals(1)),
        "of nothing": case(
            lambda x: CheckAndRaise(ValueError, "no")(x * 2, pt.all(x > -99)), reals(0)
        ),
        "two conditions": case(
            lambda x: CheckAndRaise(ValueError, "no")(x * 2, x[0] > -99, pt.all(x < 99)), reals(5)
        ),
    },
}
