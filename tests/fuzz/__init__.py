"""Random models, on against off: ``python -m tests.fuzz N``."""
