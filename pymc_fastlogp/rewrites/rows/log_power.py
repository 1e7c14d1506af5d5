"""Ask the count, not the logarithm, whether ``y * log(mu)`` is zero.

.. code::

    switch(l == -inf & m, u, y * l)  ->  switch(m, 0, y * l)

``m``, ``u`` and ``y`` are constants, ``u`` and ``y`` zero wherever ``m`` holds. PyMC's ``logpow`` writes it in the logarithm of a Poisson's and
a binomial's mass, with ``m`` for ``y == 0``. The right side reads no logarithm where the count is zero, and its terms are linear in the logarithm
where it is not, so that rows can be summed by what they share.

Where ``m`` holds, the left side is zero, but for a logarithm that is infinite or nan: there it is nan, and the right one zero.
Such a mean makes PyMC's density nan, infinite or a failed check by its other terms.
"""

from collections.abc import Iterable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operands
from pymc_fastlogp.rewrites.rows.masked_switch import mask_of
from pymc_fastlogp.rewrites.rows.terms import conjunction


@node_rewriter([switch])
def local_log_power(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``switch(l == -inf & m, u, y * l) -> switch(m, 0, y * l)``."""
    [condition, u, product], [out] = node.inputs, node.outputs
    mask = mask_of(condition)
    counts, logarithms = _parted(operands(product, ps.Mul))
    _, unknown = _parted(conjunction(condition))
    if mask is None or not (len(counts) == len(logarithms) == len(unknown) == 1):
        return None
    if not (_is_minus_infinity(unknown[0], logarithms[0]) and _are_zero((u, counts[0]), mask)):
        return None
    zero = constant(np.zeros((1,) * out.type.ndim, dtype=out.type.dtype))
    power = switch(constant(mask), zero, product)
    if not out.type.is_super(power.type):
        return None
    copy_stack_trace(out, power)
    return [power]


def _parted(xs: list[TensorVariable]) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Return which are constants, and which are not."""
    constants = [x for x in xs if isinstance(x, TensorConstant)]
    return constants, [x for x in xs if x not in constants]


def _is_minus_infinity(condition: TensorVariable, x: TensorVariable) -> bool:
    """Whether a condition is ``x == -inf``."""
    compared = operands(condition, ps.EQ)
    return x in compared and any(fill_value(other) == -np.inf for other in compared)


def _are_zero(xs: Iterable[TensorVariable], mask: np.ndarray) -> bool:
    """Whether constants are zero wherever a mask holds."""
    return all(isinstance(x, TensorConstant) and not np.any((x.data != 0) & mask) for x in xs)
