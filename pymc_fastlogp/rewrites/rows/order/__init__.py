"""Rewrites that sort rows by an index, so that scatters write runs."""
