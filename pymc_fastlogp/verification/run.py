"""The public :func:`verify`: compile a model with the plugin on and off, and compare both at all points."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp.config import switched
from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.models.in_place_rewrites import apply_in_place_rewrites
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.models.validate import model_with_variables, validated_model
from pymc_fastlogp.verification.comparison import compare, is_beyond_upstream
from pymc_fastlogp.verification.outcome import Verification, WorstEntry
from pymc_fastlogp.verification.points import points_around
from pymc_fastlogp.verification.roundoff import N_NOISY, Noise, neighbors, numpy_mode

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.mode import Mode

    from pymc_fastlogp.compilation.nutpie_model import CompiledModel

LogpDlogp = Callable[[np.ndarray], np.ndarray]

# SciPy's message for a matrix that is not finite.
NOT_FINITE = "array must not contain infs or NaNs"

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
) -> Verification:
    """Compare logp and all gradient entries of ``model`` with the plugin off and on.

    The model without the plugin runs in NumPy, uncompiled. If the sides differ, this model is compiled and compared again.

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
    model = validated_model("verify", as_written, freeze_model=freeze_model)
    if compiled is None:
        of_first_rows = _verify_first_rows(as_written, n_random, rtol, seed)
        if of_first_rows is not None and not of_first_rows.agrees:
            return of_first_rows
    start = model.initial_point(random_seed=seed)
    if compiled is None:
        apply_in_place_rewrites(model)
        on = _compile(model, start, "NUMBA", on=True)
    else:  # `apply_in_place_rewrites` is for the first compilation of a model.
        on = _given(compiled, model)
    _check_repeats(on, model, start)
    try:
        by_numpy = _verify(model, start, on, n_random, rtol, seed)
    except ValueError:  # an operation that upstream runs in Numba alone
        by_numpy = None
    if by_numpy is not None and by_numpy.agrees:
        return by_numpy
    by_numba = _compile(model, start, "NUMBA", on=False)
    return _verify(model, start, on, n_random, rtol, seed, by_numba)


def _verify_first_rows(
    as_written: "pm.Model", n_random: int, rtol: float | None, seed: int
) -> Verification | None:
    """Compare a model at the rows that its placeholders hold, off, with that at their distinct rows, on; None for a model of no table."""
    reduced, tables = without_tables(as_written, first_rows=True)
    if not tables:
        return None
    model = frozen_copy(as_written)
    start = model.initial_point(random_seed=seed)
    order = [variable.name for variable in model.continuous_value_vars]
    on = _compile(frozen_copy(reduced), start, "NUMBA", on=True, order=order)
    return _verify(model, start, on, n_random, rtol, seed)


def _check_repeats(logp_dlogp: LogpDlogp, model: "pm.Model", start: dict[str, np.ndarray]) -> None:
    """Raise a ValueError if two evaluations at one point differ."""
    x = np.concatenate([np.ravel(start[v.name]) for v in model.continuous_value_vars])
    if not np.array_equal(logp_dlogp(x), logp_dlogp(x), equal_nan=True):
        raise ValueError(
            "the model draws random numbers in each evaluation, so that results cannot be compared: give verify a model with"
            " all of the data instead of a minibatch."
        )


def _verify(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    on: LogpDlogp,
    n_random: int,
    rtol: float | None,
    seed: int,
    off: LogpDlogp | None = None,
) -> Verification:
    """Compare a compiled function with upstream's function ``off``, by default run in NumPy."""
    sizes = {v.name: np.shape(start[v.name]) for v in model.continuous_value_vars}
    if rtol is None:
        rtol = RTOL[np.result_type(*(start[name] for name in sizes)).name]
    rng = np.random.default_rng(seed)
    noise = Noise(rng)
    in_numpy = cache(lambda: _compile(model, start, numpy_mode(noise), on=False))
    off = off or in_numpy()
    points = list(points_around(start, sizes, n_random, rng))
    worst: dict[str, WorstEntry] = {}
    n_beyond = n_finite = 0
    for label, x in points:
        values = off(x), on(x)
        n_finite += any(np.isfinite(value[0]) for value in values)
        if is_beyond_upstream(x, *values):
            n_beyond += 1
            continue
        for near in _noise(x, off, in_numpy, noise):
            rows = list(compare(*values, near, label, sizes, rtol))
            if all(row.passed for row in rows):
                break
        for row in rows:
            if row.variable not in worst or row.ratio > worst[row.variable].ratio:
                worst[row.variable] = row
    return Verification(tuple(worst.values()), len(points) - n_beyond, rtol, n_beyond, n_finite)


def _noise(
    x: np.ndarray, off: LogpDlogp, in_numpy: Callable[[], LogpDlogp], noise: Noise
) -> Iterator[np.ndarray]:
    """Yield upstream's results around a point, shape ``(k, n)``, with one more row each time, cheap rows first.

    More rows can only increase the tolerance, so the comparison stops as soon as all entries pass.
    """
    near: list[np.ndarray] = []
    yield np.empty((0, 1 + x.size))
    for x_near in neighbors(x, noise.rng):
        near.append(off(x_near))
        yield np.array(near)
    for _ in range(N_NOISY):
        with noise.on():
            near.append(in_numpy()(x))
        yield np.array(near)


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
        except (ValueError, ZeroDivisionError) as error:
            if not _is_of_the_point(error):
                raise
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp], dtype=np.float64)

    return logp_dlogp


def _is_of_the_point(error: Exception) -> bool:
    """Return whether an error means that a sampler rejects the point, as for logp = -inf.

    Such errors are from

    - inverses and eigenvectors of singular matrices;
    - SciPy, for a matrix that is not finite (PyTensor appends the node to the message);
    - Numba, for a division by zero.
    """
    if isinstance(error, np.linalg.LinAlgError | ZeroDivisionError):
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
