"""Rewrites that merge repeated rows into weighted distinct rows."""
