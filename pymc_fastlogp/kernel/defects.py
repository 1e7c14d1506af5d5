"""Unexpected exceptions: what they concern is left to upstream, and one line asks for a report.

A graph needs no kernel, so a defect of their compiler must not cost more than the kernel that it is about. PyTensor's flag
``on_opt_error`` says otherwise where it is ``raise`` or ``pdb``, as in our tests.
"""

import logging
from pathlib import Path
from traceback import extract_tb

from pytensor.configdefaults import config

logger = logging.getLogger("pymc_fastlogp")


def report_defect(error: Exception, what: str) -> str:
    """Warn that what an unexpected error concerns is left to upstream, and return why.

    Raises
    ------
    Exception
        The error, if PyTensor is told to raise those of rewrites.
    """
    if config.on_opt_error in ("raise", "pdb"):
        raise error
    place = extract_tb(error.__traceback__)[-1]
    words = (f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()))
    text = " ".join(", ".join(words).split())
    reason = f"a defect of pymc_fastlogp, {text} ({Path(place.filename).name}:{place.lineno})"
    logger.warning(
        "fastlogp_fused_kernel: %s stays with PyTensor because of %s. Please report it, with the traceback"
        " that PYTENSOR_FLAGS=on_opt_error=raise gives.",
        what,
        reason,
    )
    return reason
