"""Timings of the plugin on and off, against JAX, Stan and kernels written by hand.

``make bench`` runs ``python -m benchmarks``. For each model of :mod:`benchmarks.suite`, and in
fresh child processes on one core:

* the time of one evaluation of logp and gradient, all sides in turn within each round; no
  Python runs between evaluations. nutpie's callback, Stan's C function and the kernels share one
  native loop, JAX loops by itself (nutpie calls JAX through Python; that call is not counted);
* the first compilation, from empty caches, and one with the caches that it left;
* the time from building the model to the first draw, and the peak of memory by then;
* effective draws per second of two short chains: the smallest bulk ESS over all variables,
  divided by the seconds of the whole run, tuning included.
"""
