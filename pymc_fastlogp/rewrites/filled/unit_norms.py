r"""Prove that rows which were divided by their norms have norm one.

.. code::

    g = sqrt(1[i].inc(v ** 2));  sqr(1 / g)[i].inc((v / g[i]) ** 2)  ->  1 where g is finite

Let :math:`s_r = 1 + \sum_{k:\, i_k = r} v_k^2` and :math:`g = \sqrt{s}`. Then

.. math:: g_r^{-2} + \sum_{k:\, i_k = r} (v_k / g_r)^2 = s_r / g_r^2 = 1,

to round-off, as long as :math:`s_r` is finite. So the check of ``LKJCorr``, that the rows of what
``CholeskyCorrTransform`` has just made have norm one, is left to fail only where :math:`s_r` overflows or is
nan. There PyTensor finds

- nan where an entry of ``v`` is nan, and so does the rule, through :math:`s_r`;
- zero where the squares overflow, since ``v / inf`` is zero, and so does the rule;
- nan where an entry of ``v`` is infinite, since ``inf / inf`` is nan; the rule finds zero.

Of a batch of matrices ``g`` has a row for each, and ``i`` is a pair of indices.

Neither zero nor nan is close to one. So that the last does not get further, the rule fires only where
nothing becomes of the norms but truth values, which also have no gradient.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import isinf, isnan, switch
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.vector_reads import chosen
from pymc_fastlogp.analysis.writes import positions


@node_rewriter([AdvancedIncSubtensor])
def local_unit_norms(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sqr(1 / g)[i].inc((v / g[i]) ** 2) -> 1``, or zero or nan, for the norms ``g``."""
    [out] = node.outputs
    scattered = _scattered_squares(node)
    if scattered is None:
        return None
    base, quotient, index = scattered
    divided, by = _operands(_squared(base), ps.TrueDiv)
    v, gathered = _operands(quotient, ps.TrueDiv)
    if divided is None or v is None or fill_value(divided) != 1:
        return None
    sums = _under_root(by)
    if sums is None or not _are_sums_of_squares(sums, v, index) or sums.type != out.type:
        return None
    if not _reads_roots(gathered, sums, index):
        return None
    if not _becomes_truth_values(fgraph, out):
        return None
    norms = switch(isnan(sums), np.nan, switch(isinf(sums), 0.0, 1.0)).astype(out.type.dtype)
    copy_stack_trace(out, norms)
    return [norms]


def _scattered_squares(
    node: Apply | None,
) -> tuple[TensorVariable, TensorVariable, np.ndarray] | None:
    """Return base, ``x`` and the flat positions of ``base[index].inc(x ** 2)``, or None for anything else."""
    if node is None or not isinstance(node.op, AdvancedIncSubtensor):
        return None
    base, value = node.inputs[:2]
    x, where = _squared(value), positions(node)
    if node.op.set_instead_of_inc or x is None or where is None or x.type.ndim != 1:
        return None
    return (base, x, where) if x.type.shape == where.shape else None


def _are_sums_of_squares(sums: TensorVariable, v: TensorVariable, index: np.ndarray) -> bool:
    """Whether ``sums`` is ``1[index].inc(v ** 2)``."""
    scattered = _scattered_squares(sums.owner)
    if scattered is None:
        return False
    base, x, rows = scattered
    return x is v and fill_value(base) == 1 and np.array_equal(rows, index)


def _under_root(x: TensorVariable) -> TensorVariable | None:
    """Return what ``x`` is the square root of, whatever dimensions of length one are put around it."""
    [root] = _operands(_without_dummies(x), ps.Sqrt)
    return None if root is None else _without_dummies(root)


def _reads_roots(x: TensorVariable, sums: TensorVariable, index: np.ndarray) -> bool:
    """Whether ``x`` is ``sqrt(sums)[index]``; of a single row, PyTensor makes it a slice of a column."""
    x = _without_dummies(x)
    if not isinstance(x.owner_op, Subtensor | AdvancedSubtensor):
        return False
    table, *entries = x.owner.inputs
    if _under_root(table) is not sums:
        return False
    read = chosen(table.type.shape, x.owner.op.idx_list, entries)
    return read is not None and np.array_equal(read.ravel(), index)


def _without_dummies(x: TensorVariable) -> TensorVariable:
    """Return ``x`` without what adds dimensions of length one to it, or drops them."""
    while isinstance(x.owner_op, DimShuffle) and sorted(x.owner.op.shuffle) == [
        *x.owner.op.shuffle
    ]:
        [x] = x.owner.inputs
    return x


def _squared(x: TensorVariable) -> TensorVariable | None:
    """Return what ``x`` is the square of."""
    [root] = _operands(x, ps.Sqr)
    base, exponent = _operands(x, ps.Pow)
    return base if base is not None and fill_value(exponent) == 2 else root


def _operands(x: TensorVariable | None, scalar_op: type[ps.ScalarOp]) -> list:
    """Return the operands of an Elemwise, or as many times None for anything else."""
    if x is None or not isinstance(x.owner_op, Elemwise):
        return [None] * scalar_op.nin
    return (
        [*x.owner.inputs] if isinstance(x.owner.op.scalar_op, scalar_op) else [None] * scalar_op.nin
    )


def _becomes_truth_values(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Whether every function that reads ``x`` is a condition, or is itself read by conditions only."""
    return all(
        isinstance(client.op, Elemwise)
        and (
            client.outputs[0].type.dtype == "bool"
            or _becomes_truth_values(fgraph, client.outputs[0])
        )
        for client, _ in fgraph.clients[x]
    )
