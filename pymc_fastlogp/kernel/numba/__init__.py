"""Numba's side of a kernel: the call, its outputs, and the memory of large constants."""
