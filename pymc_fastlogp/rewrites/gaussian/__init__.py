"""The rule for sums of squares of linear predictors, in the parts of its derivation."""
