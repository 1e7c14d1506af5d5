"""Views of a graph as a table: grids of rows, and the columns of constants and indices that rows read."""
