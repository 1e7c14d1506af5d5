"""Times of machine code that constants and pages of the docs state: ``python -m benchmarks.costs COMMAND``.

Each command is a module of this package. ``tables`` measures on one core, all sides in turn, and returns the tables that are printed.
"""
