"""Recursions of many series: sums of steps that are carried, chunks of series, refusals, and equal results with helper threads."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.ir.loops import ParallelLoop, PrefixSum, SequentialLoop
from pymc_fastlogp.kernel.ir.traversal import loops_in, sequential_loops
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode
from pymc_fastlogp.kernel.passes import chunk
from pymc_fastlogp.kernel.threads.helpers import Helpers, has_tasks
from tests.kernel import check
from tests.kernel.covered.scan import scan
from tests.kernel.lowering import (
    Case,
    as_for_a_region,
    assert_same,
    evaluated,
    gradients,
    in_python,
    noise,
)
from tests.kernel.native_kernel import NAME, compile_native

T, N = 20, 300
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, T, N))
START = RNG.normal(size=N)
PHI = RNG.uniform(0.2, 0.8, size=N)


@pytest.fixture
def splits_all(monkeypatch):
    """Split all loops that can be split."""
    for limit in ("LONG", "SHORT", "CHUNK"):
        monkeypatch.setattr(chunk, limit, 0)
    monkeypatch.setattr(chunk, "MERGING", np.inf)


def autoregression(x, start, phi, beta):
    [y] = scan(lambda x, s, phi, beta: phi * s + beta * x, [x], [start], phi, beta)
    return y


def garch(x, start, a, b):
    [v] = scan(lambda x, v, a, b: 0.1 + a * x**2 + b * v, [x], [pt.exp(start)], a, b)
    return pt.log(v)


def local_level(x, start, noise_of_level, noise_of_series):
    def step(x, level, variance, q, r):
        total = variance + r
        gain = variance / total
        error = x - level
        density = pt.log(total) + error**2 / total
        return level + gain * error, variance * (1 - gain) + q, density

    return scan(
        step,
        [x],
        [start, pt.ones(N), None],
        pt.exp(noise_of_level),
        pt.exp(noise_of_series),
    )[2]


def hidden_markov(x, start, transition, mean, sigma):
    def step(x, s, transition, mean, sigma):
        moved = pt.logsumexp(s[:, :, None] + transition[None], axis=1)
        return moved - 0.5 * ((x[:, None] - mean) / sigma) ** 2 - pt.log(sigma)

    states = pt.stack([start, -start, 2 * start], axis=1)
    [y] = scan(step, [x], [states], transition, mean, sigma)
    return pt.logsumexp(y[-1], axis=1)


CASES = {
    "autoregression": Case(autoregression, (X, START, PHI, np.array(0.3))),
    "GARCH": Case(garch, (X, START, np.array(0.2), np.array(0.5))),
    "local level": Case(local_level, (X, START, np.array(-1.0), PHI)),
    "hidden Markov": Case(
        hidden_markov,
        (X, START, RNG.normal(size=(3, 3)), np.array([-0.5, 0.5, 1.0]), np.array(0.7)),
    ),
    "random walk": Case(lambda x: pt.cumsum(x, axis=0), (RNG.normal(size=(70, N)),)),
}


def built(case):
    """Return the inputs, the results and gradients, and the program."""
    inputs = case.inputs(static=True)
    outputs = case.outputs(inputs)
    together = [*outputs, *gradients(inputs, outputs)]
    fgraph = as_for_a_region(inputs, together)
    rewrite_scan_inner_graphs(fgraph)
    return inputs, together, check.optimize(lower(fgraph, [None] * len(inputs)))


def recursions(program):
    """Return the recursions of a program, without parallel loops."""
    return [x for x in sequential_loops(program.steps) if not isinstance(x, ParallelLoop)]


def in_chunks(program):
    """Return the recursions that run in chunks."""
    parallel = [step for step in program.steps if isinstance(step, ParallelLoop)]
    return [x for loop in parallel for x in loop.steps if isinstance(x, SequentialLoop)]


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", [name for name in CASES if name != "random walk"])
def test_recursion_and_its_reverse_run_in_chunks_of_series(name):
    _, _, program = built(CASES[name])
    assert len(recursions(program)) == 2
    assert in_chunks(program) == recursions(program)
    for recursion in recursions(program):
        assert recursion.length == T
        assert all(loop.first is not None for loop in loops_in(recursion.steps))


def has_running_sum(loop):
    return any(isinstance(statement, PrefixSum) for statement in loop.body)


@pytest.mark.usefixtures("splits_all")
def test_running_sums_of_series_run_in_chunks():
    _, _, program = built(CASES["random walk"])
    running = [x for x in loops_in(program.steps) if has_running_sum(x)]
    assert len(running) == 2
    assert all(loop.first is not None for loop in running)


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_upstream(name):
    case = CASES[name]
    inputs, outputs, program = built(case)
    expected = evaluated(inputs, outputs, case.arrays)
    allowed = noise(in_python(inputs, outputs), case.arrays)
    assert_same(compile_native(program)(*case.arrays), expected, allowed)


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", CASES)
def test_threads_change_no_bit(name):
    case = CASES[name]
    *_, program = built(case)
    kernel = compile_native(program)
    alone = kernel(*case.arrays)
    code = LoadedCode(kernel._engine, NAME)
    assert has_tasks(code)
    for n_threads in (2, 3, 8):
        helpers = Helpers(n_threads - 1, code)
        for _ in range(20):
            for a, b in zip(kernel(*case.arrays), alone, strict=True):
                np.testing.assert_array_equal(a, b)
        helpers.close()


def pulled_to_the_mean(x, start):
    return scan(lambda x, s: 0.5 * s + 0.1 * s.mean() + x, [x], [start])[0]


def mixed_by_a_matrix(x, start, weights):
    return scan(lambda x, s, weights: pt.tanh(weights @ s + x), [x], [start], weights)[0]


def neighbors(x, start):
    return scan(lambda x, s: 0.5 * s + 0.1 * s[::-1] + x, [x], [start])[0]


REFUSED = {
    "a mean of all series in a step": Case(pulled_to_the_mean, (X, START)),
    "a matrix product in a step": Case(mixed_by_a_matrix, (X, START, RNG.normal(size=(N, N)) / N)),
    "another series in a step": Case(neighbors, (X, START)),
    "fewer series than four chunks": Case(
        lambda x, start: autoregression(x, start, pt.as_tensor(0.5), pt.as_tensor(0.3)),
        (np.ascontiguousarray(X[:, :200]), START[:200]),
    ),
}


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", REFUSED)
def test_stays_whole(name):
    case = REFUSED[name]
    inputs, outputs, program = built(case)
    assert recursions(program)
    assert not in_chunks(program)
    allowed = noise(in_python(inputs, outputs), case.arrays)
    expected = evaluated(inputs, outputs, case.arrays)
    assert_same(compile_native(program)(*case.arrays), expected, allowed)


def test_short_recursions_stay_whole():
    _, _, program = built(CASES["autoregression"])
    assert not in_chunks(program)


def scalar_steps(program):
    """Return the loops without axes in recursions."""
    return [x for each in recursions(program) for x in loops_in(each.steps) if not x.domain]


@pytest.mark.parametrize("name", ["autoregression", "GARCH", "hidden Markov"])
def test_sums_of_steps_are_added_after_the_last_step(name):
    _, _, program = built(CASES[name])
    assert not scalar_steps(program)


def test_a_factor_that_depends_on_the_step_agrees_with_upstream():
    def build(x, start, beta, scale):
        step = lambda x, c, s, beta: 0.5 * s + beta / c * x  # noqa: E731
        return scan(step, [x, scale], [start], beta)[0]

    case = Case(build, (X, START, np.array(0.3), np.arange(1.0, 1 + T)))
    inputs, outputs, program = built(case)
    expected = evaluated(inputs, outputs, case.arrays)
    allowed = noise(in_python(inputs, outputs), case.arrays)
    assert_same(compile_native(program)(*case.arrays), expected, allowed)


def test_a_sum_that_a_later_step_reads_stays_in_its_step():
    case = Case(lambda x: scan(lambda x, s: 0.5 * s + x.sum(), [x], [pt.zeros(())])[0], (X,))
    inputs, outputs, program = built(case)
    assert scalar_steps(program)
    expected = evaluated(inputs, outputs, case.arrays)
    assert_same(compile_native(program)(*case.arrays), expected)
