"""`verify` passes if both sides agree, and names the differences otherwise."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import Elemwise

from benchmarks.suite import SUITE
from pymc_fastlogp import Verification, WorstEntry, compile_pymc_model, verify
from pymc_fastlogp.models.in_place_rewrites import apply_in_place_rewrites
from pymc_fastlogp.rewrites.packed_matrices.lift_set_subtensor import (
    local_lift_elemwise_through_set,
)
from pymc_fastlogp.verification import comparison, logp_functions
from pymc_fastlogp.verification.points import points_around
from pymc_fastlogp.verification.roundoff import neighbors
from tests.lifted import LIFT, exp_of_set


@pytest.fixture(scope="module")
def mixed_model():
    """Correlated effects, data, a discrete variable, and one whose support can be left."""
    with pm.Model() as model:
        x = pm.Data("x", np.array([0.5, 1.0, 2.0]))
        chol = pm.LKJCorr("chol", n=3, eta=2.0)
        scale = pm.Exponential("scale", 1.0, default_transform=None)
        k = pm.Poisson("k", 3.0)
        pm.Normal("y", chol @ x + k, scale, observed=np.array([3.0, 2.0, 4.0]))
    return model


@pytest.fixture
def break_the_lift(monkeypatch):
    """Return a function that makes the lift of an exponential multiply what it returns."""

    def replace(factor):
        @node_rewriter([Elemwise])
        def broken(fgraph, node):
            lifted = local_lift_elemwise_through_set.transform(fgraph, node)
            return [lifted[0] * factor] if lifted and node.op == pt.exp else lifted

        monkeypatch.setattr(optdb["canonicalize"][LIFT], "rewriter", broken)

    return replace


@pytest.mark.parametrize("freeze_model", [True, False])
def test_agrees(mixed_model, freeze_model):
    result = verify(mixed_model, freeze_model=freeze_model)
    assert result
    assert str(result).startswith(
        f"Logp and gradient, plugin off and on, agree at {result.n_points}"
    )
    assert {row.variable for row in result.rows} == {"logp", "chol_cholesky_corr__", "scale"}
    assert all(row.error < 1e-13 for row in result.rows)


def test_finds_a_wrong_rewrite_and_where_it_shows(break_the_lift):
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        b = pm.Normal("b", shape=3)
        pm.Potential("p", exp_of_set(a).sum() + (b**2).sum())
    break_the_lift(1 + 1e-9)
    result = verify(model)
    assert not result
    assert {row.variable for row in result.rows if not row.passed} == {"logp", "a"}
    [row] = [row for row in result.rows if row.variable == "a"]
    assert row.place in {(0,), (1,)}
    assert row.ratio > 1
    for shown in (str(result), result._repr_html_()):
        assert "off and on, DIFFER in logp, a at" in shown
        assert "DIFFERS" in shown
    assert result.to_frame().passed.tolist() == [row.passed for row in result.rows]
    assert result.to_dict()["passed"] is False


@pytest.fixture
def compiled(monkeypatch):
    """Return what will be compiled: in which mode, and whether the plugin is on."""
    sides_compiled = []
    compile_one = logp_functions.compile_logp_dlogp

    def spy(model, start, mode, *, on):
        sides_compiled.append((mode if mode == "NUMBA" else "numpy", on))
        return compile_one(model, start, mode, on=on)

    monkeypatch.setattr(logp_functions, "compile_logp_dlogp", spy)
    return sides_compiled


def test_only_a_difference_makes_it_compile_with_the_plugin_off(
    lifted_model, break_the_lift, compiled
):
    assert verify(lifted_model)
    assert compiled == [("NUMBA", True), ("numpy", False)]
    break_the_lift(1 + 1e-9)
    assert not verify(lifted_model)
    assert ("NUMBA", False) in compiled


def test_finds_a_nan(break_the_lift):
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        pm.Potential("p", exp_of_set(a).sum())
    break_the_lift(np.nan)
    result = verify(model, n_random=1)
    assert not result
    assert result.rows[0].error == np.inf


@pytest.fixture
def cancelling_model():
    """Differences of exponentials: where the variables are tiny, most digits are round-off.

    The exponential of a tiny number is 1, and so are those of its neighbors.
    """
    with pm.Model() as model:
        a, b = pm.Flat("a", shape=2), pm.Flat("b")
        pm.Potential("p", (exp_of_set(a) - pt.exp(b)).sum())
    return model


def test_round_off_that_neighbors_do_not_show_passes(cancelling_model, break_the_lift, monkeypatch):
    break_the_lift(1 + np.finfo(float).eps)
    assert verify(cancelling_model)
    monkeypatch.setattr(
        "pymc_fastlogp.verification.upstream.numpy_mode", lambda noise=None: "NUMBA"
    )
    assert not verify(cancelling_model)


def test_errors_beyond_round_off_fail_at_cancellation(cancelling_model, break_the_lift):
    break_the_lift(1 + 1e-10)
    result = verify(cancelling_model)
    assert {row.variable for row in result.rows if not row.passed} == {"logp", "a"}


@pytest.mark.parametrize(
    ("off", "on", "moved", "passes"),
    [
        (1.0, 1.0, 1.0, True),
        (1.0, 1.0 + 1e-13, 1.0, True),
        (1.0, 1.0 + 1e-11, 1.0, False),
        (1.0, 1.0 + 1e-11, 1.0 + 1e-12, True),  # upstream itself moves as much
        (np.inf, np.inf, np.inf, True),
        (np.nan, np.nan, np.nan, True),
        (-np.inf, np.nan, -np.inf, False),
        (1.0, np.nan, 1.0, False),
        (np.nan, 1.0, np.nan, False),
        (np.inf, -np.inf, np.inf, False),
        (1.0, np.inf, np.inf, True),  # at the edge of the support
        (0.0, 0.0, 0.0, True),
        (0.0, 1e-300, 0.0, False),
    ],
)
def test_tolerance_follows_noise(off, on, moved, passes):
    _, ratio, _ = comparison._errors(
        np.array([off]), np.array([on]), np.array([[off], [moved]]), 1e-12
    )
    assert (ratio[0] <= 1) == passes


@pytest.mark.parametrize(
    ("at", "off", "on", "is_beyond"),
    [
        (30.0, np.inf, -1e58, True),
        (30.0, -np.inf, -1e6, True),
        (-800.0, np.nan, -np.inf, True),
        (800.0, -np.inf, np.nan, True),
        (30.0, np.nan, np.nan, False),
        (30.0, -np.inf, np.inf, False),
        (30.0, 1.0, np.nan, False),
        (30.0, 1.0, 2.0, False),
        (2.0, -np.inf, 1.0, False),  # out of support
    ],
)
def test_points_beyond_upstream_are_recognized(at, off, on, is_beyond):
    x = np.full(3, at)
    found = comparison.is_beyond_upstream(x, np.array([off, 0.0]), np.array([on, 0.0]))
    assert found == is_beyond


def test_a_gradient_may_be_beyond_upstream_alone():
    x, off, on = np.full(1, 800.0), np.array([-1.0, np.nan]), np.array([-1.0, 2.0])
    assert comparison.is_beyond_upstream(x, off, on)
    assert not comparison.is_beyond_upstream(x, on, off)
    assert not comparison.is_beyond_upstream(x, np.full(2, np.nan), np.array([np.nan, 2.0]))


def test_points_beyond_upstream_are_counted():
    """A product overflows far out; its logarithm, as the plugin takes it, does not."""
    with pm.Model() as model:
        a, b = pm.Flat("a", shape=9), pm.Flat("b")
        pm.Potential("p", -pt.log(pt.exp(a) * pt.exp(b)).sum())
    result = verify(model)
    assert result
    assert result.n_beyond > 0
    assert f"overflow or round-off: {result.n_beyond}." in " ".join(str(result).split())


def ordered_outcomes(threshold):
    """An ordered logit; its likelihood counts only if the first cut point is above a threshold, if given."""
    x = np.linspace(-1, 1, 60)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        cuts = pm.Normal(
            "cuts", np.arange(3.0), 3, transform=transforms.ordered, initval=np.arange(3.0), shape=3
        )
        pm.OrderedLogistic("y", slope * x, cuts, observed=np.arange(60) % 4)
        if threshold is not None:
            pm.Potential("support", pt.switch(cuts[0] > threshold, 0.0, -np.inf))
    return model


def test_probabilities_that_pytensor_rounds_to_zero_are_not_compared():
    result = verify(ordered_outcomes(None), seconds=None)
    assert result, result
    assert 0 < result.n_beyond < result.n_points


def test_a_support_that_the_plugin_loses_is_a_difference():
    """With a rule that keeps digits, too."""
    model = ordered_outcomes(-5.0)
    compiled = compile_pymc_model(ordered_outcomes(None))
    result = verify(model, compiled=compiled, seconds=None)
    assert not result
    assert any(row.off == -np.inf and np.isfinite(row.on) for row in result.rows)


def test_an_entry_is_measured_by_the_largest_of_its_variable():
    off, on = np.array([1.0, 0.0]), np.array([1.0, 1e-14])
    error, ratio, _ = comparison._errors(off, on, off[None], 1e-12)
    assert error[1] == 1e-14
    assert ratio[1] <= 1


def test_failed_inversion_makes_a_point_impossible():
    neighbors = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        precision = scale * (1.5 * np.eye(2) - neighbors)
        pm.MvNormal("y", np.zeros(2), tau=precision, observed=np.ones((9, 2)))
    assert verify(model)


def test_failed_eigendecomposition_makes_a_point_impossible(compiled):
    """NumPy's `eigh` raises ValueError and Numba's raises ZeroDivisionError; neither is a reason to compile."""
    places = np.random.default_rng(0).normal(size=(4, 2))
    with pm.Model() as model:
        length, rho = pm.InverseGamma("length", 3, 3), pm.Beta("rho", 5, 2)
        apart = (places[:, None] - places) / length
        covs = [
            pt.exp(-0.5 * (apart**2).sum(-1)) + 1e-4 * np.eye(4),
            rho ** np.abs(np.arange(3)[:, None] - np.arange(3)),
        ]
        sigma = pm.HalfNormal("sigma")
        pm.KroneckerNormal("y", pt.zeros(12), covs=covs, sigma=sigma, observed=np.ones(12))
    assert verify(model)
    assert compiled == [("NUMBA", True), ("numpy", False)]


@pytest.mark.parametrize(
    ("error", "is_of_the_point"),
    [
        (np.linalg.LinAlgError("Singular matrix"), True),
        (ValueError("array must not contain infs or NaNs\nApply node that caused the error"), True),
        (ZeroDivisionError("division by zero"), True),
        (ValueError("operands could not be broadcast together"), False),
    ],
)
def test_errors_of_impossible_points_are_recognized(error, is_of_the_point):
    assert logp_functions._is_of_the_point(error) == is_of_the_point


def test_more_terms_than_numpy_takes_at_once():
    with pm.Model() as model:
        terms = [pm.Normal(f"x{k}", shape=2) for k in range(33)]
        pm.Normal("y", pt.add(*terms), observed=[0.0, 1.0])
    assert verify(model, n_random=1)


def test_result_is_the_same_for_the_same_seed(lifted_model):
    assert verify(lifted_model, seed=3).to_dict() == verify(lifted_model, seed=3).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("case", SUITE, ids=lambda case: case.name)
def test_agrees_on_the_suite(case):
    result = verify(case.make())
    assert result, str(result)


def test_settled_model_compiles_to_one_graph():
    """Without `apply_in_place_rewrites` the second compilation of these packed Cholesky factors differs."""

    def make():
        with pm.Model() as model:
            pm.LKJCholeskyCov("chol", n=2, eta=1.0, sd_dist=pm.Exponential.dist(1.0))
        return model

    def printed(model):
        function = model.logp_dlogp_function(ravel_inputs=True)
        return pytensor.dprint(function._pytensor_function, file="str")

    settled, unsettled = make(), make()
    apply_in_place_rewrites(settled)
    assert printed(settled) == printed(settled)
    assert printed(unsettled) != printed(unsettled)


@pytest.fixture(scope="module")
def single_model():
    """Variables of float32 alone, as `floatX=float32` makes them."""
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        a = pm.Normal("a", shape=5)
        scale = pm.HalfNormal("scale")
        group = np.array([0, 1, 2, 3, 4, 4, 0])
        pm.Normal("y", pt.exp(a[group] / 4), scale, observed=np.arange(7, dtype="float32"))
    return model


def test_single_precision_is_compared_in_its_own_digits(single_model, monkeypatch):
    with pytensor.config.change_flags(floatX="float32"):
        assert verify(single_model)
        off_by = {}
        for error in (1e-6, 1e-2):
            compile_one = logp_functions.compile_logp_dlogp

            def worse(*args, on, error=error, compile_one=compile_one):
                function = compile_one(*args, on=on)
                return lambda x: function(x) * (1 + error * on)

            with monkeypatch.context() as patch:
                patch.setattr(logp_functions, "compile_logp_dlogp", worse)
                off_by[error] = verify(single_model).passed
    assert off_by == {1e-6: True, 1e-2: False}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_points_are_of_the_precision_of_the_variables(dtype):
    start = {"a": np.zeros(3, dtype), "b": np.ones((), dtype)}
    sizes = {name: value.shape for name, value in start.items()}
    points = dict(points_around(start, sizes, 2, np.random.default_rng(0)))
    assert {x.dtype for x in points.values()} == {np.dtype(dtype)}
    assert all((x != 0).all() for label, x in points.items() if "all coordinates" in label)
    x = points["random point 0"]
    assert {near.dtype for near in neighbors(x, np.random.default_rng(0))} == {np.dtype(dtype)}
    assert all((near != x).any() for near in neighbors(x, np.random.default_rng(0)))


def test_nearly_equal_shares_pass():
    """The gradient of two is what a softmax and one half leave of each other."""
    with pm.Model() as model:
        pm.Dirichlet("shares", np.ones(2))
    assert verify(model)


def test_points_include_one_outlying_entry():
    start = {"a": np.full((2, 2), 0.5), "b": np.ones(()), "none": np.ones(0)}
    sizes = {name: value.shape for name, value in start.items()}
    points = dict(points_around(start, sizes, 2, np.random.default_rng(0)))
    alone = {
        label: np.abs(x) == 10
        for label, x in points.items()
        if "the point" in label and label.endswith("10")
    }
    assert {is_far.sum() for is_far in alone.values()} == {1}
    places = {int(is_far.argmax()): label for label, is_far in alone.items() if " a[" in label}
    assert len(places) == 3
    assert all(f" a[{k // 2}, {k % 2}] = " in label for k, label in places.items())
    of_b = [label for label in alone if " a[" not in label]
    assert of_b == ["the point b = -10", "the point b = 10"]
    others = [points[label][~is_far] for label, is_far in alone.items()]
    assert all((np.abs(x) < 5).all() and len({*x}) == 4 for x in others)


def test_error_at_one_outlying_entry_is_found(monkeypatch):
    compile_one = logp_functions.compile_logp_dlogp

    def wrong(*args, on):
        function = compile_one(*args, on=on)
        return lambda x: function(x) * (np.nan if on and (np.abs(x) == 10).sum() == 1 else 1.0)

    monkeypatch.setattr(logp_functions, "compile_logp_dlogp", wrong)
    with pm.Model() as model:
        pm.Normal("x", shape=4)
    assert not verify(model)


def test_a_minibatch_cannot_be_compared():
    """Each side would draw rows of its own, and their difference be taken for round-off."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        y = pm.Minibatch(np.arange(50.0), batch_size=10)
        pm.Normal("y", mu, 1, observed=y, total_size=50)
    with pytest.raises(ValueError, match="all of the data instead of a minibatch"):
        verify(model)


@pytest.mark.parametrize(
    ("x", "counts", "index", "said"),
    [
        ([0.5, np.nan, 1], [3, 1, 1], [0, 1, 0], "the first at index 1"),
        (
            [0.5, 1, 1],
            [3, -1, 1],
            [0, 1, 0],
            "1 of 3 rows has log density -inf, the first at index 1",
        ),
        ([0.5, 1, 1], [3, 1, 1], [0, 1, 7], "index 7 is out of bounds for axis 0 with size 2"),
    ],
    ids=["nan covariate", "negative count", "index out of range"],
)
@pytest.mark.parametrize("freeze_model", [True, False])
def test_a_model_that_is_finite_nowhere_does_not_pass(x, counts, index, said, freeze_model):
    with pm.Model() as model:
        group = pm.Data("group", np.array(index))
        rate = pt.exp(pm.Normal("b", shape=2)[group] * np.array(x))
        pm.Poisson("y", rate, observed=np.array(counts))
    result = verify(model, n_random=2, freeze_model=freeze_model)
    assert not result
    assert result.n_finite == 0
    assert not result.to_dict()["passed"]
    [sentence] = result.sentences()
    assert sentence.startswith("the model has no finite log density at any point tried: y: ")
    assert said in sentence
    assert "out of bounds" not in said or "group: 1 of 3 rows is out of range" in sentence


@pytest.fixture
def slow_clock(monkeypatch):
    """Return a list of seconds that evaluations take in turn; the last one repeats."""
    times, now = [1.0], [0.0]

    def tick():
        now[0] += times[0] / 2
        return now[0]

    monkeypatch.setattr("pymc_fastlogp.verification.upstream.perf_counter", tick)
    return times


def test_slow_models_are_compared_at_as_many_points_as_there_is_time_for(slow_clock):
    with pm.Model() as model:
        pm.Normal("a", shape=2)
    whole, some = verify(model, seconds=None), verify(model, seconds=20.0)
    assert whole.n_left == 0
    assert some
    assert 1 <= some.n_points < whole.n_points == some.n_points + some.n_left
    assert f"agree at {some.n_points} points of {whole.n_points}, as many" in str(some)
    assert "For all points: verify(model, seconds=None)." in str(some)
    kinds = (
        "the initial point",
        "random point",
        "all coordinates",
        "the point a = ",
        "the point a[",
    )
    origin = {"a": np.zeros(2)}
    first = [x for x, _ in points_around(origin, {"a": (2,)}, 8, np.random.default_rng(0))[:5]]
    assert all(x.startswith(kind) for x, kind in zip(first, kinds, strict=True))


def test_a_difference_without_time_for_its_round_off_does_not_pass(
    lifted_model, break_the_lift, slow_clock
):
    break_the_lift(1 + 1e-9)
    result = verify(lifted_model, seconds=4.0)
    assert not result
    assert result.n_undecided == 1
    assert result.agrees
    assert (
        "Points at which the sides differ, and there was no time to measure the round-off: 1."
        in " ".join(str(result).split())
    )


def test_only_points_that_differ_are_compared_with_the_compiled_model(
    lifted_model, compiled, monkeypatch
):
    compile_one, calls = logp_functions.compile_logp_dlogp, []

    def wrong_numpy(model, start, mode, *, on):
        function = compile_one(model, start, mode, on=on)

        def evaluate(x):
            calls.append((mode, on))
            is_wrong = mode != "NUMBA" and (np.abs(x) == 10).any()
            return function(x) * (1 + 1e-9 * is_wrong)

        return evaluate

    monkeypatch.setattr(logp_functions, "compile_logp_dlogp", wrong_numpy)
    result = verify(lifted_model)
    assert result
    assert calls.count(("NUMBA", False)) < result.n_points / 2


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((), "the point a_age = 2"),
        ((22,), "entry 22, at the point a_age = 2"),
        ((1, 2), "entry [1, 2], at the point a_age = 2"),
    ],
)
def test_a_row_says_where_and_by_how_much(place, said):
    row = WorstEntry("a", place, "the point a_age = 2", 1e-17, -1e-17, 2.0, 0.02, 1e-15)
    assert row.where == said
    shown = Verification((row,), 1, 1e-12).table().iloc[0]
    assert (shown["difference"], shown["allowed"], shown["at"]) == ("2.0e-17", "1.0e-15", said)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_same_nan_or_infinity_is_no_difference(value):
    assert WorstEntry("a", (), "x", value, value, 0.0, 0.0, np.nan).difference == 0
