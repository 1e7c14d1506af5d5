"""Rules for switches whose condition contains a constant mask of rows."""
