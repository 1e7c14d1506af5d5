"""Break-even of ``fastlogp_dot_of_scattered``: ``python -m benchmarks.ratings``.

Models of ratings whose gradients multiply a matrix that is zero but for what was seen, with the rule and with its limits
out of reach, both with the plugin on, in turn on one core. A ratio below 1 is a loss: the limits belong where there is none.
"""

from unittest import mock

import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.run import compile_side, legal_points
from pymc_fastlogp.rewrites.after_gradient import dot_of_scattered as rule

ROUNDS, SECONDS_PER_ROUND = 7, 0.05
LIMITS = [name for name in vars(rule) if name.startswith("LEAST_RATIO")]
SIZES = ((40, 50), (100, 100), (300, 300), (1000, 1000))
RANKS = (2, 6, 7, 8, 9, 10, 11, 15, 18, 30, 50)
LARGEST = 10**7  # multiplications


def model(users: int, films: int, rank: int, entries: int) -> pm.Model:
    """Return a factorization of random ratings at random places."""
    rng = np.random.default_rng(0)
    seen = np.zeros((users, films), dtype=bool)
    seen.flat[rng.choice(users * films, entries, replace=False)] = True
    with pm.Model() as made:
        user, film = pm.Normal("user", shape=(users, rank)), pm.Normal("film", shape=(films, rank))
        pm.Normal("rating", (user @ film.T)[seen], 1.0, observed=rng.normal(size=entries))
    return made


def ratio(users: int, films: int, rank: int) -> float:
    """Return how many times longer the products take at the most entries that the rule takes."""
    made = model(users, films, rank, int(users * films / (rule.least_ratio(rank) + 0.1)))
    rows = compile_side(made, "on")
    with mock.patch.multiple(rule, **dict.fromkeys(LIMITS, float("inf"))):
        products = compile_side(made, "on")
    points = legal_points(rows, seed=0)
    timers = {"rows": rows.timer(points), "products": products.timer(points)}
    seconds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    return float(np.median(seconds["products"]) / np.median(seconds["rows"]))


def main() -> None:
    """Print a row for each rank."""
    table = Table("rank", *(f"{n} x {m}" for n, m in SIZES), title=machine()["cpu"])
    with pinned():
        for rank in RANKS:
            sizes = [(n, m) for n, m in SIZES if n * m * rank <= LARGEST]
            table.add_row(str(rank), *(f"{ratio(n, m, rank):.2f}" for n, m in sizes))
    Console().print(table)


if __name__ == "__main__":
    main()
