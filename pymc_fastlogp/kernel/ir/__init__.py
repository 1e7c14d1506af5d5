"""The loop IR: programs of loops over buffers, between PyTensor graphs and LLVM IR."""
