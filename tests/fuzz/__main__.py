"""``python -m tests.fuzz N [FIRST]``: compare N random models off and on, and print the seeds of those that differ.

Models are compared in processes of their own, so that one that ends its process is a finding like another.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from time import perf_counter

# Models of one process: enough that its imports do not count.
CHUNK = 25


def main() -> int:
    """Return 1 if a model differs, raises, ends its process or hangs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("n", type=int, help="how many models")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the seed of the first")
    parser.add_argument("--processes", type=int, default=1, help="at a time")
    arguments = parser.parse_args()
    start = perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.n)
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with ThreadPoolExecutor(arguments.processes) as pool:
        bad = sorted(chain.from_iterable(pool.map(bad_seeds, chunks)))
    seconds = perf_counter() - start
    print(
        f"{len(seeds)} models in {seconds:.0f} s, {len(bad)} that differ or raise: {bad or 'none'}"
    )
    return int(bool(bad))


def bad_seeds(seeds: Iterable[int]) -> list[int]:
    """Compare the models of some seeds, print what is wrong, and return their seeds."""
    bad, left = [], list(seeds)
    while left:
        done = 0
        for seed, trouble in _compared(left):
            done += 1
            if trouble:
                bad.append(seed)
                print(f"seed {seed}: {trouble}", flush=True)
        if done < len(left):
            bad.append(left[done])
            print(f"seed {left[done]}: its process ended, or hung", flush=True)
        left = left[done + 1 :]
    return bad


def _compared(seeds: list[int]) -> Iterator[tuple[int, str]]:
    """Yield each seed and what is wrong with its model, until the process ends."""
    command = [sys.executable, "-m", "tests.fuzz.compare", *map(str, seeds)]
    environment = os.environ | {"PYMC_FASTLOGP_CACHE": "0"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            name, _, trouble = line.rstrip("\n").partition(" ")
            yield int(name), trouble


if __name__ == "__main__":
    sys.exit(main())
