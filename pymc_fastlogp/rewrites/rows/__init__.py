"""Rules for sums over the rows of a likelihood with constant data."""
