"""Tables whose rows stay in their engine: columns as placeholders in a model, and summaries of rows.

.. code-block:: text

    source (files, DuckDB, Polars, pandas, PyArrow, Dask, Spark, ibis)
      -> tables.source          a narwhals frame, batches of rows, the state of files
      -> tables.engine_table    columns, levels, placeholders, summaries of all rows
    log density
      -> tables.expressions     expressions of columns that it reads
      -> tables.sample          random rows, whatever the order of the table
      -> tables.plan            how the rows are read, from the sample
    summaries of rows, which merge in any order
      -> tables.cells           distinct rows with counts, or all rows
      -> tables.factors         triangular factors of rows, for a quadratic log density
      -> tables.disk            summaries and levels that a later process finds

narwhals and DuckDB are imported by :func:`table`, not with the package.
"""

from pymc_fastlogp.tables.engine_table import Table, table

__all__ = ["Table", "table"]
