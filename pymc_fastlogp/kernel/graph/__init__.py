"""Kernels in PyTensor graphs: the selection of regions, the kernel Op, and the conversion of its inputs and outputs."""
