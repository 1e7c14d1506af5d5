"""Reads and writes of the elements that indices select."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from tests.kernel.covered.data import integers, reals
from tests.kernel.lowering import case

# Each index is an input, so that nothing is known of it.
TEN = integers(23, low=0, high=10)
NEGATIVE = integers(23, low=-10, high=10)
SORTED = np.sort(TEN)
SQUARE = integers(3, 4, low=-5, high=5)
ONCE = np.array([3, 0, -1, 5])


def gathered_and_scattered(theta, i):
    """Return a log density of rows and, by its gradient, a scatter beside a sum."""
    return (pt.exp(theta[i]) * theta[i]).sum() + theta.sum()


def two_scatters(a, b, i, j, y):
    """Return a scatter into each of two arrays from one loop."""
    z = pt.exp(y)
    return [a[i].inc(z), b[j].inc(2 * z), z]


SUBTENSOR = {
    "an element": case(lambda x: x[2] * 2, reals(5)),
    "an element from the end": case(lambda x: x[-2] * 2, reals(5)),
    "an element at an input": case(lambda x, i: x[i] * 2, reals(5), np.array(3)),
    "an element at a negative input": case(lambda x, i: x[i] * 2, reals(5), np.array(-1)),
    "a row": case(lambda x: x[1] + 1, reals(3, 4)),
    "a column": case(lambda x: x[:, -1] + 1, reals(3, 4)),
    "a row at an input": case(lambda x, i: x[i] + 1, reals(3, 4), np.array(-2, "int32")),
    "all": case(lambda x: x[:] + 1, reals(5)),
    "from": case(lambda x: x[2:] + 1, reals(5)),
    "up to": case(lambda x: x[:-1] + 1, reals(5)),
    "without elements": case(lambda x: x[4:2] + 1, reals(5)),
    "beyond the end": case(lambda x: x[2:99] + 1, reals(5)),
    "before the start": case(lambda x: x[-99:3] + 1, reals(5)),
    "a step": case(lambda x: x[1::2] + 1, reals(8)),
    "backwards": case(lambda x: x[::-1] + 1, reals(5)),
    "a step backwards": case(lambda x: x[4:0:-3] + 1, reals(9)),
    "to the start backwards": case(lambda x: x[3::-1] + 1, reals(9)),
    "differences": case(lambda x: x[1:] - x[:-1], reals(9)),
    "differences of rows": case(lambda x: x[:, 1:] - x[:, :-1], reals(3, 9)),
    "bounds that are inputs": case(
        lambda x, i, j: (x[i:j] + 1).sum(), reals(9), np.array(2), np.array(7)
    ),
    "up to the sum of three lengths": case(
        lambda x, y: pt.exp(x)[: pt.add(y.shape[0], 1, y.shape[1])], reals(9), reals(2, 3)
    ),
    "negative bounds that are inputs": case(
        lambda x, i, j: (x[i:j] + 1).sum(), reals(9), np.array(-20), np.array(-2)
    ),
    "empty by inputs": case(lambda x, i, j: (x[i:j] + 1).sum(), reals(9), np.array(7), np.array(2)),
    "backwards from an input": case(lambda x, i: (x[i::-2] + 1).prod(), reals(9), np.array(50)),
    "backwards to an input": case(lambda x, i: (x[:i:-1] + 1).sum(), reals(9), np.array(-4)),
    "of a slice": case(lambda x: x[1:][2:][0] + 1, reals(9)),
    "several axes": case(lambda x: x[1:, 0, ::2] + 1, reals(4, 3, 5)),
    "of nothing": case(lambda x: x[1:] + 1, reals(0)),
    "of one": case(lambda x: [x[-1:] + 1, x[0] + 1, x[1:] + 1], reals(1)),
    "beside an empty axis": case(lambda x: x[1:] + 1, reals(3, 0)),
}

INC_SUBTENSOR = {
    "set an element": case(lambda x, y: x[2].set(y), reals(5), reals()),
    "set an element at an input": case(
        lambda x, y, i: x[i].set(y), reals(5), reals(), np.array(-2)
    ),
    "set a slice": case(lambda x, y: x[1:4].set(y), reals(5), reals(3)),
    "set a slice to a scalar": case(lambda x, y: x[1:4].set(y), reals(5), reals()),
    "set a slice to one element": case(lambda x, y: x[1:4].set(y), reals(5), reals(1)),
    "set a column": case(lambda x, y: x[:, 1].set(y), reals(4, 3), reals(4)),
    "set nothing": case(lambda x, y: x[3:3].set(y), reals(5), reals()),
    "set integers": case(lambda x, y: x[1:].set(y), integers(5), integers(4)),
    "inc an element": case(lambda x, y: x[-1].inc(y), reals(5), reals()),
    "inc a slice": case(lambda x, y: x[::2].inc(y), reals(5), reals(3)),
    "inc rows": case(lambda x, y: x[1:].inc(y), reals(4, 3), reals(3)),
    "inc a slice of runtime bounds": case(
        lambda x, y, i: x[i:].inc(y), reals(6), reals(), np.array(2)
    ),
    "inc a slice of runtime bounds with rows": case(
        lambda x, y, i: x[i:].inc(pt.exp(y)), reals(6, 3), reals(4, 3), np.array(2), gradient=False
    ),
    "inc one of one": case(lambda x, y: x[-1:].inc(y), reals(1), reals(1)),
    "set beside an empty axis": case(lambda x, y: x[1:].set(y), reals(3, 0), reals(2, 0)),
    "inc nothing of nothing": case(lambda x, y: x[:].inc(y), reals(0), reals()),
    "one after the other": case(lambda x, y: x[0].set(y[0])[1:].inc(y), reals(5), reals(4)),
    "into what is also used": case(
        lambda x, y: [pt.exp(x)[1:].inc(y), pt.exp(x).sum()], reals(5), reals(4)
    ),
}

ADVANCED_SUBTENSOR = {
    "duplicates": case(lambda x, i: x[i] * 2, reals(10), TEN),
    "sorted": case(lambda x, i: x[i] * 2, reals(10), SORTED),
    "negative": case(lambda x, i: x[i] * 2, reals(10), NEGATIVE),
    "no index": case(lambda x, i: x[i] * 2, reals(10), integers(0)),
    "one index": case(lambda x, i: x[i] * 2, reals(10), [4]),
    "of one element": case(lambda x, i: x[i] * 2, reals(1), [0, -1, 0]),
    "int32": case(lambda x, i: x[i] * 2, reals(10), TEN.astype("int32")),
    "int8": case(lambda x, i: x[i] * 2, reals(10), NEGATIVE.astype("int8")),
    "uint8": case(lambda x, i: x[i] * 2, reals(10), TEN.astype("uint8")),
    "ND": case(lambda x, i: x[i] * 2, reals(5), SQUARE),
    "rows": case(lambda x, i: x[i] * 2, reals(5, 3), SQUARE[0]),
    "columns": case(lambda x, i: x[:, i] * 2, reals(3, 5), SQUARE[0]),
    "ND columns": case(lambda x, i: x[:, i] * 2, reals(3, 5), SQUARE),
    "pairs": case(lambda x, i, j: x[i, j] * 2, reals(5, 5), SQUARE[0], SQUARE[1]),
    "pairs on the last axes": case(
        lambda x, i, j: x[:, i, j] * 2, reals(3, 5, 5), SQUARE[0], SQUARE[1]
    ),
    "pairs apart": case(lambda x, i, j: x[i, :, j] * 2, reals(5, 3, 5), SQUARE[0], SQUARE[1]),
    "ND pairs that broadcast": case(
        lambda x, i, j: x[i, j] * 2, reals(5, 5), SQUARE[:, :1], SQUARE[0]
    ),
    "a vector and a scalar": case(
        lambda x, i, j: x[i, j] * 2, reals(5, 5), SQUARE[0], np.array(-2)
    ),
    "a vector and a slice": case(lambda x, i: x[1:, i] * 2, reals(4, 5), SQUARE[0]),
    "a vector and a step": case(lambda x, i: x[i, ::2] * 2, reals(5, 6), SQUARE[0]),
    "a constant index": case(lambda x: x[np.array([0, 2, 2, -1])] * 2, reals(10)),
    "a constant matrix": case(lambda x: x[np.array([[0, 2], [2, -1]])] * 2, reals(10)),
    "a constant range": case(lambda x: x[np.arange(2, 7)] * 2, reals(10)),
    "two gathers of one loop": case(
        lambda x, y, i, j: x[i] * y[j], reals(10), reals(10), TEN, NEGATIVE
    ),
    "a gather of a gather": case(lambda x, i, j: x[j[i]] * 2, reals(10), TEN, NEGATIVE),
    "integers": case(lambda x, i: x[i] * 2, integers(10), TEN),
    "rows without elements": case(lambda x, i: x[i] * 2, reals(5, 0), SQUARE[0]),
    "no index of nothing": case(lambda x, i: x[i] * 2, reals(0), integers(0)),
    "float32": case(lambda x, i: x[i] * 2, reals(10, dtype="float32"), TEN),
    "a gather, a sum and a direct use": case(gathered_and_scattered, reals(10) / 10, TEN),
}

ADVANCED_INC_SUBTENSOR = {
    "inc with duplicates": case(lambda x, y, i: x[i].inc(y), reals(10), reals(23), TEN),
    "inc, sorted": case(lambda x, y, i: x[i].inc(y), reals(10), reals(23), SORTED),
    "inc, negative": case(lambda x, y, i: x[i].inc(y), reals(10), reals(23), NEGATIVE),
    "inc by a scalar": case(lambda x, y, i: x[i].inc(y), reals(10), reals(), TEN),
    "inc at no index": case(lambda x, y, i: x[i].inc(y), reals(10), reals(0), integers(0)),
    "inc one element": case(lambda x, y, i: x[i].inc(y), reals(1), reals(4), [0, 0, -1, 0]),
    "inc rows": case(lambda x, y, i: x[i].inc(y), reals(5, 3), reals(4, 3), SQUARE[0]),
    "inc columns": case(lambda x, y, i: x[:, i].inc(y), reals(3, 5), reals(3, 4), SQUARE[0]),
    "inc pairs": case(
        lambda x, y, i, j: x[i, j].inc(y), reals(5, 5), reals(4), SQUARE[0], SQUARE[1]
    ),
    "inc rows without elements": case(
        lambda x, y, i: x[i].inc(y), reals(5, 0), reals(4, 0), SQUARE[0]
    ),
    "set one of one": case(lambda x, y, i: x[i].set(y), reals(1), reals(1), [-1]),
    "inc ND": case(lambda x, y, i: x[i].inc(y), reals(5), reals(3, 4), SQUARE),
    "inc integers": case(lambda x, y, i: x[i].inc(y), integers(10), integers(23), TEN),
    "inc float32": case(
        lambda x, y, i: x[i].inc(y), reals(10, dtype="float32"), reals(23, dtype="float32"), TEN
    ),
    "set once": case(lambda x, y, i: x[i].set(y), reals(6), reals(4), ONCE),
    "set with duplicates": case(lambda x, y, i: x[i].set(y), reals(10), reals(23), TEN),
    "set, negative": case(lambda x, y, i: x[i].set(y), reals(10), reals(23), NEGATIVE),
    "set to a scalar": case(lambda x, y, i: x[i].set(y), reals(10), reals(), TEN),
    "set rows": case(lambda x, y, i: x[i].set(y), reals(5, 3), reals(4, 3), SQUARE[0]),
    "set pairs": case(
        lambda x, y, i, j: x[i, j].set(y), reals(5, 5), reals(4), SQUARE[0], SQUARE[1]
    ),
    "set the diagonal": case(
        lambda x, y: x[np.arange(4), np.arange(4)].set(y), reals(4, 4), reals(4)
    ),
    "set a triangle": case(
        lambda x, y: pt.zeros((4, 4))[np.tril_indices(4)].set(y) + x, reals(4, 4), reals(10)
    ),
    "two scatters of one loop": case(two_scatters, reals(10), reals(10), TEN, NEGATIVE, reals(23)),
    "into what is also used": case(
        lambda x, y, i: [pt.exp(x)[i].inc(y), pt.exp(x).sum()], reals(10), reals(23), TEN
    ),
}

CASES = {
    Subtensor: SUBTENSOR,
    IncSubtensor: INC_SUBTENSOR,
    AdvancedSubtensor: ADVANCED_SUBTENSOR,
    AdvancedIncSubtensor: ADVANCED_INC_SUBTENSOR,
}
