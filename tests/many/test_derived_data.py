"""Expressions of data alone are computed once for each data set, and give the log density of all data."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable

from pymc_fastlogp.analysis.known_data import KnownData
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.compilation.derived_data import derive, mark
from pymc_fastlogp.compilation.loading import sampled_model
from pymc_fastlogp.many.reuse import ReusedModel, shapes_of_data
from pymc_fastlogp.sampling.request import request_of
from tests.conftest import PYTHON
from tests.many.conftest import fit_all
from tests.rewrites.conftest import nodes_of

N, GROUPS = 200, 5
INDEX = np.arange(N) % GROUPS


def data(k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(k)
    return {
        "y": rng.normal(1, 2, N),
        "x": rng.normal(3, 1, N),
        "matrix": rng.normal(2, 1, (N, 12)),
        "positive": rng.exponential(size=N),
        "count": rng.poisson(3, N),
    }


def of_mean(a, s, y):
    pm.Normal("seen", a, s, observed=y)


def of_covariate(a, s, y, x):
    pm.Normal("seen", a + pm.Normal("b") * x, s, observed=y)


def of_slopes(a, s, y, x):
    pm.Normal("seen", a + pm.Normal("b", shape=GROUPS)[INDEX] * x, s, observed=y)


def of_covariates_alone(a, s, y, x):
    pm.Normal("seen", a * x + pm.Normal("b") * x**2, s, observed=y)


def of_matrix(a, s, y, matrix):
    pm.Normal("seen", a + matrix @ pm.Normal("b", shape=12), s, observed=y)


def of_matrix_alone(a, s, y, matrix):
    pm.Normal("seen", matrix @ pm.Normal("b", shape=12), s, observed=y)


def of_scales(a, s, y, x):
    scales = pm.HalfNormal("scales", shape=GROUPS)
    pm.Normal("seen", a + pm.Normal("b") * x, scales[INDEX], observed=y)


def of_known_scales(a, s, y, positive):
    pm.Normal("seen", a, s * positive, observed=y)


def of_logarithm(a, s, positive):
    pm.LogNormal("seen", a, s, observed=positive)


def of_counts(a, s, count):
    pm.NegativeBinomial("seen", pm.math.exp(a), s, observed=count)


# Shapes of the arrays that the compiled log density reads in place of data, without scalars.
READ = {
    of_mean: {(GROUPS,)},
    of_covariate: {(GROUPS,), (1,)},
    of_slopes: {(GROUPS,)},
    of_covariates_alone: {(GROUPS,), (1,)},
    of_matrix: {(GROUPS,), (GROUPS, 12), (12, GROUPS), (12,), (12, 12), (12, 1)},
    of_matrix_alone: {(12,), (12, 12), (12, 1)},
    of_scales: {(GROUPS,)},
    of_known_scales: {(N,)},
    of_logarithm: {(N,)},
    of_counts: {(N,)},
}


def model_of(likelihood) -> pm.Model:
    names = likelihood.__code__.co_varnames[2 : likelihood.__code__.co_argcount]
    with pm.Model() as model:
        a = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=GROUPS)
        likelihood(a[INDEX], pm.HalfNormal("s"), *(pm.Data(x, data(0)[x]) for x in names))
    return model


def set_data(model: pm.Model, k: int) -> None:
    pm.set_data({x.name: data(k)[x.name] for x in model.data_vars}, model=model)


def reused(model: pm.Model, *, derives: bool = True) -> ReusedModel:
    request = request_of(model, freeze_model=False)
    return ReusedModel(request, shapes_of_data(model) if derives else None)


def evaluated(model: ReusedModel, points: np.ndarray) -> list[tuple[float, np.ndarray]]:
    sampled = sampled_model(model.compiled())
    callback = LogpCallback(sampled.logp, sampled.user_data, sampled.n_dim, sampled)
    return [callback.evaluate(x[: sampled.n_dim]) for x in points]


def assert_same(found, expected):
    for (value, gradient), (true_value, true_gradient) in zip(found, expected, strict=True):
        assert value == pytest.approx(true_value, rel=1e-12)
        scale = abs(true_gradient).max()
        np.testing.assert_allclose(gradient, true_gradient, rtol=1e-10, atol=1e-12 * scale)


@pytest.mark.usefixtures("empty_memory")
@pytest.mark.parametrize("likelihood", READ, ids=lambda x: x.__name__)
def test_value_and_gradient_are_those_of_all_data(likelihood, compilations):
    model = model_of(likelihood)
    derived, plain = reused(model), reused(model, derives=False)
    points = np.random.default_rng(1).normal(size=(3, 40))
    for k in range(3):
        set_data(model, k)
        assert_same(evaluated(derived, points), evaluated(plain, points))
    read = {x.shape for x in derived.compiled().record.shared.values()} - {()}
    assert read == READ[likelihood]
    assert len(compilations) == 2


def test_the_record_of_another_process_is_of_the_current_data(empty_memory, compilations):
    points = np.random.default_rng(1).normal(size=(2, 40))
    for k in range(2):
        model = model_of(of_covariate)
        set_data(model, k)
        found = evaluated(reused(model), points)
        empty_memory()
    assert len(compilations) == 1
    assert_same(found, evaluated(reused(model, derives=False), points))


@pytest.mark.usefixtures("empty_memory")
def test_a_mean_far_from_zero_costs_no_digits():
    offset = 1e8
    with pm.Model() as model:
        pm.Normal("seen", pm.Flat("mu"), 1.0, observed=pm.Data("y", np.zeros(N)))
    derived = reused(model)
    y = offset + np.round(data(1)["y"], 3)
    pm.set_data({"y": y}, model=model)
    [(value, [gradient])] = evaluated(derived, np.array([[offset + 0.25]]))
    residuals = y.astype(np.longdouble) - (offset + 0.25)
    expected = float(-0.5 * (residuals**2).sum() - N * 0.5 * np.log(2 * np.pi))
    assert value == pytest.approx(expected, rel=1e-13)
    assert gradient == pytest.approx(float(residuals.sum()), rel=1e-12)


@pytest.mark.usefixtures("empty_memory")
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_data_that_cannot_be_summarized_are_read_row_by_row(bad):
    model = model_of(of_covariate)
    derived = reused(model)
    points = np.random.default_rng(1).normal(size=(1, 40))
    expected = evaluated(derived, points)
    y = data(0)["y"]
    pm.set_data({"y": np.where(np.arange(N) == 3, bad, y)}, model=model)
    assert (N,) in {x.shape for x in derived.compiled().shared.values()}
    with pytest.raises(FloatingPointError):
        evaluated(derived, points)
    pm.set_data({"y": y}, model=model)
    assert_same(evaluated(derived, points), expected)


@pytest.mark.usefixtures("empty_memory")
def test_a_graph_that_cannot_be_pickled_is_evaluated_each_time(compilations):
    class Twice(Op):
        """An Op of no module."""

        def make_node(self, x):
            return Apply(self, [pt.as_tensor(x)], [pt.as_tensor(x).type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = 2 * inputs[0]

    with pm.Model() as model:
        pm.Potential("of_data", Twice()(pm.Data("x", data(0)["x"])).sum())
        pm.Normal("seen", pm.Normal("mu"), 1.0, observed=pm.Data("y", data(0)["y"]))
    derived = reused(model)
    for k in range(3):
        set_data(model, k)
        assert derived.compiled().record.derived is None
    assert len(compilations) == 4


def test_a_data_set_that_is_not_finite_fails_and_the_others_go_on(here):
    model = model_of(of_mean)
    data_sets = {"good": {"y": data(1)["y"]}, "bad": {"y": np.full(N, np.nan)}}
    fits = {
        x.key: x for x in fit_all(model, data_sets | {"last": {"y": data(2)["y"]}}, executor=here)
    }
    assert fits["bad"].error is not None
    for name, k in (("good", 1), ("last", 2)):
        mean = fits[name].result().posterior["a"].mean(("chain", "draw"))
        of_groups = [data(k)["y"][g == INDEX].mean() for g in range(GROUPS)]
        np.testing.assert_allclose(mean, of_groups, atol=0.6)


class TestDerive:
    def test_the_largest_expressions_of_data_become_variables(self):
        y, mu = pytensor.shared(np.arange(3.0), name="y"), pt.dvector("mu")
        known = mark(y, (3,))
        out = (known * mu).sum() - pt.gammaln(known + 1).sum()
        [new], derived = derive([out])
        values = [x.get_value() for x in derived.variables]
        assert sorted(x.shape for x in values) == [(), (3,)]
        assert not nodes_of(new, KnownData)
        found = new.eval({mu: np.full(3, 2.0)}, mode=PYTHON)
        assert found == pytest.approx(6 - np.log(2))

    def test_random_numbers_and_inner_graphs_are_evaluated_each_time(self):
        y, mu = pytensor.shared(np.arange(3.0)), pt.dscalar("mu")
        known = mark(y, (3,))
        total = pytensor.scan(
            lambda a, b: a + b,
            sequences=[known],
            outputs_info=[pt.constant(np.float64(0))],
            return_updates=False,
        )
        drawn = pt.random.normal(known, rng=pytensor.shared(np.random.default_rng(1)))
        [new], _ = derive([mu * total[-1] + drawn.sum()])
        assert nodes_of(new, Scan)
        assert nodes_of(new, RandomVariable)

    def test_an_axis_of_length_one_stays_as_it_was(self):
        y, mu = pytensor.shared(np.ones(1)), pt.dvector("mu")
        [new], _ = derive([pt.exp(mark(y, (1,))) * mu])
        np.testing.assert_allclose(new.eval({mu: np.ones(3)}, mode=PYTHON), np.full(3, np.e))
