"""The only module that touches ``optdb``: what is registered, under which name, where, and when not.

Every rewrite has a name of its own and the tag ``fastlogp``, so that ``mode.excluding(...)``,
``pytensor.config.optimizer_excluding`` and the rewrite profiler work with both. Registration
happens once, at import, and stays; the switch of :mod:`pymc_fastlogp.config` is asked each
time a rewrite is about to act. Unlike adding and removing tags of a database that all threads
share, this lets one thread compile with the plugin while another compiles without it.
"""

import importlib
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from pytensor.compile.mode import optdb
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import NodeRewriter

from pymc_fastlogp.config import is_enabled

TAG = "fastlogp"

# The release lines that the tests have run against.
TESTED = {"pymc": ("6.3", "6.4"), "pytensor": ("3.3",)}


class Rule(NamedTuple):
    """One rewrite and its place in ``optdb``."""

    name: str
    module: str
    function: str
    database: str
    tags: tuple[str, ...]
    # False keeps a rule out of queries for the database's own name, among them the rewriting
    # of log densities before their gradient is taken.
    in_database_queries: bool = True


RULES: tuple[Rule, ...] = (
    Rule(
        name="fastlogp_static_shape",
        module="pymc_fastlogp.rewrites.static_shape",
        function="local_static_shape",
        database="canonicalize",
        tags=("fast_run",),
    ),
    Rule(
        name="fastlogp_masked_reshape_to_set",
        module="pymc_fastlogp.rewrites.fill_to_set",
        function="local_masked_reshape_to_set",
        database="canonicalize",
        tags=("fast_run",),
    ),
    Rule(
        name="fastlogp_pad_of_set",
        module="pymc_fastlogp.rewrites.fill_to_set",
        function="local_pad_of_set",
        database="canonicalize",
        tags=("fast_run",),
    ),
    Rule(
        name="fastlogp_gather_of_join",
        module="pymc_fastlogp.rewrites.fill_to_set",
        function="local_gather_of_join",
        database="canonicalize",
        tags=("fast_run",),
    ),
    Rule(
        name="fastlogp_lift_set_subtensor",
        module="pymc_fastlogp.rewrites.lift_set_subtensor",
        function="local_lift_elemwise_through_set",
        # Where 0 / x and its like are simplified, so that a lift can follow from the last.
        database="canonicalize",
        tags=("fast_run",),
    ),
    # Only NUMBA: in mode JAX the gradient may be taken after `specialize`, by JAX.
    Rule(
        name="fastlogp_lift_set_subtensor_after_grad",
        module="pymc_fastlogp.rewrites.lift_set_subtensor",
        function="local_lift_elemwise_through_set_after_grad",
        database="specialize",
        tags=("numba",),
        in_database_queries=False,
    ),
)


class SwitchedRewriter(NodeRewriter):
    """A node rewriter that leaves every graph alone while the plugin is off."""

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
        """Apply the wrapped rewriter, or do nothing."""
        if not is_enabled():
            return None
        return self.rewriter.transform(fgraph, node, enforce_tracks=enforce_tracks)

    def __str__(self) -> str:
        return str(self.name)


_registered = False


def register() -> None:
    """Put every rule into ``optdb``; on versions that were not tested warn and leave it alone."""
    global _registered
    _registered = False
    reason = untested_reason()
    if reason is not None:
        warnings.warn(f"pymc_fastlogp stays off: {reason}.", UserWarning, stacklevel=3)
        return
    for rule in RULES:
        if is_excluded(rule):
            continue
        rewriter = getattr(importlib.import_module(rule.module), rule.function)
        database = optdb[rule.database]
        # A query that excluded the name before this import left an empty entry, an error below.
        if not database.__db__[rule.name]:
            del database.__db__[rule.name]
        # A second import, after a reload, replaces what the first registered.
        database.register(
            rule.name,
            SwitchedRewriter(rewriter),
            TAG,
            *rule.tags,
            use_db_name_as_tag=rule.in_database_queries,
            overwrite_existing=rule.name in database,
        )
    _registered = True


def is_registered() -> bool:
    """Whether the rules are in ``optdb``."""
    return _registered


def is_excluded(rule: Rule) -> bool:
    """Whether the flag ``optimizer_excluding`` names the rule or the tag of all rules.

    PyTensor fixes the flag at its import, and applies it to mode ``Mode`` alone and never before
    a gradient. A user who sets it expects more, so what it names is not registered at all.
    """
    return not {rule.name, TAG}.isdisjoint(config.optimizer_excluding.split(":"))


def untested_reason() -> str | None:
    """Say which installed package is outside :data:`TESTED`, or return None."""
    for package, lines in TESTED.items():
        installed = version(package)
        if ".".join(installed.split(".")[:2]) not in lines:
            return f"{package} {installed} is not tested, only {' and '.join(lines)}"
    return None
