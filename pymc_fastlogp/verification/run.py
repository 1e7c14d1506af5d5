"""The public :func:`verify`: compile a model with the plugin on and off, and compare both at all points."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_fastlogp.config import leaving_out, switched
from pymc_fastlogp.display import progress_line
from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.models.in_place_rewrites import apply_in_place_rewrites
from pymc_fastlogp.models.table_rows import RowsRead, without_tables
from pymc_fastlogp.models.validate import model_with_variables, validated_model
from pymc_fastlogp.rules import RULES
from pymc_fastlogp.tables.progress import progress_shown
from pymc_fastlogp.verification.comparison import (
    compare,
    has_gradient,
    is_beyond_upstream,
    same_kind,
)
from pymc_fastlogp.verification.outcome import Verification, WorstEntry
from pymc_fastlogp.verification.points import Sizes, points_around
from pymc_fastlogp.verification.roundoff import N_NOISY, Noise, neighbors, numpy_mode

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.mode import Mode

    from pymc_fastlogp.compilation.nutpie_model import CompiledModel

LogpDlogp = Callable[[np.ndarray], np.ndarray]

# Share of the time in which points are begun; the rest is for the round-off at the last of them.
SHARE_TO_BEGIN = 0.5

# SciPy's message for a matrix that is not finite.
NOT_FINITE = "array must not contain infs or NaNs"

# Rules that keep digits where upstream's result is not finite.
KEEP_DIGITS = tuple(rule.name for rule in RULES if rule.is_exact)

# Default tolerance for each precision of the variables.
RTOL = {"float64": 1e-12, "float32": 1e-4}


def verify(
    model: "pm.Model | None" = None,
    *,
    n_random: int = 8,
    rtol: float | None = None,
    seed: int = 0,
    freeze_model: bool = True,
    compiled: "CompiledModel | None" = None,
    seconds: float | None = 10.0,
) -> Verification:
    """Compare logp and all gradient entries of ``model`` with the plugin off and on.

    The model without the plugin runs in NumPy, uncompiled. At a point where the sides differ, the compiled model decides.

    A model of a table is compared twice: the model as written, at the first rows of the table, with the model of their distinct rows; and the model of
    the distinct rows of the whole table, off and on.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open. Discrete variables are held at their
        initial values.
    n_random : int
        Number of random points, standard normal on the unconstrained scale around the initial point.
        Further points have extreme coordinates (from 1e-300 to 1e10, of either sign), values of one variable
        outside of many supports, or one entry far out.
    rtol : float
        Relative tolerance in addition to the round-off of upstream's own value at the point;
        the docstring of the module has the formula. By default 1e-12, or 1e-4 if all variables are float32.
    seed : int
        Seed of the random points.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`.
    compiled : CompiledModel, optional
        The model as compiled by :func:`pymc_fastlogp.compile_pymc_model`; by default the model is compiled.
    seconds : float, optional
        Time for evaluations, without compilation; a single evaluation is not interrupted. Slow models are compared at
        fewer points, and the result says at how many. None for no limit.

    Returns
    -------
    Verification
        True if all entries agree and the log density is finite at some point; prints as a table with the worst entry of each variable.

    Raises
    ------
    TypeError
        If there is no PyMC model, or ``compiled`` was compiled by nutpie itself.
    ValueError
        If the model has no continuous free variable, or draws random numbers in each evaluation, as a minibatch does.
        If ``compiled`` has other variables than the model, as a reparametrized model has.
    NotImplementedError, NullTypeGradError
        If PyTensor has no gradient of an operation, such as a black box.
    RuntimeError
        If the plugin cannot be switched on, for example with untested versions of PyMC and PyTensor.
    """
    as_written = model_with_variables("verify", model)
    with progress_shown(True):
        model = validated_model("verify", as_written, freeze_model=freeze_model)
    if compiled is None:
        of_first_rows = _verify_first_rows(as_written, n_random, rtol, seed, seconds)
        if of_first_rows is not None and not of_first_rows.agrees:
            return of_first_rows
    start = model.initial_point(random_seed=seed)
    if compiled is None:
        apply_in_place_rewrites(model)
        on = _compile(model, start, "NUMBA", on=True)
    else:  # `apply_in_place_rewrites` is for the first compilation of a model.
        on = _given(compiled, model)
    _check_repeats(on, model, start)
    found = _verify(model, start, on, n_random, rtol, seed, seconds)
    if found.n_finite or found.n_undecided:
        return found
    return replace(found, causes=_causes(model, start))


def _causes(model: "pm.Model", start: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the causes that :func:`pymc_fastlogp.sample` names, if the log density is not finite at the initial point."""
    from pymc_fastlogp.sampling.diagnosis import causes

    try:
        return tuple(causes(model, [start]))
    except Exception:  # an operation that needs a compiler
        return ()


def _verify_first_rows(
    as_written: "pm.Model", n_random: int, rtol: float | None, seed: int, seconds: float | None
) -> Verification | None:
    """Compare a model at the rows that its placeholders hold, off, with that at their distinct rows, on; None for a model of no table."""
    reduced, tables = without_tables(as_written, RowsRead.FIRST)
    if not tables:
        return None
    model = frozen_copy(as_written)
    start = model.initial_point(random_seed=seed)
    order = [variable.name for variable in model.continuous_value_vars]
    on = _compile(frozen_copy(reduced), start, "NUMBA", on=True, order=order)
    return _verify(model, start, on, n_random, rtol, seed, seconds)


def _verify(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    on: LogpDlogp,
    n_random: int,
    rtol: float | None,
    seed: int,
    seconds: float | None,
) -> Verification:
    """Compare a compiled function with the model compiled without the plugin, within a time."""
    clock = _Clock(seconds)
    upstream = _Upstream(
        lambda mode: _compile(model, start, mode, on=False),
        lambda left_out: _compile_on(model, start, left_out),
        clock,
        np.random.default_rng(seed),
    )
    return _compared(model, start, clock.timed(on), upstream, n_random, rtol)


def _check_repeats(logp_dlogp: LogpDlogp, model: "pm.Model", start: dict[str, np.ndarray]) -> None:
    """Raise a ValueError if two evaluations at one point differ."""
    x = np.concatenate([np.ravel(start[v.name]) for v in model.continuous_value_vars])
    if not np.array_equal(logp_dlogp(x), logp_dlogp(x), equal_nan=True):
        raise ValueError(
            "the model draws random numbers in each evaluation, so that results cannot be compared: give verify a model with"
            " all of the data instead of a minibatch."
        )


class _Clock:
    """Time that evaluations have left.

    Parameters
    ----------
    seconds : float, optional
        Seconds at the start; None for no limit.
    """

    def __init__(self, seconds: float | None):
        self.seconds = self.left = inf if seconds is None else seconds

    def timed(self, function: LogpDlogp) -> LogpDlogp:
        """Return a function whose calls take from the time, without the first call, which compiles."""
        is_first = True

        def evaluate(x: np.ndarray) -> np.ndarray:
            nonlocal is_first
            begin = perf_counter()
            try:
                return function(x)
            finally:
                self.left -= 0.0 if is_first else perf_counter() - begin
                is_first = False

        return evaluate

    @property
    def may_begin(self) -> bool:
        """True while there is time for one more point."""
        return self.left > (1 - SHARE_TO_BEGIN) * self.seconds or self.seconds == inf


class _Upstream:
    """Upstream's logp and gradient: run in NumPy, in NumPy with noise, and compiled.

    Parameters
    ----------
    compile : callable
        Function that compiles the model without the plugin in a mode.
    compile_on : callable
        Function that compiles the model with the plugin, without the rules of some names.
    clock : _Clock
        Time of all evaluations.
    rng : numpy.random.Generator
        Source of points and noise.
    """

    def __init__(
        self,
        compile: "Callable[[Mode | str], LogpDlogp]",
        compile_on: Callable[[Sequence[str]], LogpDlogp],
        clock: _Clock,
        rng: np.random.Generator,
    ):
        self.clock, self.rng, self.noise = clock, rng, Noise(rng)
        self._in_numpy = cache(lambda: clock.timed(compile(numpy_mode(self.noise))))
        self._compiled = cache(lambda: clock.timed(compile("NUMBA")))
        self._on = cache(lambda left_out: clock.timed(compile_on(left_out)))
        self._is_in_numpy = True

    def is_inexact(self, x: np.ndarray, off: np.ndarray, on: np.ndarray) -> bool:
        """Return whether a result that is not finite differs by the rules that keep digits: the plugin has both results, with and without them."""
        if np.isfinite(off).all():
            return False
        sides = (off, self._on(KEEP_DIGITS)(x)), (on, self._on(())(x))
        return all(_are_of_one_kind(*side) for side in sides)

    def values(self, x: np.ndarray) -> Iterator[tuple[np.ndarray, Iterator[np.ndarray]]]:
        """Yield upstream's result and its round-off at a point, as :meth:`_around`: by NumPy, then compiled."""
        noisy: list[np.ndarray] = []
        if self._is_in_numpy:
            try:
                off = self._in_numpy()
                yield off(x), self._around(x, off, noisy)
            except ValueError:  # an operation that upstream runs in Numba alone
                self._is_in_numpy = False
        off = self._compiled()
        yield off(x), self._around(x, off, noisy)

    def _around(
        self, x: np.ndarray, off: LogpDlogp, noisy: list[np.ndarray]
    ) -> Iterator[np.ndarray]:
        """Yield upstream's results around a point, shape ``(k, n)``, with one more row each time, cheap rows first.

        More rows can only increase the tolerance, so the comparison stops as soon as all entries pass.

        Parameters
        ----------
        x : ndarray
            The point.
        off : callable
            Upstream's function for neighbors of the point.
        noisy : list of ndarray
            Results with noise at the point, to which more are added.
        """
        yield np.empty((0, 1 + x.size))
        near: list[np.ndarray] = []
        for x_near in neighbors(x, self.rng):
            near.append(off(x_near))
            yield np.array(near)
        for n in range(1, N_NOISY + 1 if self._is_in_numpy else 0):
            if len(noisy) < n:
                with self.noise.on():
                    noisy.append(self._in_numpy()(x))
            yield np.array(near + noisy[:n])


def _compared(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    on: LogpDlogp,
    upstream: _Upstream,
    n_random: int,
    rtol: float | None,
) -> Verification:
    """Compare a compiled function with upstream's at all points for which there is time."""
    sizes = {v.name: np.shape(start[v.name]) for v in model.continuous_value_vars}
    if rtol is None:
        rtol = RTOL[np.result_type(*(start[name] for name in sizes)).name]
    clock = upstream.clock
    points = points_around(start, sizes, n_random, upstream.rng)
    worst: dict[str, WorstEntry] = {}
    n_begun = n_beyond = n_finite = n_undecided = 0
    with progress_line("verify") as show:
        for label, x in points:
            if n_begun and not clock.may_begin:
                break
            show(f"verify: {n_begun} of {len(points)} points")
            n_begun += 1
            found = _at(label, x, on(x), upstream, sizes, rtol)
            n_finite += found.is_finite
            n_beyond += found.is_beyond
            n_undecided += found.is_undecided
            for row in found.rows:
                if row.variable not in worst or row.ratio > worst[row.variable].ratio:
                    worst[row.variable] = row
    return Verification(
        tuple(worst.values()),
        n_begun - n_beyond - n_undecided,
        rtol,
        n_beyond,
        n_finite,
        len(points) - n_begun,
        n_undecided,
    )


def _are_of_one_kind(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two results have infinities and NaN in the same entries, as far as a sampler reads them."""
    compared = slice(None) if has_gradient(a, b) else slice(1)
    return bool(same_kind(a[compared], b[compared]).all())


class _Found(NamedTuple):
    """Comparison at one point; without rows if the point is beyond upstream or undecided."""

    rows: list[WorstEntry]
    is_finite: bool
    is_beyond: bool = False
    is_undecided: bool = False


def _at(
    label: str, x: np.ndarray, on: np.ndarray, upstream: _Upstream, sizes: Sizes, rtol: float
) -> _Found:
    """Compare at one point. Where NumPy's result differs, the result of the compiled model decides."""
    rows: list[WorstEntry] = []
    is_finite = False
    for off, around in upstream.values(x):
        is_finite = bool(np.isfinite(off[0]) or np.isfinite(on[0]))
        if is_beyond_upstream(x, off, on):
            return _Found([], is_finite, is_beyond=True)
        for near in around:
            rows = list(compare(off, on, near, label, sizes, rtol))
            if all(row.passed for row in rows):
                return _Found(rows, is_finite)
            if upstream.clock.left <= 0:
                return _Found([], is_finite, is_undecided=True)
        if upstream.is_inexact(x, off, on):
            return _Found([], is_finite, is_beyond=True)
    return _Found(rows, is_finite)


def _compile(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    mode: "Mode | str",
    *,
    on: bool,
    order: Sequence[str] | None = None,
) -> LogpDlogp:
    """Compile a function from the raveled point to logp and gradient in one vector of float64.

    ``order`` names the continuous value variables in the order of the point, by default that of the model.
    """
    values = {variable.name: variable for variable in model.value_vars}
    variables = None if order is None else [values[name] for name in order]
    # In the context of the model, since PyMC reads `check_bounds` of the open model.
    with switched(on), model:
        # Without an initial point PyMC would compile a function for it.
        function = model.logp_dlogp_function(
            variables, initial_point=start, ravel_inputs=True, mode=mode
        )
    function.set_extra_values(start)

    def logp_dlogp(x: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                logp, dlogp = function(x)
        except (ValueError, ZeroDivisionError, IndexError) as error:
            if not _is_of_the_point(error):
                raise
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp], dtype=np.float64)

    return logp_dlogp


def _compile_on(
    model: "pm.Model", start: dict[str, np.ndarray], left_out: Sequence[str]
) -> LogpDlogp:
    """Compile with the plugin, without the rules of some names."""
    with leaving_out(left_out):
        return _compile(model, start, "NUMBA", on=True)


def _is_of_the_point(error: Exception) -> bool:
    """Return whether an error means that a sampler rejects the point, as for logp = -inf.

    Such errors are from

    - inverses and eigenvectors of singular matrices;
    - SciPy, for a matrix that is not finite (PyTensor appends the node to the message);
    - Numba, for a division by zero;
    - an index out of range.
    """
    if isinstance(error, np.linalg.LinAlgError | ZeroDivisionError | IndexError):
        return True
    return str(error).startswith(NOT_FINITE)


def _given(compiled: "CompiledModel", model: "pm.Model") -> LogpDlogp:
    """Return logp and gradient of a compiled model as a function, as :func:`_compile` does."""
    names = [variable.name for variable in model.value_vars]
    if not hasattr(compiled, "logp_dlogp"):
        raise TypeError(
            "verify cannot evaluate a model compiled by nutpie: pass the result of pymc_fastlogp.compile_pymc_model,"
            " with the plugin switched on."
        )
    # A model with linear coordinates for the sampler is compared in the model's own coordinates.
    original: Any = getattr(compiled, "original", compiled)
    own_names, slices, _ = original.shape_info
    slice_of = dict(zip(own_names[: len(names)], slices, strict=False))
    if slice_of.keys() != {*names}:
        raise ValueError(
            f"the compiled model has other variables than {', '.join(names)}: pass the model that was compiled,"
            " for a reparametrized one pymc_fastlogp.reparametrize(model)."
        )
    # Freezing a model may change the order of its variables.
    places = np.concatenate([np.arange(original.n_dim)[slice_of[name]] for name in names])

    def logp_dlogp(x: np.ndarray) -> np.ndarray:
        own = np.empty(x.size)
        own[places] = x
        try:
            logp, dlogp = original.logp_dlogp(own)
        except ValueError:  # nutpie rejects the point, without upstream's error
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp[places]])

    return logp_dlogp
