"""Simplify a switch of constants by the constant mask in its condition.

.. code::

    switch(c & m, u, v)  ->  switch(c & m, k, v)      u is k wherever m holds
    switch(c & m, u, v)  ->  v                        u and v are equal wherever m holds

``m``, ``u`` and ``k`` are constants, and ``v`` too in the second line. PyMC writes ``y * log(mu)`` as such a switch, with ``y``
zero where ``m`` holds. The gradient is a switch between zero and ``y``. A row then reads one array less, and the gradient has
no switch. Values are bitwise equal, and gradients too, since constants have none.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.type import complex_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import broadcast, fill_value
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.rows.view.length_checks import length_checks
from pymc_fastlogp.rewrites.switches.switch_to_zero import mask_of


@node_rewriter([switch])
def local_masked_switch(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``switch(c & m, u, v) -> switch(c & m, k, v)``, or ``-> v``."""
    condition, u, v = node.inputs
    out = node.outputs[0]
    mask = mask_of(condition)
    if mask is None or not isinstance(u, TensorConstant) or out.type.dtype in complex_dtypes:
        return None
    if v.type == out.type and _agree(u, v, mask):
        # A condition of another length raises, so it must stay.
        return None if length_checks(condition) else [v]
    value = _value_where(u, mask)
    if value is None or fill_value(u) is not None:
        return None
    one = constant(value.reshape((1,) * out.type.ndim), dtype=u.type.dtype)
    masked = switch(condition, one, v)
    if masked.type != out.type:
        return None
    return replacement(out, masked)


def _agree(u: TensorConstant, v: TensorVariable, mask: np.ndarray) -> bool:
    """Return whether two constants are equal wherever a mask holds."""
    return isinstance(v, TensorConstant) and bool(np.all(_are_same(u.data, v.data) | ~mask))


def _value_where(u: TensorConstant, mask: np.ndarray) -> np.ndarray | None:
    """Return the value of a constant where a mask holds; None if it has several values there."""
    values, mask = broadcast(u.data, mask)
    there = values[mask]
    return there[0] if there.size and np.all(_are_same(there, there[0])) else None


def _are_same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which entries are equal, including the sign of zeros."""
    return (x == y) & (np.signbit(x) == np.signbit(y))
