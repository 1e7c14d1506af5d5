"""Elemwise, Composite among them."""

import pytensor.tensor as pt
from pytensor import scalar as ps
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise

from tests.kernel.covered.data import booleans, integers, positive, reals
from tests.kernel.lowering import case


def composite(x, y):
    """Return two outputs of one Composite."""
    a, b = ps.float64("a"), ps.float64("b")
    inner = Composite([a, b], [ps.exp(a) * b, ps.sub(ps.exp(a), b)])
    return Elemwise(inner)(x, y)


def shared_work(x):
    """Return three outputs of different shapes that share an intermediate."""
    y = pt.exp(x)
    return [y, y + 1, (y * 2)[0]]


CASES = {
    Elemwise: {
        "scalars": case(lambda x, y: x * y + 1, reals(), reals()),
        "vectors": case(lambda x, y: pt.exp(x) / y, reals(19), positive(19)),
        "long vectors": case(lambda x: pt.log1p(x) - x, positive(1027)),
        "no elements": case(lambda x: pt.exp(x) + 1, reals(0)),
        "one element": case(lambda x: pt.exp(x) + 1, reals(1)),
        "an empty axis of two": case(lambda x, y: x * y, reals(3, 0), reals(3, 1)),
        "rows and columns": case(lambda x, y: x - y, reals(5, 1), reals(1, 7)),
        "a scalar and a matrix": case(lambda x, y: x * y, reals(), reals(4, 5)),
        "axes of length one": case(lambda x, y: x * y, reals(1, 1), reals(1, 1)),
        "four axes": case(lambda x, y: x + y * y, reals(2, 3, 1, 5), reals(2, 1, 4, 5)),
        "a Composite of two outputs": case(composite, reals(9), reals(9), gradient=False),
        "outputs that share work": case(shared_work, reals(6)),
        "an output that is an input": case(lambda x: [x, x + 1], reals(6)),
        "an output twice": case(lambda x: [pt.exp(x), pt.exp(x)], reals(6)),
        "float32": case(
            lambda x, y: pt.exp(x) * y, reals(17, dtype="float32"), reals(17, dtype="float32")
        ),
        "float32 and float64": case(lambda x, y: x * y, reals(9, dtype="float32"), reals(9)),
        "int64": case(lambda x, y: x * y - pt.maximum(x, y), integers(20), integers(20)),
        "int8 and int32": case(
            lambda x, y: x + y, integers(20, dtype="int8"), integers(20, dtype="int32")
        ),
        "int32 and float64": case(lambda x, y: x * y, integers(20, dtype="int32"), reals(20)),
        "bool": case(lambda x, y: [x & ~y, x | y, x ^ y], booleans(20), booleans(20)),
        "comparisons": case(lambda x, y: [pt.lt(x, y), pt.eq(x, x)], reals(20), reals(20)),
        "switch": case(lambda c, x, y: pt.switch(c, x, y), booleans(20), reals(20), integers(20)),
        "casts": case(
            lambda x: [x.astype("int32"), x.astype("float32"), x.astype("bool")], 4 * reals(20)
        ),
        "second": case(lambda x, y: pt.second(x, y), reals(3, 4), reals()),
    }
}
