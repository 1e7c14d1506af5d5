"""Gaussian likelihoods with continuous covariates, as triangular factors of the rows of a table."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.utils import rewrite_graph

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.tables.cells import AllRows, Cells
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.plan import summarize
from tests.tables.conftest import N, QuadraticIn, assert_equal_densities, summary_of

pytestmark = pytest.mark.usefixtures("engines")

N_ZONES = 23


def by_group(rows):
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=N_ZONES), pm.Normal("b", shape=N_ZONES)
        sigma = pm.HalfNormal("sigma")
        mu = a[rows["zone"]] + b[rows["zone"]] * rows["noise"]
        pm.Normal("y", mu, sigma, observed=rows["noise"] + rows["income"])
    return model


def several_covariates(rows):
    with pm.Model() as model:
        a, b, c = pm.Normal("a"), pm.Normal("b"), pm.Normal("c", shape=3)
        sigma = pm.HalfNormal("sigma", shape=3)
        mu = a + b * rows["noise"] ** 2 + c[rows["size"]] * rows["noise"] + b * rows["night"]
        pm.Normal("y", mu, sigma[rows["size"]], observed=pt.exp(rows["noise"]) * rows["income"])
    return model


def matrix(rows):
    with pm.Model() as model:
        b, sigma = pm.Normal("b", shape=2), pm.HalfNormal("sigma")
        x = pt.stack([rows["noise"], rows["tips"]], axis=1)
        pm.Normal("y", x @ b, sigma, observed=rows["noise"] - rows["income"])
    return model


def shared_intercept(rows):
    with pm.Model() as model:
        a, sigma = pm.Normal("a"), pm.HalfNormal("sigma")
        pm.Normal("y", a, sigma, observed=rows["noise"])
    return model


def large_means(rows):
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=N_ZONES), pm.Normal("b")
        mu = a[rows["zone"]] + b * ((rows["noise"] + rows["meter"]) - 1e8)
        pm.Normal("y", mu, 1, observed=(rows["meter"] - rows["noise"]) - 1e8)
    return model


def frequency_weights(rows):
    with pm.Model() as model:
        a, b, sigma = pm.Normal("a"), pm.Normal("b"), pm.HalfNormal("sigma")
        density = pm.logp(pm.Normal.dist(a + b * rows["income"], sigma), rows["noise"])
        pm.Potential("y", rows["seats"] * density)
    return model


def log_normal(rows):
    with pm.Model() as model:
        a, sigma = pm.Normal("a", shape=N_ZONES), pm.HalfNormal("sigma")
        fare = rows["noise"] + 1
        normal = pm.Normal.dist(a[rows["zone"]], sigma)
        pm.Potential("y", pm.logp(normal, pt.log(fare)) - pt.log(fare))
    return model


def gamma_potential(rows):
    """A log density that is linear in statistics of the outcome."""
    with pm.Model() as model:
        shape, rate = pm.HalfNormal("shape", shape=N_ZONES), pm.HalfNormal("rate")
        x, alpha = rows["noise"] + 1, 1 + shape[rows["zone"]]
        terms = alpha * pt.log(rate) - pt.gammaln(alpha) + (alpha - 1) * pt.log(x) - rate * x
        pm.Potential("y", terms)
    return model


# Models, with the number of factors.
MODELS = {
    by_group: 23,
    several_covariates: 6,
    matrix: 1,
    shared_intercept: 1,
    large_means: 23,
    frequency_weights: 3,
    log_normal: 23,
    gamma_potential: 23,
}


@pytest.mark.parametrize("build", MODELS)
def test_density_is_that_of_all_rows_in_memory(build, relation, in_memory):
    reduced, tables = without_tables(build(pymc_fastlogp.table(relation)))
    assert isinstance(tables["y"].rows, Factors)
    assert tables["y"].rows.n_rows == N
    assert tables["y"].rows.n_cells == MODELS[build]
    assert_equal_densities(reduced, in_memory(build))


def by_size(rows):
    with pm.Model() as model:
        a, b, sigma = pm.Normal("a", shape=3), pm.Normal("b"), pm.HalfNormal("sigma")
        mu = a[rows["size"]] + b * rows["noise"]
        pm.Normal("y", mu, sigma, observed=rows["noise"] + rows["income"])
    return model


def test_density_is_equal_for_each_engine(source, in_memory, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 17_000)
    reduced, tables = without_tables(by_size(pymc_fastlogp.table(source)))
    assert tables["y"].rows.n_rows == N
    assert tables["y"].rows.n_cells == 3
    assert_equal_densities(reduced, in_memory(by_size))


def test_posterior_of_large_means_has_the_digits_of_the_spread(relation):
    """Against extended precision: in double precision each row has the rounding of its mean."""
    frame = relation.select(
        "zone, 1e8 + noise AS x, 2e8 + noise + hash(zone + 7 * tips) / 1.8446744073709552e19 AS y"
    )
    table = pymc_fastlogp.table(frame)
    with pm.Model() as model:
        a, b = pm.Normal("a", 1e8, 10, shape=N_ZONES), pm.Normal("b")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", a[table["zone"]] + b * table["x"], sigma, observed=table["y"])
    reduced, _ = without_tables(model)
    zone, x, y = frame.fetchnumpy().values()
    zone, x, y = np.asarray(zone), np.asarray(x, np.longdouble), np.asarray(y, np.longdouble)
    rng = np.random.default_rng(5)
    point = {"a": 1e8 + rng.normal(size=N_ZONES), "b": np.array(1.0), "sigma_log__": np.array(0.25)}
    residual = y - np.asarray(point["a"], np.longdouble)[zone] - x
    precision = np.exp(-2 * np.longdouble(0.25))
    terms = -precision * residual**2 / 2 - np.log(2 * np.pi) / 2 - np.longdouble(0.25)
    likelihood = reduced.logp(vars=[reduced["y"]])
    # As compile_pymc_model does before the gradient.
    likelihood = rewrite_graph(likelihood, include=["canonicalize", "stabilize"])
    values = [reduced.rvs_to_values[reduced[name]] for name in ("a", "b", "sigma")]
    function = pytensor.function(values, [likelihood, *pt.grad(likelihood, values)], mode="NUMBA")
    logp, of_a, of_b, of_sigma = function(*point.values())
    assert abs(logp - terms.sum()) <= 1e-12 * np.abs(terms).sum()
    means = precision * residual
    expected = np.array([means[zone == k].sum() for k in range(N_ZONES)])
    sizes = np.array([np.abs(means[zone == k]).sum() for k in range(N_ZONES)])
    assert (np.abs(of_a - expected) <= 1e-12 * sizes).all()
    slopes = means * x
    assert abs(of_b - slopes.sum()) <= 1e-12 * np.abs(slopes).sum()
    scales = precision * residual**2
    assert abs(of_sigma - (scales - 1).sum()) <= 1e-12 * (scales + 1).sum()


def test_groups_without_rows_and_with_one_row(relation, columns):
    frame = relation.filter(
        "zone % 3 > 0 AND (zone != 4 OR noise = (SELECT min(noise) FROM rides WHERE zone = 4))"
    )
    reduced, tables = without_tables(by_group(pymc_fastlogp.table(frame)))
    counts = dict(zip(tables["y"].rows.keys["0"].tolist(), tables["y"].rows.counts, strict=True))
    assert counts.keys() == {zone for zone in range(N_ZONES) if zone % 3}
    assert counts[4] == 1
    rows = {name: np.asarray(x) for name, x in frame.fetchnumpy().items() if name != "size"}
    assert_equal_densities(reduced, by_group(rows))


def test_rules_of_rows_reduce_the_points_again(relation):
    reduced, tables = without_tables(by_group(pymc_fastlogp.table(relation)))
    [gaussian] = [
        x for x in pymc_fastlogp.explain(reduced)["y"] if x.rewrite.endswith("gaussian_rows")
    ]
    # Two parameters, and the outcome.
    assert gaussian.rows_after <= 3 * tables["y"].rows.n_cells


def test_integers_may_be_covariates(relation):
    """With many distinct values, such as numbers of seconds."""
    duckdb = pytest.importorskip("duckdb")
    frame = duckdb.sql(
        "SELECT CAST(hash(i) % 1000003 AS INTEGER) AS t, CAST(hash(i + 1) % 1000 AS BIGINT) AS y FROM range(20000) r(i)"
    )

    def build(rows):
        with pm.Model() as model:
            a, b, sigma = pm.Normal("a"), pm.Normal("b"), pm.HalfNormal("sigma")
            pm.Normal("y", a + b * rows["t"], sigma, observed=rows["y"])
        return model

    reduced, tables = without_tables(build(pymc_fastlogp.table(frame)))
    assert isinstance(tables["y"].rows, Factors)
    memory = {name: np.asarray(x).astype(np.int64) for name, x in frame.fetchnumpy().items()}
    assert_equal_densities(reduced, build(memory))


# Likelihoods that are not quadratic in a continuous column.
OTHERS = {
    "scale": lambda t, a: pm.Normal("y", a, pt.exp(t["noise"]), observed=t["income"]),
    "mean": lambda t, a: pm.Normal("y", pt.exp(a * t["noise"]), 1, observed=t["income"]),
    "product_of_columns": lambda t, a: pm.Normal(
        "y", a * t["noise"] * (a * t["noise"]), 1, observed=t["income"]
    ),
    "student_t": lambda t, a: pm.StudentT("y", 4, mu=a, sigma=1, observed=t["noise"]),
    "truncated": lambda t, a: pm.Truncated("y", pm.Normal.dist(a, 1), lower=0, observed=t["noise"]),
    "logit": lambda t, a: pm.Bernoulli("y", logit_p=a * t["noise"], observed=t["night"]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_likelihoods_are_loaded(case, relation):
    with pm.Model() as model:
        OTHERS[case](pymc_fastlogp.table(relation), pm.Normal("a"))
    _, tables = without_tables(model)
    assert isinstance(tables["y"].rows, AllRows)


@pytest.mark.parametrize("case", ["scale", "student_t"])
def test_other_likelihoods_that_do_not_fit_into_memory_are_refused(case, relation, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.engine_table.free_memory", lambda: 1_000_000)
    with pm.Model() as model:
        OTHERS[case](pymc_fastlogp.table(relation), pm.Normal("a"))
    with pytest.raises(
        ValueError, match=rf"^{N} rows of a table, .* round noise to fewer values in the table"
    ):
        without_tables(model)


def test_factors_need_no_memory_for_rows(relation, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.engine_table.free_memory", lambda: 1_000_000)
    _, tables = without_tables(by_group(pymc_fastlogp.table(relation)))
    assert isinstance(tables["y"].rows, Factors)


ROUNDED = {
    "rounded": lambda t, a: pm.Bernoulli(
        "y", logit_p=a[0] * pt.round(t["noise"] * 8), observed=t["night"]
    ),
    "threshold": lambda t, a: pm.Bernoulli(
        "y", logit_p=a[0] * (t["noise"] > 0.25), observed=t["night"]
    ),
    "clipped_sum": lambda t, a: pm.Poisson(
        "y",
        pt.exp(a[0] * pt.clip(pt.floor(t["noise"] * 3) + t["rank"], 0, 4)),
        observed=t["tips"],
    ),
    "index": lambda t, a: pm.Poisson(
        "y", pt.exp(a[pt.floor(t["noise"] * 3).astype("int64")]), observed=t["tips"]
    ),
}


def with_rounded(case, rows):
    with pm.Model() as model:
        ROUNDED[case](rows, pm.Normal("a", shape=3))
    return model


# One function, so that its model in memory is built once.
of_rounded = partial(with_rounded, "rounded")


def assert_expressions_are_cells(build, source, in_memory):
    reduced, tables = without_tables(build(pymc_fastlogp.table(source)))
    assert isinstance(tables["y"].rows, Cells)
    assert tables["y"].rows.n_cells < 100
    assert tables["y"].rows.n_rows == N
    assert_equal_densities(reduced, in_memory(build))


@pytest.mark.parametrize("case", ROUNDED)
def test_few_values_of_expressions_are_cells(case, relation, in_memory, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 50_000)
    assert_expressions_are_cells(partial(with_rounded, case), relation, in_memory)


def test_few_values_of_expressions_are_cells_for_each_engine(source, in_memory):
    assert_expressions_are_cells(of_rounded, source, in_memory)


def test_summaries_are_read_once(relation, monkeypatch):
    table = pymc_fastlogp.table(relation)
    rows = [without_tables(by_group(table)).tables["y"].rows for _ in range(2)]
    assert rows[0] is rows[1]


def test_the_way_is_said_before_rows_are_read(relation, monkeypatch, caplog):
    table = pymc_fastlogp.table(relation)
    monkeypatch.setattr(type(table), "rows", lambda self, plan: 1 / 0)
    with caplog.at_level("INFO", "pymc_fastlogp"), pytest.raises(ZeroDivisionError):
        without_tables(by_group(table))
    assert caplog.messages == [
        "y: batches of rows are summarized as triangular factors of 1, noise, noise + income by zone (DuckDB)"
    ]


def test_no_row_is_read_if_another_likelihood_is_refused(relation, monkeypatch):
    table = pymc_fastlogp.table(relation)
    model = by_group(table)
    with model:
        pm.Normal("other", table["noise"].mean(), observed=table["noise"])
    monkeypatch.setattr(type(table), "rows", lambda self, plan: 1 / 0)
    with pytest.raises(ValueError, match=r"^other is not evaluated row by row"):
        without_tables(model)


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_refuses_bad_values_in_any_batch(bad, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 50_000)
    x = [*np.random.default_rng(0).normal(size=130_000), bad, 1.0]
    table = pymc_fastlogp.table(pyarrow.table({"x": pyarrow.array(x, from_pandas=False)}))
    with pytest.raises(ValueError, match=r'^column "x" has (missing|NaN|infinite).*: drop or fill'):
        summary_of(table, "x", quadratic=["x"])


def test_an_outcome_that_is_constant_in_many_rows_is_no_key():
    duckdb = pytest.importorskip("duckdb")
    frame = duckdb.sql(
        "SELECT i % 5 AS key, hash(i) / 1e19 AS x, CASE WHEN i < 150000 THEN 0 ELSE hash(i + 1) / 1e19 END AS y FROM range(200000) t(i)"
    )
    summary = summary_of(pymc_fastlogp.table(frame), "key", "x", "y", quadratic=["x", "y"])
    assert summary.n_cells == 5


def test_refuses_expressions_that_are_not_finite_in_any_batch(monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 50_000)
    # The sample does not see the last row.
    monkeypatch.setattr("pymc_fastlogp.tables.sample.N_SCANNED", 100_000)
    x = np.random.default_rng(0).uniform(1, 2, size=130_000)
    x[-1] = 0
    table = pymc_fastlogp.table(pytest.importorskip("pyarrow").table({"x": x}))
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a") * pt.log(table["x"]), observed=table["x"])
    with pytest.raises(ValueError, match=r"^log\(x\) has NaN or infinite values: drop or fill"):
        without_tables(model)


def test_rows_with_expressions_that_are_not_finite_are_loaded():
    pyarrow = pytest.importorskip("pyarrow")
    table = pymc_fastlogp.table(pyarrow.table({"x": np.linspace(0, 1, 3000)}))
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("y", pt.switch(a > 0, a * table["x"], pt.log(table["x"])))
    reduced, tables = without_tables(model)
    assert isinstance(tables["y"].rows, AllRows)
    assert reduced.compile_logp(vars=reduced.potentials)({"a": 2.0}) == pytest.approx(3000)


def test_rows_are_read_again_after_an_interrupt(relation, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 20_000)
    table = pymc_fastlogp.table(relation)
    calls = []

    def interrupt(plan, values):
        calls.append(plan)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return summarize(plan, values)

    with monkeypatch.context() as patched:
        patched.setattr("pymc_fastlogp.tables.summaries.summarize", interrupt)
        with pytest.raises(KeyboardInterrupt):
            summary_of(table, "zone", "noise", quadratic=["noise"])
    assert summary_of(table, "zone", "noise", quadratic=["noise"]).n_rows == N


def test_refuses_more_cells_than_fit_into_memory(monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 50_000)
    # The sample sees few keys.
    monkeypatch.setattr("pymc_fastlogp.tables.sample.N_SCANNED", 100_000)
    monkeypatch.setattr("pymc_fastlogp.tables.source.N_PASS", 100_000)
    frame = duckdb.sql(
        "SELECT CASE WHEN i < 100000 THEN i % 10 ELSE i END AS key, hash(i) / 1e19 AS x FROM range(300000) r(i)"
    )
    monkeypatch.setattr("pymc_fastlogp.tables.engine_table.free_memory", lambda: 10_000_000)
    with pytest.raises(
        ValueError, match=r"^the columns key have more than \d+ distinct rows.*: round key to"
    ):
        summary_of(pymc_fastlogp.table(frame), "key", "x", quadratic=["x"])


def test_rows_that_were_added_are_refused():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT hash(i) / 1e19 AS x FROM range(1000) r(i)")
    table = pymc_fastlogp.table(connection.table("t"))
    assert table.n_rows == 1000
    table["x"]
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(ValueError, match=r"^the table has 1001 rows, and had 1000"):
        summary_of(table, "x", quadratic=["x"])


@pytest.mark.parametrize(
    ("names", "quadratic", "way"),
    [
        (["zone", "night"], [], "GROUPED"),
        (["zone", "income"], ["income"], "GROUPED"),
        (["zone", "noise"], ["noise"], "FACTORED"),
        (["zone", "noise"], [], "LOADED"),
        (["noise"], ["noise"], "FACTORED"),
    ],
)
def test_ways(names, quadratic, way, relation):
    from pymc_fastlogp.tables.columns import column_of
    from pymc_fastlogp.tables.expressions import expression_of_column

    table = pymc_fastlogp.table(relation)
    read = [expression_of_column(column_of(table[x]), table[x].type.dtype) for x in names]
    assert table.plan(read, QuadraticIn(*quadratic)).way.name == way
