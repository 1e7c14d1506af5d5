"""Rules that propagate static shapes and constants."""
