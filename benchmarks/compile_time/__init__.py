"""Time and memory of compilation: ``python -m benchmarks.compile_time COMMAND``.

Each command is a module of this package: ``tables`` measures in fresh processes, whose functions are called by
:func:`benchmarks.fresh_process.call`, and returns the tables that are printed.
"""
