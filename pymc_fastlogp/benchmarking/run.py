"""The public ``benchmark``: compile a model with the plugin off and on, time both in turn."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.result import BenchmarkResult
from pymc_fastlogp.benchmarking.wait import Wait, measure_wait
from pymc_fastlogp.config import switched
from pymc_fastlogp.models.in_place_rewrites import apply_in_place_rewrites
from pymc_fastlogp.models.validate import NOWHERE_FINITE, refuse_discrete, validated_model
from pymc_fastlogp.verification.roundoff import NOISE_ALLOWED, neighbors

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.benchmarking.native import LogpCallback

Evaluate = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]

# The branch predictor learns a single point by heart.
N_POINTS = 8
TRIES = 20 * N_POINTS


def benchmark(
    model: "pm.Model | None" = None,
    *,
    rounds: int = 7,
    seconds_per_round: float = 0.1,
    seed: int = 0,
    freeze_model: bool = True,
    wait: bool = True,
) -> BenchmarkResult:
    """Time one evaluation of logp and gradient with the plugin off and on, and what a user waits for.

    Each side is compiled by ``nutpie.compile_pymc_model``. What is timed is the C function that nutpie calls, in a native loop on one pinned core, at a few
    jittered initial points. The sides run in turn within each round and are compared round
    by round. The wait is that of fresh processes with empty caches: imports, compilation, and 4 chains of 1000 + 1000 draws on two cores, given up after a
    minute. It takes about half a minute to measure for a model that samples at once.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open.
    rounds : int
        Number of rounds.
    seconds_per_round : float
        About how long each side runs in each round.
    seed : int
        Decides the points.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`.
    wait : bool
        Whether to measure the wait, too; the model must then be one that cloudpickle can pickle.

    Returns
    -------
    BenchmarkResult
        With the sides ``"off"`` and ``"on"`` of an evaluation, and the ways ``"off"``, ``"import"`` (import alone) and ``"sample"``
        (:func:`pymc_fastlogp.sample`) of the wait. A ratio above 1 means that the plugin helps.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        If it has no continuous or any discrete free variable, ``rounds`` is below 1, or no initial
        point has a finite logp.
    RuntimeError
        If the plugin can't be switched on, as with versions of PyMC and PyTensor that were not tested, or the wait can't
        be measured.
    AssertionError
        If the two sides disagree by more than round-off.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", shape=3)
    >>> result = pymc_fastlogp.benchmark(model, rounds=3, seconds_per_round=0.001, wait=False)
    >>> sorted(result.seconds)
    ['off', 'on']
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: at least one is needed.")
    model = validated_model("benchmark", model, freeze_model=freeze_model)
    refuse_discrete(model)
    waits = _waits(model, freeze_model=freeze_model, seed=seed) if wait else {}
    apply_in_place_rewrites(model)
    off, on = (compile_model(model, side, freeze_model=freeze_model) for side in ("off", "on"))
    result = time_compiled(off, on, rounds=rounds, seconds_per_round=seconds_per_round, seed=seed)
    return replace(result, wait=waits)


def _waits(model: "pm.Model", *, freeze_model: bool, seed: int) -> dict[str, Wait]:
    try:
        return measure_wait(model, freeze_model=freeze_model)
    except RuntimeError:
        # Its processes fail if no chain can start, with a text that does not say so.
        compiled = compile_model(model, "off", freeze_model=freeze_model)
        from pymc_fastlogp.benchmarking.native import LogpCallback

        legal_points(LogpCallback.from_compiled(compiled), seed)
        raise


def time_compiled(
    off: Any, on: Any, *, rounds: int, seconds_per_round: float, seed: int
) -> BenchmarkResult:
    """Time two models that nutpie has compiled (Numba backend), as :func:`benchmark` does."""
    from pymc_fastlogp.benchmarking.native import LogpCallback

    callbacks = {"off": LogpCallback.from_compiled(off), "on": LogpCallback.from_compiled(on)}
    points = legal_points(callbacks["off"], seed)
    check_agreement(callbacks["on"].evaluate, callbacks["off"].evaluate, points)
    timers = {side: callback.timer(points) for side, callback in callbacks.items()}
    with pinned():
        seconds = time_in_turn(timers, rounds=rounds, seconds_per_round=seconds_per_round)
    return BenchmarkResult(n_dim=points.shape[1], seconds=seconds)


def compile_model(model: "pm.Model", side: str, *, freeze_model: bool = True) -> Any:
    """Compile a model with nutpie, plugin ``"off"`` or ``"on"``.

    Raises
    ------
    ValueError
        If the model has discrete free variables.
    """
    import nutpie

    refuse_discrete(model)
    with switched(side == "on"):
        return nutpie.compile_pymc_model(model, freeze_model=freeze_model)


def compile_side(model: "pm.Model", side: str) -> "LogpCallback":
    """Return nutpie's callback for a model, plugin ``"off"`` or ``"on"``."""
    from pymc_fastlogp.benchmarking.native import LogpCallback

    return LogpCallback.from_compiled(compile_model(model, side))


def legal_points(callback: "LogpCallback", seed: int) -> NDArray[np.float64]:
    """Return jittered initial points where logp and gradient are finite, shape (8, n_dim).

    Raises
    ------
    ValueError
        If there are not enough of them among many tries.
    """
    rng = np.random.default_rng(seed)
    legal: list[NDArray[np.float64]] = []
    for _ in range(TRIES):
        point = callback.owner.initial_point_func(int(rng.integers(2**31)))
        try:
            callback.evaluate(point)
        except FloatingPointError:
            continue
        legal.append(point)
        if len(legal) == N_POINTS:
            return np.stack(legal)
    if not legal:
        raise ValueError(NOWHERE_FINITE)
    raise ValueError(
        f"Only {len(legal)} of {TRIES} jittered initial points have a finite logp and gradient:"
        " give the model better initial values with `initval`."
    )


def check_agreement(
    evaluate: Evaluate, reference: Evaluate, points: NDArray[np.float64], rtol: float = 1e-9
) -> None:
    """Raise AssertionError unless logp and gradient are equal at all points, up to round-off.

    They may differ by ``rtol`` of the largest gradient entry, and by a multiple of what the
    reference itself changes between neighboring points, as :func:`pymc_fastlogp.verify` allows.
    """
    rng = np.random.default_rng(0)
    for point in points:
        found, expected = evaluate(point), reference(point)
        near = [reference(neighbor) for neighbor in neighbors(point, rng)]
        for i, what in enumerate(("logp", "gradient")):
            noise = np.max([np.abs(values[i] - expected[i]) for values in near], initial=0.0)
            scale = np.abs(expected[i]).max(initial=1.0)
            np.testing.assert_allclose(
                found[i],
                expected[i],
                rtol=rtol,
                atol=rtol * scale + NOISE_ALLOWED * noise,
                err_msg=f"{what} differs",
            )
