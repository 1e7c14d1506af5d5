"""The only module that touches ``optdb``: what is registered, by which name, where, when not.

Every rewrite has a name of its own and the tag ``fastlogp``, so that ``mode.excluding(...)``,
``pytensor.config.optimizer_excluding`` and the rewrite profiler work with both. Registration
happens once, at import, and stays; the switch of :mod:`pymc_fastlogp.config` is asked each
time a rewrite is about to act. Unlike adding and removing tags of a database that all threads
share, this lets one thread compile with the plugin while another compiles without it.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from pytensor.compile.mode import optdb
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, NodeRewriter
from pytensor.graph.rewriting.db import RewriteDatabase

from pymc_fastlogp.config import is_switched_on
from pymc_fastlogp.late import CHANGED, imported, imported_late
from pymc_fastlogp.rewrites import decisions

TAG = "fastlogp"

# The release lines that the tests have run against.
TESTED = {"pymc": ("6.3", "6.4"), "pytensor": ("3.3",)}


class Rule(NamedTuple):
    """One rewrite and its place in ``optdb``.

    Attributes
    ----------
    name : str
        For users, who exclude the rewrite by it. Unique within a database.
    function : str
        ``module.function`` below ``pymc_fastlogp.rewrites``.
    database : str
        The entry of ``optdb`` that it goes into.
    tags : tuple of str
        Queries that select it, besides :data:`TAG`.
    by_database_name : bool
        Whether a query for the name of the database selects it too. PyMC and nutpie ask for
        ``canonicalize`` and ``stabilize`` so, before they take a gradient.
    """

    name: str
    function: str
    database: str
    tags: tuple[str, ...] = ("fast_run",)
    by_database_name: bool = True


LIFT = "lift_set_subtensor.local_lift_elemwise_through_set"

SURE_CHECKS = "sure_checks.local_sure_checks"

RULES: tuple[Rule, ...] = (
    Rule("fastlogp_static_shape", "static_shape.local_static_shape", "canonicalize"),
    Rule("fastlogp_static_output", "static_output.local_static_output", "canonicalize"),
    Rule(
        "fastlogp_masked_reshape_to_set", "fill_to_set.local_masked_reshape_to_set", "canonicalize"
    ),
    Rule("fastlogp_pad_of_set", "fill_to_set.local_pad_of_set", "canonicalize"),
    Rule("fastlogp_diag_of_diag", "diag_of_diag.local_diag_of_diag", "canonicalize"),
    # Before the lift, which the squares and the scaled factor are for.
    Rule("fastlogp_diag_of_product", "diag_of_product.local_diag_of_product", "canonicalize"),
    Rule("fastlogp_gram_of_scaled", "gram_of_scaled.local_gram_of_scaled", "canonicalize"),
    # Not `stabilize`: here 0 / x and its like are simplified, so that a lift can follow a lift.
    Rule("fastlogp_lift_set_subtensor", LIFT, "canonicalize"),
    # Before rows are compacted, so that a check reads no more of a row than it needs.
    Rule("fastlogp_sure_checks", SURE_CHECKS, "canonicalize"),
    # Before rows are compacted, so that their terms have no mask.
    Rule("fastlogp_switch_to_zero", "switch_to_zero.local_switch_to_zero", "canonicalize"),
    Rule("fastlogp_shape_of_softmax", "static_shape.local_shape_of_softmax", "canonicalize"),
    # Again, since probabilities may become a sigmoid only here.
    Rule("fastlogp_sure_checks", SURE_CHECKS, "stabilize"),
    # After `canonicalize`, where the lift still has to recognise norms that are not zero.
    Rule("fastlogp_diag_of_filled", "diag_of_filled.local_diag_of_filled", "stabilize"),
    Rule("fastlogp_sum_of_filled", "sum_of_filled.local_sum_of_filled", "stabilize"),
    Rule("fastlogp_square_of_abs", "square_of_abs.local_square_of_abs", "stabilize"),
    Rule("fastlogp_pow_to_sqrt", "pow_to_sqrt.local_pow_to_sqrt", "stabilize"),
    Rule("fastlogp_unit_norms", "unit_norms.local_unit_norms", "stabilize"),
    Rule("fastlogp_write_of_permuted", "permuted_rows.local_write_of_permuted", "stabilize"),
    Rule(
        "fastlogp_reduction_of_permuted", "permuted_rows.local_reduction_of_permuted", "stabilize"
    ),
    Rule("fastlogp_cholesky_of_gram", "cholesky_of_gram.local_cholesky_of_gram", "stabilize"),
    Rule(
        "fastlogp_cholesky_of_inverse",
        "cholesky_of_inverse.local_cholesky_of_inverse",
        "stabilize",
    ),
    Rule("fastlogp_cholesky_of_scaled", "cholesky_of_scaled.local_cholesky_of_scaled", "stabilize"),
    Rule("fastlogp_solve_of_scaled", "solve_of_scaled.local_solve_of_scaled", "stabilize"),
    Rule(
        "fastlogp_difference_of_cumsum",
        "difference_of_cumsum.local_difference_of_cumsum",
        "stabilize",
    ),
    Rule("fastlogp_inc_of_scattered", "inc_of_scattered.local_inc_of_scattered", "stabilize"),
    Rule(
        "fastlogp_difference_of_softplus",
        "difference_of_softplus.local_difference_of_softplus",
        "stabilize",
    ),
    Rule("fastlogp_masked_switch", "masked_switch.local_masked_switch", "stabilize"),
    # After `canonicalize`, so that it sees each likelihood in its final form.
    Rule("fastlogp_gaussian_rows", "gaussian_rows.local_gaussian_rows", "stabilize"),
    Rule("fastlogp_compact_rows", "compact_rows.local_compact_rows", "stabilize"),
    Rule("fastlogp_hoist_distinct", "hoist_distinct.local_hoist_distinct", "stabilize"),
    # After what makes other rows of the rows.
    Rule("fastlogp_order_rows", "order_rows.local_order_rows", "stabilize"),
    # In mode FAST_COMPILE alone: the others compile a loop better than its steps.
    Rule(
        "fastlogp_unroll_short_scan",
        "unrolled_scan.local_unroll_short_scan",
        "canonicalize",
        ("fast_compile",),
        False,
    ),
    # After the gradient, of which it changes nothing.
    Rule(
        "fastlogp_log_of_scaled_exp",
        "log_of_scaled_exp.local_log_of_scaled_exp",
        "specialize",
        ("numba",),
        False,
    ),
    # Where PyTensor inlines those that it knows by name.
    Rule(
        "fastlogp_inlined_graph",
        "inlined_graph.local_inlined_graph",
        "specialize",
        ("numba",),
        False,
    ),
    # Behind `specialize`, where PyTensor gathers rows of the factors instead.
    Rule(
        "fastlogp_gathered_product",
        "gathered_product.local_gathered_product",
        "uncanonicalize",
        ("numba",),
        False,
    ),
    # Not in mode JAX, where JAX itself takes the gradient, after `specialize`.
    Rule("fastlogp_lift_set_subtensor", f"{LIFT}_after_grad", "specialize", ("numba",), False),
)


class GraphRule(NamedTuple):
    """One rewrite of a whole graph, an entry of ``optdb`` itself.

    Attributes
    ----------
    name : str
        For users, who exclude the rewrite by it. Unique within ``optdb``.
    rewriter : str
        ``module.class`` below ``pymc_fastlogp``, imported when a graph first asks for it.
    tags : tuple of str
        Queries that select it, besides :data:`TAG`.
    position : float
        Its place in the sequence.
    """

    name: str
    rewriter: str
    tags: tuple[str, ...]
    position: float


# After elementwise fusion, before anything works in place (add_destroy_handler is at 49.5).
GRAPH_RULES: tuple[GraphRule, ...] = (
    GraphRule("fastlogp_fused_kernel", "kernel.region.FuseRegions", ("numba",), 49.3),
    # Behind the kernels, which share by themselves.
    GraphRule("fastlogp_shared_exp", "rewrites.shared_exp.ShareExp", ("numba",), 49.4),
    # Behind the shared exponentials, which it keeps apart.
    GraphRule("fastlogp_costly_apart", "rewrites.costly_apart.CostlyApart", ("numba",), 49.45),
    # Behind all others: what is no longer a constant is not rewritten as one.
    GraphRule("fastlogp_held_constants", "kernel.held_constants.HoldConstants", ("numba",), 200.0),
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
        """Apply the wrapped rewriter, or do nothing; say so where it has not itself."""
        if not is_switched_on():
            return None
        with decisions.collected() as said:
            result = self.rewriter.transform(fgraph, node, enforce_tracks=enforce_tracks)
        if result and not any(decision.fired for decision in said):
            decisions.fired(self.name, node.outputs[0])
        return result

    def __str__(self) -> str:
        return str(self.name)


class SwitchedGraphRewriter(GraphRewriter):
    """A rewriter of whole graphs, imported late, that leaves every graph alone while the plugin is off."""

    def __init__(self, rewriter: str):
        self.rewriter = rewriter

    def apply(self, fgraph: FunctionGraph) -> None:
        """Apply the wrapped rewriter, or do nothing."""
        if is_switched_on() and (rewriter := imported_late(self.rewriter)):
            rewriter().apply(fgraph)


def register() -> None:
    """Put every rule into ``optdb``; on versions that were not tested warn and leave it alone."""
    reason = untested_reason()
    if reason is not None:
        warnings.warn(f"pymc_fastlogp stays off: {reason}.", UserWarning, stacklevel=3)
        return
    for rule in RULES:
        if not is_excluded(rule):
            _register(rule)
    for graph_rule in GRAPH_RULES:
        if not is_excluded(graph_rule):
            _register_graph_rule(graph_rule)


def _register(rule: Rule) -> None:
    database = optdb[rule.database]
    _forget_query(database, rule.name)
    # A second import, after a reload, replaces what the first registered.
    database.register(
        rule.name,
        SwitchedRewriter(_rewriter(rule)),
        TAG,
        *rule.tags,
        use_db_name_as_tag=rule.by_database_name,
        overwrite_existing=rule.name in database,
    )


def _register_graph_rule(rule: GraphRule) -> None:
    _forget_query(optdb, rule.name)
    optdb.register(
        rule.name,
        SwitchedGraphRewriter(rule.rewriter),
        TAG,
        *rule.tags,
        position=rule.position,
        overwrite_existing=rule.name in optdb,
    )


def _forget_query(database: RewriteDatabase, name: str) -> None:
    """Delete the empty entry that a query which excluded the name left; it is an error below."""
    if not database.__db__[name]:
        del database.__db__[name]


def is_registered() -> bool:
    """Whether any of the rules is in ``optdb``."""
    return any(_is_in_optdb(rule) for rule in RULES)


def _is_in_optdb(rule: Rule) -> bool:
    try:
        return bool(optdb[rule.database][rule.name])
    except KeyError:
        return False


def is_excluded(rule: Rule | GraphRule) -> bool:
    """Whether the flag ``optimizer_excluding`` names the rule or the tag of all rules.

    PyTensor fixes the flag at its import, and applies it to mode ``Mode`` alone and never before
    a gradient. A user who sets it expects more, so what it names is not registered at all.
    """
    return not {rule.name, TAG}.isdisjoint(config.optimizer_excluding.split(":"))


@cache
def untested_reason() -> str | None:
    """Say what about the installed packages was never tested, or return None."""
    for package, lines in TESTED.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            return f"{package} is not installed as a package"
        if ".".join(installed.split(".")[:2]) not in lines:
            return f"{package} {installed} is not tested, only {' and '.join(lines)}"
    try:
        for rule in RULES:
            _rewriter(rule), optdb[rule.database]
    except (ImportError, AttributeError, KeyError) as error:
        # A part of PyTensor that is not its public API has moved.
        return f"{CHANGED} ({error})"
    return None


def _rewriter(rule: Rule) -> NodeRewriter:
    rewriter: NodeRewriter = imported(f"rewrites.{rule.function}")
    return rewriter
