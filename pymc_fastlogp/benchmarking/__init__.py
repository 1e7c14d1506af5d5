"""Paired timing of logp and gradient with the plugin off and on, and of the wait of a user."""

from pymc_fastlogp.benchmarking.result import BenchmarkResult
from pymc_fastlogp.benchmarking.run import benchmark

__all__ = ["BenchmarkResult", "benchmark"]
