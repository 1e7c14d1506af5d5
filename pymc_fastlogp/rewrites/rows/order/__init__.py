"""Rules that sort rows by an index, so that a scatter adds runs of rows in registers."""
