"""The only module that touches ``optdb``: what is registered, by which name, where, when not.

Every rewrite has a name of its own and the tag ``fastlogp``, so that ``mode.excluding(...)``,
``pytensor.config.optimizer_excluding`` and the rewrite profiler work with both. Registration
happens once, at import, and stays; the switch of :mod:`pymc_fastlogp.config` is asked each
time a rewrite is about to act. Unlike adding and removing tags of a database that all threads
share, this lets one thread compile with the plugin while another compiles without it.
"""

import warnings
from collections.abc import Sequence
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

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
from pymc_fastlogp.config import is_switched_on
from pymc_fastlogp.late import CHANGED, imported, imported_late
from pymc_fastlogp.rewrites.rows.sequence import RowRules

TAG = "fastlogp"

# An entry of `stabilize`: the rules about rows, in sequence.
ROWS = "fastlogp_rows"

# The release lines that the tests have run against.
TESTED = {"pymc": ("6.3", "6.4"), "pytensor": ("3.3",)}


class Phase(Enum):
    """When a rule runs: the tags that select it, and whether the name of its database does too.

    PyMC and nutpie ask for ``canonicalize`` and ``stabilize`` by name, before they take a gradient.
    """

    BEFORE_GRADIENT = ("fast_run",), True  # and again when the function is compiled, in any mode
    FOR_GRADIENT = (), True  # then alone
    AFTER_GRADIENT = ("numba",), False
    FAST_COMPILE = ("fast_compile",), False

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the queries that select a rule of this phase, besides :data:`TAG`."""
        return self.value[0]

    @property
    def by_database_name(self) -> bool:
        """Return whether a query for the name of the database selects it too."""
        return self.value[1]


class Rule(NamedTuple):
    """One rewrite and its place in ``optdb``.

    Attributes
    ----------
    name : str
        For users, who exclude the rewrite by it. Unique within a database.
    function : str
        ``module.function`` below ``pymc_fastlogp.rewrites``, or a rewriter of PyTensor's own, from
        ``pytensor`` on, that is to run earlier than PyTensor has it.
    database : str
        The entry of ``optdb`` that it goes into, or :data:`ROWS`.
    phase : Phase
        When it runs.
    until : str
        What has to come from upstream for the rule to be deleted, where that is expected.
    """

    name: str
    function: str
    database: str
    phase: Phase = Phase.BEFORE_GRADIENT
    until: str = ""


LIFT = "filled.lift_set_subtensor.local_lift_elemwise_through_set"

FOLD_CHECKS = "checks.fold_checks_by_range.local_fold_checks_by_range"

CANCEL = "scalars.quotient_times_exp.local_quotient_times_exp"
CANCEL_UNTIL = "PyTensor's local_greedy_distributor cancels in sums of any number of terms"

RULES: tuple[Rule, ...] = (
    # PyTensor has it among the rules of `ShapeOpt`, which runs when a function is compiled.
    Rule(
        "fastlogp_static_shape",
        "pytensor.tensor.rewriting.shape.local_shape_ground",
        "canonicalize",
        until="PyTensor has local_shape_ground in canonicalize",
    ),
    Rule("fastlogp_static_output", "shapes.static_output.local_static_output", "canonicalize"),
    # Before rows are compacted, so that they know what they read.
    Rule("fastlogp_fold_alloc", "shapes.fold_alloc.local_fold_alloc", "canonicalize"),
    Rule("fastlogp_moves_to_set", "filled.moves_to_set.local_moves_to_set", "canonicalize"),
    # Before the lift, which takes the quotient apart.
    Rule("fastlogp_unit_norms", "filled.unit_norms.local_unit_norms", "canonicalize"),
    # Before the lift, which the scaled factor is for.
    Rule("fastlogp_gram_of_scaled", "linalg.gram_of_scaled.local_gram_of_scaled", "canonicalize"),
    # Not `stabilize`: here 0 / x and its like are simplified, so that a lift can follow a lift.
    Rule("fastlogp_lift_set_subtensor", LIFT, "canonicalize"),
    # Before rows are compacted, so that a check reads no more of a row than it needs.
    Rule("fastlogp_fold_checks_by_range", FOLD_CHECKS, "canonicalize"),
    # Before rows are compacted, so that their terms have no mask.
    Rule("fastlogp_switch_to_zero", "rows.switch_to_zero.local_switch_to_zero", "canonicalize"),
    Rule(
        "fastlogp_shape_of_softmax",
        "shapes.shape_of_softmax.local_shape_of_softmax",
        "canonicalize",
        until="the type of PyTensor's Softmax has the shape of its input",
    ),
    # Again, since probabilities may become a sigmoid only here.
    Rule("fastlogp_fold_checks_by_range", FOLD_CHECKS, "stabilize"),
    # After `canonicalize`, where the lift still has to recognise norms that are not zero.
    Rule("fastlogp_diag_of_filled", "filled.diag_of_filled.local_diag_of_filled", "stabilize"),
    Rule("fastlogp_sum_of_filled", "filled.sum_of_filled.local_sum_of_filled", "stabilize"),
    Rule("fastlogp_square_of_abs", "scalars.identities.square_of_abs", "stabilize"),
    Rule(
        "fastlogp_pow_to_sqrt",
        "scalars.identities.pow_to_sqrt",
        "stabilize",
        until="PyTensor takes roots before the gradient, and those of integers in double precision",
    ),
    Rule(
        "fastlogp_cholesky_of_gram", "linalg.cholesky_of_gram.local_cholesky_of_gram", "stabilize"
    ),
    Rule(
        "fastlogp_cholesky_of_inverse",
        "linalg.cholesky_of_inverse.local_cholesky_of_inverse",
        "stabilize",
    ),
    Rule(
        "fastlogp_cholesky_of_scaled",
        "linalg.cholesky_of_scaled.local_cholesky_of_scaled",
        "stabilize",
    ),
    Rule(
        "fastlogp_half_logdet",
        "linalg.terms_of_covariance.local_half_logdet",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor differentiates the factor of a covariance by one inverse",
    ),
    Rule(
        "fastlogp_quadratic_form",
        "linalg.terms_of_covariance.local_quadratic_form",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor differentiates the factor of a covariance by one inverse",
    ),
    Rule("fastlogp_solve_of_scaled", "linalg.solve_of_scaled.local_solve_of_scaled", "stabilize"),
    Rule(
        "fastlogp_difference_of_cumsum",
        "scalars.difference_of_cumsum.local_difference_of_cumsum",
        "stabilize",
    ),
    Rule(
        "fastlogp_difference_of_softplus",
        "scalars.identities.difference_of_softplus",
        "stabilize",
    ),
    Rule("fastlogp_quotient_times_exp", CANCEL, "stabilize", until=CANCEL_UNTIL),
    Rule("fastlogp_masked_switch", "rows.masked_switch.local_masked_switch", "stabilize"),
    # After `canonicalize`, so that they see each likelihood in its final form; one after the other.
    Rule("fastlogp_gaussian_rows", "gaussian.gaussian_rows.local_gaussian_rows", ROWS),
    Rule("fastlogp_compact_rows", "rows.compact_rows.local_compact_rows", ROWS),
    Rule("fastlogp_hoist_distinct", "rows.hoist_distinct.local_hoist_distinct", ROWS),
    Rule("fastlogp_order_rows", "rows.order_rows.local_order_rows", ROWS),
    # In mode FAST_COMPILE alone: the others compile a loop better than its steps.
    Rule(
        "fastlogp_unroll_short_scan",
        "compiled.unroll_scan.local_unroll_short_scan",
        "canonicalize",
        Phase.FAST_COMPILE,
    ),
    # After the gradient, of which it changes nothing.
    Rule(
        "fastlogp_log_of_scaled_exp",
        "compiled.log_of_scaled_exp.local_log_of_scaled_exp",
        "specialize",
        Phase.AFTER_GRADIENT,
    ),
    # Again, for quotients that were sums over rows before these were compacted.
    Rule(
        "fastlogp_quotient_times_exp",
        CANCEL,
        "specialize",
        Phase.AFTER_GRADIENT,
        until=CANCEL_UNTIL,
    ),
    # Where PyTensor inlines those that it knows by name.
    Rule(
        "fastlogp_inline_op_from_graph",
        "compiled.inline_op_from_graph.local_inline_op_from_graph",
        "specialize",
        Phase.AFTER_GRADIENT,
        until="the gradient of an OpFromGraph is no longer one (pymc-devs/pytensor#1174)",
    ),
    # Behind `specialize`, where PyTensor gathers rows of the factors instead.
    Rule(
        "fastlogp_gather_after_dot",
        "compiled.gather_after_dot.local_gather_after_dot",
        "uncanonicalize",
        Phase.AFTER_GRADIENT,
    ),
    # Not in mode JAX, where JAX itself takes the gradient, after `specialize`.
    Rule("fastlogp_lift_set_subtensor", f"{LIFT}_after_grad", "specialize", Phase.AFTER_GRADIENT),
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
    GraphRule("fastlogp_fused_kernel", "kernel.graph.region.FuseRegions", ("numba",), 49.3),
    # Behind all others: what is no longer a constant is not rewritten as one.
    GraphRule(
        "fastlogp_held_constants", "kernel.numba.held_constants.HoldConstants", ("numba",), 200.0
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
        if is_switched_on() and (rewriter := imported_late(f"pymc_fastlogp.{self.rewriter}")):
            rewriter().apply(fgraph)


def register() -> None:
    """Put every rule into ``optdb``; on versions that were not tested warn and leave it alone."""
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
    """Register a rewriter; after a reload it replaces what the first import registered."""
    forget_empty_entry(database, name)
    database.register(name, rewriter, *tags, overwrite_existing=name in database, **kwargs)


def database_of(rule: Rule) -> RewriteDatabase:
    """Return where a rule is registered."""
    return optdb["stabilize"][ROWS] if rule.database == ROWS else optdb[rule.database]


def registered(rule: Rule) -> NodeRewriter:
    """Return what is registered by the name of a rule, an error if nothing is."""
    found = database_of(rule)[rule.name]
    return found.node_rewriter if isinstance(found, WalkingGraphRewriter) else found


def is_enabled() -> bool:
    """Whether a graph compiled here and now is rewritten by the plugin.

    False as well where the installed PyMC or PyTensor is not a tested version.
    """
    return is_switched_on() and is_registered()


def is_registered() -> bool:
    """Whether any of the rules is in ``optdb``."""
    return any(_is_in_optdb(rule) for rule in RULES)


def _is_in_optdb(rule: Rule) -> bool:
    try:
        return bool(registered(rule))
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
            _rewriter(rule), optdb["stabilize" if rule.database == ROWS else rule.database]
    except (ImportError, AttributeError, KeyError) as error:
        # A part of PyTensor that is not its public API has moved.
        return f"{CHANGED} ({error})"
    return None


def _rewriter(rule: Rule) -> NodeRewriter:
    is_upstreams = rule.function.startswith("pytensor.")
    name = rule.function if is_upstreams else f"pymc_fastlogp.rewrites.{rule.function}"
    rewriter: NodeRewriter = imported(name)
    return rewriter
