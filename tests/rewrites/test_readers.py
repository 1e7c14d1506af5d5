"""Reductions that read the same rows, also after a change of the graph around them."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.rewrites.rows.order import readers
from pymc_fastlogp.rewrites.rows.order.readers import ReadersByLength, RowReader, readers_with
from pymc_fastlogp.rewrites.rows.view.columns import SharedReads
from tests.rewrites.conftest import pregrad

N, GROUPS = 1000, 4
RNG = np.random.default_rng(0)
A, B, C, D = RNG.integers(GROUPS, size=(4, N))
X = RNG.normal(size=N)
theta, phi = (pt.vector(name, shape=(GROUPS,)) for name in ("theta", "phi"))


def graph_of(sums):
    """Return a graph of sums that is looked at by the rules about rows."""
    fgraph = FunctionGraph(outputs=sums, clone=False)
    fgraph.attach_feature(SharedReads())
    fgraph.attach_feature(ReadersByLength())
    return fgraph


def with_each(fgraph):
    """Return which outputs read the same rows as each of them."""
    place = {x.owner: k for k, x in enumerate(fgraph.outputs)}
    return [
        {place[other.node] for other in readers_with(fgraph, RowReader(x.owner, 0), N)}
        for x in fgraph.outputs
    ]


def test_the_same_rows_are_read_by_an_index_or_a_variable_or_by_way_of_another():
    shared = pt.exp(theta[A] * X)
    sums = [
        shared.sum(),
        pt.all(shared > 0),
        (theta[B] * shared).sum(),
        pt.sqr(phi[B]).sum(),
        theta[C].sum(),
        pt.log(phi[C]).sum(),
        theta[D].sum(),
        theta[A[1:]].sum(),  # of another length
    ]
    found = with_each(graph_of(sums))
    assert found == [*[{0, 1, 2, 3}] * 4, *[{4, 5}] * 2, {6}, {7}]


def changes():
    """Return what is put in whose place, in graphs of three sums, the second of which reads by an index of its own."""
    theirs = pt.exp(theta[B] * X)
    sums = [theta[A].sum(), theirs.sum(), phi[C].sum()]
    gathered = theirs.owner.inputs[0].owner.inputs[0]
    slope = theirs.owner.inputs[0].owner.inputs[1]
    open_rows, index = pt.vector("open"), pt.vector("index", dtype="int64", shape=(N,))
    known = pt.specify_shape(open_rows, (N,))
    return {
        "what is read row by row": (sums, [(theirs, pt.exp(theta[A] * X))]),
        "what is gathered": (sums, [(gathered, theta[C])]),
        "a column of data": (sums, [(slope, theta[A])]),
        "an index": (
            [theta[A].sum(), pt.exp(phi[index] * X).sum()],
            [(index, pt.constant(A))],
        ),
        "a table": (
            [theta[A].sum(), pt.exp(phi[A] * X).sum()],
            [(phi, pt.constant(np.ones(GROUPS)))],
        ),
        "a sum": (sums, [(sums[1], (phi[A] * theta[C]).sum())]),
        "one after the other": (
            sums,
            [(theirs, pt.exp(theta[A] * X)), (sums[2], phi[B].sum()), (sums[0], theta[B].sum())],
        ),
        "back and forth": (
            sums,
            [(theirs, (other := pt.exp(theta[A] * X))), (other, pt.exp(phi[C] * X))],
        ),
        "a length that becomes known": (
            [theta[A].sum(), open_rows.sum()],
            [(open_rows, known), (known, theta[A])],
        ),
        "a length that becomes known far away": (
            [theta[A].sum(), pt.exp(open_rows).sum()],
            [(open_rows, known), (known, theta[A])],
        ),
    }


@pytest.mark.parametrize("case", changes())
def test_index_follows_changes_of_the_graph(case):
    sums, replacements = changes()[case]
    fgraph = graph_of(sums)
    for before, after in replacements:
        with_each(fgraph)
        fgraph.replace(before, after, import_missing=True)
        assert with_each(fgraph) == with_each(graph_of(fgraph.clone().outputs))


@pytest.fixture
def looked_at(monkeypatch):
    """Return a list of what is asked for its rows."""
    asked, indices_of = [], readers.indices_of
    monkeypatch.setattr(
        readers, "indices_of", lambda *args: asked.append(args) or indices_of(*args)
    )
    return asked


def likelihoods(n):
    rng = np.random.default_rng(1)
    return sum(
        pt.exp(theta[rng.integers(GROUPS, size=N)] * rng.normal(size=N)).sum() for _ in range(n)
    )


def test_reader_lookups_are_linear_in_likelihoods(looked_at):
    """Each was compared with what all others read, which was found out anew."""
    n = 12
    pregrad(likelihoods(n), on=True)
    assert n <= len(looked_at) <= 5 * n


def test_likelihoods_of_one_index_that_refuse_are_read_once(looked_at):
    """Each asks for all, as one of them has to stay: every row of it is needed."""
    n, kept = 12, pt.exp(phi[A] * X)
    sums = [pt.exp(theta[A] * RNG.normal(size=N)).sum() for _ in range(n)]
    pregrad(pt.stack([*sums, kept.sum(), pt.max(pt.cumsum(kept))]), on=True)
    assert n <= len(looked_at) <= 5 * n


def test_copied_graph_has_its_own_index():
    fgraph = graph_of([theta[A].sum()])
    copy = fgraph.clone()
    assert copy.row_readers is not fgraph.row_readers
    assert copy.row_reads is not fgraph.row_reads
