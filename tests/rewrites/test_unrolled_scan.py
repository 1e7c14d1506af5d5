"""Short loops are unrolled in mode FAST_COMPILE, and nothing else changes."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymc.initial_point import make_initial_point_fn
from pymc.pytensorf import compile as compile_pymc
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.compile.mode import FAST_COMPILE, get_mode
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.scan.utils import until

from pymc_fastlogp.compilation.graphs import initial_value_graph
from pymc_fastlogp.compilation.model_source import ModelSource
from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.after_gradient.unroll_scan import MOST_NODES
from tests.graph_text import text
from tests.slices import examples

RULE = "fastlogp_unroll_short_scan"
x = pt.vector("x", shape=(4,))
unknown = pt.vector("unknown")
n = pt.lscalar("n")
START = pt.constant(2.0, dtype="float64")
VALUES = {x: np.array([0.5, -2.0, 3.0, 0.25]), unknown: np.array([1.0, 2.0, 3.0, 4.0]), n: 3}


def loop(step, start, seq=x, **kwargs):
    return pytensor.scan(step, sequences=seq, outputs_info=start, return_updates=False, **kwargs)


def running(seq=x, **kwargs):
    return loop(lambda now, before: before * now + 1, START, seq, **kwargs)


def with_history(seq=x):
    """A state, all that it was, and what is no state."""
    state, doubled = loop(lambda now, before: (before * now + 1, 2 * before), [x[0], None], seq)
    return [state, doubled, state[-1]]


UNROLLED = {
    "a state": [running()],
    "a state and an output": with_history(),
    "no state": [loop(lambda now: now**2, None)],
    "fewer steps than rows": [running(n_steps=2)],
    "from the last row": [running(go_backwards=True)],
    "what stays": [loop(lambda now, y: (now * y).sum(), None, non_sequences=[x])],
    "a constant in the loop": [loop(lambda now: START, None)],
    "no steps": [running(n_steps=0)],
}

FIBONACCI = {"initial": pt.as_tensor([1.0, 1.0]), "taps": [-1, -2]}
KEPT = {
    "a number of steps at run time": [running(n_steps=n)],
    "rows of unknown number": [running(unknown)],
    "too many steps": [running(pt.concatenate([x] * MOST_NODES))],
    "a condition": [loop(lambda now, b: (b + now, until(b > 3)), START)],
    "two steps back": [loop(lambda now, b, c: b + c + now, [FIBONACCI])],
    "no steps without a state": [loop(lambda now: now**2, None, n_steps=0)],
}


def compiled(outputs, on, mode=FAST_COMPILE):
    inputs = [v for v in ancestors(outputs) if v in VALUES]
    with switched(on):
        function = pytensor.function(inputs, outputs, mode=mode)
    return function, [VALUES[v] for v in inputs]


def n_loops(function):
    return sum(isinstance(node.op, Scan) for node in function.maker.fgraph.apply_nodes)


@pytest.mark.parametrize("outputs", UNROLLED.values(), ids=UNROLLED)
def test_short_scans_are_unrolled(outputs):
    off, values = compiled(outputs, on=False)
    on, _ = compiled(outputs, on=True)
    assert n_loops(off) == 1
    assert n_loops(on) == 0
    for expected, actual in zip(off(*values), on(*values), strict=True):
        np.testing.assert_array_equal(actual, expected, strict=True)


def test_two_steps_are_written_out():
    [on, off] = [compiled([running(n_steps=2)[-1]], on=on)[0] for on in (True, False)]
    expected, _ = compiled([(2.0 * x[0] + 1.0) * x[1] + 1.0], on=False)
    assert n_loops(off) == 1
    ops = [str(node.op) for node in on.maker.fgraph.toposort()]
    assert [op for op in ops if op in ("Mul", "Add")] == ["Mul", "Add", "Mul", "Add"]
    assert on(VALUES[x]) == expected(VALUES[x])


@pytest.mark.parametrize("outputs", KEPT.values(), ids=KEPT)
def test_other_scans_are_kept(outputs):
    off, _ = compiled(outputs, on=False)
    on, _ = compiled(outputs, on=True)
    assert text(on.maker.fgraph) == text(off.maker.fgraph)


@pytest.mark.parametrize("mode", ["CVM", "NUMBA"])
def test_other_modes_keep_loops(mode):
    for excluded in ((), (RULE,)):
        without = get_mode(mode).excluding("fastlogp_fused_kernel", *excluded)
        function, _ = compiled([running()], on=True, mode=without)
        assert n_loops(function) == 1


def test_can_be_excluded():
    function, _ = compiled([running()], on=True, mode=FAST_COMPILE.excluding(RULE))
    assert n_loops(function) == 1


@pytest.mark.parametrize("outputs", [UNROLLED["a state"], UNROLLED["what stays"]])
def test_same_gradient(outputs):
    gradient = [pt.grad(outputs[0].sum(), x)]
    off, values = compiled(gradient, on=False)
    on, _ = compiled(gradient, on=True)
    np.testing.assert_allclose(on(*values)[0], off(*values)[0], rtol=1e-15)


@settings(max_examples=examples(5, 25))
@given(
    n_steps=st.integers(1, 4),
    backwards=st.booleans(),
    shape=st.sampled_from([(), (1,), (3,), (2, 2)]),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test_same_values_for_any_state(n_steps, backwards, shape, dtype):
    start = pt.full(shape, 0.5, dtype=dtype)
    rows = pt.as_tensor(np.linspace(-1, 1, 4).astype(dtype))

    def step(now, before):
        return (before * now).astype(dtype), before.sum()

    outputs = loop(step, [start, None], rows, n_steps=n_steps, go_backwards=backwards)
    off, _ = compiled(outputs, on=False)
    on, _ = compiled(outputs, on=True)
    assert n_loops(on) == 0
    for expected, actual in zip(off(), on(), strict=True):
        np.testing.assert_array_equal(actual, expected, strict=True)


def draws(prior, on):
    """Return two draws of a prior from one seed, with the function that made them."""
    with switched(on):
        function = compile_pymc([], prior, mode=FAST_COMPILE)
    reseed_rngs(find_rng_nodes([prior]), 20261121)
    return [function(), function()], function


@pytest.mark.parametrize("n_dim", [2, 3, 4, 30])
def test_scan_with_two_generators_is_kept(n_dim):
    sd_dist = pm.Exponential.dist(1.0, shape=n_dim)
    prior = pm.LKJCholeskyCov.dist(n=n_dim, eta=2.0, sd_dist=sd_dist, compute_corr=False)
    expected, off = draws(prior, on=False)
    actual, on = draws(prior, on=True)
    assert n_loops(off) == n_loops(on) == 1  # of two generators, whose order counts
    assert not np.array_equal(*actual)  # the state of the generator goes on
    np.testing.assert_array_equal(actual, expected)


def test_draws_by_one_generator_are_the_same():
    results = []
    for on in (False, True):
        rng = pytensor.shared(np.random.default_rng(1))
        walk, last = pytensor.scan(
            lambda before, rng: pt.random.normal(before, rng=rng).owner.outputs[::-1],
            outputs_info=[START, rng],
            n_steps=4,
            return_updates=False,
        )
        with switched(on):
            function = pytensor.function([], walk, updates={rng: last}, mode=FAST_COMPILE)
        results.append(([function(), function()], n_loops(function)))
    (expected, kept), (actual, unrolled) = results
    assert (kept, unrolled) == (1, 0)
    assert not np.array_equal(*actual)  # the state of the generator goes on
    np.testing.assert_allclose(actual, expected, rtol=1e-14)


def n_loops_at_the_start(model):
    options = {
        "jitter_rvs": None,
        "default_initialization_strategy": "support_point",
        "initial_points": None,
    }
    nodes = initial_value_graph(ModelSource(model, options, freeze=True)).apply_nodes
    return sum(isinstance(node.op, Scan) for node in nodes)


def test_initial_point_of_a_model_has_no_loop_to_compile():
    with pm.Model() as model:
        pm.LKJCholeskyCov("chol", n=4, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=4))
    points = []
    for on in (False, True):
        with switched(on):
            point = make_initial_point_fn(model=model, jitter_rvs=set(model.free_RVs))
            assert n_loops_at_the_start(model) == (0 if on else 1)
        points.append(point(7)["chol_cholesky-cov-packed__"])
    np.testing.assert_array_equal(*points)


def diffusion(scale):
    return pm.EulerMaruyama(
        "x",
        dt=0.1,
        sde_fn=lambda x, a: (-a * x, 0.3),
        sde_pars=(scale,),
        init_dist=pm.Normal.dist(),
        steps=5,
    )


def volatility(scale):
    return pm.GARCH11("x", omega=scale, alpha_1=0.1, beta_1=0.2, initial_vol=1.0, steps=4)


@pytest.mark.filterwarnings("ignore:Support point not defined")
@pytest.mark.parametrize("prior", [diffusion, volatility])
def test_generators_get_their_seeds_in_the_same_order(prior):
    with pm.Model() as model:
        prior(pm.HalfNormal("scale"))
    points = []
    for on in (False, True):
        with switched(on):
            jittered = make_initial_point_fn(model=model, jitter_rvs=set(model.free_RVs))
            drawn = make_initial_point_fn(model=model, default_strategy="prior")
            points.append(
                {"default": model.initial_point(4), "jittered": jittered(4), "prior": drawn(4)}
            )
    expected, actual = points
    for kind, values in expected.items():
        for name, value in values.items():
            np.testing.assert_allclose(actual[kind][name], value, rtol=1e-14)
