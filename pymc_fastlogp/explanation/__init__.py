"""What the plugin does to a model, and why not more: :func:`explain` and the object it returns."""

from pymc_fastlogp.explanation.result import Explanation, Kernels, Outcome, Outside
from pymc_fastlogp.explanation.run import explain

__all__ = ["Explanation", "Kernels", "Outcome", "Outside", "explain"]
