"""What is passed to a kernel in place of a variable: a constant of which vectors read columns is passed transposed.

A vector along the rows of a design matrix, or of a table of intervals by patients, takes one column of it. In C order that is a gather for
each column, transposed it is a load of neighbours (:mod:`pymc_fastlogp.kernel.passes.layout`). Only the program tells how a constant is read, so the
kernel is lowered once, and once more where something is turned.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pytensor.tensor.basic import constant, moveaxis
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.lower import axes_of_vectors


class Argument(NamedTuple):
    """A tensor that is passed.

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


def along_vectors(arguments: Sequence[Argument], program: Program) -> list[Argument]:
    """Return the arguments of a program, those constants transposed of which it reads columns."""
    axes = axes_of_vectors(program)
    return [
        _turned(argument.variable, axes[buffer])
        if buffer in axes and isinstance(argument.variable, TensorConstant)
        else argument
        for argument, buffer in zip(arguments, program.inputs, strict=True)
    ]


def _turned(x: TensorConstant, axis: int) -> Argument:
    data = np.ascontiguousarray(np.moveaxis(x.data, axis, -1))
    data.flags.writeable = False  # so that it need not be copied to be held
    return Argument(constant(data, name=x.name), axis)
