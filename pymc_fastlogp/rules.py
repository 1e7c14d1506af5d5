"""The table of rules: which rewrites there are, by which name, where in ``optdb`` and when.

:mod:`pymc_fastlogp.registration` registers them.
"""

from enum import Enum
from typing import NamedTuple

# An entry of `stabilize`: the rules about rows, in sequence.
ROWS = "fastlogp_rows"


class Phase(Enum):
    """Phase of compilation in which a rule runs: the tags that select it, and its selection by database name.

    PyMC and nutpie ask for ``canonicalize`` and ``stabilize`` by name, before they take a gradient.
    """

    BEFORE_GRADIENT = ("fast_run",), True  # and again when the function is compiled, in any mode
    FOR_GRADIENT = (), True  # then alone
    AFTER_GRADIENT = ("numba",), False
    FAST_COMPILE = ("fast_compile",), False

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the queries that select a rule of this phase, besides the tag ``fastlogp``."""
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


LIFT = "packed_matrices.lift_set_subtensor.local_lift_elemwise_through_set"

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
    Rule(
        "fastlogp_moves_to_set", "packed_matrices.moves_to_set.local_moves_to_set", "canonicalize"
    ),
    # Before the lift, which takes the quotient apart.
    Rule("fastlogp_unit_norms", "packed_matrices.unit_norms.local_unit_norms", "canonicalize"),
    # Before the lift, which the scaled factor is for.
    Rule("fastlogp_gram_of_scaled", "linalg.gram_of_scaled.local_gram_of_scaled", "canonicalize"),
    # Not `stabilize`: here 0 / x and its like are simplified, so that a lift can follow a lift.
    Rule("fastlogp_lift_set_subtensor", LIFT, "canonicalize"),
    # Before rows are compacted, so that a check reads no more of a row than it needs.
    Rule("fastlogp_fold_checks_by_range", FOLD_CHECKS, "canonicalize"),
    # Before the rules on rows, so that rows read the entries that are picked.
    Rule(
        "fastlogp_gather_before_elemwise",
        "rows.gather_before_elemwise.local_gather_before_elemwise",
        "canonicalize",
        until="PyTensor weighs what is picked against the table that is computed, not against each input",
    ),
    # Before all that looks at the rows of a likelihood.
    Rule(
        "fastlogp_split_imputed", "rows.compact.split_imputed.local_split_imputed", "canonicalize"
    ),
    Rule("fastlogp_split_join", "rows.compact.split_join.local_split_join", "canonicalize"),
    # Before the switch around it, which then goes.
    Rule("fastlogp_log_power", "switches.log_power.local_log_power", "canonicalize"),
    # Before rows are compacted, so that their terms have no mask.
    Rule("fastlogp_switch_to_zero", "switches.switch_to_zero.local_switch_to_zero", "canonicalize"),
    Rule(
        "fastlogp_shape_of_softmax",
        "shapes.shape_of_softmax.local_shape_of_softmax",
        "canonicalize",
        until="the type of PyTensor's Softmax has the shape of its input",
    ),
    # Again, since probabilities may become a sigmoid only here.
    Rule("fastlogp_fold_checks_by_range", FOLD_CHECKS, "stabilize"),
    # After `canonicalize`, where the lift still has to recognize norms that are not zero.
    Rule(
        "fastlogp_diag_of_filled",
        "packed_matrices.diag_of_filled.local_diag_of_filled",
        "stabilize",
    ),
    Rule(
        "fastlogp_sum_of_filled", "packed_matrices.sum_of_filled.local_sum_of_filled", "stabilize"
    ),
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
    Rule(
        "fastlogp_half_logdets",
        "linalg.terms_of_covariances.local_half_logdets",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor differentiates the factor of a covariance by one inverse",
    ),
    Rule(
        "fastlogp_quadratic_forms",
        "linalg.terms_of_covariances.local_quadratic_forms",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor differentiates the factor of a covariance by one inverse",
    ),
    Rule(
        "fastlogp_factor_times_vector",
        "linalg.factor_times_vector.local_factor_times_vector",
        "stabilize",
        Phase.FOR_GRADIENT,
    ),
    # Behind the rules that look for solves of vectors.
    Rule(
        "fastlogp_solve_of_rows",
        "linalg.solve_of_rows.local_solve_of_rows",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor has batched_vector_b_solve_to_matrix_b_solve in stabilize",
    ),
    # Behind the three rules that make what reads the triangle alone.
    Rule(
        "fastlogp_packed_covariance",
        "linalg.packed_covariance.local_packed_covariance",
        "stabilize",
        Phase.FOR_GRADIENT,
    ),
    Rule(
        "fastlogp_eigh_up_to_signs",
        "linalg.eigh_up_to_signs.local_eigh_up_to_signs",
        "stabilize",
        Phase.FOR_GRADIENT,
    ),
    Rule("fastlogp_solve_of_scaled", "linalg.solve_of_scaled.local_solve_of_scaled", "stabilize"),
    Rule(
        "fastlogp_difference_of_cumsum",
        "scalars.difference_of_cumsum.local_difference_of_cumsum",
        "stabilize",
    ),
    Rule(
        "fastlogp_difference_of_softplus",
        "scalars.difference_of_softplus.local_difference_of_softplus",
        "stabilize",
    ),
    Rule("fastlogp_quotient_times_exp", CANCEL, "stabilize", until=CANCEL_UNTIL),
    Rule(
        "fastlogp_precision_of_scale",
        "scalars.precision_of_scale.local_precision_of_scale",
        "stabilize",
        until="PyMC's Student t has its precision as a parameter",
    ),
    # Before rows are compacted, which finds fewer distinct ones among the factors than among products.
    Rule("fastlogp_log_of_product", "scalars.log_of_product.local_log_of_product", "stabilize"),
    Rule("fastlogp_masked_switch", "switches.masked_switch.local_masked_switch", "stabilize"),
    # After `canonicalize`, so that they see each likelihood in its final form; one after the other.
    # Before rows are compacted, which sums each term apart.
    Rule("fastlogp_rising_factorial", "loggamma.rising_factorial.local_rising_factorial", ROWS),
    # Behind it, for what it leaves.
    Rule("fastlogp_gamma_difference", "loggamma.keep_difference.local_gamma_difference", ROWS),
    Rule("fastlogp_gaussian_rows", "gaussian.gaussian_rows.local_gaussian_rows", ROWS),
    # Behind it, which reads rows of a product as they are.
    Rule("fastlogp_hoist_reductions", "rows.compact.hoist_reductions.local_hoist_reductions", ROWS),
    Rule("fastlogp_compact_rows", "rows.compact.compact_rows.local_compact_rows", ROWS),
    Rule("fastlogp_hoist_distinct", "rows.compact.hoist_distinct.local_hoist_distinct", ROWS),
    Rule("fastlogp_order_rows", "rows.order.order_rows.local_order_rows", ROWS),
    # In mode FAST_COMPILE alone: the others compile a loop better than its steps.
    Rule(
        "fastlogp_unroll_short_scan",
        "after_gradient.unroll_scan.local_unroll_short_scan",
        "canonicalize",
        Phase.FAST_COMPILE,
    ),
    # After the gradient again, for quotients that were sums over rows before these were compacted.
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
        "after_gradient.inline_op_from_graph.local_inline_op_from_graph",
        "specialize",
        Phase.AFTER_GRADIENT,
        until="the gradient of an OpFromGraph is no longer one (pymc-devs/pytensor#1174)",
    ),
    # When the gradient has brought the orders next to those of the log density.
    Rule(
        "fastlogp_ive_of_orders",
        "after_gradient.ive_of_orders.local_ive_of_orders",
        "specialize",
        Phase.AFTER_GRADIENT,
        until="PyTensor has Bessel functions of many orders",
    ),
    # When the gradient has brought powers next to those of the log density, and PyTensor has merged those it multiplies.
    Rule(
        "fastlogp_neighboring_powers",
        "after_gradient.neighboring_powers.local_neighboring_powers",
        "uncanonicalize",
        Phase.AFTER_GRADIENT,
    ),
    # Behind `specialize`, where PyTensor gathers rows of the factors instead.
    Rule(
        "fastlogp_gather_after_dot",
        "after_gradient.gather_after_dot.local_gather_after_dot",
        "uncanonicalize",
        Phase.AFTER_GRADIENT,
    ),
    # There, too, where products are in their final form.
    Rule(
        "fastlogp_dot_of_scattered",
        "after_gradient.dot_of_scattered.local_dot_of_scattered",
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
        Queries that select it, besides the tag ``fastlogp``.
    position : float
        Its place in the sequence.
    """

    name: str
    rewriter: str
    tags: tuple[str, ...]
    position: float


GRAPH_RULES: tuple[GraphRule, ...] = (
    # Before PyTensor makes a chain of increments (pre_local_IncSubtensor_serialize is at 0.99).
    GraphRule(
        "fastlogp_flat_increments",
        "rewrites.packed_matrices.flat_increments.FlatIncrements",
        ("fast_run",),
        0.98,
    ),
    # After elementwise fusion, before anything works in place (add_destroy_handler is at 49.5).
    GraphRule("fastlogp_fused_kernel", "kernel.graph.region.FuseRegions", ("numba",), 49.3),
    # Behind all rewriters of nodes.
    GraphRule("fastlogp_renewed_kernels", "kernel.graph.region.RenewKernels", ("numba",), 199.0),
    # Behind all others: what is no longer a constant is not rewritten as one.
    GraphRule(
        "fastlogp_held_constants", "kernel.graph.held_constants.HoldConstants", ("numba",), 200.0
    ),
)
