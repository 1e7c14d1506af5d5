"""Queries that summarize all rows of a source: distinct rows with counts by the engine, or batches that this process summarizes and merges."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import reduce
from typing import Any

import numpy as np

from pymc_fastlogp.tables.cells import Summary
from pymc_fastlogp.tables.plan import Plan, summarize
from pymc_fastlogp.tables.progress import report
from pymc_fastlogp.tables.source import Source

# Threads that summarize batches; each needs the memory of a few batches.
N_THREADS = min(os.cpu_count() or 1, 4)


def distinct_rows(source: Source, names: Sequence[str], most: int) -> Any:
    """Return at most ``most + 1`` distinct rows of columns, with their numbers in the column :func:`count_name`."""
    import narwhals.stable.v2 as nw

    count = nw.len().alias(count_name(names))
    grouped = source.frame.select(names).group_by(names).agg(count)
    return source.collect(grouped.head(most + 1))


def count_name(names: Sequence[str]) -> str:
    """Return a name for the column of counts that no other column has."""
    name = "n_rows"
    while name in names:
        name += "_"
    return name


def summaries_of_batches(
    source: Source,
    names: Sequence[str],
    plan: Plan,
    values: Callable[[Any], Sequence[np.ndarray]],
) -> Generator[Summary]:
    """Yield the summaries of batches, in order. Threads summarize while the next batches are read.

    Parameters
    ----------
    source : Source
        The rows.
    names : sequence of str
        Columns that are read.
    plan : Plan
        How the rows are read.
    values : callable
        Function from a batch of rows to the values of the expressions of the plan. Functions of PyTensor are called by one thread at a time.
    """
    with (
        closing(source.batches(names)) as batches,
        ThreadPoolExecutor(N_THREADS) as threads,
    ):
        pending = deque[Future[Summary]]()
        for rows in batches:
            pending.append(threads.submit(summarize, plan, values(rows)))
            if len(pending) > N_THREADS:
                yield pending.popleft().result()
        for following in pending:
            yield following.result()


def merged(summaries: Iterable[Summary], most: int) -> Summary:
    """Return the summary of all rows, or of the first ones that have more than ``most`` cells.

    Summaries are merged as a balanced tree, so that rounding grows with the logarithm of their number.
    """
    parts: list[tuple[int, Summary]] = []
    for part in summaries:
        level, whole = 0, part
        while parts and parts[-1][0] == level:
            level, whole = level + 1, parts.pop()[1].merge(whole)
        parts.append((level, whole))
        report(sum(x.n_rows for _, x in parts), sum(x.n_cells for _, x in parts))
        if whole.n_cells > most:
            break
    return reduce(lambda whole, part: part.merge(whole), (x for _, x in reversed(parts)))
