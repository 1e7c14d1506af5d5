"""``python -m tests.fuzz N [FIRST]``: compare N random models off and on, and print the seeds of those that differ."""

import argparse
import logging
import sys
import warnings
from time import perf_counter

import pytensor

from tests.fuzz.models import check, random_model


def main() -> int:
    """Return 1 if a model differs or raises."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("n", type=int, help="how many models")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the seed of the first")
    arguments = parser.parse_args()
    pytensor.config.on_opt_error = "raise"
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    start, bad = perf_counter(), []
    for seed in range(arguments.first, arguments.first + arguments.n):
        trouble = trouble_with(seed)
        if trouble is not None:
            bad.append(seed)
            print(f"seed {seed}: {trouble}", flush=True)
    seconds = perf_counter() - start
    print(
        f"{arguments.n} models in {seconds:.0f} s, {len(bad)} that differ or raise: {bad or 'none'}"
    )
    return int(bool(bad))


def trouble_with(seed: int) -> str | None:
    """Return what is wrong with the model of a seed, None if nothing is."""
    made_of = "not built"
    try:
        model, made_of = random_model(seed)
        verification = check(model, seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}\n  {made_of}"
    return None if verification else f"{verification}\n  {made_of}"


if __name__ == "__main__":
    sys.exit(main())
