"""Emit the vector instructions of scalar Ops."""

from collections.abc import Sequence

from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.loop import ScalarLoop

from pymc_fastlogp.kernel.scalars.forms import FORMS, convert
from pymc_fastlogp.kernel.scalars.loops import LoopResult, emit_loop, whole_exponent
from pymc_fastlogp.kernel.scalars.table import ROWS, UPSTREAM, Emitter
from pymc_fastlogp.kernel.scalars.upstream import External
from pymc_fastlogp.kernel.vecmath.table import SHARED
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Lanes


def is_supported(op: ScalarOp, input_dtypes: Sequence[str], output_dtype: str) -> bool:
    """Return whether an Op, not a Composite, can be emitted for these dtypes."""
    return _emitter(op, input_dtypes, output_dtype) is not None


def is_supported_loop(loop: ScalarLoop, input_dtypes: Sequence[str]) -> bool:
    """Return whether a loop can be emitted: its Ops have one result each, and none calls PyTensor's scalar function."""
    n_iterations, *others = (FORMS.get(dtype) for dtype in input_dtypes)
    is_of_lanes = n_iterations is Integers and None not in others
    return is_of_lanes and all(map(_is_supported_in_loop, loop.fgraph.toposort()))


def _is_supported_in_loop(node: Apply) -> bool:
    if len(node.outputs) != 1 or externals(node.op, len(node.inputs)):
        return False
    dtypes = [x.type.dtype for x in node.inputs]
    return bool(whole_exponent(node)) or is_supported(node.op, dtypes, node.outputs[0].type.dtype)


def emit(
    op: ScalarOp, args: Sequence[Lanes], input_dtypes: Sequence[str], output_dtype: str
) -> Lanes:
    """Append the instructions of a supported Op; arguments and result have the register forms of their dtypes."""
    if isinstance(op, LoopResult):
        return emit_loop(op, args, emit)
    emitter = _emitter(op, input_dtypes, output_dtype)
    if emitter is None:
        raise NotImplementedError(f"no vector form of {op} from {input_dtypes} to {output_dtype}")
    domain = ROWS[type(op)].domain(input_dtypes, output_dtype)
    return convert(emitter(*map(convert, args, domain)), output_dtype)


def _emitter(op: ScalarOp, input_dtypes: Sequence[str], output_dtype: str) -> Emitter | None:
    if type(op) not in ROWS or not {*input_dtypes, output_dtype} <= FORMS.keys():
        return None
    return ROWS[type(op)].emitter(input_dtypes, output_dtype)


def emit_shared(name: str, x: Lanes, output_dtypes: Sequence[str]) -> tuple[Lanes, ...]:
    """Append one vector function that returns several Ops of ``x``, a value of :data:`SHARED_OPS`; each result equals that of a separate call."""
    argument = convert(x, "float64")
    assert isinstance(argument, Floats)
    return tuple(map(convert, SHARED[name].emit(argument), output_dtypes))


def externals(op: ScalarOp, n_arguments: int) -> tuple[External, ...]:
    """Return the functions that must be linked to the emitted code of an Op."""
    row = ROWS.get(type(op))
    if row is None or row.computed_by != UPSTREAM:
        return ()
    return (External(type(op), n_arguments),)
