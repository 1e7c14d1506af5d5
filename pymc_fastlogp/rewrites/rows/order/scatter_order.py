r"""Order of rows that minimizes the cost of the gradient's scatters.

The gradient of ``theta[g]`` adds what each row gives to the entry of its group, :math:`y_{g_i} \mathrel{+}= x_i`. What
that costs depends on how equal :math:`g_i` follow each other (``docs/kernel/scatter.md``): they may be at least a vector
apart, come in runs at least as long as a vector, or neither. Of several indices one can be sorted, which changes how
the others lie. So a few orders are tried, and the sum of their costs is compared with that of the rows as they are:
for each index, rows sorted by it, and in a group by what they were, or by the other indices. From the cheapest it goes
on, until no other saves enough: rows that were ordered once stay as they are.

An index that reads each entry once is best sorted: then neighbors are added to neighbors, and neither a gather nor a
scatter is left. In a table that is longer than the first level of cache, entries in ascending order spare cache misses.

The costs are the measured ones of ``python -m benchmarks.scatter``, for 16 lanes. On vectors with fewer lanes runs
become cheap sooner, so an order that pays here pays there.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pymc_fastlogp.analysis.index_facts import FAR, Neighbors, neighbors_of

# Nanoseconds that a row's scatter takes, by the mean length of runs: lane by lane, and in registers.
RUNS = (1, 2, 4, 8, 16, 24, 32, 64, 128, 1024)
LANE_BY_LANE = (0.77, 0.79, 0.83, 0.93, 1.00, 1.09, 1.19, 1.52, 1.81, 2.48)
IN_REGISTERS = (1.10, 1.17, 1.21, 1.33, 0.97, 0.55, 0.50, 0.46, 0.42, 0.42)
AS_VECTORS = 0.67
# That of an index without gaps in ascending order: neighbors are added to neighbors.
OF_RANGE = 0.2
# Entries of 8 bytes in the first level of cache, and in a line of it. A row whose entry is further away than a line from that
# of the row before takes longer, if the table is too long for that level.
CACHED, LINE = 4096, 8
MISS = 0.6

# What an order must save of that for each row, so that what the figures do not know cannot make it a loss.
LEAST_SAVING = 0.1


class Scattered(NamedTuple):
    """An index that rows read tables with.

    Attributes
    ----------
    of_row : numpy.ndarray
        The entry that each row reads, shape ``(n_rows,)``, not negative. Narrow integers are sorted in linear time, and compared
        many at once.
    n_tables : int
        How many tables it is used for: so many scatters the gradient has.
    name : str
        That of the index, or of what is read with it.
    """

    of_row: np.ndarray
    n_tables: int
    name: str = ""


def best_order(scattered: Sequence[Scattered]) -> np.ndarray | None:
    """Return a permutation of rows after which no order is worth it, None if none is as they are."""
    best, rows = None, cheaper_order(scattered)
    while rows is not None:
        best = rows if best is None else best[rows]
        rows = cheaper_order([each._replace(of_row=each.of_row[best]) for each in scattered])
    return best


def cheaper_order(scattered: Sequence[Scattered]) -> np.ndarray | None:
    """Return the permutation of rows that pays most of those that sort by an index, None if none does."""
    worth = cost(scattered) - LEAST_SAVING
    if worth < sum(each.n_tables * _least_cost(each.of_row) for each in scattered):
        return None
    costs = [(cost(scattered, rows), k, rows) for k, rows in enumerate(_orders(scattered))]
    lowest, _, rows = min(costs, key=lambda each: each[:2])
    return rows if lowest <= worth else None


def sorted_by(scattered: Sequence[Scattered], rows: np.ndarray) -> str:
    """Return the name of an index that the rows are sorted by in this order."""
    indices = ((each.name, each.of_row[rows]) for each in scattered)
    return next((name for name, index in indices if (index[1:] >= index[:-1]).all()), "")


def cost(scattered: Sequence[Scattered], rows: np.ndarray | slice = slice(None)) -> float:
    """Return the nanoseconds that the scatters of a row take, in this order of rows."""
    return sum(each.n_tables * _cost_of_index(each.of_row[rows]) for each in scattered)


def _least_cost(index: np.ndarray) -> float:
    """Return a lower bound of the nanoseconds that one scatter of a row takes by this index, in any order of rows."""
    can_be_range = int(index.max()) - int(index.min()) == index.size - 1
    return OF_RANGE if can_be_range else min(IN_REGISTERS)


def _cost_of_index(index: np.ndarray) -> float:
    """Return the nanoseconds that one scatter of a row takes by this index."""
    is_range = int(index[-1]) - int(index[0]) == index.size - 1 and (index[1:] > index[:-1]).all()
    return OF_RANGE if is_range else cost_of_one(neighbors_of(index)) + MISS * _misses(index)


def _misses(index: np.ndarray) -> float:
    """Return the share of rows whose entry is unlikely to be in the first level of cache."""
    if index.max() < CACHED:
        return 0.0
    return float(np.mean(abs(np.diff(index.astype("int64"))) >= LINE))


def cost_of_one(known: Neighbors) -> float:
    """Return the nanoseconds that one scatter of a row takes."""
    if known.gap >= FAR:
        return AS_VECTORS
    by_run = IN_REGISTERS if known.run >= FAR else LANE_BY_LANE
    return float(np.interp(np.log2(known.run), np.log2(RUNS), by_run))


def _orders(scattered: Sequence[Scattered]) -> Iterator[np.ndarray]:
    """Yield the orders to compare."""
    indices = [each.of_row for each in scattered]
    for k, index in enumerate(indices):
        yield np.argsort(index, kind="stable")
        if others := indices[:k] + indices[k + 1 :]:
            yield np.lexsort((*others, index))
        if index.max() >= CACHED:
            yield _in_rounds(index)


def _in_rounds(index: np.ndarray) -> np.ndarray:
    """Return rows in rounds through the table: the first row of each entry, then the second of each, and so on."""
    order = np.argsort(index, kind="stable")
    in_order = index[order]
    nth = np.arange(index.size) - np.searchsorted(in_order, in_order)
    return order[np.argsort(nth, kind="stable")]
