"""Every rule that fired on a model still does; see canaries.py for the table."""

import pytest

from pymc_fastlogp.rules import GRAPH_RULES, RULES
from tests import canaries

# Kernels say that they are there by the number of them, large constants by an Op outside.
SILENT = {
    "fastlogp_flat_increments",
    "fastlogp_fused_kernel",
    "fastlogp_renewed_kernels",
    "fastlogp_held_constants",
}

# Fires in test_moves_to_set.py: as PyMC spells the triangle, its last step is a set, so that the lift comes first and reads the
# other steps itself.
NEVER_FIRE = {"fastlogp_moves_to_set"}

CHANGED = "run `python -m tests.canaries {name}`, and look whether the diff is what you meant"


@pytest.fixture(scope="module")
def table():
    return canaries.read()


def marked(name):
    return pytest.param(name, marks=[pytest.mark.slow] if name.startswith("gallery/") else [])


def test_table_has_the_models(table):
    assert [*table] == [*canaries.MODELS]


def test_every_rule_fires_on_a_model(table):
    fast = {name: text for name, text in table.items() if not name.startswith("gallery/")}
    fired = {f"fastlogp_{rule}" for text in fast.values() for rule in canaries.rules_of(text)}
    assert fired == {rule.name for rule in (*RULES, *GRAPH_RULES)} - SILENT - NEVER_FIRE


@pytest.mark.parametrize("name", map(marked, canaries.MODELS))
def test_same_rules_fire_and_the_same_is_left_outside(name, table):
    assert canaries.block(name) == table[name], CHANGED.format(name=name)
