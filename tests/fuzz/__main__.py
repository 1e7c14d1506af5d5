"""``python -m tests.fuzz N [FIRST] [--graphs] [--record]``: compare N random models, or graphs, off and on, and print the seeds of those that differ.

They are compared in children of this process, so that one that ends its process is a finding like another. A graph that differs is
printed as the least program that shows it.
"""

import argparse
import sys
from time import perf_counter

from tests.counts import Counts, record
from tests.fuzz.compare import REFUSED, WAYS, prepare
from tests.fuzz.forks import BATCH, in_children

# Seeds between two lines of progress on stderr.
PROGRESS = 50


def main() -> int:
    """Return 1 if one differs, raises, ends its process or hangs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("n", type=int, help="how many")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the seed of the first")
    parser.add_argument("--graphs", action="store_true", help="graphs, not models")
    parser.add_argument("--record", action="store_true", help="write the counts into the docs")
    arguments = parser.parse_args()
    start = perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.n)
    what = "graphs" if arguments.graphs else "models"
    prepare()
    bad, n_refused = [], 0
    for done, (seed, trouble) in enumerate(in_children(WAYS[what], seeds, BATCH[what]), 1):
        if trouble:
            print(f"seed {seed}: {trouble}", flush=True)
        if trouble.startswith(REFUSED):
            n_refused += 1
        elif trouble:
            bad.append(seed)
        if done % PROGRESS == 0:
            print(
                f"{done} of {len(seeds)} {what}, up to seed {seed}, in {perf_counter() - start:.0f} s, {len(bad)} differ or raise",
                file=sys.stderr,
                flush=True,
            )
    seconds = perf_counter() - start
    print(
        f"{len(seeds)} {what} in {seconds:.0f} s, {len(bad)} that differ or raise: {bad or 'none'}"
    )
    if arguments.record:
        target = "fuzz-graphs" if arguments.graphs else "fuzz"
        command = f"make N={arguments.n} SEED={arguments.first} {target}"
        record(f"random {what}", command, Counts(arguments.n, n_refused, 0, len(bad)))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
