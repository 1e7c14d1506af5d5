"""Pytest plugin: ``pytest -p pymc_fastlogp.testing`` runs any test suite with the rewrites enabled.

The plugin imports PyTensor and PyMC before ``conftest.py``. So set PyTensor flags in the environment, not in
``conftest.py``.
"""

from pymc_fastlogp.config import enable
from pymc_fastlogp.registration import is_enabled, untested_reason


def pytest_configure() -> None:
    """Enable the rewrites, regardless of the environment variable ``PYMC_FASTLOGP``."""
    enable()


def pytest_report_header() -> str:
    """Return a header line: on, or off with the reason, such as untested versions."""
    state = "on" if is_enabled() else f"off, {untested_reason() or 'excluded by a flag'}"
    return f"pymc_fastlogp: {state}"
