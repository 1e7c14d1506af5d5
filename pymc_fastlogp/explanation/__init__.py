"""Effects of the plugin on a model, and the reasons for the rest: :func:`explain` and its result."""

from pymc_fastlogp.explanation.result import Explanation, Kernels, Outcome, Outside
from pymc_fastlogp.explanation.run import explain

__all__ = ["Explanation", "Kernels", "Outcome", "Outside", "explain"]
