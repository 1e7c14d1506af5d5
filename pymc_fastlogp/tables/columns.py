"""Placeholders of columns: shared variables that hold the first rows of a table."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors


@dataclass(frozen=True)
class Column:
    """Column of a table that a placeholder stands for.

    Attributes
    ----------
    table : Table, optional
        The table; None in another process, which does not get the engine.
    name : str
        Name of the column.
    is_coded : bool
        Whether the placeholder holds positions among the sorted levels in place of values.
    """

    table: Any
    name: str
    is_coded: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, (None, self.name, self.is_coded)

    def __deepcopy__(self, memo: Any) -> "Column":
        return self


def placeholder(column: Column, values: np.ndarray) -> SharedVariable:
    """Return a vector of unknown length that holds ``values``."""
    import pytensor

    # A variable of the model may have the name of the column.
    name = f"table.codes({column.name!r})" if column.is_coded else f"table[{column.name!r}]"
    variable = pytensor.shared(values, name=name, shape=(None,))
    # Clones of a variable share its tag.
    variable.tag.table_column = column
    return variable


def column_of(x: Variable) -> Column | None:
    """Return the column that a variable stands for, None if the variable is no placeholder."""
    column = getattr(x.tag, "table_column", None) if isinstance(x, SharedVariable) else None
    return column if isinstance(column, Column) else None


def warn_of_first_rows(x: SharedVariable) -> None:
    """Warn, once per table, of a function of parameters that reads the first rows of a table in place of all."""
    column = column_of(x)
    if column is None or column.table is None or column.table.is_warned_of:
        return
    column.table.is_warned_of = True
    warnings.warn(
        f"this function reads the first {len(x.get_value(borrow=True))} rows of a table, not all of its rows: sample by pymc_fastlogp.sample(model=model),"
        " compute a log likelihood by pymc_fastlogp.compute_log_likelihood(idata, model=model), or compile by pymc_fastlogp.compile_pymc_model(model).",
        UserWarning,
        stacklevel=1,
    )


def columns_in(variables: Iterable[Variable]) -> dict[Variable, Column]:
    """Return the placeholders that graphs read, with their columns."""
    found = ((x, column_of(x)) for x in ancestors(variables))
    return {x: column for x, column in found if column is not None}
