"""``Scan(n_steps=2, ...) -> step(step(...))``: unroll a short loop in mode FAST_COMPILE.

Steps that run once, one by one, are faster there than a loop that is compiled first.

.. code::

    Scan(n_steps=2, seq, state)  ->  step(seq[1], step(seq[0], state))

PyMC computes initial points, and nutpie shapes, in that mode: no C compiler, Python calls the Ops one by one.
Only the inner function of a Scan is still compiled by C, each of its Ops by itself. PyMC's ``LKJCholeskyCov`` and ``LKJCorr``
draw from their prior in a loop over rows, and their initial point has that draw (of which it needs
the shape alone), so the first model of this kind waits for the compiler longer than for the rest.

The Ops of a step and their order are those of the loop, and each state of a random generator goes from step to
step as it did. PyMC gives each generator of an initial point a seed by its place in the rewritten graph, so those that values
depend on must keep their places; then the draws are the same. The rule acts if the number of steps is constant, each state is
read at the step before, and no more than :data:`MOST_NODES` nodes come of it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import cast

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.scan.op import Scan
from pytensor.scan.utils import ScanArgs
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import is_elemwise

# Rewriting these takes about a second; a prior of 30 x 30 has half as many.
MOST_NODES = 1000


@node_rewriter([Scan])
def local_unroll_short_scan(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``Scan(n_steps, ...)`` to its steps, one after the other."""
    n_steps = _constant_steps(node)
    if n_steps is None:
        return None
    loop = ScanArgs.from_node(node)
    if not _reads_one_step_back(loop, n_steps):
        return None
    outputs = _unrolled(node, loop, n_steps)
    if _moves_seeds(fgraph, node, dict(zip(node.outputs, outputs, strict=True))):
        return None
    copy_stack_trace(node.outputs, outputs)
    return outputs


def _moves_seeds(fgraph: FunctionGraph, node: Apply, new: dict[Variable, Variable]) -> bool:
    """Return whether replacements may change the place of a random generator that a value depends on."""
    values = [x for x in fgraph.outputs if not isinstance(x.type, RandomType)]
    of_values = _generators(values, _read_for_elements)
    of_loop = _generators(node.inputs, _read)
    # Of several, what is rewritten later may change the order on either side.
    if len(of_loop) > 1 and not set(of_values).isdisjoint(of_loop):
        return True
    before, after = _generators(fgraph.outputs, _read), _generators(fgraph.outputs, _read, new)
    moved = {x for pair in zip_longest(before, after) if pair[0] is not pair[1] for x in pair}
    return not moved.isdisjoint(of_values)


def _generators(
    outputs: Sequence[Variable],
    read: Callable[[Apply], Sequence[Variable]],
    new: Mapping[Variable, Variable] = MappingProxyType({}),
) -> list[Variable]:
    """Return the generators that outputs depend on, some variables replaced, in the order of ``graph_inputs``, by which PyMC finds them."""
    pending, seen = [*outputs], dict[Variable, None]()
    while pending:
        x = pending.pop()
        x = new.get(x, x)
        if x not in seen:
            seen[x] = None
            pending += read(x.owner) if x.owner else ()
    return [x for x in seen if isinstance(x.type, RandomType) and x.owner is None]


def _read(node: Apply) -> Sequence[Variable]:
    return node.inputs


def _read_for_elements(node: Apply) -> Sequence[Variable]:
    """Return the inputs of which more than the shape is read."""
    if isinstance(node.op, Shape | Shape_i):
        return []
    return node.inputs[1:] if is_elemwise(node.op, ps.Second) else node.inputs


def _constant_steps(node: Apply) -> int | None:
    """Return the number of steps, if it is a constant and the steps are few enough."""
    n_steps = node.inputs[0]
    if not isinstance(n_steps, Constant) or node.op.info.as_while:
        return None
    steps = int(n_steps.data)
    inner_nodes = len(node.op.fgraph.apply_nodes)
    return steps if steps * inner_nodes <= MOST_NODES else None


def _reads_one_step_back(loop: ScanArgs, n_steps: int) -> bool:
    """Return whether states come from the step before, and what the loop reads and writes has all steps.

    PyTensor shortens the buffer of a state whose earlier values nobody reads. The loop of a 2 x 2 prior has no step, by which
    what is no state has no value.
    """
    if loop.outer_in_mit_mot or loop.outer_in_mit_sot:
        return False
    if n_steps == 0 and loop.outer_in_nit_sot:
        return False
    if any(slices != (-1,) for slices in loop.sit_sot_in_slices):
        return False
    return (
        all((_length(seq) or 0) >= n_steps for seq in loop.outer_in_seqs)
        and all(_length(buffer) == n_steps + 1 for buffer in loop.outer_in_sit_sot)
        and all(_is_constant(length, n_steps) for length in loop.outer_in_nit_sot)
    )


def _length(x: Variable) -> int | None:
    return cast(TensorVariable, x).type.shape[0]


def _is_constant(x: Variable, value: int) -> bool:
    return isinstance(x, Constant) and int(x.data) == value


def _unrolled(node: Apply, loop: ScanArgs, n_steps: int) -> list[Variable]:
    """Return what replaces the outputs of the Scan."""
    inner = _inlined(node.op.fgraph)
    states: list[Variable] = [buffer[0] for buffer in loop.outer_in_sit_sot]
    shared: list[Variable] = loop.outer_in_shared
    state_history, other_history = [states], []
    for step in range(n_steps):
        now = [seq[step] for seq in loop.outer_in_seqs]
        given = [*now, *states, *shared, *loop.outer_in_non_seqs]
        outputs = iter(inner.bind(given))
        states = [next(outputs) for _ in loop.inner_out_sit_sot]
        others = [next(outputs) for _ in loop.inner_out_nit_sot]
        shared = list(outputs)
        state_history.append(states)
        other_history.append(others)
    traced = [*zip(*state_history, strict=True), *zip(*other_history, strict=True)]
    return [*(pt.stack(values) for values in traced), *shared]


def _inlined(frozen: FrozenFunctionGraph) -> FrozenFunctionGraph:
    """Put the inner graphs of the nodes, which C would compile too, in their place."""
    fgraph = frozen.unfreeze()
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            replacements = zip(node.outputs, inline_ofg_node(node), strict=True)
            fgraph.replace_all(list(replacements), import_missing=True)
    return fgraph.freeze()
