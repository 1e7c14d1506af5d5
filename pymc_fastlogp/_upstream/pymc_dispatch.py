"""Which functions PyMC calls for a type of Op when it makes densities and initial points."""

from collections.abc import Callable, Iterator

from pymc.distributions.distribution import _support_point
from pymc.logprob.abstract import _icdf, _logcdf, _logprob

DISPATCHERS = (_logprob, _logcdf, _icdf, _support_point)


def functions_for(op_type: type) -> Iterator[Callable]:
    """Yield what is registered for a type of Op."""
    for dispatcher in DISPATCHERS:
        yield dispatcher.dispatch(op_type)
