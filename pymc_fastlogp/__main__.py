"""``python -m pymc_fastlogp``: the environment, what is registered, and a self-check."""

import os
import platform
import sys
from importlib.metadata import version

import llvmlite.binding as llvm
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from rich.console import Console
from rich.table import Table

from pymc_fastlogp.config import ENVIRONMENT_VARIABLE, switched
from pymc_fastlogp.registration import (
    RULES,
    TAG,
    Rule,
    database_of,
    is_enabled,
    is_excluded,
    untested_reason,
)

PACKAGES = ("pymc", "pytensor", "numba", "llvmlite", "nutpie", "arviz", "pymc-fastlogp")

# LLVM's names of CPU features, the widest vectors first.
VECTOR_BITS = {
    "avx512f": 512,
    "avx2": 256,
    "avx": 256,
    "sve": 128,
    "neon": 128,
    "sse2": 128,
}


def main() -> int:
    """Print the report; return 0 where the self-check passes, else 1."""
    console = Console()
    console.print(environment_table())
    console.print(rules_table())
    failure = self_check()
    if failure is None:
        console.print("Self-check passed: rewritten when on, not when off, same value.")
        return 0
    console.print(f"Self-check failed: {failure}.")
    return 1


def environment_table() -> Table:
    """Return versions, CPU and switch as a table."""
    table = Table("", "", title="pymc_fastlogp", show_header=False)
    table.add_row("python", platform.python_version())
    for package in PACKAGES:
        table.add_row(package, version(package))
    table.add_row("CPU", f"{llvm.get_host_cpu_name()} ({platform.machine()})")
    table.add_row("vector width", f"{vector_bits(llvm.get_host_cpu_features())} bits")
    table.add_row("enabled", "yes" if is_enabled() else f"no: {why_off()}")
    table.add_row("optimizer_excluding", pytensor.config.optimizer_excluding or "nothing")
    return table


def vector_bits(cpu_features: dict[str, bool]) -> int:
    """Return the width of the widest vector register, 64 where there is none.

    Parameters
    ----------
    cpu_features
        LLVM's feature names and whether this CPU has them.
    """
    return next((bits for name, bits in VECTOR_BITS.items() if cpu_features.get(name)), 64)


def why_off() -> str:
    """Say what keeps the plugin off."""
    return untested_reason() or f"{ENVIRONMENT_VARIABLE}={os.environ.get(ENVIRONMENT_VARIABLE)}"


def rules_table() -> Table:
    """Return name, database and tags of each rule that is in ``optdb``."""
    table = Table("rewrite", "database", "tags", title="Registered rewrites")
    for rule in filter(is_in_optdb, RULES):
        table.add_row(rule.name, rule.database, ", ".join((TAG, *rule.phase.tags)))
    return table


def is_in_optdb(rule: Rule) -> bool:
    """Whether ``optdb`` returns the rule under its name and under each of its tags."""
    database = database_of(rule)
    return all(
        rule.name in {rewriter.name for rewriter in database.query(f"+{key}").get_node_rewriters()}
        for key in (rule.name, TAG, *rule.phase.tags)
    )


def self_check() -> str | None:
    """Compile one small graph with the plugin off and on; say what is wrong, or return None."""
    if reason := untested_reason():
        return f"the plugin does nothing here, {reason}"
    if missing := [r.name for r in RULES if not is_excluded(r) and not is_in_optdb(r)]:
        return f"optdb has no {', '.join(missing)}"
    a = pt.vector("a", shape=(2,))
    graph = pt.exp(pt.zeros(5)[np.array([1, 3])].set(a))
    with switched(False):
        off = pytensor.function([a], graph, mode="NUMBA")
    with switched(True):
        on = pytensor.function([a], graph, mode="NUMBA")
    if not has_elemwise_of_set(off.maker.fgraph):
        return "a graph was rewritten while the plugin was off"
    if has_elemwise_of_set(on.maker.fgraph):
        return "a graph was not rewritten while the plugin was on"
    point = np.array([-1.0, 2.0])
    if not np.allclose(off(point), on(point), rtol=1e-14, atol=0):
        return f"the value is {off(point)} with the plugin off and {on(point)} with it on"
    return None


def has_elemwise_of_set(fgraph: FunctionGraph) -> bool:
    """Whether an Elemwise takes what an advanced set made: what the first rule removes."""
    return any(
        isinstance(node.op, Elemwise)
        and any(isinstance(x.owner_op, AdvancedIncSubtensor) for x in node.inputs)
        for node in fgraph.apply_nodes
    )


if __name__ == "__main__":
    sys.exit(main())
