"""Count the calls of ``pymc_fastlogp.sample`` that go through the patch, and keep whether each one sampled itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import INFO, Handler, LogRecord, getLogger

import pymc_fastlogp


class _Messages(Handler):
    def __init__(self) -> None:
        super().__init__(INFO)
        self.messages: list[str] = []

    def emit(self, record: LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def patched_and_counted() -> Iterator[list[bool]]:
    """Patch PyMC for a block; the list has an entry per call, False if ``pm.sample`` had to sample."""
    logger, handler = getLogger("pymc_fastlogp"), _Messages()
    calls: list[bool] = []
    own = pymc_fastlogp.sampling.sample

    def sample(*args, **kwargs):
        handler.messages.clear()
        draws = own(*args, **kwargs)
        calls.append(not any(x.startswith("pm.sample samples") for x in handler.messages))
        return draws

    pymc_fastlogp.sampling.sample = sample
    level = logger.level
    logger.setLevel(INFO)
    logger.addHandler(handler)
    try:
        with pymc_fastlogp.patched_pymc():
            yield calls
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        pymc_fastlogp.sampling.sample = own
