"""Let a switch read a constant only where a constant mask lets it.

.. code::

    switch(c & m, u, v)  ->  switch(c & m, k, v)      u is k wherever m holds
    switch(c & m, u, v)  ->  v                        u and v are equal wherever m holds

``m``, ``u`` and ``k`` are constants, in the second row ``v``, too. PyMC writes ``y * log(mu)`` so, with ``y`` zero for ``m`` and
what to return there for ``u``, and the gradient of that is zero instead of ``y`` for the same ``m``. A row then reads
an array less, and the gradient no switch. Values stay as they are, gradients too, since constants have none.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.type import complex_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import broadcast, fill_value
from pymc_fastlogp.rewrites.rows.compact.terms import conjunction
from pymc_fastlogp.rewrites.rows.view.open_lengths import comparisons


@node_rewriter([switch])
def local_masked_switch(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``switch(c & m, u, v) -> switch(c & m, k, v)``, or ``-> v``."""
    condition, u, v = node.inputs
    out = node.outputs[0]
    mask = mask_of(condition)
    if mask is None or not isinstance(u, TensorConstant) or out.type.dtype in complex_dtypes:
        return None
    if v.type == out.type and _agree(u, v, mask):
        # What has another length than constants is an error.
        return None if comparisons(condition) else [v]
    value = _value_where(u, mask)
    if value is None or fill_value(u) is not None:
        return None
    one = constant(value.reshape((1,) * out.type.ndim), dtype=u.type.dtype)
    masked = switch(condition, one, v)
    if masked.type != out.type:
        return None
    copy_stack_trace(out, masked)
    return [masked]


def mask_of(condition: TensorVariable) -> np.ndarray | None:
    """Return where the constants allow that a condition holds; None if it has none."""
    known = [x.data for x in conjunction(condition) if isinstance(x, TensorConstant)]
    return np.logical_and.reduce(broadcast(*known)) if known else None


def _agree(u: TensorConstant, v: TensorVariable, mask: np.ndarray) -> bool:
    """Return whether two constants are equal wherever a mask holds."""
    return isinstance(v, TensorConstant) and bool(np.all(_are_same(u.data, v.data) | ~mask))


def _value_where(u: TensorConstant, mask: np.ndarray) -> np.ndarray | None:
    """Return the one value that a constant has where a mask holds, None if it has several."""
    values, mask = broadcast(u.data, mask)
    there = values[mask]
    return there[0] if there.size and np.all(_are_same(there, there[0])) else None


def _are_same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which entries are equal, with the signs of zeros."""
    return (x == y) & (np.signbit(x) == np.signbit(y))
