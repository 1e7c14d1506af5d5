r"""Drop a switch to zero where the other branch is zero anyway.

.. code::

    switch(a * exp(x) == 0 & m, 0, r)  ->  r      r zero wherever the condition holds, m and a constant

PyMC's Poisson writes the left side, with :math:`y = 0` as ``m`` and :math:`r = y \log\mu - \log y! - \mu`. Where the condition
holds, :math:`\mu = a e^x` is zero, and so are constants that are zero for all ``m``. The rule proves by these facts that ``r``
is zero:

.. code-block:: text

    a + b, a - b, -a     zero if a and b are
    a * b                zero if a is, and b finite
    switch(c, a, b)      zero if a and b are; c is false in b
    switch(c, a, b)      zero if a is, and c is a constant that holds, or 0 < inf

``x`` is finite where :math:`e^x = 0`, unless it is :math:`-\infty`, which a ``switch(x == -inf & m, a, b)`` excludes for ``b``.

The gradient is zero on both sides: the derivative of :math:`a e^x` is :math:`a e^x`, and the other zeros are constants. The
sign of zero may change.

When it refuses
---------------
- No proof is found, or the condition has more entries than the branch.
- Another variable than a product of constants and exponentials is compared with zero: its gradient at zero would change.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import switch
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import broadcast, fill_value
from pymc_fastlogp.analysis.elemwise import is_made_by, operands, scalar_op
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.rewrites.rows.compact.terms import conjunction


@dataclass(frozen=True)
class Facts:
    """Facts that hold where a condition is true.

    Attributes
    ----------
    mask : numpy.ndarray of bool
        Elements for which the condition can hold.
    zeros : frozenset of TensorVariable
        Products of exponentials and constants that are zero.
    logarithms : frozenset of TensorVariable
        Variables whose exponential is zero.
    finite : frozenset of TensorVariable
        Logarithms that are not minus infinity.
    cache : dict
        Whether a variable is zero, given the finite logarithms: a sum may have many readers.
    """

    mask: np.ndarray
    zeros: frozenset[TensorVariable]
    logarithms: frozenset[TensorVariable]
    finite: frozenset[TensorVariable] = frozenset()
    cache: dict[tuple[TensorVariable, frozenset[TensorVariable]], bool] = field(
        default_factory=dict
    )


@node_rewriter([switch])
def local_switch_to_zero(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``switch(exp(x) == 0 & m, 0, r) -> r``."""
    condition, u, r = node.inputs
    if r.type != node.outputs[0].type or fill_value(u) != 0:
        return None
    parts = conjunction(condition) or [condition]
    compared = [x for part in parts if (x := _compared_with(part, 0)) is not None]
    zeros = frozenset(x for x in compared if is_scaled_exp(x))
    logarithms = frozenset(operand for x in zeros for operand in operands(x, ps.Exp))
    mask = mask_of(condition)
    facts = Facts(np.array(True) if mask is None else mask, zeros, logarithms)
    return [r] if zeros and _is_zero(r, facts) else None


def mask_of(condition: TensorVariable) -> np.ndarray | None:
    """Return the conjunction of the constants in a condition; None if it has no constants."""
    known = [x.data for x in conjunction(condition) if isinstance(x, TensorConstant)]
    return np.logical_and.reduce(broadcast(*known)) if known else None


def is_scaled_exp(x: TensorVariable) -> bool:
    """Return whether ``x`` is a product of exponentials and constants, or gathered from one. Its derivative is a multiple of ``x``."""

    def factors(x: TensorVariable) -> list[TensorVariable]:
        if isinstance(x.owner_op, SELECTIONS):
            return [x.owner.inputs[0]]
        return x.owner.inputs if is_made_by(x, ps.Mul) else []

    leaves = (y for y in walk([x], factors) if not factors(y))
    return all(isinstance(y, TensorConstant) or is_made_by(y, ps.Exp) for y in leaves)


def _is_zero(x: TensorVariable, facts: Facts) -> bool:
    key = x, facts.finite
    if key not in facts.cache:
        facts.cache[key] = _prove_zero(x, facts)
    return facts.cache[key]


def _prove_zero(x: TensorVariable, facts: Facts) -> bool:
    if isinstance(x, TensorConstant):
        return not np.any((x.data != 0) & facts.mask)
    if x in facts.zeros:
        return True
    rule = PROOFS.get(type(scalar_op(x)))
    return rule is not None and rule(x.owner.inputs, facts)


def _all_zero(inputs: list[TensorVariable], facts: Facts) -> bool:
    return all(_is_zero(x, facts) for x in inputs)


def _product(inputs: list[TensorVariable], facts: Facts) -> bool:
    zeros = [x for x in inputs if _is_zero(x, facts)]
    return bool(zeros) and all(x in zeros or _is_finite(x, facts) for x in inputs)


def _switch(inputs: list[TensorVariable], facts: Facts) -> bool:
    condition, u, v = inputs
    if not _is_zero(u, facts):
        return False
    return _holds(condition, facts) or _is_zero(v, _with_negated(facts, condition))


def _is_finite(x: TensorVariable, facts: Facts) -> bool:
    if isinstance(x, TensorConstant):
        return bool(np.all(np.isfinite(x.data) | ~facts.mask))
    return x in facts.finite


def _with_negated(facts: Facts, condition: TensorVariable) -> Facts:
    """Return the facts that hold where another condition is false too."""
    parts = conjunction(condition) or [condition]
    unknown = [part for part in parts if not _holds(part, facts)]
    if len(unknown) != 1:
        return facts
    x = _compared_with(unknown[0], -np.inf)
    return replace(facts, finite=facts.finite | {x}) if x in facts.logarithms else facts


def _holds(condition: TensorVariable, facts: Facts) -> bool:
    if compared := operands(condition, ps.LT):
        return compared[0] in facts.zeros and fill_value(compared[1]) == np.inf
    return isinstance(condition, TensorConstant) and bool(
        np.all((condition.data != 0) | ~facts.mask)
    )


def _compared_with(condition: TensorVariable, value: float) -> TensorVariable | None:
    """Return ``x`` if a condition is ``x == value``."""
    if not (compared := operands(condition, ps.EQ)):
        return None
    a, b = compared
    return a if fill_value(b) == value else b if fill_value(a) == value else None


PROOFS: dict[type, Callable[[list[TensorVariable], Facts], bool]] = {
    ps.Add: _all_zero,
    ps.Sub: _all_zero,
    ps.Neg: _all_zero,
    ps.Mul: _product,
    ps.Switch: _switch,
}
