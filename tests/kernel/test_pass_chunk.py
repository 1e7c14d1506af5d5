"""Chunks of rows: the split, partial results, refusals, and equal results with helper threads."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.analysis.row_chunks import COUNTS, LANES, chunk_starts
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
X, Y = RNG.normal(size=(2, N))
MATRIX = RNG.normal(size=(N, 3))
PER_GROUP = RNG.normal(size=GROUPS)


@pytest.fixture
def splits_all(monkeypatch):
    """Split all loops that can be split."""
    monkeypatch.setattr(chunk, "LONG", 0)
    monkeypatch.setattr(chunk, "CHUNK", 0)
    monkeypatch.setattr(chunk, "MERGING", np.inf)


def parallel_loops(program):
    return [step for step in program.steps if isinstance(step, ParallelLoop)]


def has_whole_loop(program):
    """Return whether a loop over all rows is left."""
    return any(isinstance(step, Loop) and step.domain == (N,) for step in program.steps)


def by_group(x, group):
    return pt.zeros(GROUPS)[group].inc(pt.exp(x))


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
def test_a_loop_becomes_chunks_and_a_rest():
    program = optimize(lowered(lambda x: pt.sum(x), (X[:70],)))
    _, _, text = as_text(program).partition("parallel")
    assert text.startswith(
        """ k0 4:
    loop :
        %0 = load k0[]
        k0p0[%0] = -0.0
    loop mul(sub(int_div(mul(add(k0[], 1), 4), 4), int_div(mul(k0[], 4), 4)), 16) from mul(int_div(mul(k0[], 4), 4), 16):
        %0 = load k0[]
        %2 = mul(%0, 4) int64
        %3 = int_div(%2, 4) int64
        %5 = mul(%3, 16) int64
        %7 = load x0[i0]
        k0p0[%0] add= %7
loop 4:
    %1 = load k0p0[i0]
    y0[] add= %1
loop 6 from 64:
    %2 = load x0[i0]
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
    monkeypatch.setattr(chunk, "LONG", 0)
    monkeypatch.setattr(chunk, "CHUNK", 0)
    everywhere = np.arange(N, dtype="int32")[::-1] * 5
    build = lambda x, g: pt.zeros(5 * N)[g].inc(pt.exp(x))  # noqa: E731
    assert has_whole_loop(optimize(lowered(build, (X, everywhere))))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("n_rows", [0, 17, 1_000, 6_845, 20_000, 99_991])
def test_chunks_differ_by_one_vector_and_cover_whole_vectors(n_rows, count):
    starts = chunk_starts(n_rows, count)
    lengths = np.diff(starts)
    assert starts[0] == 0
    assert starts[-1] == n_rows // LANES * LANES
    assert not np.any(lengths % LANES)
    assert np.ptp(lengths) <= LANES
