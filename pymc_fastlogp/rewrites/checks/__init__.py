"""Rules for parameter checks."""
