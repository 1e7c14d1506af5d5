"""Graphs get kernels in mode NUMBA, unless the plugin is off or the rewrite is excluded."""

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode, optdb

from pymc_fastlogp import disabled
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.registration import TAG
from pymc_fastlogp.rules import GRAPH_RULES

RULE = next(rule for rule in GRAPH_RULES if rule.name == "fastlogp_fused_kernel")


def n_kernels(mode):
    x = pt.dvector("x")
    function = pytensor.function([x], pt.exp(x).sum(), mode=mode)
    return sum(isinstance(node.op, FusedKernel) for node in function.maker.fgraph.apply_nodes)


@pytest.mark.parametrize(("excluded", "expected"), [([], 1), ([RULE.name], 0), ([TAG], 0)])
def test_mode_excludes_name_and_tag(excluded, expected):
    assert n_kernels(get_mode("NUMBA").excluding(*excluded)) == expected


def test_other_modes_have_no_kernels():
    assert n_kernels("FAST_COMPILE") == 0


def test_disabled_plugin_has_no_kernels():
    with disabled():
        assert n_kernels("NUMBA") == 0


@pytest.mark.parametrize("tag", [RULE.name, TAG, *RULE.tags])
def test_rule_is_found_by_name_and_by_tags(tag):
    assert [r.name for r in optdb.query(f"+{tag}")].count(RULE.name) == 1


def test_rule_runs_before_inplace_rewrites():
    names = [r.name for r in optdb.query("+fast_run", "+numba")]
    assert names.index("elemwise_fusion") < names.index(RULE.name)
    assert names.index(RULE.name) < names.index("add_destroy_handler")


@pytest.mark.parametrize("excluded", [RULE.name, TAG])
def test_the_flag_excludes_name_and_tag(run_script, excluded):
    process = run_script(
        """
        from pytensor.compile.mode import optdb

        import pymc_fastlogp

        print("fastlogp_fused_kernel" in optdb)
        """,
        PYTENSOR_FLAGS=f"optimizer_excluding={excluded}",
    )
    assert process.stdout.strip() == "False", process.stderr
