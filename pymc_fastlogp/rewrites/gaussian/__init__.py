"""The rule for sums of squares of linear predictors, and the steps of its derivation."""
