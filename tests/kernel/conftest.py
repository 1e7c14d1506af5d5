"""Fixtures of the tests of kernels."""

import pytest

from pymc_fastlogp.kernel.emit import kernel


@pytest.fixture(params=[True, False], ids=["gathers", "loads"])
def gathers(request, monkeypatch):
    """Return whether code is made for a CPU with fast gather and scatter instructions."""
    monkeypatch.setattr(kernel, "uses_gathers", lambda: request.param)
    return request.param
