"""``sin(alloc([[1], [2]], 2, 3) + c) -> [[..], [..]]``: compute what repeated constants give, once.

.. code::

    f(alloc(a, n, m), b)           ->  constant          a, b, n, m constant
    join(0, alloc(0, k, m), b)     ->  constant

PyTensor folds what has constant inputs, but leaves an ``Alloc`` of constants alone where an elementwise function, a
permutation of axes or a join reads it, so that it can move the ``Alloc`` through. If what else is read is constant too, there is
nothing to gain by that, and the function of constants is then computed in each evaluation. The basis of an ``HSGP``,
sines of repeated numbers, starts that way, and so does the spending before the first week of a marketing mix. No rule about rows
can know that they read a constant.

The value is what the Op itself returns, in PyTensor's own evaluation.

Where all constants are single numbers, the ``Alloc`` is left to PyTensor, which moves it, and a large array of equal entries
is not stored; nor is one of more than :data:`MOST_ENTRIES`.
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
    """Rewrite a function of constants, some of them repeated, to its value."""
    if not any(_moves_alloc(x) for x in node.inputs):
        return None
    if not all(map(_is_known, node.inputs)) or not any(map(_has_entries, node.inputs)):
        return None
    if not all(map(_is_bounded, (*node.inputs, *node.outputs))):
        return None
    known = [_folded(fgraph, x) for x in node.inputs]
    if None in known:
        return None
    return constant_folding.transform(fgraph, node.clone_with_new_inputs(known))


def _moves_alloc(x: Variable) -> bool:
    """Return whether a variable is an ``Alloc``, perhaps with other axes."""
    # By the type itself: an Op's isinstance takes long, and this is asked of each operand of a graph.
    while type(x.owner_op) is DimShuffle:
        x = x.owner.inputs[0]
    return type(x.owner_op) is Alloc


def _is_known(x: Variable) -> bool:
    """Return whether a variable is a constant, or a repetition of one."""
    if isinstance(x.owner_op, Alloc | DimShuffle):
        return all(map(_is_known, x.owner.inputs))
    return isinstance(x, Constant)


def _has_entries(x: Variable) -> bool:
    """Return whether a constant that a variable repeats has more than one entry."""
    if isinstance(x.owner_op, Alloc | DimShuffle):
        return _has_entries(x.owner.inputs[0])
    return isinstance(x.type, TensorType) and x.data.size > 1


def _is_bounded(x: Variable) -> bool:
    """Return whether a constant is of known size, and no larger than what a compiled function may well hold."""
    lengths = getattr(x.type, "shape", ())
    return None not in lengths and prod(lengths) <= MOST_ENTRIES


def _folded(fgraph: FunctionGraph, x: Variable) -> Constant | None:
    """Return the constant that a variable is, None where PyTensor can't compute it."""
    if isinstance(x, Constant):
        return x
    inputs = [_folded(fgraph, operand) for operand in x.owner.inputs]
    if None in inputs:
        return None
    folded = unconditional_constant_folding.transform(fgraph, x.owner.clone_with_new_inputs(inputs))
    return folded[0] if folded else None
