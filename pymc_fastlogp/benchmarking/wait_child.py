"""Script that measures the wait of one way in a fresh process; the clock starts before all imports of the plugin."""

import _thread
import json
import logging
import pickle
import sys
import threading
import time
from typing import Any

LENGTH: dict[str, Any] = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2}


def main(path: str, way: str, freeze_model: str, patience: str) -> None:
    """Import, compile and sample; print the seconds of each step as JSON."""
    start = time.perf_counter()
    import pymc  # noqa: F401

    if way != "off":
        import pymc_fastlogp  # noqa: F401
    if way != "sample":
        import nutpie  # noqa: F401
    imports = time.perf_counter() - start
    with open(path, "rb") as file:
        model = pickle.load(file)
    measure = _by_sample if way == "sample" else _by_nutpie
    seconds = measure(model, freeze_model == "True", float(patience))
    print(json.dumps({"imports": imports, **seconds}), flush=True)


def _by_nutpie(model: Any, freeze_model: bool, patience: float) -> dict[str, float | None]:
    """Return the seconds of compilation and draws, None for draws that exceed ``patience``."""
    import nutpie

    begin = time.perf_counter()
    compiled = nutpie.compile_pymc_model(model, freeze_model=freeze_model)
    compilation = time.perf_counter() - begin
    begin = time.perf_counter()
    sampler = nutpie.sample(compiled, **LENGTH, seed=1, progress_bar=False, blocking=False)
    try:
        sampler.wait(timeout=patience)
    except TimeoutError:
        sampler.cancel()
        return {"compilation": compilation, "draws": None}
    return {"compilation": compilation, "draws": time.perf_counter() - begin}


def _by_sample(model: Any, freeze_model: bool, patience: float) -> dict[str, float | None]:
    """Return the seconds for ``pymc_fastlogp.sample``, interrupted if the draws exceed ``patience``."""
    import pymc_fastlogp

    interrupter = _Interrupter(patience)
    log = logging.getLogger("pymc.sampling.mcmc")
    log.setLevel(logging.INFO)
    log.addHandler(interrupter)
    begin = time.perf_counter()
    idata = pymc_fastlogp.sample(
        model=model,
        **LENGTH,
        random_seed=1,
        progressbar=False,
        compile_kwargs={"freeze_model": freeze_model},
    )
    call = time.perf_counter() - begin
    interrupter.timer.cancel()
    draws = idata["posterior"].attrs["sampling_time"]
    return {"compilation": call - draws, "draws": None if interrupter.is_late else draws}


class _Interrupter(logging.Handler):
    """Interrupt the main thread ``patience`` seconds after the first log line, which marks the start of sampling."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.timer = threading.Timer(patience, self._interrupt)
        self.timer.daemon = True
        self.is_late = False

    def emit(self, record: logging.LogRecord) -> None:
        if self.timer.ident is None:
            self.timer.start()

    def _interrupt(self) -> None:
        self.is_late = True
        _thread.interrupt_main()


if __name__ == "__main__":
    main(*sys.argv[1:])
