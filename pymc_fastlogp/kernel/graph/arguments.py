"""Arguments of a kernel: each constant once, in the memory order that vectors read.

A vector along the rows of a design matrix, or of a table of intervals by patients, takes one column of it. In C order that is a gather for
each column, transposed it is a load of neighbors (:mod:`pymc_fastlogp.kernel.passes.layout`). Only the program tells how a constant is read, so the
kernel is lowered once, and once more where something is turned.

The gradient of a product with a constant :math:`X` is a product with :math:`X^T`, of which PyTensor makes a second constant. Where one of them is all that the cache
next to a core can hold, the kernel reads the first one for both.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pytensor.tensor.basic import constant, moveaxis
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.lower import axes_of_vectors

# Of matrices that are read from one constant with their transposes (``python -m benchmarks.transposes``). Of those that fit into the first cache of a core, or whose columns are
# straight-line code (:mod:`pymc_fastlogp.kernel.passes.unroll`), some models are 0.95 times as fast so: what is read once has to be kept in registers.
LEAST_BYTES, LEAST_COLUMNS = 2**15, 17


class Argument(NamedTuple):
    """Kernel input as a view of a passed tensor, which several inputs may share.

    Attributes
    ----------
    variable : TensorVariable
        What the node has as its input.
    axis : int, optional
        The axis that was moved behind the others; none by default.
    """

    variable: TensorVariable
    axis: int | None = None

    def with_axes_back(self, x: TensorVariable) -> TensorVariable:
        """Return a tensor of the argument's type with its axes in the order that they had."""
        return x if self.axis is None else moveaxis(x, -1, self.axis)


def passed_once(arguments: Sequence[Argument]) -> list[TensorVariable]:
    """Return what a node with these arguments has as its inputs."""
    return list(dict.fromkeys(argument.variable for argument in arguments))


def sharing_transposes(arguments: Sequence[Argument]) -> list[Argument]:
    """Return the arguments with one constant for both where one large matrix is the transpose of another.

    The one with more rows than columns stays: along its rows, products add up the rows, or sum each of them.
    """
    matrices = [argument.variable for argument in arguments if _is_large_matrix(argument.variable)]
    kept = defaultdict[tuple[int, ...], list[TensorConstant]](list)
    shared: dict[TensorVariable, Argument] = {}
    for x in sorted(matrices, key=lambda x: -x.data.shape[0]):
        like = (y for y in kept[x.data.T.shape] if _is_transpose(x.data, y.data))
        if (other := next(like, None)) is None:
            kept[x.data.shape].append(x)
        else:
            shared[x] = Argument(other, axis=0)
    return [shared.get(argument.variable, argument) for argument in arguments]


def along_vectors(arguments: Sequence[Argument], program: Program) -> list[Argument]:
    """Return the arguments of a program, those constants transposed of which it reads columns."""
    axes = axes_of_vectors(program)
    turned = {
        x: (_turned(x, axes[buffer]), axes[buffer])
        for x, buffer in zip(passed_once(arguments), program.inputs, strict=True)
        if buffer in axes and isinstance(x, TensorConstant)
    }
    return [
        _turned_again(argument, *turned[argument.variable])
        if argument.variable in turned
        else argument
        for argument in arguments
    ]


def _is_large_matrix(x: TensorVariable) -> bool:
    if not isinstance(x, TensorConstant) or x.data.ndim != 2 or x.data.dtype != "float64":
        return False
    return x.data.nbytes >= LEAST_BYTES and min(x.data.shape) >= LEAST_COLUMNS


def _is_transpose(x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether two matrices have the same bits; a row tells most of them apart."""
    x, y = x.view(np.int64), y.view(np.int64).T
    return np.array_equal(x[:1], y[:1]) and np.array_equal(x, y)


def _turned(x: TensorConstant, axis: int) -> TensorConstant:
    data = np.ascontiguousarray(np.moveaxis(x.data, axis, -1))
    data.flags.writeable = False  # so that it need not be copied to be held
    return constant(data, name=x.name)


def _turned_again(argument: Argument, x: TensorConstant, axis: int) -> Argument:
    """Return an argument made of what it was made of, turned; a matrix that is turned twice is what it was."""
    return Argument(x, axis if argument.axis is None else None)
