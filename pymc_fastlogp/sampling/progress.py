"""Progress of nutpie's chains: the bars of PyMC, or log lines if standard output cannot show bars."""

import logging
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Self

log = logging.getLogger("pymc.sampling.mcmc")

# Seconds between two log lines.
INTERVAL = 10.0


def progress_of(arguments: Mapping[str, Any], chains: int) -> Any:
    """Return a context manager whose method ``update`` is a progress callback of nutpie.

    Parameters
    ----------
    arguments : mapping
        Arguments of ``pm.sample``; ``draws``, ``progressbar``, ``progressbar_theme`` and ``quiet`` are used.
    chains : int
        Number of chains.
    """
    from pymc_fastlogp._upstream.pymc_sample import NutpieProgressBarManager

    progressbar = False if arguments["quiet"] else arguments["progressbar"]
    bars = NutpieProgressBarManager(
        chains=chains,
        draws=arguments["draws"],
        progressbar=progressbar,
        progressbar_theme=arguments["progressbar_theme"],
    )
    return ProgressLines() if progressbar and not shows_bars() else bars


def shows_bars() -> bool:
    """Return whether standard output is a terminal or a notebook, which can redraw bars. In Jupyter rich needs ipywidgets to redraw."""
    from rich.console import Console

    from pymc_fastlogp._upstream.pymc_sample import in_marimo_notebook

    console = Console()
    is_terminal = console.is_terminal and not console.is_dumb_terminal
    is_jupyter = console.is_jupyter and find_spec("ipywidgets") is not None
    return is_terminal or is_jupyter or in_marimo_notebook()


class ProgressLines:
    """Log line every ``INTERVAL`` seconds and at the end."""

    def __enter__(self) -> Self:
        self._start = self._written = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        log.info("Sampling took %.0f seconds.", time.monotonic() - self._start)

    def update(self, chains: Sequence[Any]) -> None:
        """Log the progress of all chains; the ``progress_callback`` of ``nutpie.sample``."""
        now = time.monotonic()
        if now - self._written < INTERVAL:
            return
        self._written = now
        finished = sum(chain.finished_draws for chain in chains)
        total = sum(chain.total_draws for chain in chains)
        diverging = sum(len(chain.divergent_draws) for chain in chains)
        log.info(
            "%d %% of %d draws, %d divergences, %.0f seconds",
            100 * finished // max(total, 1),
            total,
            diverging,
            now - self._start,
        )
