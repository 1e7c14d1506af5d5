"""Values of columns of frames in memory, in the dtypes of their placeholders."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pytensor.configdefaults import config

from pymc_fastlogp.tables.columns import Column


def is_text(dtype: Any) -> bool:
    """Return whether a column of a narwhals dtype holds strings or categories, whose values are codes of levels."""
    import narwhals.stable.v2 as nw

    return dtype in (nw.String, nw.Categorical, nw.Enum)


def placeholder_dtype(dtype: Any) -> np.dtype:
    """Return the dtype of a placeholder of values, or of codes, of a column of a narwhals dtype."""
    if dtype.is_float() or dtype.is_decimal():
        return np.dtype(config.floatX)
    return np.dtype(bool if str(dtype) == "Boolean" else np.int64)


def column_values(series: Any, dtype: Any, levels: Sequence[Any] | None = None) -> np.ndarray:
    """Return the values of a column in the dtype of its placeholder, or their positions among levels.

    Parameters
    ----------
    series : narwhals.Series
        The column.
    dtype : narwhals.DType
        Dtype of the column in its table.
    levels : sequence, optional
        The sorted levels of a column of codes.

    Raises
    ------
    ValueError
        If a value is missing, NaN or infinite, or a level is new.
    """
    if series.null_count():
        raise unusable(series.name, "has missing values")
    values = series.to_numpy()
    if levels is not None:
        return _codes(series.name, values, levels)
    if dtype.is_float() or dtype.is_decimal():
        values = values.astype(config.floatX, copy=False)
        if not np.isfinite(values).all():
            what = "NaN" if np.isnan(values).any() else "infinite values"
            raise unusable(series.name, f"has {what}")
        return values
    if dtype.is_integer():
        if len(values) and values.max() > np.iinfo(np.int64).max:
            raise ValueError(f'column "{series.name}" has integers beyond int64: cast it to float.')
        return values.astype(np.int64, copy=False)
    return values.astype(bool, copy=False)


def _codes(column: str, values: Any, levels: Sequence[Any]) -> np.ndarray:
    places = {level: k for k, level in enumerate(levels)}
    inverse, distinct = pd.factorize(np.asarray(values))
    try:
        codes = np.array([places[x] for x in distinct.tolist()], np.int64)
    except KeyError as error:
        raise ValueError(
            f'column "{column}" has a new level {error}: drop such rows, or call table() and build the model again.'
        ) from None
    return codes[inverse]


def unusable(column: str, problem: str) -> ValueError:
    """Return the error for a column with values that a model cannot use, which says what to do."""
    return ValueError(
        f'column "{column}" {problem}: drop or fill such rows in the table, as by table(frame.filter(...)).'
    )


class PartitionReader(NamedTuple):
    """Reader of columns of a partition of a table, which can be pickled.

    Attributes
    ----------
    columns : tuple of Column
        The columns.
    schema : dict of str to dtype
        Columns of the table.
    levels : dict of str to list
        Levels of columns that are coded.
    """

    columns: tuple[Column, ...]
    schema: Mapping[str, Any]
    levels: Mapping[str, Sequence[Any]]

    def values(self, rows: Any) -> list[np.ndarray]:
        """Return the values of the columns in the rows of a frame in memory; raise as :func:`column_values`."""
        import narwhals.stable.v2 as nw

        frame = nw.from_native(rows, eager_only=True)
        return [
            column_values(
                frame[x.name], self.schema[x.name], self.levels[x.name] if x.is_coded else None
            )
            for x in self.columns
        ]
