"""Degree of a graph as a polynomial in some of its variables, entry by entry."""

from collections.abc import Iterable
from math import inf

import pytensor.scalar as ps
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_fastlogp.analysis.constants import fill_value

# Entries of their result are entries of the first input.
MOVES = (DimShuffle, Subtensor, AdvancedSubtensor, Reshape, SpecifyShape, CheckAndRaise, ViewOp)


def polynomial_degree(x: Variable, variables: Iterable[Variable]) -> float:
    """Return the degree of the entries of ``x`` as polynomials in entries of ``variables``, infinite if they are none.

    Coefficients may depend on all other variables. The degree is an upper bound: terms may cancel.
    """
    degrees: dict[Variable, float] = dict.fromkeys(variables, 1)
    for node in io_toposort([], [x]):
        of_inputs = [degrees.get(i, 0) for i in node.inputs]
        if any(of_inputs):
            degrees |= dict.fromkeys(node.outputs, _degree_of(node, of_inputs))
    return degrees.get(x, 0)


def _degree_of(node: Apply, inputs: list[float]) -> float:
    """Return the degree of the output of a node, of whose inputs at least one is no constant."""
    match node.op:
        case Shape() | Shape_i():
            return 0
        case Elemwise(scalar_op=op):
            return _degree_of_elemwise(node, op, inputs)
        case Dot() | Blockwise(core_op=Dot()):
            return sum(inputs)
        case Sum():
            return inputs[0]
        case Join() | MakeVector():
            return max(inputs)
        case Alloc():
            return inputs[0] if not any(inputs[1:]) else inf
    if isinstance(node.op, MOVES) and not any(inputs[1:]):
        return inputs[0]
    return inf


def _degree_of_elemwise(node: Apply, op: ps.ScalarOp, inputs: list[float]) -> float:
    match op:
        case ps.Add() | ps.Sub() | ps.Neg() | ps.Identity():
            return max(inputs)
        case ps.Mul():
            return sum(inputs)
        case ps.Sqr():
            return 2 * inputs[0]
        case ps.TrueDiv() if not inputs[1]:
            return inputs[0]
        case ps.Pow() if not inputs[1]:
            exponent = fill_value(node.inputs[1])
            return inputs[0] * int(exponent) if exponent in (0, 1, 2) else inf
        case ps.Cast() if node.outputs[0].type.dtype.startswith("float"):
            return inputs[0]
        case ps.Switch() if not inputs[0]:
            return max(inputs[1:])
        case ps.Second():
            return inputs[1]
    return inf
