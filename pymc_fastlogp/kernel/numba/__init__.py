"""Kernels in Numba: the call, its outputs, and the memory of large constants."""
