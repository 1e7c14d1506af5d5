"""The rules about rows are one rewriter of the graph: who reaches it, in which order, what it shares and what stays."""

from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.math import Sum

from pymc_fastlogp.config import switched
from pymc_fastlogp.decisions import collected
from pymc_fastlogp.registration import TAG, registered
from pymc_fastlogp.rewrites.loggamma.gamma_pairs import sums_of
from pymc_fastlogp.rewrites.rows import refusals
from pymc_fastlogp.rewrites.rows.row_rewriter import RowRewriter, Walk
from pymc_fastlogp.rewrites.rows.view import keys
from pymc_fastlogp.rules import ROWS, RULES
from tests.rewrites.conftest import pregrad

NAMES = [rule.name for rule in RULES if rule.database == ROWS]
RISING, DIFFERENCE, GAUSSIAN, REDUCE, COMPACT, HOIST, ORDER = NAMES

RNG = np.random.default_rng(0)
N = 300
GROUP, SORTED = RNG.integers(0, 4, N), np.repeat(np.arange(4), N // 4)
Y, X = RNG.normal(size=(2, N))
COUNTS = RNG.integers(0, 5, N).astype(float)
LONG = np.tile(RNG.normal(size=(N // 10, 10)), (10, 1))
theta, phi = pt.tensor("theta", shape=(4,)), pt.tensor("phi", shape=(N,))
size = pt.exp(pt.scalar("log_size"))

# What each rule is for, and no other.
ALONE = {
    RISING: pt.gammaln(size + 3) - pt.gammaln(size),
    DIFFERENCE: pt.gammaln(pt.exp(phi) + theta[1]) - pt.gammaln(theta[1]),
    GAUSSIAN: pt.sqr(Y - theta[GROUP] * X).sum(),
    REDUCE: pt.max(LONG * theta[0], axis=1) * phi,
    COMPACT: pt.exp(theta[GROUP]).sum(),
    HOIST: pt.sin(pt.gammaln(theta[SORTED] + COUNTS)) * phi,
    ORDER: pt.exp(theta[GROUP] * X).sum(),
}
# A square of every row, counts of few, and rows to be sorted.
ALL = pt.add(*(x.sum() for x in ALONE.values()))


def fired_in(rewrite):
    with collected() as decisions:
        rewrite()
    return [d.rule for d in decisions if d.fired and d.rule in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_fires_where_it_is_meant_to_and_is_excluded_by_its_name(name):
    out = ALONE[name]
    assert fired_in(lambda: pregrad(out, on=True)) == [name]
    assert name not in fired_in(lambda: pregrad(out, on=True, exclude=[name]))


@pytest.mark.parametrize("name", [ROWS, TAG])
def test_all_are_excluded_by_the_name_of_the_rewriter_and_by_the_tag(name):
    assert set(fired_in(lambda: pregrad(ALL, on=True))) == {*NAMES}
    assert not fired_in(lambda: pregrad(ALL, on=True, exclude=[name]))


def test_one_is_applied_to_the_whole_graph_before_the_next():
    order = [*dict.fromkeys(fired_in(lambda: pregrad(ALL, on=True)))]
    assert order == NAMES


@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
@pytest.mark.parametrize("excluded", [None, *NAMES])
def test_a_mode_selects_and_excludes_them_by_name(mode, excluded):
    mode = get_mode(mode).excluding(excluded or "no such rule")
    query = mode.provided_optimizer
    query.position_cutoff = 1.6
    fgraph = pytensor.graph.FunctionGraph(outputs=[ALL], clone=True, copy_inputs=False)
    with switched(True):
        fired = fired_in(lambda: Mode(mode.linker, query).optimizer.rewrite(fgraph))
    assert set(NAMES) - set(fired) == ({excluded} if excluded else set())


def test_nothing_fires_again_nor_after_the_gradient():
    once = pregrad(ALL, on=True)
    assert not fired_in(lambda: pregrad(once, on=True))
    gradient = pytensor.grad(once, [theta])
    with switched(True):
        assert not fired_in(
            lambda: rewrite_graph([once, *gradient], include=["canonicalize", "stabilize"])
        )


def test_a_column_is_factorized_once_for_all_rules_of_a_pass(monkeypatch):
    factorized = []
    whole = keys.factorize
    monkeypatch.setattr(keys, "factorize", lambda x: factorized.append(x) or whole(x))
    # Gaussian rows refuse what row compaction refuses, too: three columns, in each of two passes at most.
    pregrad((pt.sqr(Y - theta[GROUP] * phi)).sum(), on=True)
    of_group = [x for x in factorized if np.array_equal(x, GROUP)]
    assert len(of_group) <= 2
    assert len(factorized) <= 6


def test_what_was_read_is_forgotten_after_the_pass():
    seen = []
    rewriter = registered(next(rule for rule in RULES if rule.name == ORDER))
    transform = rewriter.transform

    def watched(fgraph, *args, **kwargs):
        seen.append((fgraph, fgraph.row_reads))
        return transform(fgraph, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriter, "transform", watched)
        pregrad(ALL, on=True)
    assert seen
    kept = ("row_reads", "row_readers")
    assert not any(hasattr(fgraph, name) for fgraph, _ in seen for name in kept)


def test_data_that_can_change_are_said_once_in_a_process(caplog, monkeypatch):
    group = pytensor.shared(GROUP, name="group")
    monkeypatch.setattr(
        refusals, "_say_that_data_can_change", cache(refusals._say_that_data_can_change.__wrapped__)
    )
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        for parameter in (theta, phi):
            pregrad(pt.exp(parameter[group]).sum(), on=True)
    said = [line for line in caplog.messages if line.startswith("data that are not frozen")]
    assert len(said) == 1
    assert len([line for line in caplog.messages if "group is shared and can change" in line]) >= 2


def test_constants_that_are_computed_are_not_called_by_an_op():
    joined = pt.join(0, pt.as_tensor(X), pt.as_tensor(Y))
    assert refusals.name_of(joined) == "an array computed from constants"
    assert refusals.name_of(pt.exp(joined + theta.sum())) == "theta"
    assert refusals.name_of(pt.vector()).startswith("<Vector")


def test_a_rule_is_asked_about_its_functions_alone():
    asked = []

    @node_rewriter([pt.gammaln, Sum])
    def rule(fgraph, node):
        asked.append(node.op)

    x = pt.vector("x")
    fgraph = FunctionGraph([x], [(pt.gammaln(x) + pt.exp(x)).sum()], clone=False)
    RowRewriter(Walk(rule)).rewrite(fgraph)
    assert asked == [pt.sum(x).owner.op, pt.gammaln]


def test_the_largest_sums_that_read_a_log_gamma_are_looked_at():
    a, b, inner = pt.gammaln(phi), pt.exp(phi), pt.gammaln(phi) - theta[1]
    sums = [inner - b, -(a + b) + phi * 2]
    fgraph = FunctionGraph([theta, phi], [*sums, pt.sin(a)], clone=False)
    assert sums_of(fgraph, inner.owner.inputs[0]) == [sums[0]]
    assert sums_of(fgraph, a) == [sums[1], sums[1].owner.inputs[0].owner.inputs[0]]
