"""Script that measures the wait of one way in a fresh process; the clock starts before all imports of the plugin.

A line of JSON for each finished part is printed at once, since the process may be stopped.
"""

import json
import logging
import pickle
import sys
import time
from typing import Any

LENGTH: dict[str, Any] = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2}


def main(path: str, way: str, freeze_model: str) -> None:
    """Import, compile and sample; print the seconds of each step."""
    start = time.perf_counter()
    import pymc  # noqa: F401

    if way != "off":
        import pymc_fastlogp  # noqa: F401
    if way != "sample":
        import nutpie  # noqa: F401
    _print(imports=time.perf_counter() - start)
    with open(path, "rb") as file:
        model = pickle.load(file)
    measure = _by_sample if way == "sample" else _by_nutpie
    measure(model, freeze_model == "True")


def _print(**seconds: float) -> None:
    print(json.dumps(seconds), flush=True)


def _by_nutpie(model: Any, freeze_model: bool) -> None:
    """Print the seconds of compilation and draws."""
    import nutpie

    begin = time.perf_counter()
    compiled = nutpie.compile_pymc_model(model, freeze_model=freeze_model)
    _print(compilation=time.perf_counter() - begin)
    begin = time.perf_counter()
    nutpie.sample(compiled, **LENGTH, seed=1, progress_bar=False)
    _print(draws=time.perf_counter() - begin)


def _by_sample(model: Any, freeze_model: bool) -> None:
    """Print the seconds of :func:`pymc_fastlogp.sample`."""
    import pymc_fastlogp

    begin = time.perf_counter()
    log = logging.getLogger("pymc.sampling.mcmc")
    log.setLevel(logging.INFO)
    log.addHandler(_FirstLine(begin))
    idata = pymc_fastlogp.sample(
        model=model,
        **LENGTH,
        random_seed=1,
        progressbar=False,
        compile_kwargs={"freeze_model": freeze_model},
    )
    call = time.perf_counter() - begin
    draws = idata["posterior"].attrs["sampling_time"]
    _print(compilation=call - draws, draws=draws)


class _FirstLine(logging.Handler):
    """Print the seconds up to the first log line, which marks the start of sampling."""

    def __init__(self, begin: float) -> None:
        super().__init__()
        self.begin = begin
        self.is_printed = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.is_printed:
            self.is_printed = True
            _print(compilation=time.perf_counter() - self.begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
