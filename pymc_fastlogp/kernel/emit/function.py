"""The LLVM function of a kernel: its arguments, its blocks and its exit.

.. code-block:: text

    entry:   stack variables, and null where the address of scratch is to be
    sizes:   lengths, strides, allocation of scratch on the heap; goes to exit where there is no memory
    start:   the loops, one after the other, each with the scratch that no other needed before; a failed check goes to exit
    exit:    free scratch, return the status

The first two blocks are closed last, so that whatever needs a stack variable or a length can add to them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from llvmlite import ir

from pymc_fastlogp.kernel.emit import buffers
from pymc_fastlogp.kernel.emit.access_patterns import AccessPatterns
from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.emit.bounds import bounded
from pymc_fastlogp.kernel.emit.outlining import Part
from pymc_fastlogp.kernel.emit.scope import Known, Scope
from pymc_fastlogp.kernel.ir.expressions import Buffer, Load, Size
from pymc_fastlogp.kernel.ir.loops import Loop, Program
from pymc_fastlogp.kernel.ir.traversal import counters, loaded, loops_in, reads, writes
from pymc_fastlogp.kernel.llvm import (
    ALIGNMENT,
    I8,
    I64,
    POINTER,
    Number,
    as_i64,
    lane,
    stack_variable,
)
from pymc_fastlogp.kernel.native.target import checks_bounds
from pymc_fastlogp.kernel.vecmath.vector import Lanes

# A status; those of a program's errors are positive.
OUT_OF_MEMORY = -1
NO_LOOP = AccessPatterns(Loop((), ()))
NULL = POINTER(None)
BLOCKS = ("entry", "sizes", "start", "exit")


class Room(NamedTuple):
    """Buffers that are allocated together, and where the pointer to the first is kept, null before."""

    slot: ir.Value
    buffers: tuple[Buffer, ...]


class Function:
    """A function under construction; the builder is where the next loop goes.

    Parameters
    ----------
    module : llvmlite.ir.Module
        Where it is added.
    program : Program
        Whose arguments, constants and scratch it has.
    name : str
        Of the function.
    contiguous : sequence of bool
        For each input whether it is C-contiguous.
    given : sequence of int
        The numbers of the inputs that are arguments, which are all but for a part of a program.
    lanes : int
        How many a vector has at most.
    uses_gathers : bool
        Whether code has gather and scatter instructions.
    """

    def __init__(
        self,
        module: ir.Module,
        program: Program,
        name: str,
        contiguous: Sequence[bool],
        given: Sequence[int],
        lanes: int,
        uses_gathers: bool,
    ):
        self.lanes = lanes
        inputs = {number: program.inputs[number] for number in given}
        self.function = ir.Function(module, _signature(inputs.values(), program.outputs), name)
        self.function.attributes.add("nounwind")
        # Without it LLVM spills vectors to a stack that is not aligned for them.
        self.function.attributes.alignstack = ALIGNMENT
        self._blocks = [self.function.append_basic_block(name) for name in BLOCKS]
        _, sizes, self.builder, self._exit = map(ir.IRBuilder, self._blocks)
        self._status = self._exit.phi(I64)
        self.known = Known({}, {}, uses_gathers)
        self._sizes = Scope(sizes, self.known, NO_LOOP)
        # What is allocated later, or never, and with what else.
        self._late: list[Buffer] = []
        self._rooms: dict[Buffer, Room] = {}
        self._allocated: list[ir.Value] = []
        self._inputs = self._place_inputs(inputs, contiguous)
        self._place_outputs(program.outputs)
        for buffer in program.constants:
            self._place(buffer, buffers.constant(module, f"{name}.{buffer.name}", buffer))
        self._place_scratch(program)

    def length(self, size: Size) -> Number:
        """Return a length, as an int if it is static."""
        return size if isinstance(size, int) else self._sizes.number(size)

    def pointer_of(self, buffer: Buffer) -> ir.Value:
        """Return where a buffer begins."""
        return self.known.arrays[buffer].pointer

    def require(self, builder: ir.IRBuilder, truth: Lanes, status: int) -> None:
        """Append an exit with a status where a condition, of one lane, is false."""
        self._exit_unless(builder, lane(builder, truth.value, 0), status)

    def make_room(self, builder: ir.IRBuilder, loop: Loop) -> None:
        """Append the allocation of the late scratch of a loop, unless an earlier loop did it."""
        needed = self._late_in([loop])
        for buffer in needed:
            if buffer not in self._rooms:
                self._add_room([buffer])
        self._enter_rooms(builder, needed)

    def call_part(self, function: ir.Function, part: Part) -> None:
        """Append the call of the function of a part, with the arguments that it has."""
        needed = self._late_in(loops_in(part.program.steps))
        # At once: LLVM takes time by the square for exits, and the part knows that what it is given does not overlap.
        self._add_room([buffer for buffer in needed if buffer not in self._rooms])
        self._enter_rooms(self.builder, needed)
        # A call is not behind a condition, as loops may be, so none of it is late any more.
        here = {*needed}
        self._late = [buffer for buffer in self._late if buffer not in here]
        inputs = [x for number in part.given for x in self._inputs[number]]
        self._call(function, [*inputs, *map(self.pointer_of, part.program.outputs)])

    def call_if(self, failed: Buffer, again: ir.Function) -> None:
        """Append the call of a function that computes the outputs again, if the assumption failed."""
        when = Scope(self.builder, self.known, NO_LOOP).scalar(Load(failed, ()))
        with self.builder.if_then(when, likely=False):
            self._call(again, self.function.args)

    def _call(self, function: ir.Function, arguments: Sequence[ir.Value]) -> None:
        status = self.builder.call(function, arguments)
        succeeded = self.builder.icmp_signed("==", status, I64(0))
        self._exit_unless(self.builder, succeeded, status)

    def finish(self) -> ir.Function:
        """Close all blocks and return the function."""
        self._status.add_incoming(I64(0), self.builder.block)
        self.builder.branch(self._exit.block)
        slots = dict.fromkeys(room.slot for room in self._rooms.values())
        late = [self._exit.load(slot, typ=POINTER) for slot in slots]
        buffers.free(self._exit, [*self._allocated, *late])
        self._exit.ret(self._status)
        entry, sizes, start, _ = self._blocks
        ir.IRBuilder(entry).branch(sizes)
        self._sizes.builder.branch(start)
        return self.function

    def _place_inputs(
        self, inputs: Mapping[int, Buffer], contiguous: Sequence[bool]
    ) -> dict[int, list[ir.Value]]:
        """Return the arguments of each input."""
        arguments, found = iter(self.function.args), {}
        for number, buffer in inputs.items():
            found[number] = [next(arguments) for _ in range(1 + 2 * buffer.ndim)]
            array = place_input(buffer, number, iter(found[number]), self.known.lengths)
            array.pointer.add_attribute("noalias")
            if contiguous[number]:
                self._place(buffer, array.pointer)
            else:
                lengths = [self.known.lengths[number, axis] for axis in range(buffer.ndim)]
                self._know(buffer, array, lengths)
        return found

    def _place_outputs(self, outputs: Sequence[Buffer]) -> None:
        """Place what the last arguments point to."""
        pointers = self.function.args[len(self.function.args) - len(outputs) :]
        for buffer, pointer in zip(outputs, pointers, strict=True):
            pointer.add_attribute("noalias")
            self._place(buffer, pointer)

    def _place_scratch(self, program: Program) -> None:
        on_stack = buffers.on_stack(program.scratch)
        always = _used_in_every_call(program)
        sizes = self._sizes.builder
        for buffer in program.scratch:
            if buffer in on_stack:
                self._place(buffer, buffers.stack(sizes, buffer))
            elif buffer in always:
                lengths = [self.length(size) for size in buffer.shape]
                n_bytes = buffers.n_bytes(sizes, buffer, lengths)
                self._allocated.append(buffers.allocate(sizes, n_bytes))
                self._place(buffer, buffers.aligned(sizes, self._allocated[-1]))
            else:
                self._late.append(buffer)
        for allocated in self._allocated:
            self._exit_unless(sizes, _was_given(sizes, allocated), OUT_OF_MEMORY)

    def _late_in(self, loops: Iterable[Loop]) -> list[Buffer]:
        """Return the late scratch that some loops use."""
        used = set[Buffer]().union(*(reads(loop) | writes(loop) for loop in loops))
        return [buffer for buffer in self._late if buffer in used]

    def _add_room(self, together: Sequence[Buffer]) -> None:
        """Let buffers be allocated together, by the first that needs one of them."""
        if not together:
            return
        room = Room(stack_variable(self._sizes.builder, POINTER), tuple(together))
        # Before all exits, which free what is in the slot: the block of sizes has some already.
        with self._sizes.builder.goto_entry_block():
            self._sizes.builder.store(NULL, room.slot)
        self._rooms.update(dict.fromkeys(together, room))

    def _enter_rooms(self, builder: ir.IRBuilder, needed: Sequence[Buffer]) -> None:
        """Append the allocation of the rooms of some buffers, where that has not happened, and place what is in them."""
        for room in dict.fromkeys(self._rooms[buffer] for buffer in needed):
            sizes = [self._n_bytes(buffer) for buffer in room.buffers]
            is_new = builder.icmp_unsigned("==", builder.load(room.slot, typ=POINTER), NULL)
            with builder.if_then(is_new):
                builder.store(buffers.allocate(builder, buffers.sum_of(builder, sizes)), room.slot)
            allocated = builder.load(room.slot, typ=POINTER)
            self._exit_unless(builder, _was_given(builder, allocated), OUT_OF_MEMORY)
            begin = buffers.aligned(builder, allocated)
            for buffer, n_bytes in zip(room.buffers, sizes, strict=True):
                self._place(buffer, begin)
                begin = builder.gep(begin, [as_i64(n_bytes)], source_etype=I8)

    def _n_bytes(self, buffer: Buffer) -> Number:
        lengths = [self.length(size) for size in buffer.shape]
        return buffers.n_bytes(self._sizes.builder, buffer, lengths)

    def _place(self, buffer: Buffer, pointer: ir.Value) -> None:
        lengths = [self.length(size) for size in buffer.shape]
        array = buffers.contiguous(self._sizes.builder, pointer, buffer, lengths)
        self._know(buffer, array, lengths)

    def _know(self, buffer: Buffer, array: Array, lengths: Sequence[Number]) -> None:
        if checks_bounds():
            array = bounded(self._sizes.builder, array, lengths, buffer.name)
        self.known.arrays[buffer] = array

    def _exit_unless(self, builder: ir.IRBuilder, truth: ir.Value, status: Number) -> None:
        going_on = builder.append_basic_block("ok")
        self._status.add_incoming(as_i64(status), builder.block)
        builder.cbranch(truth, going_on, self._exit.block)
        builder.position_at_end(going_on)


def _used_in_every_call(program: Program) -> set[Buffer]:
    """Return what counters, loops without a condition, and the conditions of the others read or write."""
    every = list(loops_in(program.steps))
    loops = [loop for loop in every if loop.when is None]
    conditions = loaded([loop.when for loop in every if loop.when is not None])
    return {*counters(program.steps), *conditions}.union(
        *(reads(loop) | writes(loop) for loop in loops)
    )


def _was_given(builder: ir.IRBuilder, allocated: ir.Value) -> ir.Value:
    return builder.icmp_unsigned("!=", allocated, NULL)


def place_input(
    buffer: Buffer,
    number: int,
    arguments: Iterator[ir.Value],
    lengths: dict[tuple[int, int], ir.Value],
) -> Array:
    """Take the arguments of an input; add its lengths, and return it as read through its strides."""
    pointer = next(arguments)
    lengths.update({(number, axis): next(arguments) for axis in range(buffer.ndim)})
    return buffers.strided(pointer, buffer, [next(arguments) for _ in range(buffer.ndim)])


def signature(program: Program) -> ir.FunctionType:
    """Return the type of the function of a program, see :func:`~pymc_fastlogp.kernel.emit.kernel.emit`."""
    return _signature(program.inputs, program.outputs)


def _signature(inputs: Iterable[Buffer], outputs: Sequence[Buffer]) -> ir.FunctionType:
    arguments: list[ir.Type] = []
    for buffer in inputs:
        arguments += [POINTER, *[I64] * (2 * buffer.ndim)]
    return ir.FunctionType(I64, [*arguments, *[POINTER] * len(outputs)])
