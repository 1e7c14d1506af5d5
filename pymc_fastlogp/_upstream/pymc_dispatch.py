"""PyMC's dispatch tables for densities and initial points: lookup by Op type, and registration."""

from collections.abc import Callable, Iterator

from pymc.distributions.distribution import SymbolicRandomVariable, _support_point
from pymc.logprob import abstract
from pymc.logprob.abstract import _icdf, _logcdf, _logprob

__all__ = ["SymbolicRandomVariable", "functions_for", "logprob_of", "support_point_of"]

# Older versions have no _logccdf.
DISPATCHERS = (
    *(_logprob, _logcdf, _icdf, _support_point),
    *(getattr(abstract, name) for name in ("_logccdf",) if hasattr(abstract, name)),
)
# For registration as in PyMC's guide for authors of distributions: `@logprob_of.register(MyOp)`.
logprob_of, support_point_of = _logprob, _support_point


def functions_for(op_type: type) -> Iterator[Callable]:
    """Yield the functions that are registered for a type of Op."""
    for dispatcher in DISPATCHERS:
        yield dispatcher.dispatch(op_type)
