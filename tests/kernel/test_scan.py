"""Recursions in kernels: random recursions, truncated results, refusals and errors."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import get_mode
from pytensor.conditional.op import ifelse
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.scan.basic import until
from pytensor.scan.op import Scan

from pymc_fastlogp.kernel.graph import scan_inner_graphs
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.ir.loops import Call, Loop, SequentialLoop
from pymc_fastlogp.kernel.ir.traversal import loops_in
from pymc_fastlogp.kernel.lower import UnsupportedError, is_supported, lower
from pymc_fastlogp.kernel.passes import optimize
from tests.kernel.covered.scan import autoregression, decaying, learning, scan, taps
from tests.kernel.lowering import (
    Case,
    as_for_a_region,
    assert_same,
    check_gradient,
    check_value,
    compiled,
    evaluated,
    noise,
    sides,
)
from tests.slices import examples

LENGTHS = (0, 1, 2, 30, *examples((), (1000,)))


@st.composite
def recursions(draw, gradient=False):
    """Return a recursion with some sequences, states with some taps, and results.

    Upstream's rows of results are empty where there is no step, which its gradients do not cope with, and of fewer than two
    results the last two are wrong: docs/upstream.md.
    """
    length = draw(st.sampled_from(LENGTHS))
    size = draw(st.sampled_from([(), (), (1,), (3,), (20,)] if length or not gradient else [()]))
    states = draw(
        st.lists(st.sampled_from([(-1,), (-1,), (-2, -1), (-3,), (-3, -1)]), min_size=1, max_size=3)
    )
    lags = draw(st.lists(st.sampled_from([(0,), (0,), (-1, 0), (0, 2)]), max_size=2))
    n_results = draw(st.integers(0, 2 if length or not size else 0))
    has_two = length >= 2 or not n_results
    kept = draw(st.sampled_from(["all", "all", "last", *(["some"] if has_two else [])]))
    seed = draw(st.integers(0, 99))
    random = np.random.default_rng(seed)
    weights = random.uniform(-0.5, 0.5, size=(len(states) + n_results, 12))

    def build(weight, *arrays):
        starts, series = arrays[: len(states)], arrays[len(states) :]

        def step(*inner):
            *inner, w = inner
            rows = [sum(c * x for c, x in zip(row, inner)) for row in weights]
            return [pt.tanh(w * row) + 0.1 * row for row in rows]

        sequences = [
            {"input": x, "taps": list(lag)} if lag != (0,) else x
            for x, lag in zip(series, lags, strict=True)
        ]
        infos = [
            taps(x, *state) if state != (-1,) else x
            for x, state in zip(starts, states, strict=True)
        ]
        n_steps = None if sequences else length
        found = scan(step, sequences, [*infos, *[None] * n_results], weight, n_steps=n_steps)
        if kept == "last" and length:
            return [x[-1] for x in found]
        return [x[-2:] if kept == "some" else x for x in found]

    starts = [random.normal(size=((-min(s),) if s != (-1,) else ()) + size) for s in states]
    # As many elements more as taps ask for.
    series = [random.normal(size=(length + max(lag) - min(*lag, 0), *size)) for lag in lags]
    return Case(build, (np.array(random.uniform(0.2, 1)), *starts, *series))


@given(recursions(), st.booleans())
@settings(max_examples=examples(8, 60))
def test_random_recursions_agree_with_upstream(case, static):
    check_value(case, static=static)


@given(recursions(gradient=True), st.booleans())
@settings(max_examples=examples(4, 40))
def test_gradients_of_random_recursions_agree_with_upstream(case, static):
    """Terms of a gradient from ``tanh`` may cancel against other terms."""
    kernel, function = sides(case, static=static)
    found, expected = kernel(*case.arrays), function(*case.arrays)
    try:
        assert_same(found, expected)
    except AssertionError:
        assert_same(found, expected, noise(function, case.arrays))


def within_groups(x, level, group, start):
    """A recursion whose values rows read by group, as the level of a series that each row belongs to."""
    [path] = scan(lambda x, s: 0.7 * s + x, [x], [start])
    return pt.sum(pt.tanh(path[group] + level[group % 3]))


@pytest.mark.parametrize("static", [True, False])
def test_recursion_in_a_grouped_likelihood_agrees_with_upstream(static):
    random = np.random.default_rng(5)
    group = np.sort(random.integers(0, 12, size=90))
    arrays = (random.normal(size=12), random.normal(size=3), group, np.array(0.3))
    check_gradient(Case(within_groups, arrays), static=static)


KEPT = {
    "last": lambda x: x[-1],
    "last two": lambda x: x[-2:],
    "from behind": lambda x: x[::-1],
    "all but the first": lambda x: x[1:],
    "one in between": lambda x: x[3],
}


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("n", [4, 5, 9])
def test_truncated_results_agree(kept, n, static):
    """PyTensor truncates results to the entries that are read, so that later values overwrite earlier ones."""
    random = np.random.default_rng(n)

    def build(x, start, phi):
        return [KEPT[kept](s) for s in autoregression(x, start, phi)]

    arrays = (random.normal(size=n), random.normal(size=2), np.array([0.5, -0.3]))
    check_gradient(Case(build, arrays), static=static)


@pytest.mark.parametrize("n_steps", [-1, 0, 1, 5])
def test_a_number_of_steps_that_is_given_with_the_call(n_steps):
    n, start = pt.lscalar("n"), pt.dvector("start")
    [powers] = scan(lambda s: s * 1.5, [], [start], n_steps=n)
    function = pytensor.function([n, start], powers.sum(axis=0), mode="NUMBA")
    assert any(isinstance(node.op, FusedKernel) for node in function.maker.fgraph.apply_nodes)
    expected = sum((np.ones(2) * 1.5**k for k in range(1, n_steps + 1)), np.zeros(2))
    np.testing.assert_allclose(function(n_steps, np.ones(2)), expected, rtol=1e-15)


def test_a_sequence_that_is_too_short():
    n, x = pt.lscalar("n"), pt.dvector("x")
    [total] = scan(lambda x, s: s + x, [x], [pt.as_tensor(np.float64(0))], n_steps=n)
    function = pytensor.function([n, x], total[-1], mode="NUMBA")
    assert function(3, np.ones(4)) == 3
    with pytest.raises(ValueError, match="sequence is shorter"):
        function(5, np.ones(4))


def test_a_position_out_of_bounds_in_a_step():
    i, table = pt.lvector("i"), pt.dvector("table")
    [total] = scan(lambda i, s, t: s + t[i], [i], [pt.as_tensor(np.float64(0))], table)
    function = pytensor.function([i, table], total[-1], mode="NUMBA")
    assert len(function.maker.fgraph.apply_nodes) == 1
    assert function([0, 2, 1], np.array([1.0, 2.0, 4.0])) == 7
    with pytest.raises(IndexError):
        function([0, 3, 1], np.array([1.0, 2.0, 4.0]))


def test_checks_of_skipped_steps_do_not_raise():
    """Lengths that do not fit matter in a step alone."""
    n, x, y = pt.lscalar("n"), pt.dvector("x"), pt.dvector("y")
    start = pt.as_tensor(np.zeros(3))
    [s] = scan(lambda s, x, y: s + (x * y).sum(), [], [start], x, y, n_steps=n)
    kernel = compiled(
        FunctionGraph([n, x, y], [s], clone=True), [np.array(0), np.ones(3), np.ones(4)]
    )
    [none] = kernel(np.array(0), np.ones(3), np.ones(4))
    assert none.shape == (0, 3)
    with pytest.raises(ValueError, match="Incompatible"):
        kernel(np.array(1), np.ones(3), np.ones(4))


def scans_of(outputs):
    """Return the Scans below outputs, with the graph of their steps as a kernel takes it."""
    graph = FunctionGraph(outputs=outputs, clone=True)
    rewrite_scan_inner_graphs(graph)
    return [node for node in graph.apply_nodes if isinstance(node.op, Scan)]


X = pt.dvector("x")
ZERO = pt.as_tensor(np.float64(0))


def drawn():
    rng = pt.random.shared_rng(np.random.default_rng(1))

    def step(x, s, rng):
        new, draw = rng.normal(x)
        return s + draw, new

    found, _ = pytensor.scan(step, sequences=[X], outputs_info=[ZERO, rng], return_updates=False)
    return found


def until_large():
    return pytensor.scan(
        lambda x, s: (s + x, until(s > 3)),
        sequences=[X],
        outputs_info=[ZERO],
        return_updates=False,
    )


def in_another_mode():
    return pytensor.scan(
        lambda x, s: s + x, sequences=[X], outputs_info=[ZERO], mode="NUMBA", return_updates=False
    )


REFUSED = {
    "a number of steps that is found on the way": until_large,
    "a random generator": drawn,
    "a mode of its own": in_another_mode,
    "an Op that is not covered": lambda: scan(lambda x, s: pt.sort(s) + x, [X], [pt.zeros(3)])[0],
    "a branch that is not taken": lambda: scan(
        lambda x, s: ifelse(x > 0, s + x, pt.sin(s)), [X], [ZERO]
    )[0],
    "complex numbers": lambda: scan(lambda x, s: s * x, [X], [pt.as_tensor(np.complex128(1))])[0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_scans_are_refused(name):
    [node] = scans_of([REFUSED[name]()])
    assert not is_supported(node)


def test_steps_that_cannot_be_rewritten_are_left_to_pytensor(monkeypatch, caplog):
    def fails(*_):
        raise KeyError("a step")

    monkeypatch.setattr(scan_inner_graphs, "_with_rewritten_inner_graph", fails)
    [y] = scan(lambda x, s: s + x, [X], [ZERO])
    with pytensor.config.change_flags(on_opt_error="warn"), caplog.at_level("WARNING"):
        graph = FunctionGraph(outputs=[y], clone=True)
        rewrite_scan_inner_graphs(graph)
    assert any(isinstance(node.op, Scan) for node in graph.apply_nodes)
    assert "a step" in caplog.text
    with pytensor.config.change_flags(on_opt_error="raise"), pytest.raises(KeyError):
        rewrite_scan_inner_graphs(graph)


def test_a_sequence_that_has_come_to_know_a_length_of_one():
    """PyTensor accepts such a sequence for an existing Scan, but refuses it for a new one."""
    x = pt.tensor("x", shape=(7, 1))
    rows = pt.tril(x)
    outputs = scan(lambda row, s: pt.tanh(row + s), [rows], [rows[0]])
    outputs += [pt.grad(outputs[0][-1].sum(), x)]
    array = np.linspace(-1, 1, 7)[:, None]
    function = pytensor.function([x], outputs, mode="NUMBA")
    fused = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, FusedKernel)]
    assert any(isinstance(n.op, Scan) for node in fused for n in node.op.fgraph.apply_nodes)
    assert_same(function(array), evaluated([x], outputs, [array]))


def test_refused_scans_are_left_unchanged():
    [y] = scan(lambda x, s: pt.sort(s) + x * 1, [X], [pt.zeros(3)])
    before = FunctionGraph(outputs=[y], clone=True)
    [node] = [node for node in before.apply_nodes if isinstance(node.op, Scan)]
    rewrite_scan_inner_graphs(before)
    assert node in before.apply_nodes
    function = pytensor.function([X], y, mode="NUMBA")
    assert any(isinstance(n.op, Scan) for n in function.maker.fgraph.apply_nodes)
    np.testing.assert_array_equal(function([1.0, 2.0])[-1], [3, 3, 3])


def test_a_sequence_that_is_known_to_be_too_short():
    x = pt.dvector("x", shape=(3,))
    [y] = scan(lambda x, s: s + x, [x], [ZERO], n_steps=5)
    graph = FunctionGraph([x], [y], clone=True)
    rewrite_scan_inner_graphs(graph)
    with pytest.raises(UnsupportedError, match="shorter than the number of steps"):
        lower(graph, [None])


def test_a_length_that_changes_from_step_to_step():
    x, lengths = pt.dvector("x"), pt.lvector("lengths")
    [y] = scan(lambda n, x: x[:n].sum(), [lengths], [None], x)
    graph = FunctionGraph([x, lengths], [y], clone=True)
    rewrite_scan_inner_graphs(graph)
    with pytest.raises(UnsupportedError, match="computed from data"):
        lower(graph, [None, None])
    function = pytensor.function([x, lengths], y, mode="NUMBA")
    np.testing.assert_array_equal(function([1.0, 2, 4], [0, 1, 3]), [0, 1, 7])


def test_a_shared_variable_that_grows_in_each_step():
    grown = pytensor.shared(np.ones(2), shape=(None,))
    y, updates = pytensor.scan(
        lambda x, s: (x * s.sum(), {grown: pt.concatenate([grown, grown[:1]])}),
        sequences=[X],
        non_sequences=[grown],
        return_updates=True,
    )
    function = pytensor.function([X], y, updates=updates, mode="NUMBA")
    np.testing.assert_array_equal(function(np.ones(4)), [2, 3, 4, 5])
    assert grown.get_value().shape == (6,)


def test_one_recursion_is_worth_a_kernel():
    [y] = scan(lambda x, s: pt.tanh(s + x), [X], [ZERO])
    function = pytensor.function([X], y, mode="NUMBA")
    [node] = function.maker.fgraph.apply_nodes
    assert isinstance(node.op, FusedKernel)


def test_scan_of_no_steps_keeps_the_vector_length():
    """Upstream's code gives rows of no elements, but says that the shape is this one."""
    x = np.zeros((0, 20))
    case = Case(learning, (x, np.ones(20), np.full(20, 0.1)))
    inputs = case.inputs(static=False)
    kernel = compiled(FunctionGraph(inputs, case.outputs(inputs), clone=True), case.arrays)
    assert [y.shape for y in kernel(*case.arrays)] == [(0, 20), (0,)]


def test_a_large_product_in_a_step_is_a_call():
    random = np.random.default_rng(3)
    matrix = random.normal(size=(60, 60)) / 12

    def build(x, start, matrix):
        return scan(lambda x, s, m: pt.tanh(m @ s @ m.T) + x, [x], [start], matrix)

    case = Case(build, (random.normal(size=4), random.normal(size=(60, 60)), matrix))
    inputs = case.inputs(static=True)
    graph = FunctionGraph(inputs, case.outputs(inputs), clone=True)
    program = optimize(lower(graph, [None] * 3))
    [repeat] = [step for step in program.steps if isinstance(step, SequentialLoop)]
    assert any(isinstance(s, Call) for loop in loops_in(repeat.steps) for s in loop.body)
    check_value(case)
    check_gradient(case)


def test_a_strided_operand_of_a_call_in_a_step():
    random = np.random.default_rng(4)
    matrix = (random.normal(size=(120, 60)) / 12)[::2]
    start = random.normal(size=(60, 60))
    m, s0 = pt.dmatrix("m"), pt.dmatrix("s0")
    [y] = scan(lambda s, m: pt.tanh(m @ s), [], [s0], m, n_steps=3)
    graph = FunctionGraph([m, s0], [y], clone=True)
    kernel = compiled(graph, [matrix, start], contiguous=[False, True])
    assert_same(kernel(matrix, start), evaluated([m, s0], [y], [matrix, start]))


def repeats_of(outputs, inputs):
    """Return what is repeated in the kernel of a gradient."""
    graph = as_for_a_region(inputs, outputs)
    rewrite_scan_inner_graphs(graph)
    program = optimize(lower(graph, [None] * len(inputs)))
    return program, [step for step in program.steps if isinstance(step, SequentialLoop)]


def names(steps):
    """Return the scalar Ops of some steps."""
    from pymc_fastlogp.kernel.ir.expressions import Compute
    from pymc_fastlogp.kernel.ir.traversal import expressions

    return {
        str(expr.op)
        for loop in loops_in(steps)
        for expr in expressions(loop)
        if isinstance(expr, Compute)
    }


def test_a_step_of_scalars_is_straight_line_code():
    x, start = pt.dvector("x", shape=(50,)), pt.dvector("start", shape=(2,))
    [y] = autoregression(x, start, pt.as_tensor(np.array([0.5, 0.2])))
    cost = pt.sum(pt.sqr(y))
    _, repeats = repeats_of([cost, *pytensor.grad(cost, [x, start])], [x, start])
    assert len(repeats) == 2
    assert all(loop.domain == () for repeat in repeats for loop in repeat.steps)


def test_functions_of_sequences_are_computed_before_the_steps():
    x = pt.dvector("x", shape=(50,))
    [y] = decaying(x, ZERO)
    _, [forward, backward] = repeats_of([pt.sum(y), pytensor.grad(pt.sum(y), x)], [x])
    assert "tanh" in names([forward])
    assert not names([backward]) & {"tanh", "exp"}


def test_functions_are_computed_before_a_single_step():
    x, one = pt.dvector("x"), pt.dvector("one", shape=(1,))
    [y] = scan(lambda x, s: s * pt.log(x) + pt.exp(x), [x], [pt.as_tensor(0.3)])
    graph = FunctionGraph([one], clone_replace([y], {x: one}), clone=True)
    value = np.array([0.4])
    [result] = compiled(graph, [value])(value)
    np.testing.assert_allclose(result, 0.3 * np.log(value) + np.exp(value), rtol=1e-14)


def test_results_are_computed_behind_the_steps():
    x = pt.dvector("x", shape=(50,))
    ys = scan(lambda x, s: (0.5 * s + x, pt.log(1 + pt.exp(s))), [x], [ZERO, None])
    program, [repeat] = repeats_of([ys[1].sum()], [x])
    assert not names([repeat]) & {"log", "exp", "softplus", "log1p"}
    behind = program.steps[program.steps.index(repeat) + 1 :]
    assert any(loop.domain == (50,) for loop in loops_in(behind))


def test_a_result_that_a_later_value_replaces_stays_in_its_step():
    """Only the last two values are stored, so earlier values exist only inside their step."""
    x = pt.dvector("x", shape=(50,))
    ys = scan(
        lambda x, s2, s1: (0.5 * s2 - 0.2 * s1 + x, pt.exp(s2)),
        [x],
        [taps(pt.zeros(2), -2, -1), None],
    )
    outputs = [ys[0][-1], ys[1]]
    graph = as_for_a_region([x], outputs)
    value = np.linspace(-1, 1, 50)
    assert_same(compiled(graph, [value])(value), evaluated([x], outputs, [value]))


def test_inner_graph_follows_the_mode_of_the_function():
    """A rewrite that a mode excludes is excluded from the steps, too."""
    [y] = scan(lambda x, s: (s + x) ** 2 - 1, [X], [ZERO])
    found = []
    for mode in (get_mode("NUMBA"), get_mode("NUMBA").excluding("specialize")):
        function = pytensor.function([X], y, mode=mode)
        [node] = function.maker.fgraph.apply_nodes
        [inner] = [n for n in node.op.fgraph.apply_nodes if isinstance(n.op, Scan)]
        found.append({str(n.op) for n in inner.op.fgraph.apply_nodes})
        np.testing.assert_allclose(function(np.ones(3)), [0, 0, 0], rtol=1e-14)
    assert found[0] != found[1]


@pytest.mark.parametrize(("of", "is_stored"), [(lambda x: 2 * x - 1, False), (pt.exp, True)])
def test_cheap_sequences_of_vectors_are_not_stored(of, is_stored):
    x = pt.dmatrix("x", shape=(50, 20))
    [y] = scan(lambda x, s: pt.tanh(x + s), [of(x)], [pt.zeros(20)])
    program, _ = repeats_of([y[-1]], [x])
    before = [step for step in program.steps if isinstance(step, Loop)]
    assert any(loop.domain == (50, 20) for loop in before) == is_stored
    value = np.random.default_rng(1).normal(size=(50, 20))
    graph = as_for_a_region([x], [y[-1]])
    assert_same(compiled(graph, [value])(value), evaluated([x], [y[-1]], [value]))


@pytest.mark.parametrize("n", [2, 3, 9, 17])
def test_functions_in_a_step_agree_with_upstream(n):
    """The functions are computed in the lanes of one or several vectors."""
    random = np.random.default_rng(n)

    def build(x, start):
        def step(x, s):
            terms = [pt.exp(0.1 * k * s - x) for k in range(n)]
            return pt.log(sum(terms[1:], terms[0])) - pt.log1p(pt.sqr(s)) - np.log(n)

        return scan(step, [x], [start])

    check_value(Case(build, (random.normal(size=20), np.array(0.3))))


@pytest.mark.parametrize("left", [lambda a: 2 * a, lambda a: a[:, :, ::-1]])
def test_operands_of_library_calls_are_stored(left):
    """A recursion elsewhere in the graph does not change what a product of batches reads."""
    random = np.random.default_rng(6)

    def build(a, b, x, start):
        return [left(a) @ b, *decaying(x, start)]

    batches = [random.normal(size=(3, 60, 60)) for _ in range(2)]
    check_value(Case(build, (*batches, random.normal(size=5), np.array(0.3))))
