"""`explain` names the rules that fired and their rows, and the refusals with reason and advice."""

import json
import logging
import re
import sys
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import rewrite_pregrad
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_fastlogp
from pymc_fastlogp import explain, verify
from pymc_fastlogp.analysis.index_facts import FAR
from pymc_fastlogp.decisions import Refusal, collected
from pymc_fastlogp.explanation import drawing, kernels
from pymc_fastlogp.explanation.result import Kernels
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.rewrites.rows import refusals
from pymc_fastlogp.rewrites.rows.order import scatter_order

COMPACT, GAUSSIAN = "fastlogp_compact_rows", "fastlogp_gaussian_rows"
CHECKS = "fastlogp_fold_checks_by_range"
N = 500


def data():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def radon():
    """Varying intercepts and slopes: 40 counties, two floors, 500 houses."""
    rng = data()
    county, floor = rng.integers(0, 40, N), rng.integers(0, 2, N)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        a = pm.Normal("a", mu, shape=40)
        b = pm.Normal("b", shape=40)
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", a[county] + b[county] * floor, sigma, observed=rng.normal(size=N))
    return model


@pytest.fixture(scope="module")
def counts():
    """Two Poisson likelihoods of one parameter: rows of `few` repeat, those of `many` do not."""
    rng = data()
    with pm.Model() as model:
        group = pm.Data("group", rng.integers(0, 5, N))
        a = pm.Normal("a", shape=5)
        pm.Poisson("few", pt.exp(a[group]), observed=rng.poisson(2, N))
        x = rng.normal(size=N)
        pm.Poisson("many", pt.exp(a[group] * x), observed=rng.poisson(2, N))
    return model


@pytest.fixture(scope="module")
def explained(radon, counts):
    return {"radon": explain(radon, verbose=True), "counts": explain(counts, verbose=True)}


def only(rows, rewrite):
    [row] = [row for row in rows if row.rewrite == rewrite]
    return row


def refused(rows):
    [row] = [row for row in rows if row.rewrite == COMPACT and not row.fired]
    return row


def test_gaussian_rows_fire_for_the_likelihood(explained):
    row = only(explained["radon"]["y"], GAUSSIAN)
    assert row.fired
    assert row.kind == "likelihood"
    assert row.rows_before == N
    assert row.rows_after == 2 * 40 + 1


def test_prior_with_one_entry_per_row_is_left_alone(explained):
    row = only(explained["radon"]["a"], COMPACT)
    assert not row.fired
    assert (row.kind, row.rows_before, row.rows_after) == ("prior", 40, 40)
    assert "a has one value per row" in row.reason


def test_scalar_prior_is_reported_as_small(explained):
    [row] = explained["radon"]["mu"]
    assert row.rewrite == ""
    assert "32 entries" in row.reason


def test_repeated_rows_are_compacted(explained):
    row = only(explained["counts"]["few"], COMPACT)
    assert row.fired
    assert (row.rows_before, row.rows_after) == (N, 5)


def test_unique_rows_are_refused_with_advice(explained):
    row = refused(explained["counts"]["many"])
    assert (row.rows_before, row.rows_after) == (N, N)
    assert "too few rows repeat" in row.reason
    assert "rounded" in row.advice


def test_refusals_about_rows_that_a_rewrite_made_are_left_out():
    rng = data()
    group = rng.integers(0, 40, N)
    with pm.Model() as model:
        a = pm.Normal("a", shape=40)
        pm.Poisson("y", pt.exp(a[group]), observed=rng.poisson(2, N))
    rows = explain(model)["y"]
    assert only(rows, COMPACT).rows_after == 40
    assert all(row.fired for row in rows)


def test_partial_compaction_reports_the_remainder_as_refused():
    rng = data()
    x, y = rng.normal(size=N), rng.poisson(2, N)
    with pm.Model() as model:
        alpha = pm.HalfNormal("alpha")
        pm.NegativeBinomial("y", pt.exp(pm.Normal("b") * x), alpha, observed=y)
    of_counts, of_parameters, left = [r for r in explain(model)["y"] if r.rewrite == COMPACT]
    # What is left of a count of zero is zero.
    assert (of_counts.rows_before, of_counts.rows_after) == (N, len(np.unique(y[y > 0])))
    assert (of_parameters.times, of_parameters.rows_after) == (1, 1)
    assert (left.fired, left.rows_before, left.rows_after) == (False, N, N)


def test_linear_count_term_is_compacted_to_one_row():
    rng = data()
    with pm.Model() as model:
        eta = pm.Normal("a") + pm.Normal("b") * rng.normal(size=N)
        pm.Poisson("y", pt.exp(eta), observed=rng.poisson(2, N))
    fired, left = [row for row in explain(model)["y"] if row.rewrite == COMPACT]
    assert (fired.rows_before, fired.rows_after) == (N, 1)
    assert (left.fired, left.rows_before) == (False, N)


def test_unfrozen_data_are_refused_with_advice(counts):
    rows = explain(counts, freeze_model=False)["few"]
    row = only([row for row in rows if not row.fired], COMPACT)
    assert row.reason == "group is shared and can change between evaluations"
    assert "freeze_model=True" in row.advice
    fired = [row for row in rows if row.fired and row.rewrite in {COMPACT, GAUSSIAN}]
    assert {row.rows_after for row in fired} <= {0}  # its constants are numpy data


def test_minibatch_is_refused_with_advice():
    rng = data()
    with pm.Model() as model:
        x, y = pm.Minibatch(rng.normal(size=N), rng.normal(size=N), batch_size=100)
        a = pm.Normal("a")
        pm.Normal("y", a * x, 1.0, observed=y, total_size=N)
    rows = explain(model)["y"]
    refused = [row for row in rows if row.rewrite in {COMPACT, GAUSSIAN}]
    assert {row.rewrite for row in refused} == {COMPACT, GAUSSIAN}
    for row in refused:
        assert not row.fired
        assert "all data" in row.advice


def test_prior_whose_terms_are_also_normalised_is_said_to_have_entries_of_its_own():
    """The inner sums run over the parameter, not over rows that are needed one by one."""
    with pm.Model(coords={"group": range(100)}) as model:
        pm.ZeroSumNormal("by_length", dims="group")
        pm.Dirichlet("by_simplex", np.ones(100))
    explanation = explain(model)
    for name in ("by_length", "by_simplex"):
        reasons = {row.reason for row in explanation[name] if not row.fired}
        [reason] = reasons
        assert reason == f"{name} has one value per row, so that no rows repeat"


def test_priors_alone_have_rows():
    with pm.Model() as model:
        pm.Normal("a", shape=100)
        pm.Poisson("k", 2.0)
    explanation = explain(model)
    assert {row.variable for row in explanation.rows} == {"a", "k"}
    assert {row.kind for row in explanation.rows} == {"prior"}
    assert not any(row.fired for row in explanation.rows)


def test_rewrites_that_are_not_about_rows_are_counted():
    with pm.Model() as model:
        pm.LKJCorr("chol", n=5, eta=2.0)
        pm.Normal("x")
    explanation = explain(model)
    row = only(explanation["chol"], "fastlogp_lift_set_subtensor")
    assert row.fired
    assert row.times > 1
    assert row.rows_before is None
    assert not any(row.fired for row in explanation["x"])


@pytest.mark.parametrize(("as_data", "name"), [(True, "group"), (False, "a")])
def test_rows_that_were_sorted_name_the_index_or_what_it_reads(monkeypatch, as_data, name):
    monkeypatch.setattr(scatter_order, "n_lanes", lambda: FAR)
    rng = data()
    group = rng.integers(0, 5, N)
    with pm.Model() as model:
        a = pm.Normal("a", shape=5)
        eta = a[pm.Data("group", group) if as_data else group] * rng.normal(size=N)
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(0, 2, N))
    explanation = explain(model, verbose=True)
    row = only(explanation["y"], "fastlogp_order_rows")
    assert (row.fired, row.by) == (True, name)
    assert f"order_rows by {name}" in str(explanation)


def test_potential_by_name_even_if_it_looks_like_markup():
    x = np.arange(N) % 7
    with pm.Model() as model:
        a = pm.Normal("a[0]", shape=7)
        pm.Potential("[red]p", -pt.exp(a[x]).sum())
    explanation = explain(model, verbose=True)
    row = only(explanation["[red]p"], COMPACT)
    assert (row.kind, row.rows_before, row.rows_after) == ("potential", N, 7)
    assert "[red]p" in str(explanation)
    assert "a[0]" in str(explanation)


def test_every_variable_has_a_row_likelihoods_first_and_large_ones_first(explained):
    names = dict.fromkeys(row.variable for row in explained["radon"].rows)
    assert [*names] == ["y", "a", "b", "mu", "sigma"]


def test_decisions_match_a_compilation(radon, explained):
    with collected() as decisions:
        rewrite_pregrad(radon.logp())
    fired = {(d.rule, d.rows_before, d.rows_after) for d in decisions if d.fired}
    rows = explained["radon"].rows
    assert fired == {(r.rewrite, r.rows_before, r.rows_after) for r in rows if r.fired}


def test_kernels_match_a_compilation(radon, explained):
    function = radon.logp_dlogp_function(ravel_inputs=False, mode="NUMBA")._pytensor_function
    nodes = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, FusedKernel)]
    assert len(explained["radon"].kernels.n_nodes) == len(nodes) == 1


def test_explaining_changes_nothing(counts, explained):
    with pymc_fastlogp.disabled():
        with pytest.warns(UserWarning, match="switched off"):
            again = explain(counts)
        assert again == explained["counts"]
        assert not pymc_fastlogp.is_enabled()


def test_each_decision_logs_a_line(counts, caplog):
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        explanation = explain(counts)
    assert {row.rewrite for row in explanation.rows if row.fired} >= {COMPACT, CHECKS}
    for row in explanation.rows:
        if not row.rewrite:
            continue  # nobody was asked
        if row.fired:
            is_about_rows = row.rows_before is not None
            said = f"{row.rows_before} rows -> {row.rows_after}" if is_about_rows else "rewritten"
        else:
            said = row.reason
        assert any(row.rewrite in line and said in line for line in caplog.messages)


class Unknown(Op):
    """A black box without a gradient."""

    def make_node(self, x):
        return Apply(self, [x], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0].sum())


def test_kernels_without_a_gradient_and_what_is_outside():
    with pm.Model() as model:
        pm.Potential("p", Unknown()(pm.Normal("a", shape=40)))
    found = explain(model).kernels
    assert found.graph == "logp"
    [unknown] = [outside for outside in found.outside if outside.op == "Unknown"]
    assert (unknown.n_nodes, unknown.reason) == (1, kernels.NO_RULE)


def test_excluded_kernel_leaves_all_outside(radon, monkeypatch):
    monkeypatch.setattr(kernels, "is_excluded", lambda rule: True)
    found = explain(radon).kernels
    assert found.n_nodes == ()
    assert {outside.reason for outside in found.outside} == {kernels.EXCLUDED}


def test_explanation_converts_to_plain_data(explained):
    explanation = explained["counts"]
    plain = json.loads(json.dumps(explanation.to_dict()))
    [few] = [row for row in plain["rows"] if row["variable"] == "few" and row["rewrite"] == COMPACT]
    assert (few["rows_before"], few["rows_after"], few["reason"]) == (N, 5, "")
    assert plain["kernels"]["n_nodes"] == list(explanation.kernels.n_nodes)
    frame = explanation.to_frame()
    assert len(frame) == len(explanation.rows)
    assert frame.loc[frame.variable == "few", "rows_after"].dropna().tolist() == [5]
    assert frame.loc[frame.variable == "a", "rows_before"].isna().all()


def test_table_and_html_say_the_same(explained):
    text, html = str(explained["counts"]), explained["counts"]._repr_html_()
    for shown in (text, html.replace("&gt;", ">")):
        assert "500 -> 5" in shown
        assert "compact_rows" in shown
        assert "likelihood" in shown
    # Longer than pandas shows by itself, and than a column in a terminal is wide.
    reason = refused(explained["counts"]["many"]).reason
    assert len(reason) > pd.get_option("display.max_colwidth")
    assert reason in html


def test_text_begins_with_the_likelihoods(explained):
    first, second, third = explained["counts"].sentences()
    assert str(explained["counts"]).startswith(first)
    assert first == "few: 500 rows are summed as 5 terms, exactly."
    assert second.startswith("many: all 500 rows are evaluated: too few rows repeat")
    assert "gains if a covariate can be rounded" in second
    n = sum(explained["counts"].kernels.n_nodes)
    assert third == f"{n} of {n} nodes of logp and gradient are in one kernel."
    assert first in explained["counts"]._repr_html_()


def test_the_table_of_rewrites_is_shown_if_verbose(counts, explained):
    short = explain(counts)
    assert short == explained["counts"]
    assert "compact_rows" not in str(short)
    assert "<table" not in short._repr_html_()
    assert short.notes() == ["explain(model, verbose=True) lists each rewrite."]
    assert "compact_rows" in str(explained["counts"])
    assert "<table" in explained["counts"]._repr_html_()


def test_a_table_without_rows_is_not_shown():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=1.0)
    explanation = explain(model, verbose=True)
    assert "rewrites that do not apply" not in str(explanation)
    assert "<table" not in explanation._repr_html_()


def test_likelihoods_that_are_alike_share_a_sentence():
    with pm.Model() as model:
        a = pm.Normal("a")
        for k in range(8):
            pm.Poisson(f"y{k}", pt.exp(a), observed=np.ones(40) + k)
        pm.Poisson("z", pt.exp(a), observed=np.ones(50))
        pm.Poisson("w", pt.exp(a), observed=np.ones(50))
    explanation = explain(model, verbose=True)
    first, *many, _ = explanation.sentences()
    assert first == "w, z: 50 rows are summed as 1 term, exactly."
    assert many == ["y0 ... y7, each of 8 likelihoods: 40 rows are summed as 1 term, exactly."]
    assert "y0 ... y7, each of 8 likelihoods" in {*explanation.table().variable}
    assert not {f"y{k} (likelihood)" for k in range(8)} & {*explanation.table().variable}


def test_likelihoods_that_differ_in_numbers_alone_share_a_sentence():
    with pm.Model() as model:
        for k in range(8):
            a = pm.Normal(f"a_{k}", shape=40 + k)
            pm.Poisson(f"y_{k}", pt.exp(a), observed=np.arange(40 + k))
    first, _ = explain(model).sentences()
    assert first == (
        "y_0 ... y_7, each of 8 likelihoods: all 40 to 47 rows are evaluated: a_0 ... a_7 has one"
        " value per row, so that no rows repeat (gains if rows could share a parameter by an index)."
    )


def test_of_many_terms_with_the_same_operations_one_is_rewritten(monkeypatch):
    monkeypatch.setattr(kernels, "MOST_ALIKE", 4)

    def made(n):
        with pm.Model() as model:
            rate = pm.HalfNormal("rate")
            for k in range(n):
                effects = pm.Normal(f"a_{k}", shape=40)
                pm.Poisson(f"y_{k}", rate * pt.exp(effects), observed=np.arange(40) + k + 1)
            pm.Exponential("z", rate, observed=[2.0, 3.0])
        return explain(model).kernels

    of_many = made(kernels.MOST_ALIKE + 3)
    assert of_many.n_like_others == 2 * (kernels.MOST_ALIKE + 2)
    assert of_many.n_nodes == made(1).n_nodes
    assert f"without {of_many.n_like_others} terms that are like others, are in" in (
        of_many.sentence()
    )
    assert made(kernels.MOST_ALIKE).n_like_others == 0


def test_rows_of_imputed_covariates_are_the_rows_of_the_data():
    rng = data()
    x = rng.normal(size=600)
    x[:92] = np.nan
    with pm.Model() as model:
        covariate = pm.Normal("x", observed=x)
        pm.Normal("y", pm.Normal("b") * covariate, 1.0, observed=rng.normal(size=600))
    [said, *_] = explain(model).sentences()
    assert said == "y: 600 rows are summed as 94 terms, exactly."


def test_the_text_has_the_width_of_the_terminal(explained, monkeypatch):
    for width in (60, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        assert width - 20 < max(map(len, str(explained["counts"]).splitlines())) <= width


def test_data_that_is_not_frozen_has_advice(counts):
    [first, *_] = explain(counts, freeze_model=False).sentences()
    assert first.startswith("few, many: all 500 rows are evaluated: group is shared and can change")
    assert "(to do: compile with" in first


def test_lengths_that_only_the_prior_knows_are_evaluated():
    with pm.Model() as model:
        slope, start = pm.Normal("slope"), pm.Normal.dist()
        path = pm.EulerMaruyama(
            "path", 0.5, lambda x, slope: (slope * x, 2.0), (slope,), shape=50, init_dist=start
        )
        pm.Normal("y", path, observed=np.zeros(50))
    assert None in model.rvs_to_values[path].type.shape
    assert sum(explain(model).kernels.n_nodes) > 0


def test_rows_of_an_array_that_is_computed_name_what_they_are():
    """Coefficients of a basis have no value per row, but their product with the basis has."""
    basis = data().normal(size=(N, 16))
    with pm.Model() as model:
        scale, beta = pm.HalfNormal("scale"), pm.Normal("beta", shape=16)
        a, rest = pm.Normal("a", shape=5), pm.Normal("rest", shape=N)
        group = np.arange(N) % 5
        pm.Poisson("y", pt.exp(pt.exp(scale * a)[group] + rest), observed=np.ones(N))
        pm.Poisson("z", pt.exp((scale * beta)[None] @ basis.T)[0], observed=np.ones(N))
    explanation = explain(model)
    reasons = {row.variable: row.reason for row in explanation.rows if row.rows_before == N}
    assert reasons["y"] == "rest has one value per row, so that no rows repeat"
    assert reasons["z"].startswith("a matrix product with beta has one value per row")
    assert not any("scale" in row.by for row in explanation.rows)


def test_small_priors_are_folded_and_priors_have_nothing_to_do(explained):
    shown = str(explained["radon"])
    assert "mu (prior): too small to gain" in shown
    assert len([line for line in shown.splitlines() if "mu (prior)" in line]) == 1
    assert "a has one value per row, so that no rows repeat" in " ".join(shown.split())
    assert "to do" not in shown
    assert "gains if" not in shown


def test_variables_of_a_model_with_a_name_are_called_as_the_user_calls_them():
    with pm.Model(name="my model") as model:
        scale = pm.HalfNormal("scale", shape=N)
        pm.Normal("y", 0.0, scale, observed=np.linspace(-1.0, 1.0, N))
    reasons = {row.reason for row in explain(model)["my model::y"]}
    assert "my model::scale has one value per row, so that no rows repeat" in reasons


def test_html_names_what_fired_apart_from_what_refused(explained):
    html = ElementTree.fromstring(f"<div>{explained['counts']._repr_html_()}</div>")
    cells = [tuple(" ".join((cell.text or "").split()) for cell in row) for row in html.iter("tr")]
    assert ("few (likelihood)", "compact_rows x 2", f"{N} -> 5", "") in cells
    assert (
        "few (likelihood)",
        "fold_checks_by_range x 2, switch_to_zero, masked_switch",
        "",
        "",
    ) in cells
    [why] = [why for *rest, why in cells if rest == ["many (likelihood)", "", str(N)]]
    assert re.match(r"compact_rows( x \d)?: too few rows repeat", why)


def test_graph_draws_before_and_after(explained):
    dot = explained["radon"].graph().source
    off, on = dot.split("subgraph cluster_on")
    assert '"500"' in off
    assert '"500"' not in on
    assert '[label="logp of y"' in off
    assert '[label="logp of y"' in on
    for name in ("a", "b", "mu", "sigma_log__"):
        assert f'[label="{name}", fillcolor' in off
        assert f'[label="{name}", fillcolor' in on
    assert drawing.IN_KERNEL in on
    assert drawing.IN_KERNEL not in off


def test_graph_is_drawn_on_demand(radon, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr(drawing, "rewrite_terms", fail)
    explanation = explain(radon)
    with pytest.raises(AssertionError):
        explanation.graph()


def test_graph_has_each_node_once_and_all_arrows_between_nodes(explained):
    for explanation in explained.values():
        places = re.findall(r"^(\w+) \[label", explanation.dot, re.MULTILINE)
        arrows = re.findall(r"^(\w+) -> (\w+)", explanation.dot, re.MULTILINE)
        assert len(places) == len(set(places))
        assert {end for arrow in arrows for end in arrow} == {*places}
        assert len(arrows) == len(set(arrows)) > 20
        assert explanation.dot.count("{") == explanation.dot.count("}")


def test_graph_without_graphviz_says_what_to_install(explained, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match="graph\\(\\) needs graphviz: conda install"):
        explained["radon"].graph()


def test_unknown_variable_is_told_which_there_are(explained):
    with pytest.raises(KeyError, match="no variable 'z' in the log density, only few, many, a"):
        explained["counts"]["z"]


@pytest.mark.parametrize("name", [k for k, x in vars(refusals).items() if isinstance(x, Refusal)])
def test_each_refusal_has_a_text_and_advice(name):
    refusal = getattr(refusals, name)
    assert refusal.text
    assert refusal.advice
    assert f"{refusal.text} (to do: {refusal.advice})" == str(refusal)


def test_reparametrizable_effects_are_named():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        raw = pm.Normal("raw", shape=5)
        pm.Normal("y", (sigma * raw)[np.arange(40) % 5], 1.0, observed=np.ones(40))
    explanation = explain(model)
    assert any(x.startswith("raw: written non-centered; ") for x in explanation.notes())
    assert not any("sigma" in note and "reparametrize" in note for note in explanation.notes())


# Standard deviation between groups, of effects that 50 rows of deviation 1 identify with one of 0.14.
EXPECTED = {
    (True, 1.0): "not expected to help the effects a: their rows identify each of them well",
    (False, 1.0): "expected to help the effects a: their rows identify each of them well",
    (True, 0.14): "expected to help the effects a: their rows identify them in part",
    (False, 0.14): "expected to help the effects a: their rows identify them in part",
    (True, 0.02): "expected to help the effects a: their rows identify each of them weakly",
    (False, 0.02): "not expected to help the effects a: their rows identify each of them weakly",
}


def grouped(is_centered, between, likelihood=pm.Normal):
    group = np.repeat(np.arange(40), 50)
    effects = between * np.sqrt(2) * np.sin(np.arange(40))
    noise = np.random.default_rng(0).normal(size=(40, 50))
    # Means of groups have the variance that their rows say.
    noise += np.sin(7.0 * np.arange(40))[:, None] / 5 - noise.mean(1, keepdims=True)
    with pm.Model(coords={"g": range(40)}) as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.Normal("a", mu if is_centered else 0, tau if is_centered else 1, dims="g")
        mean = a if is_centered else mu + tau * a
        likelihood("y", mu=mean[group], sigma=1.0, observed=effects[group] + noise.ravel())
    return model


@pytest.mark.parametrize(("is_centered", "between"), EXPECTED)
def test_expected_gain_of_reparametrize_is_said_last_if_the_data_tell(is_centered, between):
    explanation = explain(grouped(is_centered, between))
    said = explanation.notes()[-1]
    assert said.startswith(f"reparametrize=True is {EXPECTED[is_centered, between]}")
    assert said.endswith("written centered." if is_centered else "written non-centered.")
    assert explanation.to_dict()["expected"] == said


def test_no_gain_of_reparametrize_is_said_of_other_likelihoods():
    assert explain(grouped(True, 1.0, partial(pm.StudentT, nu=5))).expected == ""


def test_effects_are_those_that_reparametrize_places_also_of_data_that_may_change():
    with pm.Model(coords={"g": range(5)}) as model:
        a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), dims="g")
        x = pm.Data("x", np.arange(40) % 5)
        pm.Normal("y", a[x], 1.0, observed=np.ones(40))
    explanation = explain(model, freeze_model=False)
    assert any(x.startswith("a: written centered; ") for x in explanation.notes())
    of_data = [line for line in explanation.graph().source.splitlines() if 'label="x"' in line]
    assert of_data
    assert all(drawing.DATA in line for line in of_data)


def test_a_model_that_cannot_be_frozen_is_explained_as_it_is():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        a = pm.Normal("a", mu, 1, shape=40, initval=pt.ones(40) * 2)
        pm.Normal("y", a, 1, observed=np.ones(40))
    assert explain(model)["y"]
    assert verify(model, n_random=1)


def test_deterministics_that_dominate_the_draws_are_said():
    with pm.Model(coords={"row": range(2000)}) as model:
        a = pm.Normal("a", shape=300)
        mu = pm.Deterministic("mu", a[np.arange(2000) % 300], dims="row")
        pm.Normal("y", mu, 1.0, observed=np.ones(2000), dims="row")
    explanation = explain(model)
    note = "mu (Deterministic) takes 16.0 of 18.4 MB per 1000 draws; leave it out with var_names."
    assert note in explanation.notes()
    assert note in " ".join(str(explanation).split())
    assert explanation.to_dict()["stored"] == {"a": 300, "mu": 2000}


@pytest.mark.parametrize(
    ("sizes", "n_free", "said"),
    [
        ({"p": 1000}, 1, None),  # 8 MB
        ({"p": 2000}, 2100, None),  # less than half
        ({"p": 2000, "q": 2000, "r": 10}, 100, "p, q (Deterministics) take 32.0 of 32.9 MB"),
        ({"p": 5000, "q": 2000}, 100, "p (Deterministic) takes 40.0 of 56.8 MB"),
    ],
)
def test_deterministics_are_said_as_few_as_dominate(sizes, n_free, said):
    with pm.Model() as model:
        b = pm.Normal("b", shape=n_free)
        for name, n in sizes.items():
            pm.Deterministic(name, pt.zeros(n) + b[0])
        pm.Normal("y", b[0], 1.0, observed=1.0)
    notes = [note for note in explain(model).notes() if "MB" in note]
    assert [note.partition(" per 1000 draws")[0] for note in notes] == ([said] if said else [])


def test_memory_of_draws_is_not_said_of_lengths_that_may_change():
    with pm.Model() as model:
        x = pm.Data("x", np.ones(2000))
        pm.Deterministic("mu", pm.Normal("a") * x)
    assert explain(model).stored == {"a": 1, "mu": 2000}
    assert explain(model, freeze_model=False).stored == {}


def long_likelihood(n):
    rng = np.random.default_rng(0)
    group, x = rng.integers(50, size=n), rng.normal(size=n)
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=50), pm.Normal("b")
        pm.Bernoulli("y", logit_p=a[group] + b * x, observed=rng.integers(2, size=n))
    return model


def test_long_loops_are_said_to_run_in_chunks():
    explanation = explain(long_likelihood(20_000))
    # One of them checks the linear predictor.
    assert explanation.kernels.rows_in_chunks == (20_000, 20_000)
    sentence = "2 loops over 20000 rows run in chunks, which several threads can share."
    assert explanation.sentences()[-1] == sentence
    assert explanation.to_dict()["kernels"]["rows_in_chunks"] == [20_000, 20_000]


def test_nothing_is_said_of_chunks_without_long_loops():
    explanation = explain(long_likelihood(500))
    assert explanation.kernels.rows_in_chunks == ()
    assert not any("chunks" in sentence for sentence in explanation.sentences())


def test_several_loops_in_chunks_are_one_sentence():
    found = Kernels("logp", (3,), (), rows_in_chunks=(900, 900, 40))
    assert found.chunks() == (
        "2 loops over 900 rows and a loop over 40 rows run in chunks, which several threads can share."
    )
