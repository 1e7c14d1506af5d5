"""Fold a function of constants some of which are repeated by an ``Alloc``.

.. code::

    f(alloc(a, n, m), b)           ->  constant          a, b, n, m constant
    join(0, alloc(0, k, m), b)     ->  constant

PyTensor does not fold an ``Alloc`` of constants below an elementwise function, a DimShuffle or a join, so that it can move the
``Alloc`` through. If all other inputs are constant too, each evaluation then computes a constant, and no rule for rows knows
that it reads one. The basis of an ``HSGP`` starts with sines of repeated numbers. A marketing mix starts with repeated zeros
before the first week. The value is the result of PyTensor's own constant folding.

When it applies
---------------
To an elementwise function or a join whose inputs are constants and ``Alloc`` of constants, possibly with permuted axes. One
constant must have more than one entry.

When it refuses
---------------
Scalar constants only: PyTensor moves the ``Alloc``, and an array of equal entries is not stored. Unknown lengths, and more than
ten million entries.
"""

from math import prod

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.rewriting.basic import constant_folding, unconditional_constant_folding
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

MOST_ENTRIES = 10_000_000


@node_rewriter([Elemwise, Join])
def local_fold_alloc(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite a function of constants, some repeated by an Alloc, to its value."""
    if not any(_is_alloc(x) for x in node.inputs):
        return None
    if not all(map(_is_known, node.inputs)) or not any(map(_has_entries, node.inputs)):
        return None
    if not all(map(_is_bounded, (*node.inputs, *node.outputs))):
        return None
    known = [_folded(fgraph, x) for x in node.inputs]
    if None in known:
        return None
    return constant_folding.transform(fgraph, node.clone_with_new_inputs(known))


def _is_alloc(x: Variable) -> bool:
    """Return whether a variable is an ``Alloc``, possibly below DimShuffles."""
    # The exact type: isinstance is slow for the abstract classes of Ops, and every operand of a graph comes here.
    while type(x.owner_op) is DimShuffle:
        x = x.owner.inputs[0]
    return type(x.owner_op) is Alloc


def _is_known(x: Variable) -> bool:
    """Return whether a variable is a constant, or an Alloc or DimShuffle of constants."""
    if isinstance(x.owner_op, Alloc | DimShuffle):
        return all(map(_is_known, x.owner.inputs))
    return isinstance(x, Constant)


def _has_entries(x: Variable) -> bool:
    """Return whether the constant below Allocs and DimShuffles has more than one entry."""
    if isinstance(x.owner_op, Alloc | DimShuffle):
        return _has_entries(x.owner.inputs[0])
    return isinstance(x.type, TensorType) and x.data.size > 1


def _is_bounded(x: Variable) -> bool:
    """Return whether a variable has a known size, up to :data:`MOST_ENTRIES`."""
    lengths = getattr(x.type, "shape", ())
    return None not in lengths and prod(lengths) <= MOST_ENTRIES


def _folded(fgraph: FunctionGraph, x: Variable) -> Constant | None:
    """Return the value of a variable as a constant; None where PyTensor cannot compute it."""
    if isinstance(x, Constant):
        return x
    inputs = [_folded(fgraph, operand) for operand in x.owner.inputs]
    if None in inputs:
        return None
    folded = unconditional_constant_folding.transform(fgraph, x.owner.clone_with_new_inputs(inputs))
    return folded[0] if folded else None
