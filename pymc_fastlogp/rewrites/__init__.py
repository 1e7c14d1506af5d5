"""Rewrites of PyTensor graphs that hold for any backend: one file each."""
