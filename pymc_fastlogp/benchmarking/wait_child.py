"""The process of one side, run as a script: nothing of the plugin is imported before the clock runs."""

import json
import pickle
import sys
import time
from typing import Any


def main(path: str, side: str, freeze_model: str, patience: str) -> None:
    """Import, compile, sample; print the seconds of each."""
    start = time.perf_counter()
    import pymc  # noqa: F401

    if side != "off":
        import pymc_fastlogp
    import nutpie

    imported = time.perf_counter()
    with open(path, "rb") as file:
        model = pickle.load(file)
    begin = time.perf_counter()
    if side in ("off", "on"):
        compiled = nutpie.compile_pymc_model(model, freeze_model=freeze_model == "True")
    else:
        compiled = pymc_fastlogp.compile_pymc_model(model, freeze_model=freeze_model == "True")
    done = time.perf_counter()
    seconds = {"imports": imported - start, "compilation": done - begin}
    print(json.dumps({**seconds, "draws": _draws(compiled, float(patience))}), flush=True)


def _draws(compiled: Any, patience: float) -> float | None:
    """Return the seconds of the draws, None where they take too long."""
    import nutpie

    begin = time.perf_counter()
    sampler = nutpie.sample(
        compiled,
        draws=1000,
        tune=1000,
        chains=4,
        cores=2,
        seed=1,
        progress_bar=False,
        blocking=False,
    )
    try:
        sampler.wait(timeout=patience)
    except TimeoutError:
        sampler.cancel()
        return None
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(*sys.argv[1:])
