"""The LLVM function of a kernel: its arguments, its basic blocks and its exit.

.. code-block:: text

    entry:   stack variables, and null in the slots of scratch buffers that are allocated later
    sizes:   lengths, strides, allocation of scratch buffers on the heap; jumps to exit if there is no memory
    start:   the steps in order, each after the allocation of the scratch buffers that it uses first; a failed check jumps to exit
    exit:    frees scratch buffers, returns the status

The blocks entry and sizes are closed last, so that later code can still add stack variables and lengths to them.
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

# A status of the function. The statuses of checks are positive.
OUT_OF_MEMORY = -1
NO_LOOP = AccessPatterns(Loop((), ()))
NULL = POINTER(None)
BLOCKS = ("entry", "sizes", "start", "exit")


class LazyAllocation(NamedTuple):
    """Buffers that are allocated together.

    Attributes
    ----------
    slot : llvmlite.ir.Value
        Stack variable with the address of the allocation, null before the allocation.
    buffers : tuple of Buffer
        Buffers in the order of their memory.
    """

    slot: ir.Value
    buffers: tuple[Buffer, ...]


class Function:
    """A function under construction; ``builder`` is positioned where the next step is appended.

    Parameters
    ----------
    module : llvmlite.ir.Module
        Module to extend.
    program : Program
        Program whose inputs, outputs, constants and scratch buffers the function has.
    name : str
        Symbol of the function.
    contiguous : sequence of bool
        For each input whether it is C-contiguous.
    given : sequence of int
        Numbers of the inputs that are arguments: all inputs, except in an outlined part of a program.
    lanes : int
        Largest number of lanes of a vector.
    uses_gathers : bool
        Whether to use gather and scatter instructions.
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
        self.module, self.program, self.contiguous = module, program, contiguous
        self.lanes = lanes
        inputs = {number: program.inputs[number] for number in given}
        self.function = ir.Function(module, _signature(inputs.values(), program.outputs), name)
        self.function.attributes.add("nounwind")
        # Without this attribute LLVM spills vectors to a stack that is not aligned for vectors.
        self.function.attributes.alignstack = ALIGNMENT
        self._blocks = [self.function.append_basic_block(name) for name in BLOCKS]
        _, sizes, self.builder, self._exit = map(ir.IRBuilder, self._blocks)
        self._status = self._exit.phi(I64)
        self.known = Known({}, {}, uses_gathers)
        self._sizes = Scope(sizes, self.known, NO_LOOP)
        # Scratch buffers that are allocated later or never, and the allocations that they are part of.
        self._lazy: list[Buffer] = []
        self._lazy_allocations: dict[Buffer, LazyAllocation] = {}
        self._allocated: list[ir.Value] = []
        self._inputs = self._place_inputs(inputs, contiguous)
        self._place_outputs(program.outputs)
        for buffer in program.constants:
            self._place_at(buffer, buffers.constant(module, f"{name}.{buffer.name}", buffer))
        self._allocate_scratch(program)

    def arguments_of(self, buffer: Buffer) -> list[ir.Value]:
        """Return the arguments by which a buffer is passed on: its pointer, and the lengths and strides of an input."""
        if buffer in self.program.inputs:
            return self._inputs[self.program.inputs.index(buffer)]
        return [self.pointer_of(buffer)]

    def length(self, size: Size) -> Number:
        """Return a length: an int if it is static."""
        return size if isinstance(size, int) else self._sizes.number(size)

    def pointer_of(self, buffer: Buffer) -> ir.Value:
        """Return the address of a buffer."""
        return self.known.arrays[buffer].pointer

    def require(self, builder: ir.IRBuilder, truth: Lanes, status: int) -> None:
        """Append an exit with a status if a condition of one lane is false."""
        self._exit_unless(builder, lane(builder, truth.value, 0), status)

    def allocate_scratch(self, builder: ir.IRBuilder, loop: Loop) -> None:
        """Append the allocation of the lazily allocated scratch buffers of a loop, unless an earlier loop allocated them."""
        needed = self._lazy_in([loop])
        for buffer in needed:
            if buffer not in self._lazy_allocations:
                self._add_lazy_allocation([buffer])
        self._allocate_lazily(builder, needed)

    def call_part(self, function: ir.Function, part: Part) -> None:
        """Append the call of the function of an outlined part."""
        needed = self._lazy_in(loops_in(part.program.steps))
        # One allocation for all: LLVM takes quadratic time in the number of exits, and the part still assumes that its arguments do not overlap.
        self._add_lazy_allocation(
            [buffer for buffer in needed if buffer not in self._lazy_allocations]
        )
        self._allocate_lazily(self.builder, needed)
        # Unlike a conditional loop, the call always runs. So later steps need not allocate these buffers.
        here = {*needed}
        self._lazy = [buffer for buffer in self._lazy if buffer not in here]
        inputs = [x for number in part.given for x in self._inputs[number]]
        self._call(function, [*inputs, *map(self.pointer_of, part.program.outputs)])

    def call_if(self, failed: Buffer, again: ir.Function) -> None:
        """Append a conditional call of the fallback, which computes the outputs again if a speculated check failed."""
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
        slots = dict.fromkeys(allocation.slot for allocation in self._lazy_allocations.values())
        lazy = [self._exit.load(slot, typ=POINTER) for slot in slots]
        buffers.free(self._exit, [*self._allocated, *lazy])
        self._exit.ret(self._status)
        entry, sizes, start, _ = self._blocks
        ir.IRBuilder(entry).branch(sizes)
        self._sizes.builder.branch(start)
        return self.function

    def _place_inputs(
        self, inputs: Mapping[int, Buffer], contiguous: Sequence[bool]
    ) -> dict[int, list[ir.Value]]:
        """Place the inputs, and return the arguments of each input."""
        arguments, found = iter(self.function.args), {}
        for number, buffer in inputs.items():
            found[number] = [next(arguments) for _ in range(1 + 2 * buffer.ndim)]
            array = place_input(buffer, number, iter(found[number]), self.known.lengths)
            array.pointer.add_attribute("noalias")
            if contiguous[number]:
                self._place_at(buffer, array.pointer)
            else:
                lengths = [self.known.lengths[number, axis] for axis in range(buffer.ndim)]
                self._register_array(buffer, array, lengths)
        return found

    def _place_outputs(self, outputs: Sequence[Buffer]) -> None:
        """Place the outputs, whose pointers are the last arguments."""
        pointers = self.function.args[len(self.function.args) - len(outputs) :]
        for buffer, pointer in zip(outputs, pointers, strict=True):
            pointer.add_attribute("noalias")
            self._place_at(buffer, pointer)

    def _allocate_scratch(self, program: Program) -> None:
        on_stack = buffers.on_stack(program.scratch)
        always = _used_in_every_call(program)
        sizes = self._sizes.builder
        for buffer in program.scratch:
            if buffer in on_stack:
                self._place_at(buffer, buffers.stack(sizes, buffer))
            elif buffer in always:
                lengths = [self.length(size) for size in buffer.shape]
                n_bytes = buffers.n_bytes(sizes, buffer, lengths)
                self._allocated.append(buffers.allocate(sizes, n_bytes))
                self._place_at(buffer, buffers.aligned(sizes, self._allocated[-1]))
            else:
                self._lazy.append(buffer)
        for allocated in self._allocated:
            self._exit_unless(sizes, _is_allocated(sizes, allocated), OUT_OF_MEMORY)

    def _lazy_in(self, loops: Iterable[Loop]) -> list[Buffer]:
        """Return the lazily allocated scratch buffers that some loops use."""
        used = set[Buffer]().union(*(reads(loop) | writes(loop) for loop in loops))
        return [buffer for buffer in self._lazy if buffer in used]

    def _add_lazy_allocation(self, together: Sequence[Buffer]) -> None:
        """Declare that buffers are allocated together, before the first loop that uses one of them."""
        if not together:
            return
        allocation = LazyAllocation(stack_variable(self._sizes.builder, POINTER), tuple(together))
        # Before all exits, which free the address in the slot. The block of sizes already has exits.
        with self._sizes.builder.goto_entry_block():
            self._sizes.builder.store(NULL, allocation.slot)
        self._lazy_allocations.update(dict.fromkeys(together, allocation))

    def _allocate_lazily(self, builder: ir.IRBuilder, needed: Sequence[Buffer]) -> None:
        """Append the allocation of some lazily allocated buffers, unless it has happened, and place the buffers."""
        for allocation in dict.fromkeys(self._lazy_allocations[buffer] for buffer in needed):
            sizes = [self._n_bytes(buffer) for buffer in allocation.buffers]
            is_new = builder.icmp_unsigned("==", builder.load(allocation.slot, typ=POINTER), NULL)
            with builder.if_then(is_new):
                builder.store(
                    buffers.allocate(builder, buffers.sum_of(builder, sizes)), allocation.slot
                )
            allocated = builder.load(allocation.slot, typ=POINTER)
            self._exit_unless(builder, _is_allocated(builder, allocated), OUT_OF_MEMORY)
            begin = buffers.aligned(builder, allocated)
            for buffer, n_bytes in zip(allocation.buffers, sizes, strict=True):
                self._place_at(buffer, begin)
                begin = builder.gep(begin, [as_i64(n_bytes)], source_etype=I8)

    def _n_bytes(self, buffer: Buffer) -> Number:
        lengths = [self.length(size) for size in buffer.shape]
        return buffers.n_bytes(self._sizes.builder, buffer, lengths)

    def _place_at(self, buffer: Buffer, pointer: ir.Value) -> None:
        lengths = [self.length(size) for size in buffer.shape]
        array = buffers.contiguous(self._sizes.builder, pointer, buffer, lengths)
        self._register_array(buffer, array, lengths)

    def _register_array(self, buffer: Buffer, array: Array, lengths: Sequence[Number]) -> None:
        if checks_bounds():
            array = bounded(self._sizes.builder, array, lengths, buffer.name)
        self.known.arrays[buffer] = array

    def _exit_unless(self, builder: ir.IRBuilder, truth: ir.Value, status: Number) -> None:
        going_on = builder.append_basic_block("ok")
        self._status.add_incoming(as_i64(status), builder.block)
        builder.cbranch(truth, going_on, self._exit.block)
        builder.position_at_end(going_on)


def _used_in_every_call(program: Program) -> set[Buffer]:
    """Return the counters, and the buffers that unconditional loops or conditions of loops use."""
    every = list(loops_in(program.steps))
    loops = [loop for loop in every if loop.when is None]
    conditions = loaded([loop.when for loop in every if loop.when is not None])
    return {*counters(program.steps), *conditions}.union(
        *(reads(loop) | writes(loop) for loop in loops)
    )


def _is_allocated(builder: ir.IRBuilder, allocated: ir.Value) -> ir.Value:
    return builder.icmp_unsigned("!=", allocated, NULL)


def place_input(
    buffer: Buffer,
    number: int,
    arguments: Iterator[ir.Value],
    lengths: dict[tuple[int, int], ir.Value],
) -> Array:
    """Consume the arguments of an input, record its lengths, and return it as a strided array."""
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
