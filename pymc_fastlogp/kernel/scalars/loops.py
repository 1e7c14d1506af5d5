r"""``ScalarLoop``: one function of vectors, whose lanes go round together until the last of them is done.

PyTensor differentiates incomplete gamma and beta functions by series and continued fractions, as loops of scalar Ops:

.. code::

    done = False
    for _ in range(n_steps):
        *state, done = turn(*state, *constants)
        if done:
            break

Here all lanes of a vector take a turn while one of them has turns left, and those that have none keep their state. So what comes out of a
lane is the same as alone, and a vector takes as long as the slowest of its lanes.

An Op of the kernels has one result, so that a loop of several is as many Ops, :class:`LoopResult`, each a call of the same function: of equal
calls LLVM keeps one.
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
from pymc_fastlogp.kernel.scalars.forms import ELEMENTS, FORMS, constant, normalized
from pymc_fastlogp.kernel.vecmath.vector import Integers, Lanes, Mask


class LoopResult(ScalarOp):
    """One of the results of a loop, of the same arguments: the number of turns, the state before the first, constants.

    Parameters
    ----------
    loop : ScalarLoop
        What goes round.
    position : int
        Which of its results: the state, then whether it is done.
    symbol : str
        The name of its function, which no other loop has: programs are kept on disk by their text, in which an Op is its name.
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
    """Return what tells a loop from others."""
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
    """Append a call of the function of a loop, which a module has once for each width, and return one of its results.

    Parameters
    ----------
    emit : callable
        Appends what the Op of one turn computes: an Op, its operands, their types and that of its result.
    """
    first, loop = args[0], result.loop
    forms = [FORMS[x.type.dtype] for x in loop.fgraph.outputs]
    returned = ir.LiteralStructType([ir.VectorType(ELEMENTS[form], first.width) for form in forms])
    signature = ir.FunctionType(returned, [x.value.type for x in args])

    def body(builder: ir.IRBuilder, *arguments: ir.Value) -> ir.Value:
        given = [type(x)(builder, value) for x, value in zip(args, arguments, strict=True)]
        value: ir.Value = ir.Constant(returned, ir.Undefined)
        for i, lanes in enumerate(_go_round(loop, given, emit)):
            value = builder.insert_value(value, lanes.value, i)
        return value

    function = once(first.builder.module, f"{result.symbol}.v{first.width}", signature, body)
    # So that equal calls are one. It ends, since the turns are counted.
    function.attributes.add("readnone")
    function.attributes.add("nounwind")
    value = first.builder.call(function, [x.value for x in args])
    own = first.builder.extract_value(value, result.position)
    return forms[result.position](first.builder, own)


def _go_round(loop: ScalarLoop, args: Sequence[Lanes], emit: Emit) -> list[Lanes]:
    """Append the turns, and return the results of the last of each lane. The builder goes on in a new block."""
    n_turns, *rest = args
    builder, n_state = n_turns.builder, len(loop.fgraph.outputs) - loop.is_while
    assert isinstance(n_turns, Integers)
    begun, constants = rest[:n_state], rest[n_state:]
    if loop.is_while:
        begun = [*begun, Mask(builder, filled(ir.VectorType(I1, n_turns.width), False))]
    before = builder.block
    head, turn, after = (builder.append_basic_block(name) for name in ("head", "turn", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    count = Integers(builder, builder.phi(n_turns.value.type))
    state = [type(x)(builder, builder.phi(x.value.type)) for x in begun]
    goes_on = count.compare("<", n_turns)
    if loop.is_while:
        goes_on &= ~cast(Mask, state[-1])
    builder.cbranch(goes_on.any(), turn, after)
    builder.position_at_end(turn)
    results = _turn(loop, [*state[:n_state], *constants], emit)
    kept = [goes_on.choose(new, old) for new, old in zip(results, state, strict=True)]
    next_turn = [count + 1, *kept]
    for x, first, last in zip([count, *state], [count.filled(0), *begun], next_turn, strict=True):
        x.value.add_incoming(first.value, before)
        x.value.add_incoming(last.value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return state


def _turn(loop: ScalarLoop, args: Sequence[Lanes], emit: Emit) -> list[Lanes]:
    """Append one turn."""
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
            values[out] = normalized(power, out.type.dtype)
        else:
            dtypes = [x.type.dtype for x in node.inputs]
            values[out] = emit(node.op, operands, dtypes, out.type.dtype)
    return [value_of(x) for x in loop.fgraph.outputs]


def whole_exponent(node: Apply) -> int:
    """Return the exponent of a power that is a product of two or three numbers, else zero; integers go round, as upstream."""
    if not isinstance(node.op, ps.Pow) or not isinstance(node.inputs[1], Constant):
        return 0
    base, exponent = node.inputs
    is_product = base.type.dtype == node.outputs[0].type.dtype and exponent.data in (2, 3)
    return int(exponent.data) if is_product else 0
