"""``python -m tests.fuzz N [FIRST] [--graphs]``: compare N random models, or graphs, off and on, and print the seeds of those that differ.

They are compared in processes of their own, so that one that ends its process is a finding like another. A graph that differs is
printed as the least program that shows it.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from time import perf_counter

from tests.fuzz.compare import NEXT_LINE, REFUSED

# Models or graphs of one process: enough that its imports do not count.
CHUNKS = {"models": 25, "graphs": 250}


def main() -> int:
    """Return 1 if one differs, raises, ends its process or hangs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("n", type=int, help="how many")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the seed of the first")
    parser.add_argument("--graphs", action="store_true", help="graphs, not models")
    parser.add_argument("--processes", type=int, default=1, help="at a time")
    arguments = parser.parse_args()
    start = perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.n)
    what = "graphs" if arguments.graphs else "models"
    chunks = [seeds[i : i + CHUNKS[what]] for i in range(0, len(seeds), CHUNKS[what])]
    with ThreadPoolExecutor(arguments.processes) as pool:
        bad = sorted(chain.from_iterable(pool.map(partial(bad_seeds, what), chunks)))
    seconds = perf_counter() - start
    print(
        f"{len(seeds)} {what} in {seconds:.0f} s, {len(bad)} that differ or raise: {bad or 'none'}"
    )
    return int(bool(bad))


def bad_seeds(what: str, seeds: Iterable[int]) -> list[int]:
    """Compare the models or graphs of some seeds, print what is wrong, and return their seeds."""
    bad, left = [], list(seeds)
    while left:
        done = 0
        for seed, trouble in _compared(what, left):
            done += 1
            if trouble:
                print(f"seed {seed}: {trouble.replace(NEXT_LINE, chr(10))}", flush=True)
            if trouble and not trouble.startswith(REFUSED):
                bad.append(seed)
        if done < len(left):
            bad.append(left[done])
            print(f"seed {left[done]}: its process ended, or hung", flush=True)
        left = left[done + 1 :]
    return bad


def _compared(what: str, seeds: list[int]) -> Iterator[tuple[int, str]]:
    """Yield each seed and what is wrong with it, until the process ends."""
    kind = ["--graphs"] if what == "graphs" else []
    command = [sys.executable, "-m", "tests.fuzz.compare", *kind, *map(str, seeds)]
    environment = os.environ | {"PYMC_FASTLOGP_CACHE": "0"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            name, _, trouble = line.rstrip("\n").partition(" ")
            yield int(name), trouble


if __name__ == "__main__":
    sys.exit(main())
