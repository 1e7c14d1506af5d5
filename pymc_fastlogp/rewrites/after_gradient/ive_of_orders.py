r"""Compute exponentially scaled Bessel functions of many orders at one number by one recurrence.

.. code::

    ive([0, 1, ..., n], x)  ->  ive_of_orders([0, 1, ..., n], x)
    ive(orders, x)          ->  ive_of_orders([0, 1, ..., n], x)[abs(orders)]     n shared by all orders of x

SciPy computes each order by itself. For integer orders :math:`I_{-k} = I_k` and :math:`I_k(-x) = (-1)^k I_k(x)`. With
:math:`h = |x| / 2` and :math:`I_k(|x|) = h^k s_k / k!`

.. math:: s_{k-1} = s_k + \frac{h^2}{k (k + 1)} s_{k+1} .

Kernels run this recurrence downward (Miller's algorithm), where all terms are positive, and normalize by order 0. From
:math:`\max(n^2/2, 25)` on each order has its expansion at infinity (:mod:`pymc_fastlogp.kernel.lower.bessel`).
``pm.gp.HSGPPeriodic`` has the orders 0 to m - 1 in its log density, and both neighbors of each order in its gradient.

Values differ by round-off. Tests bound the error by :math:`3 \cdot 10^{-15}` relative to the terms, and by four times SciPy's,
which loses digits for ``x`` far below the order. Beyond :math:`2^{30}` and at infinity, values are NaN, as in SciPy.

When it applies
---------------
After the gradient, in mode NUMBA, to constant integer orders up to 50 in magnitude and one float64 number. There are at least
three functions of that number, and one more for every eight orders.

When it refuses
---------------
Orders that are not constant integers or exceed 50, one argument per row, float32.
"""

from typing import cast

import numpy as np
import pytensor.scalar.math as psm
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant
from pytensor.tensor.rewriting.basic import elemwise_of
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.ops import IveOfOrders

DTYPE = "float64"
# The highest order in kernels.
HIGHEST = 50
# Measured number of functions that take as long as the recurrence: a base, and one more per this many orders.
FEWEST, ORDERS_FOR_ANOTHER = 3, 8

Replacements = dict[Variable, Variable]


@node_rewriter([elemwise_of(psm.Ive)])
def local_ive_of_orders(fgraph: FunctionGraph, node: Apply) -> Replacements | None:
    """Rewrite all ``ive(orders, x)`` of one ``x`` where this saves time."""
    if constant_orders(node) is None:
        return None
    x = node.inputs[1]
    readers = dict.fromkeys(client for client, _ in fgraph.clients[x])
    orders = {reader: found for reader in readers if (found := constant_orders(reader)) is not None}
    highest = max(int(found.max()) for found in orders.values())
    count = sum(found.size for found in orders.values())
    if highest > HIGHEST or count < FEWEST + highest / ORDERS_FOR_ANOTHER:
        return None
    every = constant(np.arange(highest + 1, dtype=DTYPE))
    table = cast(TensorVariable, IveOfOrders()(every, x.dimshuffle(())))
    replaced = {reader.outputs[0]: _entries(table, found) for reader, found in orders.items()}
    if not all(old.type.is_super(new.type) for old, new in replaced.items()):
        return None
    for old, new in replaced.items():
        copy_stack_trace(old, new)
    return replaced


def constant_orders(node: Apply) -> np.ndarray | None:
    """Return ``abs(orders)`` if a node is ``ive(orders, x)`` of constant integer orders and one number."""
    if not isinstance(node, Apply) or not is_elemwise(node.op, psm.Ive):
        return None
    orders, x = node.inputs
    if not isinstance(orders, Constant) or not all(x.type.broadcastable):
        return None
    if node.outputs[0].type.dtype != DTYPE or x.type.dtype != DTYPE or not orders.data.size:
        return None
    magnitudes = np.abs(orders.data.astype(DTYPE))
    is_whole = np.isfinite(magnitudes) & (magnitudes == np.floor(magnitudes))
    return magnitudes if is_whole.all() else None


def _entries(table: TensorVariable, orders: np.ndarray) -> TensorVariable:
    """Return the entries of the table for some orders, as a slice where possible."""
    rows = orders.astype("int64")
    first = int(rows.flat[0])
    if rows.ndim == 1 and np.array_equal(rows, np.arange(first, first + rows.size)):
        return table[first : first + rows.size]
    return table[rows]
