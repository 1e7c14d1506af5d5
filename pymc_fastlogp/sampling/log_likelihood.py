r"""``compute_log_likelihood``: the log likelihood of a row of each cell of a table.

Rows of a table that are equal have equal log likelihoods, so a value for each distinct row, with its count, holds that of all rows. For a sum over rows of a function of
the pointwise log likelihood, such as PSIS-LOO or WAIC,

.. math::

    \sum_{i=1}^N f\big(\log p(y_i \mid \theta_1), \ldots, \log p(y_i \mid \theta_S)\big)
    = \sum_u n_u f\big(\log p(y_u \mid \theta_1), \ldots, \log p(y_u \mid \theta_S)\big)
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytensor.configdefaults import config

from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.models.validate import model_with_variables
from pymc_fastlogp.tables.plan import Way

if TYPE_CHECKING:
    import pymc as pm
    from xarray import Dataset, DataTree


def compute_log_likelihood(
    idata: "DataTree",
    *,
    var_names: Sequence[str] | None = None,
    extend_inferencedata: bool = True,
    model: "pm.Model | None" = None,
    sample_dims: Sequence[str] = ("chain", "draw"),
    progressbar: bool = True,
    **kwargs: Any,
) -> "DataTree | Dataset":
    """Compute the log likelihood of each row: ``pm.compute_log_likelihood``, with the distinct rows of tables in place of the first.

    For a likelihood ``y`` over a table, ``log_likelihood["y"]`` has the log likelihood of *one* row of each cell, not multiplied with the number of rows. This number is
    the coordinate ``y_n_rows``. A sum over all rows is a sum over cells, weighted by these numbers.

    Parameters
    ----------
    idata : DataTree
        Draws of :func:`~pymc_fastlogp.sample`.
    var_names : sequence of str, optional
        Names of the observed variables; by default all.
    extend_inferencedata : bool
        Whether the group ``log_likelihood`` is added to ``idata``, which is returned, or is returned alone.
    model : pymc.Model, optional
        The model; by default the model of the open context.
    sample_dims : sequence of str
        Dimensions of the draws.
    progressbar : bool
        Whether progress is shown.
    **kwargs
        Other arguments of ``pm.compute_log_likelihood``.

    Returns
    -------
    DataTree or Dataset
        The draws with the group, or the group alone.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        For a model of a table that :func:`~pymc_fastlogp.sample` refuses, or whose rows are merged to triangular factors.
    """
    import pymc as pm

    reduced, tables = without_tables(model_with_variables("compute_log_likelihood", model))
    for name in tables if var_names is None else var_names:
        if name in tables and tables[name].plan.way is Way.FACTORED:
            raise ValueError(
                f"{name} has no log likelihood of single rows, since rows are merged to triangular factors: call"
                " pm.compute_log_likelihood inside of `with table.use(rows):`, for some rows at a time."
            )
    found = pm.compute_log_likelihood(
        idata,
        var_names=var_names,
        extend_inferencedata=False,
        model=reduced,
        sample_dims=sample_dims,
        progressbar=progressbar,
        **kwargs,
    )
    for name in tables.keys() & found.keys():
        counts = tables[name].rows.points(config.floatX).weights
        if counts is None:
            continue
        dims = [dim for dim in found[name].dims if dim not in sample_dims]
        dim = dims[tables[name].axis]
        found = found.assign_coords({f"{name}_n_rows": (dim, counts)})
        found[name] = found[name] / found[f"{name}_n_rows"]
    if not extend_inferencedata:
        return found
    idata["log_likelihood"] = found
    return idata
