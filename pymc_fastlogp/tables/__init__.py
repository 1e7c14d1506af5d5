"""Tables whose rows stay in their engine: columns as placeholders in a model, and summaries of rows.

.. code-block:: text

    source (files, DuckDB, Polars, pandas, PyArrow, Dask, Spark, ibis)
      -> tables.source          a narwhals frame, the state of files
      -> tables.batches         rows of each engine, a batch at a time
      -> tables.engine_table    Table: columns, levels, placeholders, summaries of all rows
      -> tables.column_values   values of columns of a batch as arrays
      -> tables.partitions      rows that other processes read
    log density
      -> tables.expressions     expressions of columns that it reads
      -> tables.sample          random rows, whatever the order of the table
      -> tables.plan            how the rows are read, from the sample
    summaries of rows, which merge in any order
      -> tables.summaries       queries for them: distinct rows by the engine, or merged batches
      -> tables.cells           distinct rows with counts, or all rows
      -> tables.factors         triangular factors of rows, for a quadratic log density
      -> tables.query_cache     results of queries on disk, which a later process finds

narwhals and DuckDB are imported by :func:`table`, not with the package.
"""

from pymc_fastlogp.tables.engine_table import Table, table

__all__ = ["Table", "table"]
