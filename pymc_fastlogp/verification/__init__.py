r"""Compare a model's log density and gradient with the plugin on and off.

With the plugin on, the model is compiled as for a sampler, in mode NUMBA. With the plugin off, NumPy runs PyTensor's
operations one by one, which saves a second compilation. The model is compiled with the plugin off only if the two
sides differ at a point, or if NumPy lacks an operation; then the compiled result decides at this point.

Two computations of one density may differ by round-off. The size of legitimate round-off depends on the point:

- terms of 1e10 that cancel leave a sum whose last digits are noise on both sides;
- such digits decide whether a nearly singular matrix has a Cholesky factor.

So upstream's round-off is measured. The function without the plugin is evaluated again at points :math:`x'` that are a
few units in the last place away from :math:`x`. An entry passes if

.. math:: |on - off| \le rtol \cdot \max(|off|, s) + 16 \cdot \max_{x'} |off(x) - off(x')|

with :math:`s` the largest gradient entry of the same variable. Infinities and NaN must be the same on both sides,
unless upstream itself differs in them between the points :math:`x'`. If the log density is not finite on either side,
the gradient is not compared, because samplers reject such a point without reading the gradient.

If all coordinates are 30 or more from zero, upstream may overflow or underflow to an infinity or NaN where a rewritten
expression has digits left, or may differ from the plugin in -inf and NaN. Samplers reject such points with the plugin off.
These points are counted, but not compared.

Neighboring points do not show all round-off. For example, a sigmoid near one is rounded alike at all neighbors. If an entry
fails, upstream's operations run at :math:`x` itself with noise in the last digit of each operation
(:mod:`pymc_fastlogp.verification.roundoff`), and the results join the :math:`off(x')`. Each kind of noise is computed only
if the comparison needs it.

Points have the precision of the variables. If all variables are float32, as with ``floatX=float32``, the default of
``rtol`` fits single precision.

The comparison does not cover:

- other layouts of the inputs, in which nutpie and PyMC compile the same log density;
- data of other shapes;
- points with infinite coordinates.
"""

from pymc_fastlogp.verification.result import Verification, WorstEntry
from pymc_fastlogp.verification.run import verify

__all__ = ["Verification", "WorstEntry", "verify"]
