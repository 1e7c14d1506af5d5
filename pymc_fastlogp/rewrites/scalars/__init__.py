"""Rules about elementwise arithmetic, before the gradient."""
