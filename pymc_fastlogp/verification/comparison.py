"""Distance of two results, in units of the tolerance."""

from collections.abc import Iterator

import numpy as np

from pymc_fastlogp.verification.points import Sizes, segments
from pymc_fastlogp.verification.result import WorstEntry
from pymc_fastlogp.verification.roundoff import NOISE_ALLOWED

LOGP = "logp"

# Distance from zero beyond which upstream may overflow.
FAR = 30.0


def is_beyond_upstream(x: np.ndarray, off: np.ndarray, on: np.ndarray) -> bool:
    """Return whether a point is far out, upstream is not finite there, and the plugin differs."""
    is_far = np.abs(x).min(initial=np.inf) >= FAR
    is_other = not np.isfinite(off).all() and not are_of_one_kind(off, on)
    return bool(is_far and is_other and (on[0] != np.inf or off[0] == np.inf))


def has_gradient(off: np.ndarray, on: np.ndarray) -> bool:
    """Return whether a sampler would read the gradient of at least one side."""
    return bool(np.isfinite(off[0]) or np.isfinite(on[0]))


def are_of_one_kind(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two results have infinities and NaN in the same entries, as far as a sampler reads them."""
    compared = slice(None) if has_gradient(a, b) else slice(1)
    return bool(_same_kind(a[compared], b[compared]).all())


def compare(
    off: np.ndarray,
    on: np.ndarray,
    near: np.ndarray,
    label: str,
    sizes: Sizes,
    rtol: float,
) -> Iterator[WorstEntry]:
    """Yield the worst entry of logp and of each variable's gradient at one point."""
    for name, shape, part in _parts(sizes):
        if name != LOGP and not has_gradient(off, on):
            return
        error, ratio, allowed = _errors(off[part], on[part], near[:, part], rtol)
        if not error.size:
            continue
        k = int(np.argmax(ratio))
        place = tuple(int(i) for i in np.unravel_index(k, shape))
        numbers = (float(x[k]) for x in (off[part], on[part], error, ratio, allowed))
        yield WorstEntry(name, place, label, *numbers)


def _parts(sizes: Sizes) -> Iterator[tuple[str, tuple[int, ...], slice]]:
    yield LOGP, (), slice(0, 1)
    for name, segment in segments(sizes):
        yield name, sizes[name], slice(segment.start + 1, segment.stop + 1)


def _errors(
    off: np.ndarray, on: np.ndarray, near: np.ndarray, rtol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each entry the relative error, the error in units of the tolerance, and the tolerance.

    Parameters
    ----------
    off, on : ndarray, shape (n,)
        Results at the point.
    near : ndarray, shape (k, n)
        Results of upstream around the point.
    rtol : float
        Relative tolerance.
    """
    finite = np.isfinite(off)
    scale = np.maximum(np.abs(off), np.max(np.abs(off[finite]), initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        difference = np.where(off == on, 0.0, np.abs(on - off))
        allowed = rtol * scale + NOISE_ALLOWED * np.abs(off - near).max(axis=0, initial=0.0)
        error = np.where(difference == 0, 0.0, difference / scale)
        ratio = np.where(difference == 0, 0.0, difference / allowed)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)  # the difference or the tolerance overflows
    is_same_kind = _same_kind(off, on)
    excused = is_same_kind & ~finite | ~_same_kind(off, near).all(axis=0)
    error = np.where(excused, 0.0, np.where(is_same_kind, error, np.inf))
    ratio = np.where(excused, 0.0, np.where(is_same_kind, ratio, np.inf))
    return error, ratio, allowed


def _same_kind(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return whether both are finite, both NaN, or both the same infinity."""
    return np.where(np.isfinite(a), np.isfinite(b), (a == b) | (np.isnan(a) & np.isnan(b)))
