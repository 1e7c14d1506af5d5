"""Layout of the states and results of a Scan in memory: the buffer element of each step.

The buffer of a state starts with the initial values. Element ``t + k`` belongs to step t, where k counts from the oldest value that a step reads.
If only the last values are used, ``scan_save_mem`` shortens the buffer, which becomes a ring: the element is ``(t + k) % length``.

After the last step, upstream rotates such a buffer so that the last value comes last, and zeroes elements that no step wrote. Both are views here.
"""

from dataclasses import dataclass

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import ONE, ZERO, cast, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Load, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Error
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError, buffer_array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import at_least
from pymc_fastlogp.kernel.lower.linear_lengths import bounds_in_a_step, difference, linear

NO_ROOM = Error(ValueError, "Scan: the buffer of a result is empty")


@dataclass(frozen=True, eq=False)
class Trace:
    """The buffer of a state or result with history.

    Attributes
    ----------
    buffer : Buffer
        The values.
    steps : Size
        The number of steps; a negative number means no steps.
    read : tuple of int
        Offsets of the elements that a step reads, relative to its own number, all at least 0.
    written : tuple of int
        Offsets of the elements that a step writes, in the order of the outputs.
    missing : int, optional
        Number of elements that the buffer lacks to hold all values of all steps; None if unknown.
    length_in_step : Expr
        The length of the buffer, simplified under the assumption that there is a step.
    has_room : bool
        Whether the buffer is known to hold all values of all steps if there is a step.
    """

    buffer: Buffer
    steps: Size
    read: tuple[int, ...]
    written: tuple[int, ...]
    missing: int | None
    length_in_step: Expr
    has_room: bool

    @classmethod
    def of(
        cls, buffer: Buffer, steps: Size, read: tuple[int, ...], written: tuple[int, ...]
    ) -> "Trace":
        """Return the trace of a buffer."""
        used = plus(as_expr(steps), int64(max((*read, *written))))
        length, bounds = as_expr(buffer.shape[0]), bounds_in_a_step(as_expr(steps))
        missing = difference(used, length, bounds)
        has_room = missing is not None and missing <= 0
        in_step = linear(length, bounds).expr
        return cls(buffer, steps, read, written, difference(used, length, {}), in_step, has_room)

    @property
    def length(self) -> Size:
        """The length of the buffer."""
        return self.buffer.shape[0]

    def require_room(self, context: Context) -> None:
        """Append a check that the buffer is not empty if there is a step."""
        room = self.length_in_step
        if self.has_room or (isinstance(room, Const) and room.value > 0):
            return
        if isinstance(self.length, int) and isinstance(self.steps, int) and self.steps > 0:
            raise UnsupportedError(
                "a Scan with an empty buffer, for which upstream raises an exception"
            )
        is_none = truth(ps.le, as_expr(self.steps), ZERO)
        context.require(truth(ps.or_, is_none, truth(ps.gt, as_expr(self.length), ZERO)), NO_ROOM)

    def position(self, step: Expr, k: int) -> Expr:
        """Return the position in the buffer of the element with offset ``k`` of a step."""
        position = plus(step, int64(k))
        return position if self.has_room else _modulo(position, self.length_in_step)

    def at(self, step: Expr, k: int) -> Array:
        """Return the element with offset ``k`` of a step as an array."""
        position, buffer = self.position(step, k), self.buffer
        return Array(buffer.shape[1:], buffer.dtype, lambda i: Load(buffer, (position, *i)))

    def result(self) -> Array:
        """Return the buffer of a trace with one written value per step: the last value last, and zeros after it."""
        [last] = self.written
        made = plus(at_least(as_expr(self.steps), 0), int64(last))
        is_whole = self.missing is not None and self.missing <= 0
        kept = buffer_array(self.buffer) if is_whole else self._rotated(made)
        if self.missing is not None and self.missing >= 0:
            return kept
        zero = cast(ZERO, kept.dtype)
        return Array(
            kept.shape,
            kept.dtype,
            lambda i: switch(truth(ps.lt, i[0], made), kept.at(i), zero),
        )

    def _rotated(self, made: Expr) -> Array:
        """Return the ring buffer from its oldest value on."""
        kept, length = buffer_array(self.buffer), as_expr(self.length)
        shift = _modulo(made, length)
        if self.missing is None:
            is_full = truth(ps.lt, length, made)
            shift = switch(is_full, shift, ZERO)
        return kept.view(kept.shape, lambda i: (_modulo(plus(i[0], shift), length), *i[1:]))


def _modulo(position: Expr, length: Expr) -> Expr:
    if length is ONE:
        return ZERO
    if isinstance(position, Const) and isinstance(length, Const):
        return int64(position.value % max(length.value, 1))
    return Compute(ps.mod, (position, length), "int64")
