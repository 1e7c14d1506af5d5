r"""Cost model: expected duration of logp and gradient, summed over the nodes of a graph.

.. math::

    t = c + \sum_\text{nodes} \Bigl( o + \sum_\text{entries} \sum_\text{scalar Ops} p \Bigr)

with a fixed cost :math:`c` of the call, :math:`o` of a node, and a price :math:`p` of an Op at one entry. In a kernel a node
costs next to nothing, and functions are vectors. ``python -m benchmarks.expected`` compares these sums with what the suite's models were measured to take.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import fsum, prod
from typing import NamedTuple

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.scan.op import Scan
from pytensor.tensor.blas import BatchedDot, Gemm, Gemv
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.scalar_facts import Cost, facts_of
from pymc_fastlogp.explanation.kernels import as_seen_by_rule, gradient
from pymc_fastlogp.kernel.lower import is_supported
from pymc_fastlogp.ops import MAX_ROWS_UNROLLED_CHOLESKY


class Prices(NamedTuple):
    """Nanoseconds: of a call, a node, what is done at one entry, and of a call of BLAS or LAPACK."""

    call: float
    node: float
    scalar: dict[Cost, float]
    read: float
    write: float
    move: float
    core: float


# Fitted to the suite on one core of a server; ratios hold for longer than nanoseconds do.
UPSTREAM = Prices(
    call=100,
    node=15,
    scalar={Cost.ARITHMETIC: 0.05, Cost.DIVISION: 0.2, Cost.FUNCTION: 8, Cost.SPECIAL: 18},
    read=0.3,
    write=0.3,
    move=0.6,
    core=100,
)
KERNEL = Prices(
    call=150,
    node=1.5,
    scalar={Cost.ARITHMETIC: 0.03, Cost.DIVISION: 0.06, Cost.FUNCTION: 0.3, Cost.SPECIAL: 1},
    read=0.1,
    write=0.6,
    move=0.05,
    core=10,
)
# An allocation with each, as upstream compiles what moves entries.
MOVING_NODES = 3
# Of a product of two numbers and its sum, by BLAS and LAPACK on either side.
MULTIPLY_ADD = 0.1


def expected_ratio(
    terms: Sequence[TensorVariable],
    rewritten: Sequence[TensorVariable],
    value_vars: Sequence[TensorVariable],
) -> float | None:
    """Return how many times as fast the sum of some terms, and its gradient, can be expected to be.

    Parameters
    ----------
    terms, rewritten : sequence of TensorVariable
        Terms of a log density as upstream and as the plugin leaves them before the gradient is taken.
    value_vars : sequence of TensorVariable
        What the gradient is with respect to.

    Returns
    -------
    float or None
        None where the size of some data is not known.
    """
    off = nanoseconds(seen(terms, value_vars, on=False), on=False)
    on = nanoseconds(seen(rewritten, value_vars, on=True), on=True)
    # Three digits are more than an estimate has, and do not depend on the order of a sum.
    return None if off is None or on is None else float(f"{off / on:.3g}")


def seen(
    terms: Sequence[TensorVariable], value_vars: Sequence[TensorVariable], *, on: bool
) -> FunctionGraph:
    """Return the graph of logp and gradient as it is before kernels are made."""
    import pytensor.tensor as pt

    logp = pt.add(*terms)
    read = set(ancestors([logp]))
    wrt = [x for x in value_vars if x in read]
    return as_seen_by_rule([logp, *gradient(logp, wrt)], on=on)


def nanoseconds(fgraph: FunctionGraph, *, on: bool) -> float | None:
    """Return the sum over the nodes of a graph; None where the length of an input is not known."""
    if any(None in getattr(x.type, "shape", ()) for x in fgraph.inputs):
        return None
    call = (KERNEL if on else UPSTREAM).call
    return call + fsum(_of_nodes(fgraph.apply_nodes, on=on))


def _of_nodes(nodes: Iterable[Apply], *, on: bool) -> Iterator[float]:
    for node in nodes:
        yield _of_node(node, KERNEL if on and is_supported(node) else UPSTREAM)


def _of_node(node: Apply, prices: Prices) -> float:
    op, n = core_op(node.op), _entries(node.outputs[0])
    match op:
        case Elemwise():
            return prices.node + n * fsum(prices.scalar[cost] for cost in _costs(op.scalar_op))
        case CAReduce():
            return prices.node + _entries(node.inputs[0]) * prices.scalar[Cost.ARITHMETIC]
        case AdvancedSubtensor():
            return prices.node + n * prices.read
        case AdvancedIncSubtensor():
            return prices.node + _entries(node.inputs[1]) * prices.write
        case DimShuffle():
            return 0.0
        case Scan():
            return _steps(node) * fsum(_of_nodes(op.fgraph.apply_nodes, on=prices is KERNEL))
        case Dot() | Gemv() | Gemm() | BatchedDot() | Cholesky() | SolveTriangular():
            return _of_matrices(node, prices)
    return MOVING_NODES * prices.node + n * prices.move


def _of_matrices(node: Apply, prices: Prices) -> float:
    if prices is KERNEL and _length(node.inputs[0]) <= MAX_ROWS_UNROLLED_CHOLESKY:
        return _multiplications(node) * prices.scalar[Cost.ARITHMETIC]
    return _calls(node) * prices.core + _multiplications(node) * MULTIPLY_ADD


def _costs(op: ScalarOp) -> list[Cost]:
    inner = [node.op for node in op.fgraph.apply_nodes] if isinstance(op, Composite) else [op]
    return [facts_of(each).cost for each in inner]


def _multiplications(node: Apply) -> int:
    """Return about how many products of two numbers an Op of linear algebra sums."""
    op, [out, *_] = core_op(node.op), node.outputs
    largest = max(map(_entries, node.inputs))
    match op:
        case Cholesky():
            return largest * _length(out) // 3
        case SolveTriangular():
            return _entries(out) * _length(node.inputs[0])
    n_matrices = sum(getattr(x.type, "ndim", 0) - _n_batch(node) > 1 for x in node.inputs)
    return largest * _length(out) if n_matrices > 1 and out.type.ndim > 1 else largest


def _n_batch(node: Apply) -> int:
    return node.op.batch_ndim(node) if isinstance(node.op, Blockwise) else 0


def _calls(node: Apply) -> int:
    """Return how often the core of an Op runs: once, or for each entry of a batch."""
    return prod(length or 1 for length in node.outputs[0].type.shape[: _n_batch(node)])


def _length(x: Variable) -> int:
    return x.type.shape[-1] or 1 if x.type.ndim else 1


def _steps(node: Apply) -> int:
    return max((x.type.shape[0] or 1 for x in node.outputs if x.type.ndim), default=1)


def _entries(x: Variable) -> int:
    """Return how many entries a variable has; an axis of unknown length counts as one."""
    return prod(length or 1 for length in getattr(x.type, "shape", ()))
