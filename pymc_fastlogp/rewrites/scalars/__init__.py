"""Rules for elementwise arithmetic, before the gradient."""
