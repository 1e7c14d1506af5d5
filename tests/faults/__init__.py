"""Faults around a model: threads, processes, signals, disks, strange data, sizes. Nothing hangs, no result changes silently.

What is tested elsewhere is not tested again here:

- threads that compile with Numba: ``tests/test_threads.py``; the switch in threads, tasks, workers and forked samplers: ``tests/test_config.py``
- memory of models with many rows: ``tests/test_memory.py``; that code and data are freed: ``tests/kernel/test_lifetime.py``
- damaged, foreign and full folders of models, and processes that share one and are killed: ``tests/callbacks/test_store.py``; object code:
  ``tests/kernel/test_object_files.py``
- ``with_data``, data replaced after compiling, run-time errors of compiled models: ``tests/callbacks/test_compile.py``
- arrays of any layout as arguments: ``tests/kernel/test_numba_dispatch.py``; copies of kernels: ``tests/kernel/test_op.py``
- prior, posterior and predictive draws: ``tests/test_workflow.py``; ways to build a model: ``tests/test_ways_to_build.py``
"""
