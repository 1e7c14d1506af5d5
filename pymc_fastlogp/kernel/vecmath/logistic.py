r"""The logistic family: sigmoid, softplus, log_sigmoid, a sum of two softplus functions, tanh, log1mexp.

With :math:`t = e^{-|x|} \le 1`,

.. math::

    \mathrm{sigmoid}(x) &= \{1 \text{ if } x \ge 0 \text{ else } t\} / (1 + t) \\
    \mathrm{softplus}(x) = \log(1 + e^x) &= \max(x, 0) + \log(1 + t) \\
    \log \mathrm{sigmoid}(x) &= -\mathrm{softplus}(-x) \\
    \mathrm{softplus}(x) + \mathrm{softplus}(y) &= \max(x, 0) + \max(y, 0) + \log(1 + (t + s + t s)), \qquad s = e^{-|y|} \\
    -\tanh |x| &= h / (1 + h), \qquad h = (e^{-2|x|} - 1) / 2

so that nothing overflows, and small results keep all digits. For tanh let :math:`-2|x| = k \log 2 + r`.
Then :math:`h = (2^{k-1} - 1/2) + 2^{k-1} (e^r - 1)`. The quotient would amplify the rounding error of this sum up to twice,
so both terms enter the remainder of the division. :func:`sigmoid_softplus` computes :math:`t` once for a density that needs softplus and
its derivative sigmoid.

log1mexp is :math:`\log(1 - e^x)` for :math:`x \le 0` and nan above, as in PyTensor. The argument of the logarithm is
:math:`-\mathrm{expm1}(x)` for :math:`x > -\log 2`, and :math:`1 - e^x` below (M. Mächler 2012, Accurately computing log(1 - exp(-|a|))).
Both arguments are pairs from the same :math:`e^r - 1`. A ``select`` picks one argument, so only one logarithm is evaluated.

**Error budget** in ulp of the result:

- sigmoid, tanh: the error of t, about 1, or of both terms of h; 1/2 for the last step of the division, whose denominator is an exact pair.
- a sum of two softplus functions: the errors of t and s, 1/2 for :math:`s + t s`; the budget of the logarithm.
- softplus: the error of t for negative x, 1/2 for the rounding of :math:`\log(1 + t)` for other x; the budget of the logarithm.

sigmoid is monotone because exp and the later steps are monotone.
"""

from pymc_fastlogp.kernel.vecmath.exponential import (
    EXP_LOW,
    EXPM1_TINY,
    LN2,
    half_expm1,
    half_power_of_two,
    reduce_by_ln2,
)
from pymc_fastlogp.kernel.vecmath.logarithm import (
    log_of_normal_sum,
    log_of_sum,
    with_edges,
)
from pymc_fastlogp.kernel.vecmath.vector import (
    Floats,
    Pair,
    fast_two_sum,
    quotient,
    select_pair,
    two_sum,
)

# tanh is 1 from 20 on.
TANH_LOW = -44.0


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x))."""
    return _sigmoid(x, _exp_of_minus_magnitude(x))


def softplus(x: Floats) -> Floats:
    """Return log(1 + exp(x))."""
    return _softplus(x, _exp_of_minus_magnitude(x))


def sigmoid_softplus(x: Floats) -> tuple[Floats, Floats]:
    """Return sigmoid and softplus, which share the exponential."""
    t = _exp_of_minus_magnitude(x)
    return _sigmoid(x, t), _softplus(x, t)


def softplus_sum(x: Floats, y: Floats) -> Floats:
    """Return softplus(x) + softplus(y), by one logarithm."""
    t, s = _exp_of_minus_magnitude(x), _exp_of_minus_magnitude(y)
    tail = two_sum(t, s.fma(t, s))
    # The tail may be larger than one, yet the sum is exact: from 2 to 4, subtracting one needs no further bit.
    argument = fast_two_sum(1.0, tail.high)
    log = log_of_normal_sum(Pair(argument.high, argument.low + tail.low)).rounded()
    return (x.at_least(0.0) + y.at_least(0.0)) + log


def log_sigmoid(x: Floats) -> Floats:
    """Return log(sigmoid(x))."""
    return -softplus(-x)


def tanh(x: Floats) -> Floats:
    """Return the hyperbolic tangent."""
    reduced = reduce_by_ln2((x.magnitude() * -2.0).at_least(TANH_LOW))
    scale = half_power_of_two(reduced.k)
    # The rounding error of r is multiplied by 2**(k - 1), at most 1/4. There is no such error for k = 0.
    large, small = scale - 0.5, scale * reduced.rounded_expm1()
    half = large + small
    reciprocal = 1.0 / (half + 1.0)
    estimate = half * reciprocal
    # The remainder includes the rounding error of `half`. The first difference is exact.
    remainder = (-estimate).fma(large, large - estimate) + small
    remainder = (-estimate).fma(small, remainder)
    return remainder.fma(reciprocal, estimate).with_sign_of(x)


def log1mexp(x: Floats) -> Floats:
    """Return log(1 - exp(x)) for negative x, -inf at zero and nan above."""
    reduced = reduce_by_ln2(x.at_least(EXP_LOW).at_most(1.0))
    near_zero = _minus_expm1(x, half_expm1(reduced))
    far = fast_two_sum(1.0, -reduced.exp())
    argument = select_pair(x > -LN2, near_zero, far)
    return with_edges(argument.high, -log_of_sum(argument).rounded().magnitude())


def _minus_expm1(x: Floats, half: Pair) -> Pair:
    """Return ``-expm1(x)`` from half of ``expm1(x)``."""
    half = fast_two_sum(half.high, half.low)
    tiny = x.magnitude() < EXPM1_TINY
    return Pair(tiny.select(-x, half.high * -2.0), tiny.select(0.0, half.low * -2.0))


def _exp_of_minus_magnitude(x: Floats) -> Floats:
    return reduce_by_ln2((-x.magnitude()).at_least(EXP_LOW)).exp()


def _sigmoid(x: Floats, t: Floats) -> Floats:
    return quotient((x >= 0.0).select(1.0, t), fast_two_sum(1.0, t))


def _softplus(x: Floats, t: Floats) -> Floats:
    return x.at_least(0.0) + log_of_normal_sum(fast_two_sum(1.0, t)).rounded()
