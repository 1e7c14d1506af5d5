"""Unexpected exceptions of the kernel compiler: warn, and leave the graph to upstream.

Kernels are optional, so a defect of the compiler must cost only one kernel. If PyTensor's flag ``on_opt_error`` is ``raise`` or ``pdb``, as in our tests,
the exception is raised instead.
"""

import logging
from pathlib import Path
from traceback import extract_tb

from pytensor.configdefaults import config

logger = logging.getLogger("pymc_fastlogp")


def report_defect(error: Exception, what: str) -> str:
    """Log a warning that ``what`` is compiled without a kernel because of an unexpected error, and return the reason.

    Raises
    ------
    Exception
        The error, if ``on_opt_error`` is ``raise`` or ``pdb``.
    """
    if config.on_opt_error in ("raise", "pdb"):
        raise error
    place = extract_tb(error.__traceback__)[-1]
    words = (f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()))
    text = " ".join(", ".join(words).split())
    reason = f"a defect of pymc_fastlogp, {text} ({Path(place.filename).name}:{place.lineno})"
    logger.warning(
        "fastlogp_fused_kernel: %s is compiled without a kernel because of %s. Please report it, with the traceback"
        " that PYTENSOR_FLAGS=on_opt_error=raise gives.",
        what,
        reason,
    )
    return reason
