"""Broadcasting: the common shape of arrays, and the index into a broadcast array."""

from collections.abc import Sequence

from pymc_fastlogp.kernel.ir.arithmetic import ZERO
from pymc_fastlogp.kernel.ir.expressions import Expr, Size
from pymc_fastlogp.kernel.ir.loops import Error
from pymc_fastlogp.kernel.lower.context import Context

INCOMPATIBLE = Error(ValueError, "Incompatible vectorized shapes")


def broadcast_shape(
    context: Context,
    shapes: Sequence[tuple[Size, ...]],
    broadcastable: Sequence[tuple[bool, ...]],
) -> tuple[Size, ...]:
    """Return the common shape of shapes with equally many axes, and append checks of lengths that may differ at run time.

    Only axes that are statically broadcastable are broadcast. As upstream, an axis whose length happens to be 1 is not.
    """
    common = []
    for sizes, repeated in zip(zip(*shapes), zip(*broadcastable)):
        # A dict keeps the order of the arrays, so that every process makes the same program.
        fixed = dict.fromkeys(n for n, is_repeated in zip(sizes, repeated) if not is_repeated)
        first, *others = sorted(fixed, key=lambda size: not isinstance(size, int)) or [1]
        for other in others:
            context.require_equal(first, other, INCOMPATIBLE)
        common.append(first)
    return tuple(common)


def broadcast_leading(context: Context, *shapes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Return the common shape of shapes with different numbers of axes, by NumPy's rules."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + shape for shape in shapes]
    return broadcast_shape(context, padded, [tuple(n == 1 for n in shape) for shape in padded])


def broadcast_index(shape: tuple[Size, ...], index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the index into an array that is broadcast along axes of length 1 and new leading axes."""
    trailing = index[len(index) - len(shape) :]
    return tuple(ZERO if size == 1 else i for size, i in zip(shape, trailing, strict=True))
