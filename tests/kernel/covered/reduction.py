"""CAReduce: each operation, over all, some, leading and trailing axes."""

import numpy as np
import pytensor.tensor as pt
from pytensor import scalar as ps
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.math import Prod, ProdWithoutZeros, Sum

from tests.kernel.covered.data import booleans, integers, positive, reals
from tests.kernel.lowering import case

ZEROS = {
    "without a zero": [2.0, -3.0, 0.5],
    "with one zero": [2.0, 0.0, 0.5],
    "with two zeros": [0.0, 3.0, 0.0],
    "of nothing": [],
}


def several(x):
    """Return different reductions and an output that is not reduced."""
    y = pt.exp(x)
    return [y.sum(), y.max(), (y * x).prod(), pt.isnan(y).any(), y]


def normalized(x):
    """Return a log density that uses partial reductions twice."""
    y = x - x.max(axis=1, keepdims=True)
    return y - pt.log(pt.exp(y).sum(axis=1, keepdims=True))


def bitwise_and(x):
    return CAReduce(ps.and_, axis=(0,))(x)


def xor(x):
    return CAReduce(ps.xor, axis=(0,))(x)


CASES = {
    CAReduce: {
        "sum of all": case(lambda x: x.sum(), reals(5, 7)),
        "sum of a long vector": case(lambda x: x.sum(), reals(5001) / 5001),
        "sum of nothing": case(lambda x: x.sum(), reals(0)),
        "sum of a scalar": case(lambda x: x.sum(), reals()),
        "sum over no axes": case(lambda x: Sum(axis=())(pt.exp(x)), reals(4)),
        "sum over the leading axis": case(lambda x: x.sum(axis=0), reals(5, 7)),
        "sum over the trailing axis": case(lambda x: x.sum(axis=1), reals(5, 7)),
        "sum over the axis in the middle": case(lambda x: x.sum(axis=1), reals(3, 5, 7)),
        "sum over the outer axes": case(lambda x: x.sum(axis=(0, 2)), reals(3, 5, 7)),
        "sum over an empty axis": case(lambda x: x.sum(axis=1), reals(3, 0)),
        "sum beside an empty axis": case(lambda x: x.sum(axis=1), reals(0, 3)),
        "sum over an axis of length one": case(lambda x: x.sum(axis=0), reals(1, 6)),
        "product of all": case(lambda x: x.prod(), positive(4, 5)),
        "product over an axis": case(lambda x: x.prod(axis=0), positive(4, 5)),
        "maximum of all": case(lambda x: x.max(), reals(33)),
        "maximum over an axis": case(lambda x: x.max(axis=1), reals(4, 9)),
        "maximum of nan": case(lambda x: pt.max(x), [1.0, np.nan, 3.0]),
        "maximum of integers": case(lambda x: x.max(), integers(12, high=-2)),
        "minimum of all": case(lambda x: x.min(), reals(33)),
        "minimum of -inf": case(lambda x: x.min(), [1.0, -np.inf]),
        "minimum of integers": case(lambda x: x.min(axis=0), integers(4, 5, low=2)),
        "and": case(lambda x: [x.all(), x.all(axis=0)], booleans(3, 5)),
        "or": case(lambda x: [x.any(), x.any(axis=1)], booleans(3, 5)),
        "and of integers": case(bitwise_and, integers(7, 5)),
        "xor": case(xor, booleans(7, 5)),
        "xor of integers": case(xor, integers(7, 5)),
        "and, or and xor of nothing": case(
            lambda x: [x.all(), x.any(axis=0), xor(x)], booleans(0, 3)
        ),
        "maximum and minimum over an axis of length one": case(
            lambda x: [x.max(axis=0), x.min(axis=0)], reals(1, 6)
        ),
        "product over an empty axis": case(lambda x: x.prod(axis=1), reals(3, 0)),
        "sum of bool": case(lambda x: x.sum(), booleans(50)),
        "sum of int8 is int64": case(lambda x: x.sum(), integers(90, dtype="int8")),
        "sum of float32": case(lambda x: x.sum(axis=0), reals(6, 4, dtype="float32")),
        "sum of float32 in float64": case(
            lambda x: Sum(dtype="float32", acc_dtype="float64")(x), reals(70, dtype="float32")
        ),
        "sum of integers as float64": case(lambda x: x.sum(dtype="float64"), integers(20)),
        "product of integers": case(lambda x: x.prod(), integers(9, low=1, high=5)),
        "several, and one not reduced": case(several, reals(23) / 23),
        "partial ones and what uses them": case(normalized, reals(6, 9)),
        "of a reduction": case(lambda x: pt.exp(x.sum(axis=1)).max(), reals(6, 9)),
        **{f"product {name}": case(lambda x: x.prod(), x) for name, x in ZEROS.items()},
        "product of rows with zeros": case(
            lambda x: x.prod(axis=1), [[2.0, 3.0], [0.0, 3.0], [0.0, 0.0]]
        ),
        "product that ignores zeros": case(
            lambda x: ProdWithoutZeros(axis=(0,))(x), [[2.0, 0.0], [0.0, 3.0]], gradient=False
        ),
        "product that is known to have none": case(
            lambda x: Prod(no_zeros_in_input=True)(x), positive(5)
        ),
    }
}
