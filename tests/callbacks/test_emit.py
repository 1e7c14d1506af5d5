"""The callback for logp and gradient: its checks of the results of the graph."""

import ctypes

import numpy as np
import pytest

from pymc_fastlogp.callbacks.emit import FixedAddresses, logp_module
from pymc_fastlogp.callbacks.graph_call import POINT, NumbaCall
from pymc_fastlogp.callbacks.native import BAD_GRADIENT, BAD_LOGP, SYMBOL
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, engine
from pymc_fastlogp.kernel.native.target import target_machine, verified
from tests.callbacks.calls import LOGP_TYPE

BAD = (np.nan, -np.nan, np.inf, -np.inf)
GOOD = (0.0, -0.0, 5e-324, np.finfo(float).max)
NO_RESULTS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda words: 0)


class NoResults(NumbaCall):
    """A graph that leaves the memory of its results as it is."""

    def __init__(self):
        self.inputs = [POINT]
        self.address = ctypes.cast(NO_RESULTS, ctypes.c_void_p).value


def status_of(n):
    """Return a function from a gradient of length n and a density to the status of the callback."""
    call = NoResults()
    module = logp_module(call, FixedAddresses([call.address]), n)
    code = LoadedCode(engine(target_machine().emit_object(verified(module))), SYMBOL)

    def status(gradient, logp):
        arrays = [np.zeros(n), np.asarray(gradient), np.full(1, logp), np.zeros(1)]
        return LOGP_TYPE(code.address)(n, *(x.ctypes.data for x in arrays))

    return status


@pytest.mark.parametrize("n", [*range(1, 19), 31, 32, 33, 34, 50])
def test_every_entry_of_the_gradient_is_checked(n):
    status = status_of(n)
    for entry in range(n):
        at_entry = np.arange(n) == entry
        assert {status(np.where(at_entry, x, 1.0), 1.0) for x in BAD} == {BAD_GRADIENT}
        assert {status(np.where(at_entry, x, 1.0), 1.0) for x in GOOD} == {0}


def test_the_density_is_checked():
    status = status_of(3)
    assert [status(np.ones(3), x) for x in BAD] == [BAD_LOGP] * len(BAD)
    assert [status(np.ones(3), x) for x in GOOD] == [0] * len(GOOD)
