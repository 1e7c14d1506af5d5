"""``pytest -p pymc_fastlogp.testing``: run any suite of tests with the plugin on.

The import registers the rewrites before the first test is collected, and so imports PyTensor and PyMC. Flags of
PyTensor that a ``conftest.py`` would set belong into the environment.
"""

from pymc_fastlogp.config import enable
from pymc_fastlogp.registration import is_enabled, untested_reason


def pytest_configure() -> None:
    """Switch the plugin on, whatever the environment says."""
    enable()


def pytest_report_header() -> str:
    """Say whether the tests see it: on untested versions it stays off."""
    state = "on" if is_enabled() else f"off, {untested_reason() or 'excluded by a flag'}"
    return f"pymc_fastlogp: {state}"
