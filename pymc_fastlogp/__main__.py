"""Command line ``python -m pymc_fastlogp``: environment, registered rewrites, self-check; ``cache``: models and tables on disk; ``run``: a patched script."""

import argparse
import os
import platform
import runpy
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

from pymc_fastlogp import patching
from pymc_fastlogp.config import switched
from pymc_fastlogp.file_cache import UNFINISHED, BoundedFiles, is_private
from pymc_fastlogp.kernel.native.target import uses_gathers
from pymc_fastlogp.kernel.threads.protocol import is_supported
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
from pymc_fastlogp.sampling.threads import ENVIRONMENT_VARIABLE, threads_per_chain
from pymc_fastlogp.sampling.usable_cores import usable_cores
from pymc_fastlogp.tables import query_cache

ALL_RULES: tuple[Rule | GraphRule, ...] = (*RULES, *GRAPH_RULES)

PACKAGES = ("pymc", "pytensor", "numba", "llvmlite", "nutpie", "arviz", "pymc-fastlogp")

# The rule that the self-check looks for.
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
    """Print the report; return 0 if the self-check passes, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m pymc_fastlogp",
        description="Print versions, CPU and registered rewrites, and check the rewrites on a small graph.",
        epilog="Exit status: 0 if the check passes, 1 if the check fails, 2 for wrong arguments.",
    )
    commands = parser.add_subparsers(dest="command", title="commands")
    cache = commands.add_parser("cache", help="show the compiled models and the tables on disk")
    cache.add_argument("--clear", action="store_true", help="delete them")
    run = commands.add_parser(
        "run", help="run a script in which pm.sample is pymc_fastlogp.sample", prefix_chars="\0"
    )
    run.add_argument("script", help="path of the script")
    run.add_argument("arguments", nargs="*", help="arguments of the script")
    arguments = parser.parse_args()
    console = Console()
    if arguments.command == "cache":
        console.print(cache_report(clear=arguments.clear), soft_wrap=True)
        return 0
    if arguments.command == "run":
        run_script(arguments.script, arguments.arguments)
        return 0
    console.print(environment_table())
    console.print(rules_table())
    failure = self_check()
    if failure is None:
        console.print(
            "Self-check passed: the graph is rewritten only with the plugin on, and has the same value."
        )
        return 0
    console.print(f"Self-check failed: {failure}.")
    return 1


def run_script(script: str, arguments: list[str]) -> None:
    """Run a script as ``python script`` does, after :func:`pymc_fastlogp.patch_pymc`; child processes inherit the request to patch."""
    os.environ[patching.ENVIRONMENT_VARIABLE] = "1"
    patching.patch_pymc()
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def cache_report(*, clear: bool) -> str:
    """Return the folder, and number and size of the models and tables on disk; delete them if ``clear``."""
    models, tables = store.files(), query_cache.files()
    if models is None or tables is None:
        return f"Models and tables are not stored on disk: {store.ENVIRONMENT_VARIABLE} or PyTensor's numba__cache switches the cache off."
    report = (
        f"{_total(models, 'models')}, {_total(tables, 'results of tables')}, in {models.folder}"
    )
    if not is_private(models.folder):
        report += ", which is not used: the folder must belong to you, and nobody else may have write access"
    if not clear:
        return report
    for entry, _ in (*models.found(), *tables.found()):
        Path(entry.path).unlink(missing_ok=True)
    return f"{report}: deleted"


def _total(files: BoundedFiles, kind: str) -> str:
    sizes = {entry.name: status.st_size for entry, status in files.found()}
    n = sum(not name.endswith((store.SHAPES, UNFINISHED)) for name in sizes)
    megabytes = sum(sizes.values()) / 2**20
    return f"{n} {kind} with {megabytes:.1f} of at most {files.limit / 2**20:.0f} MB"


def environment_table() -> Table:
    """Return the versions of packages, the CPU and the state of the plugin as a table."""
    table = Table("", "", title="pymc_fastlogp", show_header=False)
    table.add_row("python", platform.python_version())
    for package in PACKAGES:
        table.add_row(package, version_of(package))
    table.add_row("CPU", f"{llvm.get_host_cpu_name()} ({platform.machine()})")
    table.add_row("vector width", f"{vector_bits(llvm.get_host_cpu_features())} bits")
    table.add_row("gathers", "by instruction" if uses_gathers() else "one load for each lane")
    table.add_row("usable cores", str(usable_cores()))
    table.add_row("threads per chain", threads_text())
    table.add_row("enabled", "yes" if is_enabled() else f"no: {why_off()}")
    table.add_row("patched", ", ".join(patching.patched_names()) or "nothing")
    table.add_row("optimizer_excluding", pytensor.config.optimizer_excluding or "nothing")
    return table


def threads_text() -> str:
    """Return the default number of threads of a chain, for several numbers of chains at a time."""
    if not is_supported():
        return "1: several threads need Linux on x86-64 or ARM"
    try:
        four, two, one = (threads_per_chain(None, n) for n in (4, 2, 1))
    except ValueError as error:
        return str(error)
    if ENVIRONMENT_VARIABLE in os.environ:
        return f"{one}, from {ENVIRONMENT_VARIABLE}"
    return f"{four} for four chains at a time, {two} for two, {one} for one"


def version_of(package: str) -> str:
    """Return the version of an installed package; a package that is only on ``sys.path`` has none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def vector_bits(cpu_features: dict[str, bool]) -> int:
    """Return the width of the widest vector register in bits, 64 without vector registers.

    Parameters
    ----------
    cpu_features : dict of str to bool
        For each of LLVM's feature names, whether this CPU has the feature.
    """
    return next((bits for name, bits in VECTOR_BITS.items() if cpu_features.get(name)), 64)


def rules_table() -> Table:
    """Return name, database or position, and tags of each registered rule, rules of whole graphs last."""
    table = Table("rewrite", "database", "tags", title="Registered rewrites")
    for rule in filter(is_in_optdb, ALL_RULES):
        place = rule.database if isinstance(rule, Rule) else f"optdb, at {rule.position:g}"
        table.add_row(rule.name, place, ", ".join(tags_of(rule)))
    return table


def tags_of(rule: Rule | GraphRule) -> tuple[str, ...]:
    """Return the tags of a rule, which select the rule as its name does."""
    return (TAG, *(rule.phase.tags if isinstance(rule, Rule) else rule.tags))


def is_in_optdb(rule: Rule | GraphRule) -> bool:
    """Return whether ``optdb`` returns the rule for its name and for each of its tags."""

    def names(key: str) -> set[str]:
        if isinstance(rule, Rule):
            found = database_of(rule).query(f"+{key}").get_node_rewriters()
        else:
            found = optdb.query(f"+{key}").data
        return {rewriter.name for rewriter in found}

    return all(rule.name in names(key) for key in (rule.name, *tags_of(rule)))


def self_check() -> str | None:
    """Compile a small graph with the plugin off and on; return the reason for a failure, or None."""
    if reason := untested_reason():
        return f"the plugin is disabled, {reason}"
    if is_excluded(CHECKED):
        return f"optimizer_excluding excludes {CHECKED.name}, which the check needs"
    if missing := [r.name for r in ALL_RULES if not is_excluded(r) and not is_in_optdb(r)]:
        return f"optdb has no {', '.join(missing)}"
    a = pt.vector("a", shape=(2,))
    graph = pt.exp(pt.zeros(5)[np.array([1, 3])].set(a))
    with switched(False):
        off = pytensor.function([a], graph, mode="NUMBA")
    with switched(True):
        on = pytensor.function([a], graph, mode="NUMBA")
    if not has_elemwise_of_set(off.maker.fgraph):
        return "the graph was rewritten with the plugin off"
    if has_elemwise_of_set(on.maker.fgraph):
        return "the graph was not rewritten with the plugin on"
    point = np.array([-1.0, 2.0])
    if not np.allclose(off(point), on(point), rtol=1e-14, atol=0):
        return f"the value is {off(point)} with the plugin off and {on(point)} with it on"
    return None


def has_elemwise_of_set(fgraph: FunctionGraph) -> bool:
    """Return whether an Elemwise has the result of an advanced set as input, which the checked rule removes."""
    return any(
        isinstance(node.op, Elemwise)
        and any(isinstance(x.owner_op, AdvancedIncSubtensor) for x in node.inputs)
        for node in fgraph.apply_nodes
    )


if __name__ == "__main__":
    sys.exit(main())
