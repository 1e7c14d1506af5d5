"""Rules about what is compiled: after the gradient, or in one mode alone."""
