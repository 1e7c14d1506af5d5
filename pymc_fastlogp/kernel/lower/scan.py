"""Ops with an inner graph: Scan as a sequential loop, SiteNode inlined.

The states of a Scan are in buffers with upstream's layout (:mod:`~pymc_fastlogp.kernel.lower.scan_buffers`). A step reads all its inputs before it writes,
since a new value may overwrite an old one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, domain_of, int64, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Load, Size, as_expr, as_size
from pymc_fastlogp.kernel.ir.loops import Error, SequentialLoop, Store
from pymc_fastlogp.kernel.ir.traversal import loaded, walk
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError, buffer_array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import length_of, smaller
from pymc_fastlogp.kernel.lower.linear_lengths import difference
from pymc_fastlogp.kernel.lower.scan_buffers import Trace
from pymc_fastlogp.kernel.lower.shape import lengths_of

SHORT = Error(ValueError, "Scan: a sequence is shorter than the number of steps")
MISMATCH = Error(ValueError, "Scan: the shape of a result differs from the shape of the state")


def supports(node: Apply) -> bool:
    """Return whether the number of steps is known before the first step, and the Scan does not set a mode."""
    return not node.op.info.as_while and node.op.mode is None


@dataclass(frozen=True, eq=False)
class UntracedState:
    """A state without history (``untraced_sit_sot``), in a buffer of its shape."""

    buffer: Buffer


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the initial states and the sequential loop, and return the final states."""
    op, n_steps = node.op, length_of(inputs[0])
    inner = context.for_inner_graph(op.fgraph.clients, _has_steps(n_steps))
    counter = context.buffer("int64", ())
    step = Load(counter, ())
    sequences = op.outer_seqs(inputs)
    for sequence in sequences:
        _require_length(context, sequence, n_steps)
    mit_mot, others = _traces(context, node, inputs, n_steps)
    untraced = _untraced(context, node, inputs)
    inner_inputs = [
        *(_element(sequence, step) for sequence in sequences),
        *(trace.at(step, k) for trace in (*mit_mot, *others) for k in trace.read),
        *(replace(buffer_array(state.buffer), buffer=None) for state in untraced),
        # Without a buffer: steps must not overwrite an array that all steps read.
        *(replace(array, buffer=None) for array in op.outer_non_seqs(inputs)),
    ]
    results = context.lower_graph(inner, op.fgraph, inner_inputs)
    nit_sot = _nit_sot_traces(context, node, inputs, results, n_steps)
    _write(inner, step, [*mit_mot, *others, *nit_sot, *untraced], results)
    context.steps.append(SequentialLoop(counter, n_steps, tuple(inner.steps)))
    return [
        *(buffer_array(trace.buffer) for trace in mit_mot),
        *(trace.result() for trace in (*others, *nit_sot)),
        *(buffer_array(state.buffer) for state in untraced),
    ]


def _has_steps(n_steps: Size) -> Expr | None:
    """Return the condition that there is a step, or None if there is always a step."""
    if isinstance(n_steps, int) and n_steps > 0:
        return None
    return truth(ps.gt, as_expr(n_steps), ZERO)


def _require_length(context: Context, sequence: Array, n_steps: Size) -> None:
    length = sequence.shape[0]
    missing = difference(as_expr(n_steps), as_expr(length), {})
    if missing is None:
        context.require(truth(ps.le, as_expr(n_steps), as_expr(length)), SHORT)
    elif missing > 0:
        raise UnsupportedError(
            "a sequence shorter than the number of steps, for which upstream raises an exception"
        )


def _element(sequence: Array, step: Expr) -> Array:
    return sequence.view(sequence.shape[1:], lambda index: (step, *index))


def _traces(
    context: Context, node: Apply, inputs: list[Array], n_steps: Size
) -> tuple[list[Trace], list[Trace]]:
    """Return the states with history: the mit-mots, then the mit-sots and sit-sots."""
    op, info = node.op, node.op.info
    mit_mot = zip(
        op.outer_mitmot(inputs),
        op.outer_mitmot(node.inputs),
        info.mit_mot_in_slices,
        info.mit_mot_out_slices,
        strict=True,
    )
    others = zip(
        [*op.outer_mitsot(inputs), *op.outer_sitsot(inputs)],
        [*op.outer_mitsot(node.inputs), *op.outer_sitsot(node.inputs)],
        [*info.mit_sot_in_slices, *info.sit_sot_in_slices],
        strict=True,
    )
    return (
        [_trace(context, *given, n_steps, _all_values) for given in mit_mot],
        [_trace(context, *given, (0,), n_steps, _read_initial_values) for given in others],
    )


def _trace(
    context: Context,
    initial: Array,
    variable: Variable,
    read: tuple[int, ...],
    written: tuple[int, ...],
    n_steps: Size,
    needed: Callable[[Trace], Size],
) -> Trace:
    """Return a state in its own buffer, which starts with a copy of ``needed(trace)`` initial values."""
    oldest = min(0, *read)
    owned = context.owned(initial, variable)
    buffer = owned or context.buffer(initial.dtype, initial.shape)
    trace = Trace.of(
        buffer, n_steps, tuple(k - oldest for k in read), tuple(k - oldest for k in written)
    )
    trace.require_room(context)
    if owned is None:
        domain, index = domain_of((needed(trace), *initial.shape[1:]))
        context.add(domain, Store(buffer, index, initial.at(index)))
    return trace


def _all_values(trace: Trace) -> Size:
    return trace.length


def _read_initial_values(trace: Trace) -> Size:
    """Return the number of values that steps read before they write them."""
    if trace.missing != 0:
        return trace.length
    return as_size(smaller(int64(max(trace.written)), as_expr(trace.length)))


def _untraced(context: Context, node: Apply, inputs: list[Array]) -> list[UntracedState]:
    initial = node.op.outer_untraced_sit_sot(inputs)
    variables = node.op.outer_untraced_sit_sot(node.inputs)
    return [
        UntracedState(context.owned_copy(array, variable))
        for array, variable in zip(initial, variables, strict=True)
    ]


def _nit_sot_traces(
    context: Context, node: Apply, inputs: list[Array], results: Sequence[Array], n_steps: Size
) -> list[Trace]:
    """Return traces for the results that are not states (``nit_sot``)."""
    lengths = lengths_of(context, node.op.outer_nitsot(inputs))
    traces = []
    for length, result in zip(lengths, node.op.inner_nitsot_outs(results), strict=True):
        buffer = context.buffer(result.dtype, (length, *result.shape))
        traces.append(Trace.of(buffer, n_steps, (), (0,)))
        traces[-1].require_room(context)
    return traces


def _write(
    context: Context, step: Expr, targets: Sequence[Trace | UntracedState], results: Sequence[Array]
) -> None:
    """Append the stores at the end of a step, after copies of the results that are computed from values which these stores overwrite."""
    written = {target.buffer for target in targets}
    safe = [_copied_if_overwritten(context, result, written) for result in results]
    for (buffer, place), result in zip(_positions(targets, step), safe, strict=True):
        for size, own in zip(result.shape, buffer.shape[len(place) :], strict=True):
            if not place and _may_change(own, size):
                raise UnsupportedError("a state whose length can change from step to step")
            context.require_equal(own, size, MISMATCH)
        domain, index = domain_of(buffer.shape[len(place) :])
        context.add(domain, Store(buffer, (*place, *index), result.at(index)))


def _may_change(own: Size, given: Size) -> bool:
    """Return whether a result has a length computed from the length of the state, as in a state that grows by a join."""
    return given != own and as_expr(own) in walk([as_expr(given)])


def _copied_if_overwritten(context: Context, array: Array, written: set[Buffer]) -> Array:
    _, index = domain_of(array.shape)
    if not loaded([array.at(index)]) & written:
        return array
    return context.store(array.shape, array.dtype, array.at)


def _positions(
    targets: Sequence[Trace | UntracedState], step: Expr
) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the buffer and leading index at which each result of a step is stored."""
    for target in targets:
        if isinstance(target, UntracedState):
            yield target.buffer, ()
        else:
            for k in target.written:
                yield target.buffer, (target.position(step, k),)


def lower_site_node(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the loops of the inner graph of a ``SiteNode``, and return its outputs.

    PyTensor does not rewrite this inner graph, so its Elemwise nodes are not fused yet. Storing each result would make many loops, whose fusion
    would dominate the compile time. So results that only other Elemwise nodes read are not stored.
    """
    inner = context.for_inner_graph(node.op.fgraph.clients, None)
    inner.delays_elemwise = True
    # Without a buffer, nothing is overwritten in place: each graph knows only its own readers of an array.
    inner_inputs = [replace(array, buffer=None) for array in inputs]
    results = context.lower_graph(inner, node.op.fgraph, inner_inputs)
    context.steps += inner.steps
    return [replace(array, buffer=None) for array in results]
