"""Fixtures of the tests of kernels."""

import pytensor
import pytest

from pymc_fastlogp.kernel.emit import kernel


@pytest.fixture(params=[True, False], ids=["gathers", "loads"])
def gathers(request, monkeypatch):
    """Return whether code is made for a CPU with fast gather and scatter instructions."""
    monkeypatch.setattr(kernel, "uses_gathers", lambda: request.param)
    return request.param


@pytest.fixture(scope="module")
def without_c():
    """Run in Python what ``perform`` of an inner graph would compile with C."""
    with pytensor.config.change_flags(cxx=""):
        yield
