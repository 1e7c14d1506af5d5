"""``log_likelihood_to_zarr``: the log likelihood of each row of a table, in batches."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytensor.graph.basic import Variable

from pymc_fastlogp.display import progress_line
from pymc_fastlogp.models.table_likelihood import axis_of_rows, graphs_of, table_of
from pymc_fastlogp.models.validate import model_with_variables
from pymc_fastlogp.sampling.atomic_write import atomic_write, writing
from pymc_fastlogp.tables.columns import Column, columns_in
from pymc_fastlogp.tables.expressions import expression_of_column

if TYPE_CHECKING:
    import pymc as pm
    from xarray import Dataset, DataTree

ROW = "row"

# Rows times draws of a batch.
BATCH = 20_000_000


def log_likelihood_to_zarr(
    idata: "DataTree",
    path: str | PathLike[str],
    *,
    var_names: Sequence[str] | None = None,
    model: "pm.Model | None" = None,
    batch_size: int | None = None,
    progressbar: bool = True,
) -> "DataTree":
    """Compute the log likelihood of each row of a table, and write the values to a zarr store.

    The store takes eight bytes per row, draw and variable. For leave-one-out, :func:`~pymc_fastlogp.compute_log_likelihood` needs a value for each distinct row only.

    Parameters
    ----------
    idata : DataTree
        Draws of :func:`~pymc_fastlogp.sample`. For a smaller store take a part, such as ``idata.isel(draw=slice(None, None, 10))``.
    path : path
        The folder of the store, which must not exist. It appears when it is complete.
    var_names : sequence of str, optional
        Names of the observed variables; by default all that read a table.
    model : pymc.Model, optional
        The model; by default the model of the open context.
    batch_size : int, optional
        Number of rows that are evaluated at a time, by default 20 million divided by the number of draws. A batch takes eight bytes per row, draw and variable in memory.
    progressbar : bool
        Whether the number of rows is shown in a terminal.

    Returns
    -------
    DataTree
        The store, whose values are read when they are used. The group ``log_likelihood`` has a dimension ``row``. Rows are read in batches and have no order,
        so the group ``rows`` has the columns that the variables read; strings and categories are codes.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        If the variables read no table or several, if a likelihood is not evaluated row by row, or for the values of a column.
    FileExistsError
        If the path exists.
    OSError
        If the store can't be written.
    """
    model = model_with_variables("log_likelihood_to_zarr", model)
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists: give a new path, or remove the folder.")
    density = _DensityOfRows(model, var_names, idata)
    shown = progress_line("0 rows evaluated") if progressbar else nullcontext(lambda _: None)
    sizes = idata["posterior"].sizes
    batch_size = batch_size or max(1, BATCH // (sizes["chain"] * sizes["draw"]))
    batches = closing(density.table.batches(batch_size))
    n_rows = 0
    with _new_store(path, batch_size) as write, shown as show, batches as frames:
        for batch in frames:
            with density.table.use(batch):
                write({"log_likelihood": density.values(), "rows": density.rows()})
            n_rows += len(batch)
            show(f"{n_rows} rows evaluated")
    from xarray import open_datatree

    return open_datatree(path, engine="zarr", consolidated=False)


class _DensityOfRows:
    """Elementwise log likelihoods of the rows that the placeholders of a table hold."""

    def __init__(self, model: "pm.Model", var_names: Sequence[str] | None, idata: "DataTree"):
        self._model = model
        observed = {x.name: columns_in(graphs_of(model, x)) for x in model.observed_RVs}
        read = {name: columns for name, columns in observed.items() if columns}
        self._columns: Mapping[str, Mapping[Variable, Column]] = (
            read if var_names is None else {name: read.get(name, {}) for name in var_names}
        )
        for name in [*self._columns] or ["the model"]:
            if not self._columns.get(name):
                raise ValueError(f"{name} observes no table: call pm.compute_log_likelihood.")
        placeholders = {
            x: column for found in self._columns.values() for x, column in found.items()
        }
        self.table = table_of(", ".join(self._columns), placeholders)
        self._placeholders = {
            expression_of_column(column, "").text: x for x, column in placeholders.items()
        }
        self._axes = {
            name: axis_of_rows(model, model[name], columns)
            for name, columns in self._columns.items()
        }
        names = [x.name for x in model.free_RVs]
        self._draws = idata["posterior"].to_dataset()[names]

    @cached_property
    def _function(self) -> Any:
        """Compiled function of the draws, which reads the placeholders when it is called."""
        from pymc.model.transform.conditioning import remove_value_transforms

        model = remove_value_transforms(self._model)
        dtypes = {
            model.rvs_to_values[x].name: model.rvs_to_values[x].type.dtype for x in model.free_RVs
        }
        self._draws = self._draws.astype(dtypes, copy=False)
        densities = model.logp(vars=[model[name] for name in self._axes], sum=False)
        return model.compile_fn(densities, inputs=model.value_vars, on_unused_input="ignore")

    def values(self) -> "Dataset":
        """Return the log likelihoods."""
        from pymc.backends.arviz import apply_function_over_dataset

        found = apply_function_over_dataset(
            self._function,
            self._draws,
            output_var_names=[*self._axes],
            coords={},
            dims={},
            progressbar=False,
        )
        rows = {f"{name}_dim_{axis}": ROW for name, axis in self._axes.items()}
        return found.drop_vars(rows).rename_dims(rows)

    def rows(self) -> "Dataset":
        """Return the values of the columns."""
        from xarray import Dataset

        return Dataset({name: (ROW, x.get_value()) for name, x in self._placeholders.items()})


@contextmanager
def _new_store(path: Path, chunk: int) -> Iterator[Any]:
    """Yield a function that appends rows to the groups of a store, which appears at the end of the block."""
    with atomic_write(path) as unfinished:

        def write(groups: Mapping[str, "Dataset"]) -> None:
            for group, values in groups.items():
                if (unfinished / group).exists():
                    new: dict[str, Any] = {"append_dim": ROW}
                else:
                    chunks = {name: {"chunks": _chunks(x, chunk)} for name, x in values.items()}
                    new = {"encoding": chunks}
                with writing(path):
                    values.to_zarr(unfinished, group=group, consolidated=False, mode="a", **new)

        yield write


def _chunks(values: Any, n_rows: int) -> tuple[int, ...]:
    return tuple(n_rows if dim == ROW else n for dim, n in values.sizes.items())
