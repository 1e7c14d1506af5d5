"""``predict_to_parquet``: posterior predictive draws for all rows of a table, in batches."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.shape import Shape, Shape_i

from pymc_fastlogp.display import progress_line
from pymc_fastlogp.models.table_likelihood import table_of
from pymc_fastlogp.models.validate import model_with_variables
from pymc_fastlogp.sampling.atomic_write import atomic_write, writing
from pymc_fastlogp.tables.columns import Column, column_of, columns_in
from pymc_fastlogp.tables.engine_table import Table, table

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataTree


def predict_to_parquet(
    idata: "DataTree",
    rows: Any,
    path: str | PathLike[str],
    *,
    var_names: Sequence[str] | None = None,
    model: "pm.Model | None" = None,
    batch_size: int = 10_000,
    random_seed: Any = None,
    progressbar: bool = True,
) -> None:
    """Draw from the posterior predictive distribution for all rows of a table, and write rows and draws to a Parquet file.

    The file has the columns of the rows, and for each predicted variable ``y`` a column ``y_draws``: a list with a value for each draw of the
    posterior. Rows are read in batches and have no order. The file appears when it is complete.

    Parameters
    ----------
    idata : DataTree
        Draws of :func:`~pymc_fastlogp.sample`. For a smaller file take a part, such as ``idata.isel(draw=slice(None, None, 10))``.
    rows : Table, path or frame
        The table of the model, or new rows, as for :func:`~pymc_fastlogp.table`. New rows need the columns that parameters of the predicted variables read.
    path : path
        The Parquet file, which is replaced if it exists.
    var_names : sequence of str, optional
        Names of the predicted variables; by default all that observe the table.
    model : pymc.Model, optional
        The model; by default the model of the open context.
    batch_size : int
        Number of rows that are predicted at a time. A batch takes eight bytes per row, draw and variable.
    random_seed : int or Generator, optional
        Seed.
    progressbar : bool
        Whether the number of rows is shown in a terminal.

    Raises
    ------
    TypeError
        If there is no PyMC model, or for a column of another dtype.
    KeyError
        If the rows lack a column.
    ValueError
        If the variables read no table or several, if the draws lack a variable, if there are no rows, or for the values of a column.
    OSError
        If the file can't be written.
    """
    model = model_with_variables("predict_to_parquet", model)
    outputs = _predicted(model, var_names)
    names = ", ".join(str(x.name) for x in outputs)
    columns = columns_in(outputs)
    if not columns:
        raise ValueError(
            f"{names or 'the model'} reads no table: give var_names of variables whose parameters read one."
        )
    of_model = table_of(names, columns)
    predict = _Predictor(model, outputs, idata, random_seed)
    new = rows if isinstance(rows, Table) else table(rows)
    only_observed = {x.name for x in columns_in(_values(model, outputs)).values()} - {
        x.name for x in _columns_of_parameters(outputs)
    }
    n_rows = 0
    shown = progress_line("0 rows predicted") if progressbar else nullcontext(lambda _: None)
    batches = closing(new.batches(batch_size))
    with _new_file(Path(path)) as write, shown as show, batches as frames:
        for batch in frames:
            with of_model.use(batch, predicted=only_observed):
                write(batch.to_arrow(), predict(len(batch)))
            n_rows += len(batch)
            show(f"{n_rows} rows predicted")
        if not n_rows:
            raise ValueError("there are no rows to predict.")


def _predicted(model: "pm.Model", var_names: Sequence[str] | None) -> list[Variable]:
    """Return the variables to predict."""
    if var_names is not None:
        return [model[name] for name in var_names]
    return [x for x in model.observed_RVs if columns_in([x, model.rvs_to_values[x]])]


def _values(model: "pm.Model", variables: Sequence[Variable]) -> list[Variable]:
    """Return the observed values of variables."""
    return [model.rvs_to_values[x] for x in variables if x in model.rvs_to_values]


def _columns_of_parameters(outputs: Sequence[Variable]) -> set[Column]:
    """Return the columns whose values, not only their number, variables read."""

    def inputs(x: Variable) -> Sequence[Variable]:
        node = x.owner
        return () if node is None or isinstance(node.op, Shape | Shape_i) else node.inputs

    found = (column_of(x) for x in walk(outputs, inputs))
    return {x for x in found if x is not None}


class _Predictor:
    """Compiled function of the draws, which is called for each batch of rows."""

    def __init__(
        self, model: "pm.Model", outputs: list[Variable], idata: "DataTree", random_seed: Any
    ):
        from pymc.sampling.forward import compile_forward_sampling_function

        posterior = idata["posterior"].to_dataset().stack(sample=("chain", "draw"))
        stored = [x for x in model.free_RVs if x.name in posterior]
        self._function, drawn = compile_forward_sampling_function(
            outputs,
            vars_in_trace=stored,
            basic_rvs=model.basic_RVs,
            freeze_vars={*stored},
            model=model,
            random_seed=random_seed,
            allow_input_downcast=True,
        )
        missing = sorted(x.name for x in drawn - {*outputs})
        if missing:
            raise ValueError(f"the draws have no {', '.join(missing)}: sample all free variables.")
        names = [x.name for x in self._function.maker.fgraph.inputs]
        self._outputs = outputs
        self._draws = {
            x.name: posterior[x.name].transpose("sample", ...).to_numpy()
            for x in stored
            if x.name in names
        }
        self._n_draws = posterior.sizes["sample"]

    def __call__(self, n_rows: int) -> dict[str, np.ndarray]:
        """Return the draws for the rows that the placeholders hold, shape ``(n_rows, n_draws, ...)``, by the name of the column."""
        found: list[list[np.ndarray]] = [[] for _ in self._outputs]
        for k in range(self._n_draws):
            values = self._function(**{name: x[k] for name, x in self._draws.items()})
            for draws, value in zip(found, values, strict=True):
                draws.append(value)
        for x, draws in zip(self._outputs, found, strict=True):
            if draws[0].shape[:1] != (n_rows,):
                raise ValueError(f"{x.name} has no entry for each row: give other var_names.")
        return {
            f"{x.name}_draws": np.stack(draws, axis=1)
            for x, draws in zip(self._outputs, found, strict=True)
        }


@contextmanager
def _new_file(path: Path) -> Iterator[Any]:
    """Yield a function that writes rows and their draws to a Parquet file, which appears at the end of the block."""
    import pyarrow
    from pyarrow import parquet

    writer: Any = None

    def write(rows: Any, draws: dict[str, np.ndarray]) -> None:
        nonlocal writer
        for name, values in draws.items():
            column = pyarrow.array(values.ravel())
            for length in values.shape[:0:-1]:
                column = pyarrow.FixedSizeListArray.from_arrays(column, length)
            rows = rows.append_column(name, column)
        with writing(path):
            if writer is None:
                writer = parquet.ParquetWriter(unfinished, rows.schema)
            writer.write_table(rows.cast(writer.schema))

    with atomic_write(path) as unfinished:
        try:
            yield write
            with writing(path):
                writer.close()
        except BaseException:
            if writer is not None:
                with suppress(OSError):
                    writer.close()
            raise
