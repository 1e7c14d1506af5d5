"""Rows of a graph: grids, indices and constants, seen as columns of a table."""
