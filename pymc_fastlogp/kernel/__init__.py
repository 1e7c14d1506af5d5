"""Code generation: vector LLVM IR for the inner loops of log densities."""
