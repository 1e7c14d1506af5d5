"""Algebraic simplification: the same values with fewer operations.

.. code-block:: text

    Switch(c, f(a), f(b))    ->    f(Switch(c, a, b))        for a costly f
    -a * b                   ->    -(a * b)
    a + -b                   ->    a - b
    softplus(a) + softplus(b)   ->    log((1 + exp(a)) (1 + exp(b)))

A vector computes both branches of a Switch, so the first identity saves one ``f``. Signs move outward until they cancel, or until LLVM recognizes
``exp(-abs(x))`` and ``exp(-abs(-x))`` as equal. These identities are exact in floating point.

Two softplus functions take one logarithm (:mod:`pymc_fastlogp.kernel.vecmath.logistic`), with all digits. LLVM shares their exponentials
with the sigmoids of the gradient.

A division is not rewritten as a product: an infinite reciprocal would turn inf into nan.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from pytensor import scalar as ps
from pytensor.scalar.math import Softplus

from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Expr
from pymc_fastlogp.kernel.ir.loops import Loop, Program
from pymc_fastlogp.kernel.ir.substitute import substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import expressions, operands, roots, with_loops
from pymc_fastlogp.kernel.scalars.softplus_sum import softplus_sum

FLOATS = ("float32", "float64")
CHEAP = (ps.Add, ps.Sub, ps.Mul, ps.Switch, ps.Abs, ps.Sqr)


def simplify(program: Program) -> Program:
    """Simplify the expressions of all loops."""
    return replace(program, steps=with_loops(program.steps, lambda loop: [_simplified(loop)]))


def _simplified(loop: Loop) -> Loop:
    while True:
        new = _one_round(loop)
        if new == loop:
            return loop
        loop = new


def _one_round(loop: Loop) -> Loop:
    uses = Counter(expr for statement in loop.body for expr in roots(statement))
    uses.update(operand for expr in expressions(loop) for operand in operands(expr))

    def rewritten(expr: Expr) -> Expr | None:
        if not isinstance(expr, Compute):
            return None
        found = (new for rule in RULES if (new := rule(expr, uses)) is not None)
        return next(found, None)

    return substitute_in_loop(loop, rewritten)


def sign_out_of_product(expr: Compute, uses: Counter) -> Expr | None:
    """Rewrite ``-1 * a * b`` and ``-a * b`` as ``-(a * b)``."""
    if not isinstance(expr.op, ps.Mul) or expr.dtype not in FLOATS:
        return None
    signs = [_is_minus_one(arg) or _is_negation(arg) for arg in expr.args]
    if not any(signs) or any(arg.dtype not in FLOATS for arg in expr.args):
        return None
    factors = [operands(a)[0] if _is_negation(a) else a for a in expr.args if not _is_minus_one(a)]
    if not factors or any(factor.dtype != expr.dtype for factor in factors):
        return None
    product = factors[0] if len(factors) == 1 else Compute(expr.op, tuple(factors), expr.dtype)
    return _negated(product) if sum(signs) % 2 else product


def sign_out_of_quotient(expr: Compute, uses: Counter) -> Expr | None:
    """Rewrite ``-a / b`` as ``-(a / b)``."""
    if not isinstance(expr.op, ps.TrueDiv) or not _is_negation(expr.args[0]):
        return None
    return _negated(Compute(expr.op, (operands(expr.args[0])[0], expr.args[1]), expr.dtype))


def double_negation(expr: Compute, uses: Counter) -> Expr | None:
    """Rewrite ``--a`` as ``a``."""
    if not (_is_negation(expr) and _is_negation(expr.args[0])):
        return None
    return operands(expr.args[0])[0]


def negation_in_sum(expr: Compute, uses: Counter) -> Expr | None:
    """Rewrite ``a + -b`` as ``a - b``, and ``a - -b`` as ``a + b``."""
    if not isinstance(expr.op, ps.Add | ps.Sub) or len(expr.args) != 2:
        return None
    first, second = expr.args
    if isinstance(expr.op, ps.Add) and _is_negation(first):
        first, second = second, first
    if not _is_negation(second) or first.dtype != expr.dtype:
        return None
    opposite = ps.sub if isinstance(expr.op, ps.Add) else ps.add
    return Compute(opposite, (first, operands(second)[0]), expr.dtype)


def switch_inwards(expr: Compute, uses: Counter) -> Expr | None:
    """Rewrite ``Switch(c, f(a), f(b))`` as ``f(Switch(c, a, b))``."""
    if not isinstance(expr.op, ps.Switch):
        return None
    condition, yes, no = expr.args
    if not (isinstance(yes, Compute) and isinstance(no, Compute)):
        return None
    if len(yes.args) != 1 or yes.op != no.op or yes.dtype != no.dtype or yes is no:
        return None
    (a,), (b,) = yes.args, no.args
    if a.dtype != b.dtype or isinstance(yes.op, CHEAP):
        return None
    # Expressions that this round has created have no counts. They wait for the next round.
    if not _is_negation(yes) and not uses[yes] == uses[no] == 1:
        return None
    return Compute(yes.op, (Compute(expr.op, (condition, a, b), a.dtype),), yes.dtype)


def sum_of_softplus(expr: Compute, uses: Counter) -> Expr | None:
    """Rewrite ``softplus(a) + softplus(b)``, ``-softplus(a) - softplus(b)`` and ``c - softplus(a) - softplus(b)`` by one function."""
    if not isinstance(expr.op, ps.Add | ps.Sub) or len(expr.args) != 2:
        return None
    first, second = expr.args
    if isinstance(expr.op, ps.Add):
        return _softplus_sum(first, second, uses)
    if not (isinstance(first, Compute) and isinstance(first.op, ps.Neg | ps.Sub)):
        return None
    total = _softplus_sum(first.args[-1], second, uses)
    if total is None or uses[first] != 1:
        return None
    return Compute(first.op, (*first.args[:-1], total), expr.dtype)


def _softplus_sum(first: Expr, second: Expr, uses: Counter) -> Expr | None:
    """Return the sum of two softplus functions that nothing else uses, None for other expressions."""
    if not all(_is_softplus(x) and uses[x] == 1 for x in (first, second)):
        return None
    return Compute(softplus_sum, (*operands(first), *operands(second)), "float64")


Rule = Callable[[Compute, Counter], Expr | None]

RULES: tuple[Rule, ...] = (
    sign_out_of_product,
    sign_out_of_quotient,
    double_negation,
    negation_in_sum,
    switch_inwards,
    sum_of_softplus,
)


def _is_minus_one(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == -1 and expr.dtype in FLOATS


def _is_negation(expr: Expr) -> bool:
    return isinstance(expr, Compute) and isinstance(expr.op, ps.Neg) and expr.dtype in FLOATS


def _is_softplus(expr: Expr) -> bool:
    """Return whether an expression is the softplus function in double precision."""
    if not (isinstance(expr, Compute) and isinstance(expr.op, Softplus)):
        return False
    return expr.dtype == expr.args[0].dtype == "float64"


def _negated(expr: Expr) -> Expr:
    return Compute(ps.neg, (expr,), expr.dtype)
