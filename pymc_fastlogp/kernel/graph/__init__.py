"""PyTensor's side of a kernel: which nodes it takes, its Op, and how values get in and out."""
