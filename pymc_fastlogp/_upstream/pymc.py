"""Undocumented PyMC behavior: rewrites of a log density before its gradient, and two scalar Ops."""

from pymc.distributions.dist_math import I0e, I1e, i0e_scalar
from pymc.pytensorf import rewrite_pregrad

__all__ = ["I0e", "I1e", "i0e_scalar", "rewrite_pregrad"]
