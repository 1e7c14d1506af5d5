"""Unroll a short loop in mode FAST_COMPILE.

.. code::

    Scan(n_steps=2, seq, state)  ->  step(seq[1], step(seq[0], state))

In this mode PyMC computes initial points, and nutpie shapes: Python calls the Ops, without a C compiler. Only the inner
function of a Scan is still compiled by C, one Op at a time. ``LKJCholeskyCov`` and ``LKJCorr`` draw from their prior in a loop
over rows. Their initial point contains the draw, for its shape alone, and waits for the compiler.

The Ops of a step and their order are unchanged, and the state of each random generator passes through the steps. PyMC
seeds the generators of an initial point by their place in the rewritten graph. So generators that values depend on must keep
their places. Then draws are equal up to the last place, where C and NumPy functions differ.

When it applies
---------------
In mode FAST_COMPILE, to a constant number of steps with at most 1000 nodes in total, if each state depends on the previous step
only. A prior with 30 dimensions has half as many.

When it refuses
---------------
- Unknown lengths, ``until``, states from further back (so gradients of loops), truncated histories of a state.
- No steps, if an output is not a state.
- A random generator that values depend on would change its place. So draws of an LKJ prior keep the loop.
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

# Rewriting this many nodes takes about one second.
MOST_NODES = 1000


@node_rewriter([Scan])
def local_unroll_short_scan(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``Scan(n_steps, ...)`` to a sequence of its steps."""
    n_steps = _constant_steps(node)
    if n_steps is None:
        return None
    loop = ScanArgs.from_node(node)
    if not _reads_one_step_back(loop, n_steps):
        return None
    outputs = _unrolled(node, loop, n_steps)
    if _reorders_generators(fgraph, node, dict(zip(node.outputs, outputs, strict=True))):
        return None
    copy_stack_trace(node.outputs, outputs)
    return outputs


def _reorders_generators(fgraph: FunctionGraph, node: Apply, new: dict[Variable, Variable]) -> bool:
    """Return whether a replacement may change the place of a random generator that a value depends on."""
    values = [x for x in fgraph.outputs if not isinstance(x.type, RandomType)]
    of_values = _generators(values, _read_for_elements)
    of_loop = _generators(node.inputs, _read)
    # Later rewrites may change the order of several generators on either side.
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
    """Return the generators that outputs depend on, in the order of ``graph_inputs``, which PyMC uses.

    Variables in ``new`` are replaced during the traversal.
    """
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
    """Return the inputs of a node whose values are read, not only their shapes."""
    if isinstance(node.op, Shape | Shape_i):
        return []
    return node.inputs[1:] if is_elemwise(node.op, ps.Second) else node.inputs


def _constant_steps(node: Apply) -> int | None:
    """Return the number of steps, if it is constant and the unrolled graph small enough."""
    n_steps = node.inputs[0]
    if not isinstance(n_steps, Constant) or node.op.info.as_while:
        return None
    steps = int(n_steps.data)
    inner_nodes = len(node.op.fgraph.apply_nodes)
    return steps if steps * inner_nodes <= MOST_NODES else None


def _reads_one_step_back(loop: ScanArgs, n_steps: int) -> bool:
    """Return whether states depend on the previous step only, and all sequences and histories have all steps.

    PyTensor truncates the history of a state whose earlier values have no reader. Without steps, as for a 2 x 2 prior, an output
    that is not a state has no value.
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
    """Return the replacements for the outputs of the Scan."""
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
    """Inline the OpFromGraphs of a graph, which C would compile too."""
    fgraph = frozen.unfreeze()
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            replacements = zip(node.outputs, inline_ofg_node(node), strict=True)
            fgraph.replace_all(list(replacements), import_missing=True)
    return fgraph.freeze()
