"""C functions that nutpie calls: emission, memory, statuses, and kernels that they call."""
