"""Random models and graphs, on against off: ``python -m tests.fuzz N``."""
