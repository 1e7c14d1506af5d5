r"""Ask the count ``y``, not the logarithm of the rate ``mu``, whether ``y * log(mu)`` is zero.

.. code::

    switch(log(mu) == -inf & m, u, y * log(mu))  ->  switch(m, 0, y * log(mu))
                                                 ->  switch(m, 0, y * (log(a) + x + log(s)) + limit)   for mu = a * exp(x) * s
                                                 ->  switch(m, 0, y * (x + z))                         for mu = exp(x) * exp(z)

``m``, ``u`` and ``y`` are constants, ``u`` and ``y`` zero wherever ``m`` holds, and ``y`` positive elsewhere. PyMC's
``logpow`` writes it in the mass of Poisson and of other counts, with ``m`` for ``y == 0``. Where most counts are zero, few logarithms are left. Those of a product are none,
and its terms are linear in what groups and covariates add, so that rows are summed by what they share.

The limit is 0, or what ``log(mu)`` is where it is not finite; see :mod:`~pymc_fastlogp.rewrites.scalars.log_of_product`. Where ``m`` holds, the left side
is zero, but nan for an infinite rate or one that is nan, and so is the right one. No rate is negative.
"""

from collections.abc import Iterable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import log, lt
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_made_by, operand, operands
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.rows.compact.terms import conjunction
from pymc_fastlogp.rewrites.scalars.log_of_product import (
    limit_of_log,
    sum_of_logs,
    with_one_exponential,
)
from pymc_fastlogp.rewrites.switches.masked_switch import mask_of


@node_rewriter([switch])
def local_log_power(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``switch(log(mu) == -inf & m, 0, y * log(mu)) -> switch(m, 0, y * log(mu))``."""
    [condition, u, product], [out] = node.inputs, node.outputs
    mask = mask_of(condition)
    counts, logarithms = _parted(operands(product, ps.Mul))
    _, unknown = _parted(conjunction(condition))
    if mask is None or not (len(counts) == len(logarithms) == len(unknown) == 1):
        return None
    [y], [logarithm] = counts, logarithms
    if not (_is_minus_infinity(unknown[0], logarithm) and _are_zero((u, y), mask)):
        return None
    mu = operand(logarithm, ps.Log)
    if mu is None or _has_simpler_logarithm(mu):
        return None
    if not (np.all((y.data > 0) | mask) and is_nonnegative(mu)):
        return None
    rate, power = _power(y, mu)
    nothing = switch(lt(rate, _number(np.inf, out)), _number(0, out), _number(np.nan, out))
    power = switch(constant(mask), nothing, power)
    if not out.type.is_super(power.type):
        return None
    copy_stack_trace(out, power)
    return [power]


def _has_simpler_logarithm(mu: TensorVariable) -> bool:
    """Return whether PyTensor finds a logarithm that is finite where ``mu`` is zero or infinite, after other rewrites."""
    quotient = operands(mu, ps.TrueDiv)
    is_split = any(fill_value(part) is not None for part in quotient)
    return is_split or is_made_by(mu, ps.Sqr, ps.Pow, ps.Sqrt, ps.Reciprocal)


def _power(y: TensorVariable, mu: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return what is infinite where ``y * log(mu)`` is, and that."""
    merged = with_one_exponential(mu)
    mu = mu if merged is None else merged
    if (exponent := operand(mu, ps.Exp)) is not None:
        return exponent, y * exponent
    logarithm = log(mu)
    logs = sum_of_logs(logarithm)
    # What is divided by -0.0 is minus infinity, and its logarithm nan.
    rate = abs(mu) if _is_quotient(mu) else mu
    return rate, y * logarithm if logs is None else y * logs + limit_of_log(mu)


def _is_quotient(mu: TensorVariable) -> bool:
    while isinstance(mu.owner_op, SELECTIONS):
        mu = mu.owner.inputs[0]
    return is_made_by(mu, ps.TrueDiv)


def _number(value: float, like: TensorVariable) -> TensorConstant:
    return constant(np.array(value, dtype=like.type.dtype))


def _parted(xs: list[TensorVariable]) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Return which are constants, and which are not."""
    constants = [x for x in xs if isinstance(x, TensorConstant)]
    return constants, [x for x in xs if x not in constants]


def _is_minus_infinity(condition: TensorVariable, x: TensorVariable) -> bool:
    """Return whether a condition is ``x == -inf``."""
    compared = operands(condition, ps.EQ)
    return x in compared and any(fill_value(other) == -np.inf for other in compared)


def _are_zero(xs: Iterable[TensorVariable], mask: np.ndarray) -> bool:
    """Return whether constants are zero wherever a mask holds."""
    return all(isinstance(x, TensorConstant) and not np.any((x.data != 0) & mask) for x in xs)
