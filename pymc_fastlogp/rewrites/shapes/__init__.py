"""Rules that make known what types and shapes already say."""
