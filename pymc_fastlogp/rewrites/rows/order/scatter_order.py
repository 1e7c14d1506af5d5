r"""Choose the order of rows that minimizes the cost of the gradient's scatters.

The gradient of ``theta[g]`` adds the contribution of each row to the entry of its group,
:math:`y_{g_i} \mathrel{+}= x_i`. The cost of a row depends on the distances of equal :math:`g_i`
(``docs/kernel/scatter.md``):

- 0.67 ns as vectors, if equal entries are at least a vector length from each other;
- 0.97 to 0.42 ns in registers, if the mean run of equal entries is at least a vector long (16 lanes);
- 0.77 ns or more lane by lane otherwise;
- 0.2 ns if the index is ascending without gaps: neighbors are added to neighbors, without gather or scatter;
- 0.6 ns more if the table exceeds the L1 cache and the entry is further than a cache line from the entry before.

Sorting one index changes the runs of all others, so the costs of all indices are added. The candidates for each index
are:

- rows sorted by the index, ties in their current order;
- rows sorted by the index, ties sorted by the other indices;
- for a table larger than the L1 cache, rows in rounds through the table.

The cheapest candidate is taken repeatedly until no order saves enough, so the rule is idempotent. Other costs of a row
are not counted.

The costs were measured with ``python -m benchmarks.costs scatter`` for 16 lanes. With vectors of 256 bits or less a loop has
fewer lanes, and its arithmetic takes longer than the scatter lane by lane, which runs beside the arithmetic. The ends of runs then
cost more than registers save. So runs count as cheap as rows in random order, and rows are sorted for the other reasons alone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pymc_fastlogp.analysis.index_facts import FAR, Neighbors, neighbors_of
from pymc_fastlogp.lazy_import import import_attribute

# Nanoseconds per row of a scatter by the mean length of runs, lane by lane and in registers.
RUNS = (1, 2, 4, 8, 16, 24, 32, 64, 128, 1024)
LANE_BY_LANE = (0.77, 0.79, 0.83, 0.93, 1.00, 1.09, 1.19, 1.52, 1.81, 2.48)
IN_REGISTERS = (1.10, 1.17, 1.21, 1.33, 0.97, 0.55, 0.50, 0.46, 0.42, 0.42)
AS_VECTORS = 0.67
# Nanoseconds per row for an ascending index without gaps: neighbors are added to neighbors.
OF_RANGE = 0.2
# Entries of 8 bytes in the L1 cache and in a cache line, and the nanoseconds of a cache miss.
CACHED, LINE = 4096, 8
MISS = 0.6

# Least saving in nanoseconds per row, a margin for costs that are not modeled.
LEAST_SAVING = 0.1


class ScatterIndex(NamedTuple):
    """An index with which rows read tables.

    Attributes
    ----------
    of_row : numpy.ndarray
        The entry that each row reads, shape ``(n_rows,)``, not negative. Narrow dtypes are sorted in linear time.
    n_tables : int
        Number of tables read with the index, which is the number of scatters in the gradient.
    name : str
        Name of the index or of a table.
    """

    of_row: np.ndarray
    n_tables: int
    name: str = ""


def best_order(scattered: Sequence[ScatterIndex]) -> np.ndarray | None:
    """Return a permutation of rows that no further order improves, None if the current order is best."""
    best, rows = None, cheaper_order(scattered)
    while rows is not None:
        best = rows if best is None else best[rows]
        rows = cheaper_order([each._replace(of_row=each.of_row[best]) for each in scattered])
    return best


def cheaper_order(scattered: Sequence[ScatterIndex]) -> np.ndarray | None:
    """Return the permutation that saves most among those that sort by an index, None if none saves enough."""
    worth = cost(scattered) - LEAST_SAVING
    if worth < sum(each.n_tables * _least_cost(each.of_row) for each in scattered):
        return None
    costs = [(cost(scattered, rows), k, rows) for k, rows in enumerate(_orders(scattered))]
    lowest, _, rows = min(costs, key=lambda each: each[:2])
    return rows if lowest <= worth else None


def sorted_by(scattered: Sequence[ScatterIndex], rows: np.ndarray) -> str:
    """Return the name of an index by which the rows are sorted in this order."""
    indices = ((each.name, each.of_row[rows]) for each in scattered)
    return next((name for name, index in indices if (index[1:] >= index[:-1]).all()), "")


def cost(scattered: Sequence[ScatterIndex], rows: np.ndarray | slice = slice(None)) -> float:
    """Return the nanoseconds per row of all scatters, in this order of rows."""
    return sum(each.n_tables * _cost_of_index(each.of_row[rows]) for each in scattered)


def _least_cost(index: np.ndarray) -> float:
    """Return a lower bound of the nanoseconds per row of a scatter by this index, in any order of rows."""
    can_be_range = int(index.max()) - int(index.min()) == index.size - 1
    return OF_RANGE if can_be_range else min(IN_REGISTERS)


def _cost_of_index(index: np.ndarray) -> float:
    """Return the nanoseconds per row of a scatter by this index."""
    is_range = int(index[-1]) - int(index[0]) == index.size - 1 and (index[1:] > index[:-1]).all()
    return OF_RANGE if is_range else cost_of_one(neighbors_of(index)) + MISS * _misses(index)


def _misses(index: np.ndarray) -> float:
    """Return the share of rows whose entry is probably not in the L1 cache."""
    if index.max() < CACHED:
        return 0.0
    return float(np.mean(abs(np.diff(index.astype("int64"))) >= LINE))


def cost_of_one(known: Neighbors) -> float:
    """Return the nanoseconds per row of a scatter."""
    if known.gap >= FAR:
        return AS_VECTORS
    by_run = IN_REGISTERS if known.run >= FAR else LANE_BY_LANE
    measured = float(np.interp(np.log2(known.run), np.log2(RUNS), by_run))
    return measured if n_lanes() >= FAR else max(measured, LANE_BY_LANE[0])


def n_lanes() -> int:
    """Return the number of lanes of a loop on this CPU."""
    width: int = import_attribute("pymc_fastlogp.kernel.native.target.default_width")()
    return width


def _orders(scattered: Sequence[ScatterIndex]) -> Iterator[np.ndarray]:
    """Yield the candidate orders."""
    indices = [each.of_row for each in scattered]
    for k, index in enumerate(indices):
        yield np.argsort(index, kind="stable")
        if others := indices[:k] + indices[k + 1 :]:
            yield np.lexsort((*others, index))
        if index.max() >= CACHED:
            yield _in_rounds(index)


def _in_rounds(index: np.ndarray) -> np.ndarray:
    """Return rows in rounds through the table: the first row of each entry, then the second row of each entry, and so on."""
    order = np.argsort(index, kind="stable")
    in_order = index[order]
    nth = np.arange(index.size) - np.searchsorted(in_order, in_order)
    return order[np.argsort(nth, kind="stable")]
