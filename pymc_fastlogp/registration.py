"""Registration of the rules in ``optdb``, once, at import.

Each rewrite has its own name and the tag ``fastlogp``. ``mode.excluding(...)``,
``pytensor.config.optimizer_excluding`` and the rewrite profiler work with both.

Rewrites stay registered. Each rewrite reads the switch of :mod:`pymc_fastlogp.config` whenever it is applied.
So one thread can compile with the plugin while another thread compiles without the plugin; changes to a database
would affect all threads.
"""

import re
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pytensor.compile.mode import optdb
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import (
    GraphRewriter,
    NodeRewriter,
    Rewriter,
    WalkingGraphRewriter,
)
from pytensor.graph.rewriting.db import RewriteDatabase

from pymc_fastlogp import decisions
from pymc_fastlogp._upstream.pytensor import forget_empty_entry
from pymc_fastlogp.config import is_left_out, is_switched_on
from pymc_fastlogp.lazy_import import CHANGED, import_attribute, try_import_attribute
from pymc_fastlogp.rewrites.rows.row_rewriter import RowRules
from pymc_fastlogp.rules import GRAPH_RULES, ROWS, RULES, GraphRule, Rule

TAG = "fastlogp"

# Release lines that the tests run against.
TESTED = {"pymc": ("6.3", "6.4"), "pytensor": ("3.3",)}
# The oldest supported release, if not the first of its line (``python -m tests.versions oldest``).
OLDEST = {"pytensor": "3.3.5"}


class SwitchedRewriter(NodeRewriter):
    """A node rewriter that leaves every graph alone while the plugin is off, or the rewriter is left out."""

    def __init__(self, rewriter: NodeRewriter):
        self.rewriter = rewriter

    def tracks(self) -> Sequence[Any] | None:
        """Return the Ops of the wrapped rewriter."""
        return self.rewriter.tracks()

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        """Add the features that the wrapped rewriter needs."""
        self.rewriter.add_requirements(fgraph)

    def transform(
        self, fgraph: FunctionGraph, node: Apply, enforce_tracks: bool = True
    ) -> Any:  # PyTensor's TransformOutputType
        """Apply the wrapped rewriter if the plugin is on; record the decision unless the rewriter has recorded it."""
        # First, since a model calls this method thousands of times.
        if not is_switched_on() or is_left_out(self.name):
            return None
        before = decisions.times_fired()
        result = self.rewriter.transform(fgraph, node, enforce_tracks=enforce_tracks)
        if result and decisions.times_fired() == before:
            replaced = [*result] if isinstance(result, dict) else node.outputs[:1]
            for variable in replaced:
                decisions.fired(self.name, variable)
        return result

    def __str__(self) -> str:
        return str(self.name)


class SwitchedGraphRewriter(GraphRewriter):
    """A lazily imported rewriter of whole graphs that leaves every graph alone while the plugin is off."""

    def __init__(self, rewriter: str):
        self.rewriter = rewriter

    def apply(self, fgraph: FunctionGraph) -> None:
        """Apply the wrapped rewriter if the plugin is on."""
        if is_switched_on() and (
            rewriter := try_import_attribute(f"pymc_fastlogp.{self.rewriter}")
        ):
            rewriter().apply(fgraph)


def register() -> None:
    """Register all rules in ``optdb``; with untested versions of PyMC or PyTensor only warn."""
    reason = untested_reason()
    if reason is not None:
        warnings.warn(f"pymc_fastlogp stays off: {reason}.", UserWarning, stacklevel=3)
        return
    _put(optdb["stabilize"], ROWS, RowRules(), TAG, "fast_run", final_rewriter=True)
    for rule in RULES:
        if not is_excluded(rule):
            _register(rule)
    for graph_rule in GRAPH_RULES:
        if not is_excluded(graph_rule):
            _register_graph_rule(graph_rule)


def _register(rule: Rule) -> None:
    _put(
        database_of(rule),
        rule.name,
        SwitchedRewriter(_rewriter(rule)),
        TAG,
        *rule.phase.tags,
        use_db_name_as_tag=rule.phase.by_database_name,
    )


def _register_graph_rule(rule: GraphRule) -> None:
    rewriter = SwitchedGraphRewriter(rule.rewriter)
    _put(optdb, rule.name, rewriter, TAG, *rule.tags, position=rule.position)


def _put(
    database: RewriteDatabase,
    name: str,
    rewriter: RewriteDatabase | Rewriter,
    *tags: str,
    **kwargs: Any,
) -> None:
    """Register a rewriter; after a reload, replace the rewriter of the first import."""
    forget_empty_entry(database, name)
    database.register(name, rewriter, *tags, overwrite_existing=name in database, **kwargs)


def database_of(rule: Rule) -> RewriteDatabase:
    """Return the database that a rule is registered in."""
    return optdb["stabilize"][ROWS] if rule.database == ROWS else optdb[rule.database]


def registered(rule: Rule) -> NodeRewriter:
    """Return the rewriter registered by the name of a rule; raise KeyError if there is none."""
    found = database_of(rule)[rule.name]
    return found.node_rewriter if isinstance(found, WalkingGraphRewriter) else found


def is_enabled() -> bool:
    """Return whether a graph compiled here and now is rewritten by the plugin.

    False also with untested versions of PyMC or PyTensor.
    """
    return is_switched_on() and is_registered()


def is_registered() -> bool:
    """Return whether any of the rules is in ``optdb``."""
    return any(_is_in_optdb(rule) for rule in RULES)


def _is_in_optdb(rule: Rule) -> bool:
    try:
        return bool(registered(rule))
    except KeyError:
        return False


def is_excluded(rule: Rule | GraphRule) -> bool:
    """Return whether the flag ``optimizer_excluding`` names the rule, its database of rules about rows, or the tag of all rules.

    PyTensor reads the flag at import, and applies the flag to mode ``Mode`` alone and never before
    a gradient. A user of the flag expects more, so excluded rules are not registered at all.
    """
    excluded = config.optimizer_excluding.split(":")
    is_about_rows = isinstance(rule, Rule) and rule.database == ROWS
    return not {rule.name, TAG}.isdisjoint(excluded) or (is_about_rows and ROWS in excluded)


@cache
def untested_reason() -> str | None:
    """Return the reason for which the installed packages are unsupported, or None."""
    for package, lines in TESTED.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            return f"{package} is not installed as a package"
        if ".".join(installed.split(".")[:2]) not in lines:
            return f"{package} {installed} is not tested, only {' and '.join(lines)}"
        if _release(installed) < _release(OLDEST.get(package, lines[0])):
            return f"{package} {installed} is too old, {OLDEST[package]} is needed"
    try:
        for rule in RULES:
            _rewriter(rule), optdb["stabilize" if rule.database == ROWS else rule.database]
    except (ImportError, AttributeError, KeyError) as error:
        # A private API of PyTensor has moved.
        return f"{CHANGED} ({error})"
    return None


def _release(version_of_package: str) -> list[int]:
    """Return the first three numbers of a version, without suffixes of release candidates."""
    return [int(number) for number in re.findall(r"\d+", version_of_package)[:3]]


def _rewriter(rule: Rule) -> NodeRewriter:
    is_upstreams = rule.function.startswith("pytensor.")
    name = rule.function if is_upstreams else f"pymc_fastlogp.rewrites.{rule.function}"
    rewriter: NodeRewriter = import_attribute(name)
    return rewriter
