r"""``ive(orders, x)``: exponentially scaled Bessel functions of many constant orders at one number, all at once.

.. code::

    ive([0, 1, ..., n], x)  ->  ive_of_orders([0, 1, ..., n], x)
    ive(orders, x)          ->  ive_of_orders([0, 1, ..., n], x)[abs(orders)]     n the same for all orders of x

The orders are whole numbers, of which :math:`I_{-k} = I_k`, and ``x`` has one element. SciPy computes each order by itself. Kernels have all orders of one recurrence, in the time of
a few: see :mod:`pymc_fastlogp.kernel.lower.bessel`. ``pm.gp.HSGPPeriodic`` has the orders 0 to m - 1 in its log density, and its gradient has each of them and both neighbors:
three vectors of the same x.

It runs after the gradient, which is upstream's formula. Values differ by round-off; those of SciPy lose digits for ``x`` far below the order, these do not.
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
# The highest order that kernels have.
HIGHEST = 50
# How many functions take longer than the recurrence, by measurement: some, and more for high orders.
FEWEST, ORDERS_FOR_ANOTHER = 3, 8

Replacements = dict[Variable, Variable]


@node_rewriter([elemwise_of(psm.Ive)])
def local_ive_of_orders(fgraph: FunctionGraph, node: Apply) -> Replacements | None:
    """Rewrite all ``ive(orders, x)`` of one ``x`` where that pays."""
    if orders_of(node) is None:
        return None
    x = node.inputs[1]
    readers = dict.fromkeys(client for client, _ in fgraph.clients[x])
    orders = {reader: found for reader in readers if (found := orders_of(reader)) is not None}
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


def orders_of(node: Apply) -> np.ndarray | None:
    """Return the magnitudes of constant whole orders at one number; None if a node is not that."""
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
    """Return the entries of some orders."""
    rows = orders.astype("int64")
    first = int(rows.flat[0])
    if rows.ndim == 1 and np.array_equal(rows, np.arange(first, first + rows.size)):
        return table[first : first + rows.size]
    return table[rows]
