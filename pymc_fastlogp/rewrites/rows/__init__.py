"""Rules for sums over the rows of a likelihood with constant data.

.. code-block:: text

    grid      axes over which the terms of a likelihood are summed
    row       point of the grid: one observation, or one combination of its axes
    column    array with one number per row: entries of a constant, or positions in a variable
    key       set of columns that an expression reads
    code      number of a row, equal for rows with equal keys
    cell      set of rows with equal keys, evaluated once
    weight    factor of a row or of a cell that only multiplies a term

    view      rows as tables: grid, columns and keys
    compact   rules that evaluate cells instead of rows
    order     rules that sort rows
"""
