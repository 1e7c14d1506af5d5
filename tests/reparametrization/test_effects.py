"""Detection of effects, their blocks, and variables that stay unchanged."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.tensor.random import shared_rng
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_fastlogp.reparametrization import effects, model_with_sites, zero_sum
from tests.conftest import PYTHON
from tests.reparametrization import models


def find_effects(written: pm.Model) -> model_with_sites.ModelEffects:
    return model_with_sites.find_effects(freeze_dims_and_data(written))


@pytest.mark.parametrize(
    ("make", "blocks", "kinds"),
    [
        (models.centered, [("a",)], {"a": "centered"}),
        (models.non_centered, [("raw",)], {"raw": "non-centered"}),
        (models.pair, [("a", "raw")], {"a": "centered", "raw": "non-centered"}),
        (models.nested, [("top",), ("a",)], {"top": "centered", "a": "centered"}),
        (
            models.nested_raw,
            [("top_raw",), ("raw",)],
            {"top_raw": "non-centered", "raw": "non-centered"},
        ),
        (
            models.crossed,
            [("group",), ("item",)],
            {"group": "non-centered", "item": "non-centered"},
        ),
        (
            models.two_of_one_group,
            [("one",), ("other",)],
            {"one": "non-centered", "other": "non-centered"},
        ),
        (models.correlated, [("z",)], {"z": "correlated, non-centered"}),
        (models.correlated_columns, [("z",)], {"z": "correlated, non-centered"}),
        (models.correlated_centered, [("effects",)], {"effects": "correlated, centered"}),
        (models.zero_sum, [("a",)], {"a": "sums to zero, centered"}),
        (
            models.zero_sum_raw,
            [("raw", "slope")],
            {"raw": "sums to zero, non-centered", "slope": "sums to zero, non-centered"},
        ),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_effects_are_found_in_blocks(make, blocks, kinds):
    found = find_effects(make())
    assert {frozenset(x) for x in found.blocks} == {frozenset(x) for x in blocks}
    assert dict(found.kinds) == kinds


def test_effects_depend_on_other_parameters_of_the_likelihood():
    [site] = find_effects(models.with_coefficients()).blocks.values()
    assert {name: x.shape for name, x in site.slopes.items()} == {
        "beta": (1, models.GROUPS, 2),
        "one": (1, models.GROUPS, 1),
    }
    [site] = find_effects(models.centered()).blocks.values()
    assert not site.slopes, "the mean is part of the prior of the effect"
    for site in find_effects(models.crossed()).blocks.values():
        assert [*site.slopes] == ["mu"]


def one_number() -> pm.Model:
    with pm.Model() as written:
        pm.Normal("x", 0, pm.HalfNormal("tau"))
    return written


def constant_prior() -> pm.Model:
    with pm.Model() as written:
        x = pm.Normal("x", 0, 2, shape=3)
        pm.Normal("y", x, pm.HalfNormal("tau"), observed=np.zeros(3))
    return written


def own_transform() -> pm.Model:
    with pm.Model() as written:
        tau = pm.HalfNormal("tau")
        ordered = pm.distributions.transforms.ordered
        pm.Normal("x", 0, tau, shape=3, transform=ordered, initval=[0.0, 1.0, 2.0])
    return written


def not_normal() -> pm.Model:
    with pm.Model() as written:
        pm.StudentT("x", nu=4, sigma=pm.HalfNormal("tau"), shape=3)
    return written


def in_two_places() -> pm.Model:
    with pm.Model() as written:
        tau, x = pm.HalfNormal("tau"), pm.Normal("x", shape=3)
        pm.Normal("y", tau * x + x**2, 1, observed=np.zeros(3))
    return written


def scale_by_row() -> pm.Model:
    with pm.Model() as written:
        x, slope = pm.Normal("x", shape=4), pm.HalfNormal("slope", shape=3)
        pm.Normal("y", x[models.GROUP] * slope[models.ITEM], 1, observed=models.Y)
    return written


def multiplied_by_data() -> pm.Model:
    with pm.Model() as written:
        x = pm.Normal("x", shape=3)
        pm.Normal("y", x * np.arange(3.0), pm.HalfNormal("tau"), observed=np.zeros(3))
    return written


def zero_sums_by_two_axes() -> pm.Model:
    with pm.Model() as written:
        x = pm.ZeroSumNormal("x", pm.HalfNormal("tau"), shape=(2, 4))
        pm.Normal("y", x[0, models.GROUP], 1, observed=models.Y)
    return written


def zero_sum_of_a_known_scale() -> pm.Model:
    with pm.Model() as written:
        x = pm.ZeroSumNormal("x", 2.0, shape=4)
        pm.Normal("y", x[models.GROUP], pm.HalfNormal("tau"), observed=models.Y)
    return written


def zero_sum_of_several_scales() -> pm.Model:
    with pm.Model() as written:
        x = pm.HalfNormal("tau", shape=4) * pm.ZeroSumNormal("x", shape=4)
        pm.Normal("y", x[models.GROUP], 1, observed=models.Y)
    return written


def zero_sum_of_one() -> pm.Model:
    with pm.Model() as written:
        x = pm.ZeroSumNormal("x", pm.HalfNormal("tau"), shape=1)
        pm.Normal("y", x[0], 1, observed=models.Y)
    return written


def single_precision() -> pm.Model:
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as written:
        x = pm.Normal("x", 0, pm.HalfNormal("tau"), shape=4)
        pm.Normal("y", x[models.GROUP], 1, observed=models.Y.astype("float32"))
    return written


def with_start() -> pm.Model:
    with pm.Model() as written:
        pm.Normal("x", 0, pm.HalfNormal("tau"), shape=2, initval=[1.0, 2.0])
    return written


def no_groups() -> pm.Model:
    with pm.Model() as written:
        x = pm.Normal("x", 0, pm.HalfNormal("tau"), shape=0)
        pm.Normal("y", x.sum(), 1, observed=0.0)
    return written


def zero_sum_of_none() -> pm.Model:
    with pm.Model() as written:
        x = pm.ZeroSumNormal("x", pm.HalfNormal("tau"), shape=0)
        pm.Normal("y", x.sum(), 1, observed=0.0)
    return written


class OtherNormal(NormalRV):
    """One of which a user may have registered another density."""


class OtherMvNormal(MvNormalRV):
    """The same of several axes."""


class OtherZeroSumNormal(ZeroSumNormalRV):
    """The same of effects that sum to zero."""


def another_normal() -> pm.Model:
    with pm.Model() as model:
        rng = shared_rng(seed=0)
        _, x = OtherNormal()(0.0, pm.HalfNormal("s"), size=5, rng=rng, return_next_rng=True)
        model.register_rv(x, "x")
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (one_number, effects.SCALAR),
        (constant_prior, effects.NO_PARAMETERS),
        (not_normal, "its prior is t, not normal"),
        (another_normal, effects.INHERITS),
        (in_two_places, effects.USED_TWICE),
        (scale_by_row, effects.SCALE_BY_ROW),
        (multiplied_by_data, effects.NO_PARAMETERS),
        (zero_sums_by_two_axes, zero_sum.SEVERAL_AXES),
        (zero_sum_of_a_known_scale, effects.NO_PARAMETERS),
        (zero_sum_of_several_scales, zero_sum.SEVERAL_SCALES),
        (zero_sum_of_one, effects.SCALAR),
        (no_groups, model_with_sites.NO_ENTRIES),
        (zero_sum_of_none, model_with_sites.NO_ENTRIES),
        (single_precision, model_with_sites.SINGLE_PRECISION),
        (with_start, model_with_sites.HAS_START),
        (own_transform, model_with_sites.HAS_START),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_refused_effects_are_left_as_written(make, reason):
    found = find_effects(make())
    assert not found.blocks
    assert {x.name: x.reason for x in found.unchanged}["x"] == reason


@pytest.mark.parametrize(
    "make", [models.multiplied_by_each_other, models.matrices_that_multiply_each_other]
)
def test_one_of_two_multiplied_effects_gets_a_site(make):
    found = find_effects(make())
    assert [*found.kinds] == ["one"]
    assert {x.name: x.reason for x in found.unchanged}["other"] == effects.MUTUAL_PRODUCT


def test_zero_sum_effects_of_another_normal_are_refused(monkeypatch):
    monkeypatch.setattr(pm.ZeroSumNormal, "rv_op", OtherZeroSumNormal.rv_op)
    found = find_effects(models.zero_sum())
    assert not found.blocks


def test_correlated_effects_of_another_normal_are_refused(monkeypatch):
    monkeypatch.setattr(pm.MvNormal, "rv_op", OtherMvNormal(method="cholesky"))
    found = find_effects(models.correlated_centered())
    assert not found.blocks


def test_multiplied_effect_without_initial_value_gets_the_site():
    with pm.Model() as written:
        effect = pm.Normal("one", shape=4, initval=np.ones(4)) * pm.Normal("other", shape=4)
        pm.Normal("y", effect[models.GROUP], 0.5, observed=models.Y)
    found = find_effects(written)
    assert [*found.kinds] == ["other"]
    new = model_with_sites.with_sites(written, found.blocks).model
    assert new.rvs_to_values[new["other"]].name == "other_site__"
    assert new.rvs_to_values[new["one"]].name == "one"


def test_broadcast_over_groups_is_no_mean_of_an_effect():
    with pm.Model() as written:
        chol = pm.LKJCholeskyCov("L", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1.0))[0]
        z, mean = pm.Normal("z", shape=(1, 2)), pm.Normal("mean", shape=(4, 2))
        pm.Normal("y", mean + z @ chol.T, 1, observed=np.zeros((4, 2)))
    found = find_effects(written)
    assert found.kinds == {"z": "correlated, non-centered"}
    new = model_with_sites.with_sites(freeze_dims_and_data(written), found.blocks).model
    assert new.compile_logp(mode=PYTHON)(new.initial_point()) < 0


def test_one_group_with_an_axis_is_an_effect():
    with pm.Model(coords={"g": ["all"]}) as written:
        pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("tau"), dims="g")
    assert find_effects(written).kinds == {"x": "centered"}


def test_coupled_effects_are_left_as_written():
    found = model_with_sites.find_effects(freeze_dims_and_data(models.centered()), coupled={"a"})
    assert not found.blocks
    assert {x.name: x.reason for x in found.unchanged}["a"] == model_with_sites.IS_COUPLED


def test_model_is_not_modified():
    written = models.pair()
    before = (written.logp(), list(written.free_RVs), dict(written.rvs_to_transforms))
    find_effects(written)
    assert written.free_RVs == before[1]
    assert written.rvs_to_transforms == before[2]


def test_initial_values_of_other_variables_are_kept():
    with pm.Model() as written:
        tau = pm.HalfNormal("tau", initval=0.25)
        pm.Normal("a", 0, tau, shape=3)
    new = model_with_sites.with_sites(written, find_effects(written).blocks).model
    assert new.rvs_to_initial_values[new["tau"]] == 0.25
    assert written.rvs_to_initial_values[tau] == 0.25
