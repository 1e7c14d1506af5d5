"""Chunks of rows: the split, partial results, refusals, and equal results with helper threads."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.analysis.index_facts import index_facts
from pymc_fastlogp.analysis.row_chunks import COUNTS, LANES, chunk_starts, starts_at_groups
from pymc_fastlogp.kernel.ir.loops import Loop, ParallelLoop
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode
from pymc_fastlogp.kernel.passes import PASSES, chunk, optimize
from pymc_fastlogp.kernel.threads.helpers import Helpers, has_tasks
from tests.kernel import check
from tests.kernel.lowering import assert_same, lowered
from tests.kernel.native_kernel import NAME, compile_native

N, GROUPS = 2_000, 37
RNG = np.random.default_rng(0)
UNSORTED = RNG.integers(GROUPS, size=N).astype("int32")
SORTED = np.sort(UNSORTED)
SMALL = SORTED.astype("uint8")
# Room for one result per group in whole cache lines.
WHOLE_LINES = 40
N_PUPILS = 700
SORTED_BY_PUPIL = np.sort(np.arange(N) * 7919 % N_PUPILS).astype("int32")
X, Y = RNG.normal(size=(2, N))
MATRIX = RNG.normal(size=(N, 3))
PER_GROUP = RNG.normal(size=GROUPS)


@pytest.fixture
def splits_all(monkeypatch):
    """Split all loops that can be split."""
    for limit in ("LONG", "SHORT", "CHUNK"):
        monkeypatch.setattr(chunk, limit, 0)
    monkeypatch.setattr(chunk, "MERGING", np.inf)


def parallel_loops(program):
    return [step for step in program.steps if isinstance(step, ParallelLoop)]


def has_whole_loop(program):
    """Return whether a loop over all rows is left."""
    return any(isinstance(step, Loop) and step.domain == (N,) for step in program.steps)


def by_group(x, group):
    return pt.zeros(GROUPS)[group].inc(pt.exp(x))


def by_pupil(x, pupil):
    return pt.zeros(N_PUPILS)[pupil].inc(pt.exp(x))


CASES = {
    "a sum": (lambda x, y: pt.sum(pt.exp(x) * y), (X, Y)),
    "several results": (
        lambda x, y: [pt.sum(pt.exp(x)), pt.max(x - y), pt.all(x < 9), pt.exp(x) + y],
        (X, Y),
    ),
    "an elementwise result": (lambda x, y: pt.exp(x) * y, (X, Y)),
    "a gather": (lambda x, a, g: pt.sum(pt.exp(x * a[g])), (X, PER_GROUP, UNSORTED)),
    "a scatter": (by_group, (X, UNSORTED)),
    "a scatter of ascending rows": (by_group, (X, SORTED)),
    "scatters and sums": (
        lambda x, g, h: [by_group(x, g), by_group(x * 2, h), pt.sum(pt.exp(x))],
        (X, UNSORTED, SORTED),
    ),
    "scatters of short sorted groups": (
        lambda x, p, g: [by_pupil(x, p), by_group(x, g), pt.sum(pt.exp(x))],
        (X, SORTED_BY_PUPIL, UNSORTED),
    ),
    "a scatter behind others": (
        lambda x, g: pt.zeros(GROUPS + 5)[g + 5].inc(pt.exp(x)),
        (X, SORTED),
    ),
    "a scatter of rows of a matrix": (
        lambda x, g: pt.zeros((GROUPS, 3))[g].inc(pt.exp(x)),
        (MATRIX, SORTED),
    ),
    "sums over rows of a matrix": (lambda x: pt.sum(pt.exp(x), axis=0), (MATRIX,)),
    "sums of rows of a matrix": (lambda x: pt.sum(pt.exp(x), axis=1), (RNG.normal(size=(N, 70)),)),
    "a constant": (lambda x: pt.sum(pt.exp(x) * pt.constant(SMALL)), (X,)),
    "a scatter by a constant": (lambda x: by_group(x, pt.constant(SMALL)), (X,)),
    "a short rest": (lambda x: pt.sum(pt.exp(x)), (X[: 4 * LANES + 3],)),
}


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", CASES)
def test_chunks_change_results_by_rounding_alone(name):
    build, arrays = CASES[name]
    program = check.optimize(lowered(build, arrays))
    assert parallel_loops(program)
    whole = optimize(
        lowered(build, arrays), [run for run in PASSES if run is not chunk.chunk_long_loops]
    )
    assert_same(compile_native(program)(*arrays), compile_native(whole)(*arrays))


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", CASES)
def test_threads_change_no_bit(name):
    build, arrays = CASES[name]
    kernel = compile_native(optimize(lowered(build, arrays)))
    alone = kernel(*arrays)
    code = LoadedCode(kernel._engine, NAME)
    assert has_tasks(code)
    for n_threads in (2, 3, 8):
        helpers = Helpers(n_threads - 1, code)
        for _ in range(50):
            for a, b in zip(kernel(*arrays), alone, strict=True):
                np.testing.assert_array_equal(a, b)
        helpers.close()


@pytest.mark.usefixtures("splits_all")
def test_a_loop_becomes_chunks():
    program = optimize(lowered(lambda x: pt.sum(x), (X[:70],)))
    _, _, text = as_text(program).partition("parallel")
    assert text.startswith(
        """ k0 4:
    loop :
        %0 = load k0[]
        k0p0[%0, 0] = -0.0
    loop sub(k0s0[add(k0[], 1)], k0s0[k0[]]) from k0s0[k0[]]:
        %0 = load k0[]
        %1 = load k0s0[%0]
        %4 = load x0[i0]
        k0p0[%0, 0] add= %4
loop 4:
    %2 = load k0p0[i0, 0]
    y0[] add= %2
"""
    )


@pytest.mark.usefixtures("splits_all")
def test_the_window_of_a_scatter_is_the_range_of_its_index():
    [loop] = parallel_loops(optimize(lowered(by_group, (X, UNSORTED % 5 + 7))))
    assert loop.steps[0].domain == (5,)


REFUSED = {
    "a scatter of an unknown index": (
        lambda x, g: pt.zeros(GROUPS)[pt.cast(g, "int64")].inc(pt.exp(x)),
        (X, UNSORTED.astype("float64")),
    ),
    "a set of elements in order": (
        lambda x, g: pt.zeros(GROUPS)[g].set(pt.exp(x)),
        (X, UNSORTED),
    ),
    "a running sum": (lambda x: pt.cumsum(pt.exp(x)), (X,)),
    "a check": (
        lambda x, g: pt.sum(pt.exp(x)[pt.cast(g, "int64")]),
        (X, UNSORTED.astype("float64")),
    ),
}


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", REFUSED)
def test_stays_whole(name):
    build, arrays = REFUSED[name]
    assert has_whole_loop(check.optimize(lowered(build, arrays)))


def test_short_loops_stay_whole():
    build, arrays = CASES["a sum"]
    assert not parallel_loops(optimize(lowered(build, arrays)))


def test_loops_whose_windows_take_too_long_stay_whole(monkeypatch):
    for limit in ("LONG", "SHORT", "CHUNK"):
        monkeypatch.setattr(chunk, limit, 0)
    everywhere = np.arange(N, dtype="int32")[::-1] * 5
    build = lambda x, g: pt.zeros(5 * N)[g].inc(pt.exp(x))  # noqa: E731
    assert has_whole_loop(optimize(lowered(build, (X, everywhere))))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("n_rows", [0, 17, 1_000, 6_845, 20_000, 99_991])
def test_chunks_differ_by_two_vectors_at_most(n_rows, count):
    starts = chunk_starts(n_rows, count)
    assert (starts[0], starts[-1]) == (0, n_rows)
    lengths = np.diff(starts)
    assert not np.any(lengths[:-1] % LANES)
    assert np.ptp(lengths) < 2 * LANES


@pytest.mark.parametrize("count", COUNTS)
def test_chunks_of_sorted_rows_start_at_group_borders(count):
    starts = starts_at_groups(SORTED_BY_PUPIL, count)
    assert (starts[0], starts[-1]) == (0, N)
    inside = np.array(starts[1:-1])
    assert np.all(SORTED_BY_PUPIL[inside] > SORTED_BY_PUPIL[inside - 1])
    assert np.diff(starts).max() <= 1.1 * N / count


def test_long_groups_do_not_start_chunks():
    assert starts_at_groups(np.repeat([0, 1, 2], 1000), 4) == ()
    assert index_facts(np.repeat([0, 1, 2], 1000)).chunk_starts(4) == ()
    assert index_facts(SORTED_BY_PUPIL[::-1]).chunk_starts(4) == ()


@pytest.mark.usefixtures("splits_all")
def test_a_scatter_of_short_sorted_groups_has_no_partial_results():
    program = optimize(lowered(by_pupil, (X, SORTED_BY_PUPIL)))
    [_, loop] = parallel_loops(program)  # the first sets the result to zero
    [rows] = loop.steps
    assert [statement.buffer for statement in rows.body] == [*program.outputs]
    assert loop.n_rows == N


def two_likelihoods(x, y, g, h):
    """Return sums of rows and of other rows, by groups that both read."""
    by_first = pt.zeros(GROUPS)[g].inc(pt.exp(x))
    return [by_first[h].inc(pt.exp(y[: N // 2])), pt.sum(pt.exp(x)), pt.max(y[: N // 2])]


TEAM = (X, Y, UNSORTED, np.sort(UNSORTED[: N // 2]))


@pytest.mark.usefixtures("splits_all")
def test_loops_that_share_sums_alone_are_one_parallel_loop():
    program = check.optimize(lowered(two_likelihoods, TEAM))
    [loop] = parallel_loops(program)
    assert loop.n_rows == N + N // 2
    # Both add to one buffer of partial results by group.
    assert sum(x.shape[1:] == (WHOLE_LINES,) for x in program.scratch) == 1
    whole = [run for run in PASSES if run is not chunk.chunk_long_loops]
    expected = compile_native(optimize(lowered(two_likelihoods, TEAM), whole))(*TEAM)
    assert_same(compile_native(program)(*TEAM), expected)


@pytest.mark.usefixtures("splits_all")
def test_a_loop_that_reads_the_results_of_another_is_a_parallel_loop_of_its_own():
    def build(x, y, g):
        total = pt.sum(pt.exp(x))
        return [pt.sum(pt.exp(total * y)), by_group(y, g)]

    assert len(parallel_loops(check.optimize(lowered(build, (X, Y, UNSORTED))))) == 2


def test_short_loops_are_split_beside_a_long_loop(monkeypatch):
    def build(x, y):
        return [pt.sum(pt.exp(x)), pt.sum(y)]

    monkeypatch.setattr(chunk, "CHUNK", 0)
    monkeypatch.setattr(chunk, "SHORT", 0)
    arrays = X, Y[:200]
    assert not parallel_loops(optimize(lowered(build, arrays)))
    monkeypatch.setattr(chunk, "LONG", 1_000)
    [loop] = parallel_loops(optimize(lowered(build, arrays)))
    assert loop.n_rows == N + 200
