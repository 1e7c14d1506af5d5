r"""Constants that may be moved out of a sum over rows.

.. math::

    \sum_i (f_i - c_i) = \sum_i f_i - C, \qquad C = \sum_i c_i

saves reading :math:`c_i` in each evaluation. :math:`C` is right to the last digit, but partial sums of
:math:`f_i` may be larger than those of :math:`f_i - c_i`, by :math:`\sum_i |c_i|` at most, and so may be their
roundings. Each of these is at most :math:`u = 2^{-53}` times a partial sum, and their signs are random, so that
:math:`n` of them come to about :math:`u \sqrt{n} \sum_i |c_i|` or less. A log density is of the order of one for each
row, and that error is to stay below :math:`10^{-12} n`. So the counts of a Poisson likelihood of 5000 rows leave their
``gammaln(y + 1)`` behind if its mean is below 127, those of 1e7 rows if it is below 2.8; constants of 1e9
stay in the rows, where they cancel.

Constants stay as well where a switch reads its mask anyway, and where a product would have to be expanded: gradients have
:math:`\sum_i x_i (y_i - \mu_i)`, and :math:`y_i - \mu_i` elsewhere.
"""

from math import sqrt

import numpy as np

from pymc_fastlogp.rewrites.rows.compact.terms import Term
from pymc_fastlogp.rewrites.rows.view.chunks import chunks_of

UNIT_ROUNDOFF = 2.0**-53

# What the sum may lose for each row.
TOLERANCE = 1e-12


def may_leave(term: Term, n_rows: int) -> bool:
    """Return whether a term is a constant that is added as it stands, and small enough to be summed apart."""
    is_added = term.factor is None and term.mask is None and len(term.weights) == 1
    if not is_added or term.x.type.dtype != "float64":
        return False
    return UNIT_ROUNDOFF * sqrt(n_rows) * _mean_absolute(term.weights[0].data) <= TOLERANCE


def _mean_absolute(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    return sum(float(np.abs(flat[rows]).sum()) for rows in chunks_of(flat.size)) / flat.size
