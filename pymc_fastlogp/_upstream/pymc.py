"""What is not documented in PyMC: what it does to a log density before the gradient, and two scalar Ops."""

from pymc.distributions.dist_math import I0e, I1e, i0e_scalar
from pymc.pytensorf import rewrite_pregrad

__all__ = ["I0e", "I1e", "i0e_scalar", "rewrite_pregrad"]
