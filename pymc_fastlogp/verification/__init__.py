r"""Check a model's log density and gradient with the plugin on against the plugin off.

With the plugin on, the model is compiled as it is for a sampler, in mode NUMBA. With it off, PyTensor's
operations are run one by one in NumPy, so that nobody waits for a second compilation. Only where the two do
not agree, or NumPy lacks an operation, the model is compiled with the plugin off, too, and that decides.

Two computations of one density may differ by round-off, and how much round-off is innocent
depends on the point: where terms of 1e10 cancel, the last digits of their sum are noise in
both, and whether a nearly singular matrix has a Cholesky factor is decided by such digits. So
the yardstick is measured: the function without the plugin is evaluated again at points
:math:`x'` that are a few units in the last place away. What that changes, upstream does not
know either. An entry passes if

.. math:: |on - off| \le rtol \cdot \max(|off|, s) + 16 \cdot \max_{x'} |off(x) - off(x')|

with :math:`s` the largest gradient entry of the same variable. Infinities and nan have to be
the same on both sides, except where they are not even the same at all :math:`x'`. Where the log
density is not finite on both sides, its gradient is not compared: every sampler rejects such a
point unseen.

Far out, where all coordinates are 30 or more from zero, upstream's log density or gradient may overflow or underflow to an
infinity or nan where a rewritten one has digits left, or is another of -inf and nan. Samplers reject such points with
the plugin off. They are counted, not compared.

Other coordinates do not show all round-off: a sigmoid near one, of which another is
subtracted, is rounded alike at all of them. Where an entry would fail even so, upstream's operations are
run at :math:`x` itself, too, with noise in the last digit of each (:mod:`pymc_fastlogp.verification.roundoff`), and
the results count among the :math:`off(x')`. Where all entries pass without any of that, it is left out.

Points are in the precision of the variables. Where all of these are float32, as with ``floatX=float32``, ``rtol`` is
of single precision by default.

Not seen here are: what nutpie and PyMC compile from the same log density but with another
layout of its inputs, data of other shapes, and points with infinite coordinates.
"""

from pymc_fastlogp.verification.outcome import Verification, WorstEntry
from pymc_fastlogp.verification.sides import verify

__all__ = ["Verification", "WorstEntry", "verify"]
