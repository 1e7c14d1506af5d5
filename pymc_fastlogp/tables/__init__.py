"""Tables whose rows stay in their engine: columns as placeholders in a model, and summaries of rows.

.. code-block:: text

    source (files, DuckDB, Polars, pandas, PyArrow, Dask)
      -> tables.source   a narwhals frame, with the state of its files
      -> tables.engine_table    columns, levels, placeholders
      -> tables.cells    distinct rows of the columns of a likelihood, with counts
      -> tables.disk     levels and distinct rows that a later process finds

narwhals and DuckDB are imported by :func:`table`, not with the package.
"""

from pymc_fastlogp.tables.engine_table import Table, table

__all__ = ["Table", "table"]
