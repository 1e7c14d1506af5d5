"""Threads within a chain: helpers that run tasks of parallel loops."""
