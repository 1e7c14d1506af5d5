r"""Vectorize ``ScalarLoop``: emit one function in which the lanes iterate together until the last lane is done.

PyTensor differentiates incomplete gamma and beta functions by series and continued fractions, as loops of scalar Ops:

.. code::

    done = False
    for _ in range(n_steps):
        *state, done = body(*state, *constants)
        if done:
            break

The vector loop runs while any lane is not done. A lane that is done keeps its state, so its result does not depend on the
other lanes. The slowest lane determines the time of a vector.

A kernel Op has one result, so a loop with several results becomes several Ops, :class:`LoopResult`. Each Op calls the same function, and
LLVM merges equal calls.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from hashlib import sha256
from operator import mul
from typing import cast

import pytensor.scalar as ps
from llvmlite import ir
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.loop import ScalarLoop

from pymc_fastlogp.kernel.llvm import I1, filled, once
from pymc_fastlogp.kernel.scalars.forms import ELEMENTS, FORMS, constant, normalize
from pymc_fastlogp.kernel.vecmath.vector import Integers, Lanes, Mask


class LoopResult(ScalarOp):
    """One result of a loop. The arguments are the number of iterations, the initial state and the constants.

    Parameters
    ----------
    loop : ScalarLoop
        The loop.
    position : int
        Position of the result: the state comes first, then whether the loop is done.
    symbol : str
        Unique name of the function of the loop. Compiled programs are cached by their text, in which an Op is its name.
    """

    def __init__(self, loop: ScalarLoop, position: int, symbol: str):
        self.loop, self.position, self.symbol = loop, position, symbol
        self.nin = loop.nin
        super().__init__(name=f"{symbol}.{position}")

    def output_types(self, types: Sequence[ps.ScalarType]) -> list[ps.ScalarType]:
        """Return the type of the result."""
        return [self.loop.fgraph.outputs[self.position].type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoopResult) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def results_of(loop: ScalarLoop) -> list[LoopResult]:
    """Return all results of a loop."""
    symbol = f"pymc_fastlogp.loop.{sha256(_text(loop).encode()).hexdigest()}"
    return [LoopResult(loop, k, symbol) for k in range(len(loop.fgraph.outputs))]


def _text(loop: ScalarLoop) -> str:
    """Return a text that identifies a loop."""
    names: dict[Variable, str] = {
        x: f"{i}:{x.type.dtype}" for i, x in enumerate(loop.fgraph.inputs)
    }

    def name(x: Variable) -> str:
        return f"{x.data.tobytes().hex()}:{x.type.dtype}" if isinstance(x, Constant) else names[x]

    lines = []
    for node in loop.fgraph.toposort():
        [out] = node.outputs
        names[out] = f"{len(names)}:{out.type.dtype}"
        op = type(node.op)
        lines.append(
            f"{names[out]} = {op.__module__}.{op.__qualname__}({[*map(name, node.inputs)]})"
        )
    return "\n".join([*lines, str([*map(name, loop.fgraph.outputs)]), str(loop.is_while)])


type Emit = Callable[[ScalarOp, Sequence[Lanes], Sequence[str], str], Lanes]


def emit_loop(result: LoopResult, args: Sequence[Lanes], emit: Emit) -> Lanes:
    """Append a call of the function of a loop, and return one of its results. A module has one function per loop and width.

    Parameters
    ----------
    emit : callable
        Appends the instructions of an Op, given the Op, its operands, their dtypes and the dtype of the result.
    """
    first, loop = args[0], result.loop
    forms = [FORMS[x.type.dtype] for x in loop.fgraph.outputs]
    returned = ir.LiteralStructType([ir.VectorType(ELEMENTS[form], first.width) for form in forms])
    signature = ir.FunctionType(returned, [x.value.type for x in args])

    def body(builder: ir.IRBuilder, *arguments: ir.Value) -> ir.Value:
        given = [type(x)(builder, value) for x, value in zip(args, arguments, strict=True)]
        value: ir.Value = ir.Constant(returned, ir.Undefined)
        for i, lanes in enumerate(_emit_iterations(loop, given, emit)):
            value = builder.insert_value(value, lanes.value, i)
        return value

    function = once(first.builder.module, f"{result.symbol}.v{first.width}", signature, body)
    # These attributes let LLVM merge equal calls. They are valid because the number of iterations is finite.
    function.attributes.add("readnone")
    function.attributes.add("nounwind")
    value = first.builder.call(function, [x.value for x in args])
    own = first.builder.extract_value(value, result.position)
    return forms[result.position](first.builder, own)


def _emit_iterations(loop: ScalarLoop, args: Sequence[Lanes], emit: Emit) -> list[Lanes]:
    """Append the loop, and return the state of each lane after its last iteration. The builder continues in a new block."""
    n_iterations, *rest = args
    builder, n_state = n_iterations.builder, len(loop.fgraph.outputs) - loop.is_while
    assert isinstance(n_iterations, Integers)
    initial, constants = rest[:n_state], rest[n_state:]
    if loop.is_while:
        initial = [*initial, Mask(builder, filled(ir.VectorType(I1, n_iterations.width), False))]
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    count = Integers(builder, builder.phi(n_iterations.value.type))
    state = [type(x)(builder, builder.phi(x.value.type)) for x in initial]
    is_active = count.compare("<", n_iterations)
    if loop.is_while:
        is_active &= ~cast(Mask, state[-1])
    builder.cbranch(is_active.any(), body, after)
    builder.position_at_end(body)
    results = _emit_body(loop, [*state[:n_state], *constants], emit)
    kept = [is_active.choose(new, old) for new, old in zip(results, state, strict=True)]
    updated = [count + 1, *kept]
    for x, first, last in zip([count, *state], [count.filled(0), *initial], updated, strict=True):
        x.value.add_incoming(first.value, before)
        x.value.add_incoming(last.value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return state


def _emit_body(loop: ScalarLoop, args: Sequence[Lanes], emit: Emit) -> list[Lanes]:
    """Append one iteration, and return its results."""
    builder, width = args[0].builder, args[0].width
    values: dict[Variable, Lanes] = dict(zip(loop.fgraph.inputs, args, strict=True))

    def value_of(x: Variable) -> Lanes:
        if isinstance(x, Constant):
            return constant(builder, width, x.data, x.type.dtype)
        return values[x]

    for node in loop.fgraph.toposort():
        [out] = node.outputs
        operands = [value_of(x) for x in node.inputs]
        if exponent := whole_exponent(node):
            power = reduce(mul, [operands[0]] * exponent)
            values[out] = normalize(power, out.type.dtype)
        else:
            dtypes = [x.type.dtype for x in node.inputs]
            values[out] = emit(node.op, operands, dtypes, out.type.dtype)
    return [value_of(x) for x in loop.fgraph.outputs]


def whole_exponent(node: Apply) -> int:
    """Return the exponent 2 or 3 of a power that is emitted as a product, else zero; integers overflow as in PyTensor."""
    if not isinstance(node.op, ps.Pow) or not isinstance(node.inputs[1], Constant):
        return 0
    base, exponent = node.inputs
    is_product = base.type.dtype == node.outputs[0].type.dtype and exponent.data in (2, 3)
    return int(exponent.data) if is_product else 0
