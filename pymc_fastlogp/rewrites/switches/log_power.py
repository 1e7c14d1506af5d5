"""Decide by the count ``y``, not by the logarithm of the rate ``mu``, where ``y * log(mu)`` is zero.

.. code::

    switch(log(mu) == -inf & m, u, y * log(mu))  ->  switch(m, 0, y * log(mu))
                                                 ->  switch(m, 0, y * (log(a) + x + log(s)) + limit)   for mu = a * exp(x) * s
                                                 ->  switch(m, 0, y * (x + z))                         for mu = exp(x) * exp(z)

``m``, ``u`` and ``y`` are constants, ``u`` and ``y`` are zero where ``m`` holds, and ``y`` is positive elsewhere. PyMC's
``logpow`` writes the left side for Poisson and other counts, with ``y == 0`` as ``m``. Where most counts are zero, few
logarithms remain. A product needs no logarithm per row, and its terms are linear in the effects of groups and covariates, so
that rows can be summed by group.

The limit is the limit of :mod:`~pymc_fastlogp.rewrites.scalars.log_of_product`. Where ``m`` holds, both sides are zero, or NaN for a
rate that is infinite or NaN.

When it applies
---------------
To rates that are known to be nonnegative.

When it refuses
---------------
Rates whose logarithm PyTensor simplifies itself: squares, powers, roots, reciprocals, and quotients with a constant part.
"""

from collections.abc import Iterable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import log, lt
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_made_by, operand, operands
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.rows.compact.terms import conjunction
from pymc_fastlogp.rewrites.scalars.log_of_product import (
    limit_of_log,
    sum_of_logs,
    with_one_exponential,
)
from pymc_fastlogp.rewrites.switches.switch_to_zero import mask_of


@node_rewriter([switch])
def local_log_power(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``switch(log(mu) == -inf & m, 0, y * log(mu)) -> switch(m, 0, y * log(mu))``."""
    [condition, u, product], [out] = node.inputs, node.outputs
    mask = mask_of(condition)
    counts, logarithms = _split_constants(operands(product, ps.Mul))
    _, unknown = _split_constants(conjunction(condition))
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
    zero = switch(lt(rate, _number(np.inf, out)), _number(0, out), _number(np.nan, out))
    return replacement(out, switch(constant(mask), zero, power))


def _has_simpler_logarithm(mu: TensorVariable) -> bool:
    """Return whether PyTensor rewrites ``log(mu)`` to a form that is finite where ``mu`` is zero or infinite."""
    quotient = operands(mu, ps.TrueDiv)
    is_split = any(fill_value(part) is not None for part in quotient)
    return is_split or is_made_by(mu, ps.Sqr, ps.Pow, ps.Sqrt, ps.Reciprocal)


def _power(y: TensorVariable, mu: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return a variable that is infinite or NaN where the rate is, and ``y * log(mu)``."""
    merged = with_one_exponential(mu)
    mu = mu if merged is None else merged
    if (exponent := operand(mu, ps.Exp)) is not None:
        return exponent, y * exponent
    logarithm = log(mu)
    logs = sum_of_logs(logarithm)
    # A quotient by -0.0 is minus infinity, and its logarithm NaN.
    rate = abs(mu) if _is_quotient(mu) else mu
    return rate, y * logarithm if logs is None else y * logs + limit_of_log(mu)


def _is_quotient(mu: TensorVariable) -> bool:
    while isinstance(mu.owner_op, SELECTIONS):
        mu = mu.owner.inputs[0]
    return is_made_by(mu, ps.TrueDiv)


def _number(value: float, like: TensorVariable) -> TensorConstant:
    return constant(np.array(value, dtype=like.type.dtype))


def _split_constants(xs: list[TensorVariable]) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Return the constants, and the other variables."""
    constants = [x for x in xs if isinstance(x, TensorConstant)]
    return constants, [x for x in xs if x not in constants]


def _is_minus_infinity(condition: TensorVariable, x: TensorVariable) -> bool:
    """Return whether a condition is ``x == -inf``."""
    compared = operands(condition, ps.EQ)
    return x in compared and any(fill_value(other) == -np.inf for other in compared)


def _are_zero(xs: Iterable[TensorVariable], mask: np.ndarray) -> bool:
    """Return whether constants are zero wherever a mask holds."""
    return all(isinstance(x, TensorConstant) and not np.any((x.data != 0) & mask) for x in xs)
