"""Models of tables: densities equal to those of all rows in memory, and models that are refused."""

from collections import Counter

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.tables.cells import AllRows
from pymc_fastlogp.tables.summaries import distinct_rows
from tests.conftest import PYTHON
from tests.tables.conftest import N, assert_equal_densities

pytestmark = pytest.mark.usefixtures("engines")

N_ZONES = 23


def poisson(rows):
    with pm.Model() as model:
        mu, tau, b = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Normal("b")
        zone = pm.Normal("zone", mu, tau, shape=N_ZONES)
        size = pm.ZeroSumNormal("size", shape=3)
        eta = zone[rows["zone"]] + size[rows["size"]] + b * rows["night"]
        pm.Poisson("tips", pm.math.exp(eta), observed=rows["tips"])
    return model


def binomial(rows):
    with pm.Model() as model:
        zone = pm.Normal("zone", shape=N_ZONES)
        pm.Binomial("tips", rows["seats"] + 3, logit_p=zone[rows["zone"]], observed=rows["tips"])
    return model


def logit(rows):
    with pm.Model() as model:
        a = pm.Normal("a", shape=(N_ZONES, 3))
        pm.Bernoulli("night", logit_p=a[rows["zone"], rows["size"]], observed=rows["night"])
    return model


def ordered(rows):
    with pm.Model() as model:
        cutpoints = pm.Normal(
            "cutpoints",
            sigma=2,
            shape=3,
            transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.1, 1.0],
        )
        b, size = pm.Normal("b"), pm.Normal("size", shape=3)
        eta = b * rows["income"] + size[rows["size"]]
        pm.OrderedLogistic("rank", eta, cutpoints, observed=rows["rank"], compute_p=False)
    return model


def student_t(rows):
    with pm.Model() as model:
        zone, sigma = pm.Normal("zone", shape=N_ZONES), pm.HalfNormal("sigma")
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("income", nu=nu, mu=zone[rows["zone"]], sigma=sigma, observed=rows["income"])
    return model


def large_mean(rows):
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 1e8, 10, initval=1e8), pm.HalfNormal("sigma")
        b = pm.Normal("b")
        pm.Normal("meter", mu + b * rows["night"], sigma, observed=rows["meter"])
    return model


MODELS = [poisson, binomial, logit, ordered, student_t, large_mean]


@pytest.mark.parametrize("build", MODELS)
def test_density_is_that_of_all_rows_in_memory(build, relation, in_memory):
    reduced, tables = without_tables(build(pymc_fastlogp.table(relation)))
    [rows] = tables.values()
    assert rows.rows.n_rows == N
    assert rows.rows.n_cells < 2000
    assert_equal_densities(reduced, in_memory(build))


def test_density_is_equal_for_each_engine(source, in_memory):
    table = pymc_fastlogp.table(source)
    reduced, tables = without_tables(poisson(table))
    assert tables["tips"].rows.n_rows == N
    assert tables["tips"].rows.n_cells < 1000
    assert_equal_densities(reduced, in_memory(poisson))


def continuous(rows):
    with pm.Model() as model:
        a, b, sigma = pm.Normal("a", shape=3), pm.Normal("b"), pm.HalfNormal("sigma")
        mu = a[rows["size"]] + b * rows["income"]
        pm.StudentT("noise", 4, mu=mu, sigma=sigma, observed=rows["noise"])
    return model


def test_rows_that_hardly_repeat_are_loaded(source, in_memory):
    reduced, tables = without_tables(continuous(pymc_fastlogp.table(source)))
    assert isinstance(tables["noise"].rows, AllRows)
    assert tables["noise"].rows.n_cells == N
    assert_equal_densities(reduced, in_memory(continuous))


def multivariate(rows):
    return pm.MvNormal(
        "y",
        mu=pt.stack([pm.Normal("a") * rows["income"], pm.Normal("b") + 0 * rows["income"]], axis=1),
        cov=np.array([[1.0, 0.3], [0.3, 2.0]]),
        observed=pt.stack([rows["income"], rows["noise"]], axis=1),
    )


OTHERS = {
    "negative_binomial": lambda rows: pm.NegativeBinomial(
        "y",
        mu=pm.math.exp(pm.Normal("a", shape=N_ZONES)[rows["zone"]]),
        alpha=2,
        observed=rows["tips"],
    ),
    "categorical": lambda rows: pm.Categorical(
        "y", logit_p=pm.Normal("a", shape=(N_ZONES, 7))[rows["zone"]], observed=rows["tips"]
    ),
    "categorical_by_softmax": lambda rows: pm.Categorical(
        "y",
        p=pm.math.softmax(pm.Normal("a", shape=7) * rows["income"][:, None], axis=1),
        observed=rows["tips"],
    ),
    "ordered_probit": lambda rows: pm.OrderedProbit(
        "y",
        pm.Normal("a") * rows["income"],
        cutpoints=[-1.0, 0.0, 1.0],
        observed=rows["rank"],
        compute_p=False,
    ),
    "beta": lambda rows: pm.Beta(
        "y", mu=pm.math.sigmoid(pm.Normal("a") * rows["income"]), nu=3, observed=rows["noise"]
    ),
    "censored": lambda rows: pm.Censored(
        "y",
        pm.Normal.dist(pm.Normal("a") * rows["night"]),
        lower=-1,
        upper=1,
        observed=rows["income"],
    ),
    "truncated": lambda rows: pm.Truncated(
        "y",
        pm.Normal.dist(pm.Normal("a") * rows["night"]),
        lower=-2,
        upper=2,
        observed=rows["income"],
    ),
    "zero_inflated": lambda rows: pm.ZeroInflatedPoisson(
        "y", 0.3, pm.math.exp(pm.Normal("a") * rows["income"]), observed=rows["tips"]
    ),
    "hurdle": lambda rows: pm.HurdlePoisson(
        "y", 0.3, pm.math.exp(pm.Normal("a") * rows["income"]), observed=rows["tips"]
    ),
    "mixture": lambda rows: pm.Mixture(
        "y",
        w=[0.3, 0.7],
        comp_dists=[pm.Normal.dist(pm.Normal("a") * rows["night"]), pm.Normal.dist(0, 2)],
        observed=rows["income"],
    ),
    "custom": lambda rows: pm.CustomDist(
        "y",
        pm.Normal("a") * rows["night"],
        logp=lambda value, mu: -((value - mu) ** 2) / 2,
        observed=rows["income"],
    ),
    "custom_by_draws": lambda rows: pm.CustomDist(
        "y",
        pm.Normal("a") * rows["night"],
        dist=lambda mu, size: pm.math.exp(pm.Normal.dist(mu, size=size)),
        observed=rows["seats"].astype("float64"),
    ),
    "design_matrix": lambda rows: pm.Normal(
        "y",
        pt.stack([rows["income"], rows["income"] ** 2, rows["night"]], axis=1)
        @ pm.Normal("b", shape=3),
        observed=rows["income"],
    ),
    "expression_observed": lambda rows: pm.Normal(
        "y", pm.Normal("a") * rows["night"], observed=pt.log(rows["seats"])
    ),
    "no_columns_but_the_observed": lambda rows: pm.Poisson(
        "y", pm.math.exp(pm.Normal("a")), observed=rows["tips"]
    ),
    "one_distinct_row": lambda rows: pm.Normal("y", pm.Normal("a"), observed=0 * rows["income"]),
    "potential": lambda rows: pm.Potential(
        "y", rows["seats"] * pm.logp(pm.Normal.dist(pm.Normal("a") * rows["night"]), rows["income"])
    ),
    "multivariate": multivariate,
    "two_columns": lambda rows: pm.Normal(
        "y",
        pm.Normal("a", shape=2) * rows["night"][:, None],
        observed=pt.stack([rows["income"], rows["noise"]], axis=1),
    ),
    "multinomial": lambda rows: pm.Multinomial(
        "y",
        n=rows["rank"] + rows["seats"],
        p=pm.math.softmax(pm.Normal("a", shape=(N_ZONES, 2)), axis=1)[rows["zone"]],
        observed=pt.stack([rows["rank"], rows["seats"]], axis=1),
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_likelihoods_of_distinct_rows_agree(case, relation, columns):
    def build(rows):
        with pm.Model() as model:
            OTHERS[case](rows)
        return model

    first = relation.limit(400)
    table = pymc_fastlogp.table(first)
    memory = first.fetchnumpy()
    memory["size"] = None
    rows = {
        name: pt.constant(np.asarray(x).astype(np.int64 if x.dtype.kind in "iu" else x.dtype))
        for name, x in memory.items()
        if name != "size"
    }
    reduced, tables = without_tables(build(table))
    assert tables["y"].rows.n_rows == 400
    assert_equal_densities(reduced, build(rows))


def test_several_likelihoods_read_their_own_columns(relation, columns):
    def build(rows):
        with pm.Model() as model:
            a = pm.Normal("a", shape=N_ZONES)
            effect = a[rows["zone"]]
            pm.Poisson("tips", pm.math.exp(effect), observed=rows["tips"])
            pm.Bernoulli("night", logit_p=effect, observed=rows["night"])
            pm.Normal("other", a, observed=np.zeros(N_ZONES))
        return model

    table = pymc_fastlogp.table(relation)
    reduced, tables = without_tables(build(table))
    assert {name: x.columns for name, x in tables.items()} == {
        "tips": ("zone", "tips"),
        "night": ("zone", "night"),
    }
    assert {x.name for x in reduced.observed_RVs} == {"tips", "night", "other"}
    assert_equal_densities(reduced, build(columns))


def test_likelihoods_over_two_tables_agree(relation, files, columns):
    def build(rides, others):
        with pm.Model() as model:
            a = pm.Normal("a", shape=N_ZONES)
            pm.Poisson("tips", pm.math.exp(a[rides["zone"]]), observed=rides["tips"])
            pm.Bernoulli("night", logit_p=a[others["zone"]], observed=others["night"])
        return model

    tables = pymc_fastlogp.table(relation), pymc_fastlogp.table(files / "*.parquet")
    assert_equal_densities(without_tables(build(*tables)).model, build(columns, columns))


@pytest.mark.parametrize("columns_read", [["night"], []])
def test_columns_of_which_the_length_alone_is_read(columns_read, relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        a = pm.Normal("a")
        terms = pt.full(table["zone"].shape, a)
        for name in columns_read:
            terms = terms * table[name]
        pm.Potential("y", terms)
    reduced, tables = without_tables(model)
    assert tables["y"].columns == ((*columns_read,) or ("zone",))
    total = N if not columns_read else int(np.sum(relation.fetchnumpy()["night"]))
    assert reduced.compile_logp(vars=reduced.potentials)({"a": 2.0}) == 2 * total


def test_the_model_of_the_user_stays(relation):
    table = pymc_fastlogp.table(relation)
    model = poisson(table)
    before = model.compile_logp(mode=PYTHON)(model.initial_point())
    without_tables(model)
    assert model.compile_logp(mode=PYTHON)(model.initial_point()) == before
    assert model["tips"].owner.op == pm.Poisson.rv_op


def test_a_model_of_no_table_is_returned_as_it_is():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=[1.0])
    assert without_tables(model).model is model


def test_initial_values_and_checks_stay(relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model(check_bounds=False) as model:
        a = pm.Normal("a", initval=0.25)
        pm.Poisson("tips", pm.math.exp(a), observed=table["tips"])
    reduced = without_tables(model).model
    assert reduced.initial_point()["a"] == 0.25
    assert not reduced.check_bounds


def test_distinct_rows_are_read_once(relation, monkeypatch):
    table = pymc_fastlogp.table(relation)
    asked = Counter()

    def count(source, names, most):
        asked[tuple(names)] += 1
        return distinct_rows(source, names, most)

    monkeypatch.setattr("pymc_fastlogp.tables.engine_table.distinct_rows", count)
    for _ in range(2):
        without_tables(poisson(table))
    assert asked == {("size",): 1, ("zone", "size", "night", "tips"): 1}


# From a table to a model that is refused, with the message.
REFUSED = {
    "deterministic": (
        lambda t, a: pm.Deterministic("mean", a * t["income"]),
        "the Deterministic mean has a value for each row of a table: write it without pm.Deterministic",
    ),
    "free_variable": (
        lambda t, a: pm.Normal("free", t["income"]),
        "the free variable free reads a table: only likelihoods may",
    ),
    "mean_over_rows": (
        lambda t, a: pm.Normal("y", a * (t["income"] - t["income"].mean()), observed=t["income"]),
        "y is not evaluated row by row, because .* reads several rows of the table at once: compute such a",
    ),
    "effect_per_row": (
        lambda t, a: pm.Normal("y", pm.Normal("own", shape=1000), observed=t["income"]),
        "y is not evaluated row by row, because a variable own of its own length is combined with the rows",
    ),
    "summed_potential": (
        lambda t, a: pm.Potential("y", (a * t["income"]).sum()),
        "y is not evaluated row by row, because add reads several rows",
    ),
    "largest_value": (
        lambda t, a: pm.Normal("y", a, observed=t["income"].max()),
        "y has no entry for each row of a table",
    ),
    "dims": (
        lambda t, a: pm.Normal("y", a, observed=t["income"], dims="ride"),
        "y has dims, but rows of a table have no coordinates: leave dims out",
    ),
    "shape": (
        lambda t, a: pm.Normal("y", a * t["income"], shape=(1000,), observed=t["income"]),
        "y is not evaluated row by row, because it has a fixed number of rows: leave out its shape",
    ),
    "random_walk": (
        lambda t, a: pm.GaussianRandomWalk(
            "y", a, init_dist=pm.Normal.dist(), observed=t["income"]
        ),
        "y is not evaluated row by row, because subtensor reads several rows",
    ),
    "correlated_rows": (
        lambda t, a: pm.MvNormal("y", t["income"], np.eye(1000), observed=t["noise"]),
        "y is not evaluated row by row, because mul reads several rows",
    ),
    "observed_variable": (
        lambda t, a: pm.Normal("y", a * pm.Normal("x", observed=t["income"]), observed=t["income"]),
        "y reads the observed variable x: let it read the column",
    ),
    "minibatch": (
        lambda t, a: pm.Normal("y", a, observed=t["income"], total_size=N),
        "y is not evaluated row by row",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case, relation):
    build, message = REFUSED[case]
    with pm.Model(coords={"ride": range(1000)}) as model:
        build(pymc_fastlogp.table(relation), pm.Normal("a"))
    with pytest.raises(ValueError, match=f"^{message}"):
        without_tables(model)


def test_refuses_two_tables_in_one_likelihood(relation):
    one, other = (pymc_fastlogp.table(relation) for _ in range(2))
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a") * one["income"], observed=other["income"])
    with pytest.raises(ValueError, match=r"^y reads 2 tables: join them in their engine"):
        without_tables(model)


def test_refuses_a_model_that_cannot_be_copied(relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", initval=a + 1)
        pm.Normal("y", b, observed=table["income"])
    with pytest.raises(ValueError, match=r"^a model of a table can't be inside of another model"):
        without_tables(model)
