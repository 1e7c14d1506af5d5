"""Switches whose condition is a constant mask of rows."""
