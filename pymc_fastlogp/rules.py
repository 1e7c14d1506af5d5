"""Table of the rewrites: name, function, database of ``optdb``, and phase of compilation.

:mod:`pymc_fastlogp.registration` registers the rows. The comment above each row is the reason for its place.
"""

from enum import Enum
from typing import NamedTuple

# Database within `stabilize` whose rules run in sequence: the rules about rows.
ROWS = "fastlogp_rows"


class Phase(Enum):
    """Phase of compilation in which a rule runs: the tags that select it, and its selection by database name.

    PyMC and nutpie ask for ``canonicalize`` and ``stabilize`` by name, before they take a gradient.
    """

    BEFORE_GRADIENT = ("fast_run",), True  # and again when the function is compiled, in any mode
    FOR_GRADIENT = (), True  # not when the function is compiled
    AFTER_GRADIENT = ("numba",), False
    FAST_COMPILE = ("fast_compile",), False

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags of a rule of this phase, besides ``fastlogp``."""
        return self.value[0]

    @property
    def by_database_name(self) -> bool:
        """Return whether a query for the name of the database also selects the rule."""
        return self.value[1]


class Rule(NamedTuple):
    """One rewrite and its place in ``optdb``.

    Attributes
    ----------
    name : str
        Unique name within a database, by which users exclude the rewrite.
    function : str
        ``module.function`` below ``pymc_fastlogp.rewrites``, or the full name of a rewriter of PyTensor
        that runs earlier here than in PyTensor.
    database : str
        Database within ``optdb``, or :data:`ROWS`.
    phase : Phase
        Phase of compilation.
    until : str
        Change in PyTensor or PyMC that makes the rule obsolete, if one is expected.
    is_exact : bool
        Whether the rule keeps digits where PyTensor's result is infinite or NaN by round-off. ``docs/reliability.md`` lists these differences,
        and :func:`pymc_fastlogp.verify` does not count them.
    """

    name: str
    function: str
    database: str
    phase: Phase = Phase.BEFORE_GRADIENT
    until: str = ""
    is_exact: bool = False


LIFT = "packed_matrices.lift_set_subtensor.local_lift_elemwise_through_set"

FOLD_CHECKS = "checks.fold_checks_by_range.local_fold_checks_by_range"

RULES: tuple[Rule, ...] = (
    # In `canonicalize`, so that rules before the gradient see static shapes: PyTensor's `ShapeOpt` runs only when a function is compiled.
    Rule(
        "fastlogp_static_shape",
        "pytensor.tensor.rewriting.shape.local_shape_ground",
        "canonicalize",
        until="PyTensor has local_shape_ground in canonicalize",
    ),
    # In `canonicalize`, before types downstream become static: the product of a sparse matrix has no static shape.
    Rule("fastlogp_sparse_product", "linalg.sparse_product.local_sparse_product", "canonicalize"),
    # In `canonicalize`, so that types downstream of a replaced variable are static before the rules that ask for a shape.
    Rule("fastlogp_static_output", "shapes.static_output.local_static_output", "canonicalize"),
    # In `canonicalize`, before rows are compacted, so that row rules see the vector that is broadcast.
    Rule("fastlogp_fold_alloc", "shapes.fold_alloc.local_fold_alloc", "canonicalize"),
    # In `canonicalize`, before the lift, which needs one set for each vector.
    Rule(
        "fastlogp_moves_to_set", "packed_matrices.moves_to_set.local_moves_to_set", "canonicalize"
    ),
    # In `canonicalize`, before the lift, which takes the quotient apart.
    Rule("fastlogp_unit_norms", "packed_matrices.unit_norms.local_unit_norms", "canonicalize"),
    # In `canonicalize`, before the lift, which then applies to the scaled factor.
    Rule("fastlogp_gram_of_scaled", "linalg.gram_of_scaled.local_gram_of_scaled", "canonicalize"),
    # In `canonicalize`, before rows are compacted, so that row rules see effects in place of a product.
    Rule(
        "fastlogp_product_of_solve",
        "linalg.product_of_solve.local_product_of_solve",
        "canonicalize",
    ),
    # In `canonicalize`, where `0 / x` and the like are simplified, so that a further lift can follow.
    Rule("fastlogp_lift_set_subtensor", LIFT, "canonicalize"),
    # In `canonicalize`, before rows are compacted, so that rows have no columns that only a check reads.
    Rule("fastlogp_fold_checks_by_range", FOLD_CHECKS, "canonicalize"),
    # In `canonicalize`, before the rules about rows, which then read only the entries that are picked.
    Rule(
        "fastlogp_gather_before_elemwise",
        "rows.gather_before_elemwise.local_gather_before_elemwise",
        "canonicalize",
        until="PyTensor compares the size of a gather with the table that is computed, not with each input",
    ),
    # In `canonicalize`, where `gather_before_elemwise` then selects the entries of the table that are observed.
    Rule(
        "fastlogp_log_of_sigmoid_difference",
        "scalars.ordered_logit.local_log_of_sigmoid_difference",
        "canonicalize",
        is_exact=True,
    ),
    # In `canonicalize`, as the rule above, whose right side it shares.
    Rule(
        "fastlogp_logdiffexp_of_cdfs",
        "scalars.logdiffexp.local_logdiffexp_of_cdfs",
        "canonicalize",
        is_exact=True,
    ),
    # In `canonicalize`, as the rules above, so that no probabilities are left.
    Rule(
        "fastlogp_check_of_ordered",
        "scalars.ordered_logit.local_check_of_ordered",
        "canonicalize",
        is_exact=True,
    ),
    # In `stabilize`, after PyTensor replaces `1 + erf(x)` by `erfc(-x)`.
    Rule(
        "fastlogp_log_of_normal_interval",
        "scalars.normal_interval.local_log_of_normal_interval",
        "stabilize",
        is_exact=True,
    ),
    # In `stabilize`, behind the rule above, which rewrites the last of the cases.
    Rule(
        "fastlogp_switch_of_normal_interval",
        "scalars.normal_interval.local_switch_of_normal_interval",
        "stabilize",
        is_exact=True,
    ),
    # In `canonicalize`, before the gradient, which then has no product of matrices.
    Rule(
        "fastlogp_diag_of_product", "linalg.diag_of_product.local_diag_of_product", "canonicalize"
    ),
    # In `canonicalize`, before all rules about rows, which then see the index of the rows in the table.
    Rule(
        "fastlogp_gather_of_gather",
        "rows.gather_of_gather.local_gather_of_gather",
        "canonicalize",
    ),
    # In `canonicalize`, before all rules about rows, which then treat complete rows apart from imputed rows.
    Rule(
        "fastlogp_split_imputed", "rows.compact.split_imputed.local_split_imputed", "canonicalize"
    ),
    # In `canonicalize`, before all rules about rows, which then see each part of a join.
    Rule("fastlogp_split_join", "rows.compact.split_join.local_split_join", "canonicalize"),
    # In `canonicalize`, where PyTensor then takes the logarithm of the exponential.
    Rule(
        "fastlogp_elementary_incomplete",
        "scalars.identities.elementary_incomplete",
        "canonicalize",
        is_exact=True,
    ),
    # In `canonicalize`, before the rules about switches, which then drop the switch around the power.
    Rule("fastlogp_log_power", "switches.log_power.local_log_power", "canonicalize"),
    # In `canonicalize`, before rows are compacted, so that their terms have no mask.
    Rule("fastlogp_switch_to_zero", "switches.switch_to_zero.local_switch_to_zero", "canonicalize"),
    # In `canonicalize`, so that the rules about rows see the static shape.
    Rule(
        "fastlogp_shape_of_softmax",
        "shapes.shape_of_softmax.local_shape_of_softmax",
        "canonicalize",
        until="the type of PyTensor's Softmax has the shape of its input",
    ),
    # In `stabilize` again, where probabilities may first become a sigmoid.
    Rule("fastlogp_fold_checks_by_range", FOLD_CHECKS, "stabilize"),
    # In `stabilize`, since the lift in `canonicalize` recognizes nonzero norms by the diagonal.
    Rule(
        "fastlogp_diag_of_filled",
        "packed_matrices.diag_of_filled.local_diag_of_filled",
        "stabilize",
    ),
    # In `stabilize`, behind the lift, which leaves sums of filled matrices.
    Rule(
        "fastlogp_sum_of_filled", "packed_matrices.sum_of_filled.local_sum_of_filled", "stabilize"
    ),
    # In `stabilize`, before the gradient, which is then free of `sign`.
    Rule("fastlogp_square_of_abs", "scalars.identities.square_of_abs", "stabilize"),
    # In `stabilize`, before the gradient: PyTensor's `local_pow_specialize` runs after the gradient.
    Rule(
        "fastlogp_pow_to_sqrt",
        "scalars.identities.pow_to_sqrt",
        "stabilize",
        until="PyTensor takes roots before the gradient, and roots of integers in double precision",
    ),
    # In `stabilize`, before the gradient, which then has no factorization.
    Rule(
        "fastlogp_cholesky_of_gram", "linalg.cholesky_of_gram.local_cholesky_of_gram", "stabilize"
    ),
    # In `stabilize`, before the gradient, which then has no inverse.
    Rule(
        "fastlogp_cholesky_of_inverse",
        "linalg.cholesky_of_inverse.local_cholesky_of_inverse",
        "stabilize",
    ),
    # In `stabilize`, before the gradient, which then has no factorization.
    Rule(
        "fastlogp_cholesky_of_scaled",
        "linalg.cholesky_of_scaled.local_cholesky_of_scaled",
        "stabilize",
    ),
    # In `stabilize` and for the gradient alone: the Op is replaced by its inner graph when a function is compiled.
    Rule(
        "fastlogp_half_logdet",
        "linalg.terms_of_covariance.local_half_logdet",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor differentiates the factor of a covariance by one inverse",
    ),
    # In `stabilize` and for the gradient alone, as `half_logdet`, with which the Op shares the inverse.
    Rule(
        "fastlogp_quadratic_form",
        "linalg.terms_of_covariance.local_quadratic_form",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor differentiates the factor of a covariance by one inverse",
    ),
    # In `stabilize` and for the gradient alone: the Op is replaced by its inner graph when a function is compiled.
    Rule(
        "fastlogp_factor_times_vector",
        "linalg.factor_times_vector.local_factor_times_vector",
        "stabilize",
        Phase.FOR_GRADIENT,
    ),
    # In `stabilize`, behind `quadratic_form`, which matches solves of vectors.
    Rule(
        "fastlogp_solve_of_rows",
        "linalg.solve_of_rows.local_solve_of_rows",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyTensor has batched_vector_b_solve_to_matrix_b_solve in stabilize",
    ),
    # In `stabilize`, behind the rules whose Ops read only the lower triangle.
    Rule(
        "fastlogp_packed_covariance",
        "linalg.packed_covariance.local_packed_covariance",
        "stabilize",
        Phase.FOR_GRADIENT,
    ),
    # In `stabilize` and for the gradient alone: the Op is replaced by its inner graph when a function is compiled.
    Rule(
        "fastlogp_kronecker_form",
        "linalg.kronecker_form.local_kronecker_form",
        "stabilize",
        Phase.FOR_GRADIENT,
        until="PyMC differentiates KroneckerNormal by its covariances",
    ),
    # In `stabilize` and for the gradient alone: after the gradient, nodes between may have other clients.
    Rule(
        "fastlogp_eigh_up_to_signs",
        "linalg.eigh_up_to_signs.local_eigh_up_to_signs",
        "stabilize",
        Phase.FOR_GRADIENT,
    ),
    # In `stabilize`, before the gradient, which then has no outer product for the matrix.
    Rule("fastlogp_solve_of_scaled", "linalg.solve_of_scaled.local_solve_of_scaled", "stabilize"),
    # In `stabilize`, before the gradient, which then is a gather instead of a reversed cumulative sum.
    Rule(
        "fastlogp_difference_of_cumsum",
        "scalars.difference_of_cumsum.local_difference_of_cumsum",
        "stabilize",
    ),
    # In `stabilize`, where PyTensor first writes logarithms of sigmoids as softplus.
    Rule(
        "fastlogp_difference_of_softplus",
        "scalars.difference_of_softplus.local_difference_of_softplus",
        "stabilize",
    ),
    # In `stabilize`, before `log_of_product`, which reads the precision.
    Rule(
        "fastlogp_precision_of_scale",
        "scalars.precision_of_scale.local_precision_of_scale",
        "stabilize",
        until="PyMC's Student t has its precision as a parameter",
    ),
    # In `stabilize`, before rows are compacted: factors have fewer distinct rows than products.
    Rule(
        "fastlogp_log_of_product",
        "scalars.log_of_product.local_log_of_product",
        "stabilize",
        is_exact=True,
    ),
    # In `stabilize`, before rows are compacted, so that a row reads one array less.
    Rule("fastlogp_masked_switch", "switches.masked_switch.local_masked_switch", "stabilize"),
    # First in the sequence: row compaction would sum the two log-gamma functions apart.
    Rule(
        "fastlogp_rising_factorial",
        "loggamma.rising_factorial.local_rising_factorial",
        ROWS,
        is_exact=True,
    ),
    # Behind `rising_factorial`, for the differences that it refuses.
    Rule("fastlogp_gamma_difference", "loggamma.gamma_difference.local_gamma_difference", ROWS),
    # Before the other rules about rows, which then see a model that is written with an index.
    Rule("fastlogp_sparse_design", "linalg.design_matrix.local_sparse_design", ROWS, is_exact=True),
    # Before `compact_rows`: sums of squares have a closed form in fewer cells than distinct rows.
    Rule("fastlogp_gaussian_rows", "gaussian.gaussian_rows.local_gaussian_rows", ROWS),
    # Behind `gaussian_rows`, for squares that could have become a triangle of the whole matrix and did not.
    Rule(
        "fastlogp_sparse_design_of_squares",
        "linalg.design_matrix.local_sparse_design_of_squares",
        ROWS,
    ),
    # Behind `gaussian_rows`, whose triangle reads the columns of the matrix, and behind the gathers of sparse columns.
    Rule("fastlogp_row_kronecker", "linalg.row_kronecker.local_row_kronecker", ROWS),
    # Behind `gaussian_rows`, which reads the rows of a product as written.
    Rule("fastlogp_hoist_reductions", "rows.compact.hoist_reductions.local_hoist_reductions", ROWS),
    # Behind `hoist_reductions`: a likelihood has at least as many cells as its reductions have distinct rows.
    Rule("fastlogp_compact_rows", "rows.compact.compact_rows.local_compact_rows", ROWS),
    # Behind `compact_rows`, for functions inside of rows that stay distinct.
    Rule("fastlogp_hoist_distinct", "rows.compact.hoist_distinct.local_hoist_distinct", ROWS),
    # Last in the sequence, for the rows that remain.
    Rule("fastlogp_order_rows", "rows.order.order_rows.local_order_rows", ROWS),
    # In mode FAST_COMPILE alone: other modes compile a loop better than the unrolled steps.
    Rule(
        "fastlogp_unroll_short_scan",
        "after_gradient.unroll_scan.local_unroll_short_scan",
        "canonicalize",
        Phase.FAST_COMPILE,
    ),
    # In `specialize`, where PyTensor inlines the OpFromGraphs that it knows by name.
    Rule(
        "fastlogp_inline_op_from_graph",
        "after_gradient.inline_op_from_graph.local_inline_op_from_graph",
        "specialize",
        Phase.AFTER_GRADIENT,
        until="the gradient of an OpFromGraph is no longer one (pymc-devs/pytensor#1174)",
    ),
    # In `specialize`, after the gradient has added orders next to those of the log density.
    Rule(
        "fastlogp_ive_of_orders",
        "after_gradient.ive_of_orders.local_ive_of_orders",
        "specialize",
        Phase.AFTER_GRADIENT,
        until="PyTensor has Bessel functions of many orders",
    ),
    # In `uncanonicalize`, after the gradient has added powers and PyTensor has merged products of powers.
    Rule(
        "fastlogp_neighboring_powers",
        "after_gradient.neighboring_powers.local_neighboring_powers",
        "uncanonicalize",
        Phase.AFTER_GRADIENT,
    ),
    # In `uncanonicalize`, behind `specialize`, where PyTensor moves the gather to the factors.
    Rule(
        "fastlogp_gather_after_dot",
        "after_gradient.gather_after_dot.local_gather_after_dot",
        "uncanonicalize",
        Phase.AFTER_GRADIENT,
    ),
    # In `uncanonicalize`, where products are in their final form.
    Rule(
        "fastlogp_dot_of_scattered",
        "after_gradient.dot_of_scattered.local_dot_of_scattered",
        "uncanonicalize",
        Phase.AFTER_GRADIENT,
    ),
    # In `specialize`, after the gradient, for sets that the gradient adds; mode JAX takes the gradient later and leaves the rule out.
    Rule("fastlogp_lift_set_subtensor", f"{LIFT}_after_grad", "specialize", Phase.AFTER_GRADIENT),
)


class GraphRule(NamedTuple):
    """One rewrite of whole graphs, registered in ``optdb`` itself.

    Attributes
    ----------
    name : str
        Unique name within ``optdb``, by which users exclude the rewrite.
    rewriter : str
        ``module.class`` below ``pymc_fastlogp``, imported at the first use.
    tags : tuple of str
        Tags of the rewrite, besides ``fastlogp``.
    position : float
        Position in the sequence of ``optdb``.
    """

    name: str
    rewriter: str
    tags: tuple[str, ...]
    position: float


GRAPH_RULES: tuple[GraphRule, ...] = (
    # Any position: shared variables stay inputs.
    GraphRule(
        "fastlogp_first_rows", "rewrites.rows.first_rows.WarnOfFirstRows", ("fast_run",), 0.97
    ),
    # Before PyTensor serializes increments (pre_local_IncSubtensor_serialize is at 0.99).
    GraphRule(
        "fastlogp_flat_increments",
        "rewrites.packed_matrices.flat_increments.FlatIncrements",
        ("fast_run",),
        0.98,
    ),
    # After elementwise fusion, before anything works in place (add_destroy_handler is at 49.5).
    GraphRule("fastlogp_fused_kernel", "kernel.graph.region.FuseRegions", ("numba",), 49.3),
    # Behind all node rewriters, so that no rewriter sees the new Op and PyTensor caches no inner graph.
    GraphRule("fastlogp_renewed_kernels", "kernel.graph.region.RenewKernels", ("numba",), 199.0),
    # Last: a held constant is no longer a constant to other rewrites.
    GraphRule(
        "fastlogp_held_constants", "kernel.graph.held_constants.HoldConstants", ("numba",), 200.0
    ),
)
