"""Broadcasting of written values along axes whose length is known only at run time.

PyTensor does not allow that, NumPy does. Upstream's code for Numba does as NumPy where it writes values, except where ``FuseElemwise``
makes the write part of the loop over the Elemwise that computes them: there it raises. A kernel does the same.
"""

from collections.abc import Mapping, Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pymc_fastlogp.kernel.ir.loops import Size

Clients = Mapping[Variable, Sequence[tuple[Apply, int]]]


def repeats_values(node: Apply, selected: tuple[Size, ...], clients: Clients) -> bool:
    """Return whether upstream repeats values along axes that are not known to be of length 1, where it writes to a shape."""
    given = node.inputs[1]
    if not isinstance(node.op, AdvancedIncSubtensor) or _number_of_writes(clients[given]) != 1:
        return True
    values = _without_padding(given, clients)
    leading = len(selected) - given.type.ndim
    if not _is_a_loop(values) or not _fits(node, leading, values.type.ndim):
        return True
    along = selected[leading : leading + values.type.ndim]
    return any(is_one and n != 1 for is_one, n in zip(values.type.broadcastable, along))


def _number_of_writes(readers: Sequence[tuple[Apply, int]]) -> int:
    return sum(isinstance(reader.op, AdvancedIncSubtensor) and i == 1 for reader, i in readers)


def _without_padding(given: Variable, clients: Clients) -> Variable:
    """Return the values without axes that were added behind theirs for this write alone."""
    if given.owner is None or not isinstance(given.owner.op, DimShuffle):
        return given
    [values] = given.owner.inputs
    is_alone = len(clients[given]) == len(clients[values]) == 1
    return values if given.owner.op.is_right_expand_dims and is_alone else given


def _is_a_loop(values: Variable) -> bool:
    """Return whether values are computed by an Elemwise of more than scalars."""
    if values.owner is None or not isinstance(values.owner.op, Elemwise):
        return False
    return not all(all(x.type.broadcastable) for x in values.owner.inputs)


def _fits(node: Apply, leading: int, ndim: int) -> bool:
    """Return whether index arrays are at neighboring axes, which the values have too, and all other axes are whole."""
    entries = node.op.idx_list
    axes = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    behind = axes[0] + max(node.inputs[2 + entries[axis]].type.ndim for axis in axes)
    are_neighbors = axes[-1] - axes[0] + 1 == len(axes)
    are_whole = all(entry == slice(None) for entry in entries if isinstance(entry, slice))
    return are_neighbors and are_whole and 0 <= leading <= axes[0] and behind <= leading + ndim
