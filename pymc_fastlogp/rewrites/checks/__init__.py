"""Rules about bound checks."""
