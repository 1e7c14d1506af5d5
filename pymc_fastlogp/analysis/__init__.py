"""Static analysis of graphs for rules and kernels; imports neither."""
