"""Status codes of a callback, as nutpie defines them: 0, or the kind of error.

Attributes
----------
WRONG_LENGTH
    A length is not the model's.
RAISED, EXPAND_RAISED
    Upstream raises here, in the callback of logp and in that of the stored values.
BAD_GRADIENT, BAD_LOGP
    The gradient or logp is infinite or nan; both are there nevertheless.
"""

WRONG_LENGTH, RAISED, EXPAND_RAISED, BAD_GRADIENT, BAD_LOGP = -1, 1, -2, 3, 4
