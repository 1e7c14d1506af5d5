"""The public :func:`benchmark`: compile a model with the plugin off and on, and time both in turn."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.result import BenchmarkResult
from pymc_fastlogp.benchmarking.wait import SECONDS, measure_wait
from pymc_fastlogp.config import switched
from pymc_fastlogp.display import progress_line
from pymc_fastlogp.models.freeze import without_partly_named_dims
from pymc_fastlogp.models.in_place_rewrites import apply_in_place_rewrites
from pymc_fastlogp.models.validate import nowhere_finite, refuse_discrete, validated_model
from pymc_fastlogp.patching import unpatched
from pymc_fastlogp.sampling.compile_model import compile_request
from pymc_fastlogp.sampling.request import request_of
from pymc_fastlogp.sampling.threads import threads_per_chain
from pymc_fastlogp.verification.roundoff import NOISE_ALLOWED, neighbors

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.benchmarking.native import LogpCallback

Evaluate = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]

# With a single point the branch predictor would never miss.
N_POINTS = 8
TRIES = 20 * N_POINTS

# Relative tolerance for each precision. The round-off of upstream is measured less thoroughly than by `verify`.
RTOL = {"float64": 1e-9, "float32": 1e-4}


def benchmark(
    model: "pm.Model | None" = None,
    *,
    rounds: int = 7,
    seconds_per_round: float = 0.1,
    seed: int = 0,
    freeze_model: bool = True,
    wait: bool = True,
    seconds: float = SECONDS,
    threads: Sequence[int] = (),
) -> BenchmarkResult:
    """Time one evaluation of logp and gradient with the plugin off and on, and the wait of a user.

    ``nutpie.compile_pymc_model`` compiles both sides. The C function that nutpie calls is timed in a native loop on one
    pinned core, at 8 jittered initial points. The sides run in turn within each round, and ratios are formed round by round.

    The wait is measured in three fresh processes with empty caches: imports, compilation, and 4 chains of 1000 + 1000 draws on
    two cores. A process is stopped after its share of the time. A terminal shows a line of progress.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open.
    rounds : int
        Number of rounds.
    seconds_per_round : float
        Approximate seconds of each side in each round.
    seed : int
        Seed of the points.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`.
    wait : bool
        Whether to measure the wait, too; cloudpickle must then be able to pickle the model.
    seconds : float
        Time of the whole benchmark, of which the processes get at least a half. The two compilations before are not stopped.
    threads : sequence of int
        Numbers of threads of a chain. Each number is a further side, such as ``"2 threads"``, compiled by :func:`pymc_fastlogp.compile_pymc_model`. All sides
        then take wall time instead of CPU time, and none is pinned to a core. The machine should have no other work.

    Returns
    -------
    BenchmarkResult
        Times of an evaluation for the sides ``"off"`` and ``"on"``, and for each number of ``threads``; and waits for the ways ``"off"``, ``"import"`` (import alone)
        and ``"sample"`` (:func:`pymc_fastlogp.sample`). A ratio above 1 means that the plugin helps.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        If the model has no continuous or any discrete free variable, ``rounds`` or a number of ``threads`` is below 1, or no initial
        point has a finite logp.
    RuntimeError
        If the plugin cannot be switched on, for example with untested versions of PyMC and PyTensor, or the wait cannot
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
    helpers = {n: threads_per_chain(n, 1) - 1 for n in threads}
    timing = (2 + len(helpers)) * rounds * seconds_per_round
    expected = f"at most about {seconds:.0f} s" if wait else f"{timing:.2g} s"
    begin = monotonic()
    # nutpie refuses such dims, which are labels alone.
    with without_partly_named_dims(model), progress_line("benchmark") as show_line:

        def show(step: str) -> None:
            show_line(f"benchmark ({expected}, and compilation): {step}")

        apply_in_place_rewrites(model)
        compiled = []
        for side in ("off", "on"):
            show(f"compiling with the plugin {side}")
            compiled.append(compile_model(model, side, freeze_model=freeze_model))
        with_threads = {
            _side(n): compile_request(request_of(model, freeze_model=freeze_model), n_helpers)
            for n, n_helpers in helpers.items()
        }
        show(f"timing logp and gradient for {timing:.2g} s")
        try:
            result = time_compiled(
                *compiled,
                rounds=rounds,
                seconds_per_round=seconds_per_round,
                seed=seed,
                dtype=np.result_type(*(x.dtype for x in model.continuous_value_vars)).name,
                with_threads=with_threads,
            )
        except (FloatingPointError, ValueError) as error:
            is_finite = isinstance(error, ValueError) and str(error) != nowhere_finite()
            if is_finite or not (causes := _causes(model, seed)):
                raise
            raise ValueError(nowhere_finite(causes)) from None
        if not wait:
            return result
        left = max(seconds / 2, seconds - (monotonic() - begin))
        waits = measure_wait(model, freeze_model=freeze_model, seconds=left, show=show)
    return replace(result, wait=waits)


def _side(n_threads: int) -> str:
    """Return the name of a side with a number of threads."""
    return f"{n_threads} thread{'s' if n_threads > 1 else ''}"


def _causes(model: "pm.Model", seed: int) -> list[str]:
    """Return the causes that :func:`pymc_fastlogp.sample` names, if the log density is not finite at the initial point."""
    from pymc_fastlogp.sampling.diagnosis import causes

    try:
        return causes(model, [model.initial_point(random_seed=seed)])
    except Exception:  # an operation that needs a compiler
        return []


def time_compiled(
    off: Any,
    on: Any,
    *,
    rounds: int,
    seconds_per_round: float,
    seed: int,
    dtype: str = "float64",
    with_threads: Mapping[str, Any] | None = None,
) -> BenchmarkResult:
    """Time two models compiled by nutpie (Numba backend), as :func:`benchmark` does.

    Parameters
    ----------
    off, on : nutpie.CompiledModel
        The models.
    rounds, seconds_per_round, seed
        As for :func:`benchmark`.
    dtype : str
        Precision of the variables.
    with_threads : mapping of str to CompiledModel, optional
        Further sides, whose kernels run on several threads. All sides then take wall time.

    Raises
    ------
    ValueError
        If too few initial points have a finite logp and gradient.
    FloatingPointError
        If one side fails at a point at which the other side does not.
    AssertionError
        If the two sides disagree by more than round-off.
    """
    from pymc_fastlogp.benchmarking.native import LogpCallback

    sides = {"off": off, "on": on, **(with_threads or {})}
    callbacks = {side: LogpCallback.from_compiled(x) for side, x in sides.items()}
    points = legal_points(callbacks["off"], seed)
    for side in list(sides)[1:]:
        check_agreement(callbacks[side].evaluate, callbacks["off"].evaluate, points.astype(dtype))
    clock = perf_counter if with_threads else seconds_now
    timers = {side: callback.timer(points, clock) for side, callback in callbacks.items()}
    with nullcontext() if with_threads else pinned():
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
        return unpatched(nutpie.compile_pymc_model)(model, freeze_model=freeze_model)


def compile_side(model: "pm.Model", side: str) -> "LogpCallback":
    """Return nutpie's callback for a model, plugin ``"off"`` or ``"on"``."""
    from pymc_fastlogp.benchmarking.native import LogpCallback

    return LogpCallback.from_compiled(compile_model(model, side))


def legal_points(callback: "LogpCallback", seed: int) -> NDArray[np.float64]:
    """Return jittered initial points with finite logp and gradient, shape (8, n_dim).

    Raises
    ------
    ValueError
        If fewer than 8 of :data:`TRIES` points are finite.
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
        raise ValueError(nowhere_finite())
    raise ValueError(
        f"Only {len(legal)} of {TRIES} jittered initial points have a finite logp and gradient:"
        " give the model better initial values with `initval`."
    )


def check_agreement(evaluate: Evaluate, reference: Evaluate, points: NDArray[np.floating]) -> None:
    """Raise AssertionError unless logp and gradient are equal at all points, up to round-off.

    The tolerance is :data:`RTOL` of the largest gradient entry, for the precision of the points, plus a multiple of the
    change of the reference between neighboring points, as in :func:`pymc_fastlogp.verify`.
    """
    rtol = RTOL[points.dtype.name]
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
