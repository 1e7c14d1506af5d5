"""Rules about sums over the rows of a likelihood whose data are constants."""
