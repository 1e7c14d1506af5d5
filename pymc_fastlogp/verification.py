r"""Check a model's log density and gradient with the plugin on against the plugin off.

With the plugin on, the model is compiled as it is for a sampler, in mode NUMBA. With it off, PyTensor's
operations are run one by one in NumPy, so that nobody waits for a second compilation. Only where the two do
not agree, or NumPy lacks an operation, the model is compiled with the plugin off, too, and that decides.

Two computations of one density may differ by round-off, and how much round-off is innocent
depends on the point: where terms of 1e10 cancel, the last digits of their sum are noise in
both, and whether a nearly singular matrix has a Cholesky factor is decided by such digits. So
the yardstick is measured: the function without the plugin is evaluated again at points
:math:`x'` that are a few units in the last place away. What that changes, upstream does not
know either. An entry passes if

.. math:: |on - off| \le rtol \cdot \max(|off|, s) + 16 \cdot \max_{x'} |off(x) - off(x')|

with :math:`s` the largest gradient entry of the same variable. Infinities and nan have to be
the same on both sides, except where they are not even the same at all :math:`x'`. Where the log
density is not finite on both sides, its gradient is not compared: every sampler rejects such a
point unseen.

Far out, where all coordinates are 30 or more from zero, upstream's log density or gradient may overflow or underflow to an
infinity or nan where a rewritten one has digits left, or is another of -inf and nan. Samplers reject such points with
the plugin off. They are counted, not compared.

Other coordinates do not show all round-off: a sigmoid near one, of which another is
subtracted, is rounded alike at all of them. Where an entry would fail even so, upstream's operations are
run at :math:`x` itself, too, with noise in the last digit of each (:mod:`pymc_fastlogp.roundoff`), and
the results count among the :math:`off(x')`. Where all entries pass without any of that, it is left out.

Not seen here are: what nutpie and PyMC compile from the same log density but with another
layout of its inputs, data of other shapes, and points with infinite coordinates.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pymc_fastlogp.config import switched
from pymc_fastlogp.given_model import given_model
from pymc_fastlogp.paired_start import settle
from pymc_fastlogp.rich_text import Shown
from pymc_fastlogp.roundoff import N_NOISY, NOISE_ALLOWED, neighbours, numpy_mode

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.mode import Mode

    from pymc_fastlogp.callbacks.compiled import CompiledModel

LogpDlogp = Callable[[np.ndarray], np.ndarray]

LOGP = "logp"

EXTREMES = (1e-300, 1e-8, 30.0, 800.0, 1e10)
# From here on what upstream computes may be beyond its range.
FAR = 30.0
OUTSIDE = (-1.0, 0.0, 2.0)


@dataclass(frozen=True)
class WorstEntry:
    """The entry of one variable where the two sides differ most, in units of what is allowed.

    Attributes
    ----------
    variable : str
        ``"logp"``, or the name of the value variable that the gradient is with respect to.
    place : tuple of int
        Index of the entry within the variable.
    point : str
        Which of the points it was.
    off, on : float
        The two values.
    error : float
        ``|on - off|`` relative to ``max(|off|, largest entry of the variable)``; inf where one side
        is finite and the other is not.
    ratio : float
        ``|on - off|`` divided by what is allowed there: above 1 the entry fails.
    """

    variable: str
    place: tuple[int, ...]
    point: str
    off: float
    on: float
    error: float
    ratio: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within what is allowed."""
        return self.ratio <= 1.0


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """The outcome of :func:`verify`: true if every entry at every point passed.

    Attributes
    ----------
    rows : tuple of WorstEntry
        One for ``logp`` and one for each value variable.
    n_points : int
        How many points were compared.
    rtol : float
        The relative tolerance.
    n_beyond : int
        How many points far out were not compared, since logp or the gradient is not finite with the plugin off, and something else with it on.
    """

    rows: tuple[WorstEntry, ...]
    n_points: int
    rtol: float
    n_beyond: int = 0

    @property
    def passed(self) -> bool:
        """Whether every entry at every point passed."""
        return all(row.passed for row in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {"passed": self.passed, **asdict(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a variable, with the attributes of :class:`WorstEntry` as columns."""
        return pd.DataFrame([asdict(row) | {"passed": row.passed} for row in self.rows])

    def sentences(self) -> list[str]:
        """Return the result in a sentence or two."""
        worst = max(self.rows, key=lambda row: row.ratio)
        names = ", ".join(row.variable for row in self.rows if not row.passed)
        verdict = "agree" if self.passed else f"DIFFER in {names}"
        found = (
            f"Logp and gradient, plugin off and on, {verdict} at {self.n_points} points:"
            f" the largest difference is {worst.ratio:.2g} times the allowed one."
        )
        if not self.n_beyond:
            return [found]
        return [
            found,
            f"At {self.n_beyond} more, far out, not all is finite with the plugin off, and something else with it on.",
        ]

    def table(self) -> pd.DataFrame:
        """Return the worst entry of each variable as text."""
        return pd.DataFrame(
            {
                "variable": row.variable,
                "relative difference": f"{row.error:.1e}",
                "times allowed": f"{row.ratio:.2g}",
                "at": f"{list(row.place)} of {row.point}" if row.place else row.point,
                "off": f"{row.off:.16g}",
                "on": f"{row.on:.16g}",
                "": "ok" if row.passed else "DIFFERS",
            }
            for row in self.rows
        )


def verify(
    model: "pm.Model | None" = None,
    *,
    n_random: int = 8,
    rtol: float = 1e-12,
    seed: int = 0,
    freeze_model: bool = True,
    compiled: "CompiledModel | None" = None,
) -> Verification:
    """Compare logp and every gradient entry of ``model`` with the plugin off and on.

    The side without it runs in NumPy, uncompiled. If the sides differ, it is compiled, and compared again.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open. Discrete variables are held at their
        initial values.
    n_random : int
        How many random points, standard normal on the unconstrained scale around the initial point,
        to evaluate. Added to them are points with extreme coordinates (from 1e-300 to 1e10, of
        either sign), and for each variable points that lie outside many supports.
    rtol : float
        Relative tolerance on top of the round-off that upstream's own value has at the point;
        see the module's docstring for the formula.
    seed : int
        Seed of the random points.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`.
    compiled : CompiledModel, optional
        What :func:`pymc_fastlogp.compile_pymc_model` made of the model: with it, that is what is compared, and nothing is compiled
        with the plugin on.

    Returns
    -------
    Verification
        Truthy if all agree; prints as a table with the worst entry of each variable.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        If it has no continuous free variable, or what is compiled has other variables.
    RuntimeError
        If the plugin can't be switched on, as with versions of PyMC and PyTensor that were not tested.
    """
    model = given_model("verify", model, freeze_model=freeze_model)
    start = model.initial_point(random_seed=seed)
    settle(model)
    on = _compile(model, start, "NUMBA", on=True) if compiled is None else _given(compiled, model)
    try:
        by_numpy = _verify(model, start, numpy_mode(), on, n_random, rtol, seed)
    except ValueError:  # an operation that upstream runs in Numba alone
        by_numpy = None
    return by_numpy or _verify(model, start, "NUMBA", on, n_random, rtol, seed)


def _verify(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    mode: "Mode | str",
    on: LogpDlogp,
    n_random: int,
    rtol: float,
    seed: int,
) -> Verification:
    """Compare a compiled function with what the model computes in a mode with the plugin off."""
    sizes = {v.name: np.shape(start[v.name]) for v in model.continuous_value_vars}
    rng = np.random.default_rng(seed)
    off = _compile(model, start, mode, on=False)
    noisy = cache(lambda: _compile(model, start, numpy_mode(rng), on=False))
    points = list(_points(start, sizes, n_random, rng))
    worst: dict[str, WorstEntry] = {}
    n_beyond = 0
    for label, x in points:
        values = off(x), on(x)
        if _is_beyond_upstream(x, *values):
            n_beyond += 1
            continue
        for near in _noise(x, off, noisy, rng):
            rows = list(_compare(*values, near, label, sizes, rtol))
            if all(row.passed for row in rows):
                break
        for row in rows:
            if row.variable not in worst or row.ratio > worst[row.variable].ratio:
                worst[row.variable] = row
    return Verification(tuple(worst.values()), len(points) - n_beyond, rtol, n_beyond)


def _noise(
    x: np.ndarray, off: LogpDlogp, noisy: Callable[[], LogpDlogp], rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield what upstream computes around a point, shape ``(k, n)``: first nothing, then what takes longer."""
    yield np.empty((0, 1 + x.size))
    near = [off(x_near) for x_near in neighbours(x, rng)]
    yield np.array(near)
    yield np.array([*near, *(noisy()(x) for _ in range(N_NOISY))])


def _is_beyond_upstream(x: np.ndarray, off: np.ndarray, on: np.ndarray) -> bool:
    """Whether upstream has no result at a point far out, and the plugin another one."""
    is_far = np.abs(x).min(initial=np.inf) >= FAR
    compared = slice(None) if _has_gradient(off, on) else slice(1)
    is_other = not np.isfinite(off).all() and not _same_kind(off[compared], on[compared]).all()
    return bool(is_far and is_other and (on[0] != np.inf or off[0] == np.inf))


def _has_gradient(off: np.ndarray, on: np.ndarray) -> bool:
    """Whether a sampler would look at the gradient of one side."""
    return bool(np.isfinite(off[0]) or np.isfinite(on[0]))


def _compile(
    model: "pm.Model", start: dict[str, np.ndarray], mode: "Mode | str", *, on: bool
) -> LogpDlogp:
    """Return a function of the raveled point that gives logp and gradient in one vector."""
    with switched(on):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
    function.set_extra_values(start)

    def logp_dlogp(x: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                logp, dlogp = function(x)
        except np.linalg.LinAlgError:
            # Upstream's inverse raises where PyMC makes -inf of a Cholesky factor; samplers reject both.
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp])

    return logp_dlogp


def _given(compiled: "CompiledModel", model: "pm.Model") -> LogpDlogp:
    """Return the function that a compiled model is, as :func:`_compile` does."""
    names = [variable.name for variable in model.value_vars]
    if compiled.shape_info[0][: len(names)] != names:
        raise ValueError(f"what is compiled has other variables than {', '.join(names)}.")

    def logp_dlogp(x: np.ndarray) -> np.ndarray:
        try:
            logp, dlogp = compiled.logp_dlogp(x)
        except ValueError:  # nutpie does not say what upstream raises, and rejects the point
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp])

    return logp_dlogp


def _points(
    start: dict[str, np.ndarray],
    sizes: dict[str, tuple[int, ...]],
    n_random: int,
    rng: np.random.Generator,
) -> Iterator[tuple[str, np.ndarray]]:
    origin = np.concatenate([np.ravel(start[name]).astype(float) for name in sizes])
    yield "the initial point", origin
    for i in range(n_random):
        yield f"random point {i}", origin + rng.normal(size=origin.size)
    for extreme in EXTREMES:
        signs = rng.choice([-1.0, 1.0], size=origin.size)
        yield f"all {extreme:g}", np.full(origin.size, extreme)
        yield f"all -{extreme:g}", np.full(origin.size, -extreme)
        yield f"mixed signs of {extreme:g}", signs * extreme
    for name, segment in _segments(sizes):
        for value in OUTSIDE:
            x = origin.copy()
            x[segment] = value
            yield f"{name} = {value:g}", x


def _segments(sizes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, slice]]:
    """Yield where each variable lies in the raveled point."""
    begin = 0
    for name, shape in sizes.items():
        end = begin + int(np.prod(shape))
        yield name, slice(begin, end)
        begin = end


def _compare(
    off: np.ndarray,
    on: np.ndarray,
    near: np.ndarray,
    label: str,
    sizes: dict[str, tuple[int, ...]],
    rtol: float,
) -> Iterator[WorstEntry]:
    """Yield the worst entry of logp and of each variable's gradient at one point."""
    for name, shape, part in _parts(sizes):
        if name != LOGP and not _has_gradient(off, on):
            return
        error, ratio = _errors(off[part], on[part], near[:, part], rtol)
        if not error.size:
            continue
        k = int(np.argmax(ratio))
        place = tuple(int(i) for i in np.unravel_index(k, shape))
        values = float(off[part][k]), float(on[part][k])
        yield WorstEntry(name, place, label, *values, float(error[k]), float(ratio[k]))


def _parts(sizes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...], slice]]:
    yield LOGP, (), slice(0, 1)
    for name, segment in _segments(sizes):
        yield name, sizes[name], slice(segment.start + 1, segment.stop + 1)


def _errors(
    off: np.ndarray, on: np.ndarray, near: np.ndarray, rtol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each entry the relative error, and the error in units of what is allowed.

    ``off`` and ``on`` have shape ``(n,)``, ``near``, which is ``off`` around the point, ``(k, n)``.
    """
    finite = np.isfinite(off)
    scale = np.maximum(np.abs(off), np.max(np.abs(off[finite]), initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        difference = np.where(off == on, 0.0, np.abs(on - off))
        allowed = rtol * scale + NOISE_ALLOWED * np.abs(off - near).max(axis=0, initial=0.0)
        error = np.where(difference == 0, 0.0, difference / scale)
        ratio = np.where(difference == 0, 0.0, difference / allowed)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)  # the difference overflows, as may the sum
    same_kind = _same_kind(off, on)
    excused = same_kind & ~finite | ~_same_kind(off, near).all(axis=0)
    error = np.where(excused, 0.0, np.where(same_kind, error, np.inf))
    ratio = np.where(excused, 0.0, np.where(same_kind, ratio, np.inf))
    return error, ratio


def _same_kind(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether both are finite, both nan, or both the same infinity."""
    return np.where(np.isfinite(a), np.isfinite(b), (a == b) | (np.isnan(a) & np.isnan(b)))
