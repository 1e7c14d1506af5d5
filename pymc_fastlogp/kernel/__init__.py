"""The kernel compiler: regions of PyTensor graphs become machine code, through loops and vectorized LLVM IR."""
