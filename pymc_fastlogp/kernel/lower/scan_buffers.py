"""The values of a state or of a result of a Scan in memory: which element belongs to which step.

The initial value of a state is the start of its buffer, which is as long as what is kept of it: element ``t + k``
belongs to step t, k counted from the oldest value that a step reads. Where only the last values are
wanted, ``scan_save_mem`` has made the buffer shorter, and the place is ``(t + k) % length``. What upstream does at the
end, to turn such a buffer so that the last value comes last, and to set to zero what no step wrote, are views here.
"""

from dataclasses import dataclass

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import ONE, ZERO, cast, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Load, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Error
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError, of_buffer
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import at_least
from pymc_fastlogp.kernel.lower.linear_lengths import bounds_in_a_step, difference, linear

NO_ROOM = Error(ValueError, "Scan: there is no room for what a step gives")


@dataclass(frozen=True, eq=False)
class Trace:
    """The values of a state or of a result.

    Attributes
    ----------
    steps : Size
        The number of steps; none if it is negative.
    read : tuple of int
        Which elements a step reads, relative to its own number, all at least 0.
    written : tuple of int
        Which elements it writes, in the order of the outputs.
    missing : int, optional
        By how much the buffer is shorter than what all steps read and write; None where that is not known.
    length_in_step : Expr
        The number of values for which there is room, in a step.
    has_room : bool
        Whether there is known to be room for all values, if there is a step.
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
        """Return the trace in a buffer."""
        used = plus(as_expr(steps), int64(max((*read, *written))))
        length, bounds = as_expr(buffer.shape[0]), bounds_in_a_step(as_expr(steps))
        missing = difference(used, length, bounds)
        has_room = missing is not None and missing <= 0
        in_step = linear(length, bounds).expr
        return cls(buffer, steps, read, written, difference(used, length, {}), in_step, has_room)

    @property
    def length(self) -> Size:
        """For how many values there is room."""
        return self.buffer.shape[0]

    def require_room(self, context: Context) -> None:
        """Append a check that there is room for a value if there is a step."""
        room = self.length_in_step
        if self.has_room or (isinstance(room, Const) and room.value > 0):
            return
        if isinstance(self.length, int) and isinstance(self.steps, int) and self.steps > 0:
            raise UnsupportedError("no room for a step of a Scan, for which upstream raises")
        is_none = truth(ps.le, as_expr(self.steps), ZERO)
        context.require(truth(ps.or_, is_none, truth(ps.gt, as_expr(self.length), ZERO)), NO_ROOM)

    def place(self, step: Expr, k: int) -> Expr:
        """Return where step number ``step`` finds its element k."""
        place = plus(step, int64(k))
        return place if self.has_room else _modulo(place, self.length_in_step)

    def at(self, step: Expr, k: int) -> Array:
        """Return what a step reads."""
        place, buffer = self.place(step, k), self.buffer
        return Array(buffer.shape[1:], buffer.dtype, lambda i: Load(buffer, (place, *i)))

    def result(self) -> Array:
        """Return all that is kept of what was written at one place a step: the last value last, and zero behind it."""
        [last] = self.written
        made = plus(at_least(as_expr(self.steps), 0), int64(last))
        is_whole = self.missing is not None and self.missing <= 0
        kept = of_buffer(self.buffer) if is_whole else self._turned(made)
        if self.missing is not None and self.missing >= 0:
            return kept
        zero = cast(ZERO, kept.dtype)
        return Array(
            kept.shape,
            kept.dtype,
            lambda i: switch(truth(ps.lt, i[0], made), kept.at(i), zero),
        )

    def _turned(self, made: Expr) -> Array:
        """Return the buffer from the oldest value on, where later ones took the places of earlier ones."""
        kept, length = of_buffer(self.buffer), as_expr(self.length)
        shift = _modulo(made, length)
        if self.missing is None:
            is_full = truth(ps.lt, length, made)
            shift = switch(is_full, shift, ZERO)
        return kept.view(kept.shape, lambda i: (_modulo(plus(i[0], shift), length), *i[1:]))


def _modulo(place: Expr, length: Expr) -> Expr:
    if length is ONE:
        return ZERO
    if isinstance(place, Const) and isinstance(length, Const):
        return int64(place.value % max(length.value, 1))
    return Compute(ps.mod, (place, length), "int64")
