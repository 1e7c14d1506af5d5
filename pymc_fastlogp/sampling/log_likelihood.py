r"""``compute_log_likelihood``: the log likelihood of a row of each cell of a table.

Rows of a table that are equal have equal log likelihoods, so a value for each distinct row, with its count, holds that of all rows. For a sum over rows of a function of
the pointwise log likelihood, such as PSIS-LOO or WAIC,

.. math::

    \sum_{i=1}^N f\big(\log p(y_i \mid \theta_1), \ldots, \log p(y_i \mid \theta_S)\big)
    = \sum_u n_u f\big(\log p(y_u \mid \theta_1), \ldots, \log p(y_u \mid \theta_S)\big)

Rows that are merged to triangular factors differ within a cell. The weighted points of a cell have the sum of the log likelihoods of its rows.
"""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pytensor.configdefaults import config

from pymc_fastlogp.models.table_rows import TableRows, without_tables
from pymc_fastlogp.models.validate import model_with_variables
from pymc_fastlogp.tables.cells import sort_by_cell
from pymc_fastlogp.tables.plan import Way

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataArray, Dataset, DataTree

    from pymc_fastlogp.tables.factors import Factors


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

    If rows are merged to triangular factors, ``log_likelihood["y_by_cell"]`` has the *sum* of the log likelihoods of the rows of each cell, for leaving out one cell at a
    time. Coordinates are the keys of the cells and the numbers of rows, ``y_by_cell_n_rows``. :func:`~pymc_fastlogp.log_likelihood_to_zarr` has the values of single rows.

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
        For a model of a table that :func:`~pymc_fastlogp.sample` refuses.
    """
    import pymc as pm

    reduced, tables = without_tables(model_with_variables("compute_log_likelihood", model))
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
        points = tables[name].rows.points(config.floatX)
        if points.weights is None:
            continue
        dims = [dim for dim in found[name].dims if dim not in sample_dims]
        dim = dims[tables[name].axis]
        if tables[name].plan.way is Way.FACTORED:
            by_cell = _sums_of_cells(found[name], dim, tables[name])
            found = found.drop_vars([name, dim]).merge(by_cell)
            continue
        found = found.assign_coords({f"{name}_n_rows": (dim, points.weights)})
        found[name] = found[name] / found[f"{name}_n_rows"]
    if not extend_inferencedata:
        return found
    idata["log_likelihood"] = found
    return idata


def _sums_of_cells(of_points: "DataArray", dim: Hashable, table: TableRows) -> "DataArray":
    """Return the log likelihoods of weighted points, summed over the points of each cell."""
    from xarray import apply_ufunc

    cells = cast("Factors", table.rows)
    points = cells.points(config.floatX).columns
    order, starts = sort_by_cell({name: points[name] for name in cells.keys}, of_points.sizes[dim])
    name = f"{of_points.name}_by_cell"
    summed = apply_ufunc(
        np.add.reduceat,
        of_points.isel({dim: order}),
        input_core_dims=[[dim]],
        output_core_dims=[[f"{name}_dim_0"]],
        exclude_dims={dim},
        kwargs={"indices": starts, "axis": -1},
    )
    of_cells = {x.text: cells.keys[str(k)] for k, x in enumerate(table.plan.keys)}
    of_cells[f"{name}_n_rows"] = cells.counts
    coords = {key: (f"{name}_dim_0", x) for key, x in of_cells.items()}
    return summed.rename(name).assign_coords(coords)
