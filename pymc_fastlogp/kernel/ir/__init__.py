"""The loop IR: its statements and expressions, their text and their invariants."""
