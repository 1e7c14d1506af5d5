"""Elementary functions over LLVM vectors of any width."""
