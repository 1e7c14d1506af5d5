"""``python -m pymc_fastlogp``: the environment, what is registered, and a self-check; ``cache``: models on disk."""

import argparse
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from rich.console import Console
from rich.table import Table

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.native.file_cache import UNFINISHED, is_private
from pymc_fastlogp.kernel.native.target import uses_gathers
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.models.validate import why_off
from pymc_fastlogp.registration import (
    TAG,
    database_of,
    is_enabled,
    is_excluded,
    untested_reason,
)
from pymc_fastlogp.rules import GRAPH_RULES, RULES, GraphRule, Rule

ALL_RULES: tuple[Rule | GraphRule, ...] = (*RULES, *GRAPH_RULES)

PACKAGES = ("pymc", "pytensor", "numba", "llvmlite", "nutpie", "arviz", "pymc-fastlogp")

# What the self-check looks for.
[CHECKED] = [
    rule
    for rule in RULES
    if (rule.name, rule.database) == ("fastlogp_lift_set_subtensor", "canonicalize")
]

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
    parser = argparse.ArgumentParser(
        prog="python -m pymc_fastlogp",
        description="Print versions, CPU and the registered rewrites, and check on a small graph that they act.",
        epilog="Exit status: 0 where the check passes, 1 where it fails, 2 for other arguments.",
    )
    commands = parser.add_subparsers(dest="command", title="instead of that")
    cache = commands.add_parser("cache", help="show the compiled models that are kept on disk")
    cache.add_argument("--clear", action="store_true", help="delete them")
    arguments = parser.parse_args()
    console = Console()
    if arguments.command == "cache":
        console.print(cache_report(clear=arguments.clear), soft_wrap=True)
        return 0
    console.print(environment_table())
    console.print(rules_table())
    failure = self_check()
    if failure is None:
        console.print("Self-check passed: rewritten when on, not when off, same value.")
        return 0
    console.print(f"Self-check failed: {failure}.")
    return 1


def cache_report(*, clear: bool) -> str:
    """Say where models are kept, how many and how large they are; delete them if wanted."""
    files = store.files()
    if files is None:
        return f"Models are not kept: {store.ENVIRONMENT_VARIABLE} or PyTensor's numba__cache switches that off."
    sizes = {entry: status.st_size for entry, status in files.found()}
    n_models = sum(not entry.name.endswith((store.SHAPES, UNFINISHED)) for entry in sizes)
    megabytes = sum(sizes.values()) / 2**20
    report = f"{n_models} models, {megabytes:.1f} of at most {files.limit / 2**20:.0f} MB, in {files.folder}"
    if not is_private(files.folder):
        report += ", which is not used: it has to be yours, and nobody else may write to it"
    if not clear:
        return report
    for entry in sizes:
        Path(entry.path).unlink(missing_ok=True)
    return f"{report}: deleted"


def environment_table() -> Table:
    """Return versions, CPU and switch as a table."""
    table = Table("", "", title="pymc_fastlogp", show_header=False)
    table.add_row("python", platform.python_version())
    for package in PACKAGES:
        table.add_row(package, version_of(package))
    table.add_row("CPU", f"{llvm.get_host_cpu_name()} ({platform.machine()})")
    table.add_row("vector width", f"{vector_bits(llvm.get_host_cpu_features())} bits")
    table.add_row("gathers", "by instruction" if uses_gathers() else "one load for each lane")
    table.add_row("enabled", "yes" if is_enabled() else f"no: {why_off()}")
    table.add_row("optimizer_excluding", pytensor.config.optimizer_excluding or "nothing")
    return table


def version_of(package: str) -> str:
    """Return the version of a package as it is installed, which one that is only on the path is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def vector_bits(cpu_features: dict[str, bool]) -> int:
    """Return the width of the widest vector register, 64 where there is none.

    Parameters
    ----------
    cpu_features
        LLVM's feature names and whether this CPU has them.
    """
    return next((bits for name, bits in VECTOR_BITS.items() if cpu_features.get(name)), 64)


def rules_table() -> Table:
    """Return name, place and tags of each rule that is in ``optdb``, those of whole graphs last."""
    table = Table("rewrite", "database", "tags", title="Registered rewrites")
    for rule in filter(is_in_optdb, ALL_RULES):
        place = rule.database if isinstance(rule, Rule) else f"optdb, at {rule.position:g}"
        table.add_row(rule.name, place, ", ".join(tags_of(rule)))
    return table


def tags_of(rule: Rule | GraphRule) -> tuple[str, ...]:
    """Return the queries that select a rule, besides its name."""
    return (TAG, *(rule.phase.tags if isinstance(rule, Rule) else rule.tags))


def is_in_optdb(rule: Rule | GraphRule) -> bool:
    """Return whether ``optdb`` returns the rule under its name and under each of its tags."""

    def names(key: str) -> set[str]:
        if isinstance(rule, Rule):
            found = database_of(rule).query(f"+{key}").get_node_rewriters()
        else:
            found = optdb.query(f"+{key}").data
        return {rewriter.name for rewriter in found}

    return all(rule.name in names(key) for key in (rule.name, *tags_of(rule)))


def self_check() -> str | None:
    """Compile one small graph with the plugin off and on; say what is wrong, or return None."""
    if reason := untested_reason():
        return f"the plugin does nothing here, {reason}"
    if is_excluded(CHECKED):
        return f"optimizer_excluding leaves out {CHECKED.name}, which it looks for"
    if missing := [r.name for r in ALL_RULES if not is_excluded(r) and not is_in_optdb(r)]:
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
    """Return whether an Elemwise takes what an advanced set made: what the rule that is looked for removes."""
    return any(
        isinstance(node.op, Elemwise)
        and any(isinstance(x.owner_op, AdvancedIncSubtensor) for x in node.inputs)
        for node in fgraph.apply_nodes
    )


if __name__ == "__main__":
    sys.exit(main())
