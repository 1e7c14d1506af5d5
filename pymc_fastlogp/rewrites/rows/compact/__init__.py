"""Rules that merge repeated rows into distinct rows with weights."""
