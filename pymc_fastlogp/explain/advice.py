"""What the user can do about each reason for which a rule leaves rows alone."""

WHOLE_DATA = "take all of the data instead of a minibatch: rows that repeat then cost nothing"

# A phrase of the reason in small letters, and the advice; None where the reason gives it itself,
# after a colon. The first that fits.
ADVICE: tuple[tuple[str, str | None], ...] = (
    ("compile with freeze_model=true", None),
    ("0 * inf is nan", None),
    ("random numbers", WHOLE_DATA),
    (
        "not known before the call",
        "give data and variables a length that is known, by shape or freeze_model=True",
    ),
    (
        "also needed row by row",
        "nothing, unless it is an output of yours: compute that apart",
    ),
    (
        "has an entry of its own for each row",
        "nothing, unless rows could share a parameter by an index",
    ),
    ("read what others compute", "nothing: such rows have an order of their own"),
    (
        "too few repeats",
        "nothing, unless a covariate can be rounded without loss, or groups joined",
    ),
    (
        "too few rows read the same parameters",
        "nothing, unless groups can be joined",
    ),
    (
        "not linear in a covariate",
        "nothing, unless it can be a constant matrix, of a spline for instance, times coefficients",
    ),
    (
        "too many parameters in each cell",
        "nothing, unless groups can do with fewer coefficients",
    ),
    ("row compaction leaves as few", "nothing: row compaction does it"),
    ("constants are not finite", "look for nan, infinities and signs in the data and weights"),
)


def split_advice(reason: str) -> tuple[str, str]:
    """Return a reason, and what the user can do about it, empty where nothing is known.

    Parameters
    ----------
    reason : str
        Of a :class:`~pymc_fastlogp.decisions.Decision`.
    """
    for phrase, advice in ADVICE:
        if phrase in reason.lower():
            return (reason, advice) if advice is not None else _split(reason)
    return reason, ""


def _split(reason: str) -> tuple[str, str]:
    cause, _, advice = reason.partition(": ")
    return cause, advice
