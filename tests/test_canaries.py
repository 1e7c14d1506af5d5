"""Every rule that fired on a model still does; see canaries.py for the table."""

import pytest

from pymc_fastlogp.rules import GRAPH_RULES, RULES
from tests import canaries

# Kernels say that they are there by the number of them, large constants by an Op outside, first rows of tables by a warning.
SILENT = {
    "fastlogp_first_rows",
    "fastlogp_flat_increments",
    "fastlogp_fused_kernel",
    "fastlogp_renewed_kernels",
    "fastlogp_held_constants",
}

CHANGED = "run `python -m tests.canaries {name}`, and look whether the diff is what you meant"

ADD_A_MODEL = (
    "{rules} fire on no model: add a model to tests/zoo.py, run `make canaries MODEL=zoo/NAME`"
)


@pytest.fixture(scope="module")
def table():
    return canaries.read()


def marked(name):
    return pytest.param(name, marks=[pytest.mark.slow] if name.startswith("gallery/") else [])


def test_table_has_the_models(table):
    assert [*table] == [*canaries.MODELS]


def test_every_rule_fires_on_a_model(table):
    fired = {f"fastlogp_{rule}" for text in table.values() for rule in canaries.rules_of(text)}
    expected = {rule.name for rule in (*RULES, *GRAPH_RULES)} - SILENT
    assert fired == expected, ADD_A_MODEL.format(rules=sorted(expected - fired))


@pytest.mark.parametrize("name", [marked(name) for name in canaries.MODELS])
def test_fired_rules_and_ops_outside_of_kernels_are_unchanged(name, table):
    assert canaries.block(name) == table[name], CHANGED.format(name=name)
