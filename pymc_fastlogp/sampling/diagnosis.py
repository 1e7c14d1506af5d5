"""Name the variables and rows because of which a chain cannot start.

nutpie reports a number and a backtrace. After a failed start the model is evaluated again, uncompiled, at several initial points: the log density of each
variable row by row, then the gradient, then the deterministics. A successful run executes no code of this module.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from traceback import clear_frames
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp.config import switched
from pymc_fastlogp.models.compile_lock import without_tracebacks

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.graph.basic import Variable

Point = Mapping[str, np.ndarray]
Finder = Callable[[Point], list[str]]

# Error message of nutpie, and the type of a panic of its library, a BaseException.
FAILED_START, PANIC = "All initialization points failed", "PanicException"
N_POINTS = 10
MOST_CAUSES = 5
STATES: dict[str, Callable[[Any], Any]] = {"nan": np.isnan, "inf": np.isposinf, "-inf": np.isneginf}
OUT_OF_RANGE = re.compile(r"index (-?\d+) is out of bounds for axis \d+ with size (\d+)")
FOR_STARTS = ("initial_points", "jitter_rvs", "default_initialization_strategy")


@contextmanager
def failed_start_explained(model: "pm.Model", arguments: Mapping[str, Any]) -> Iterator[None]:
    """Replace nutpie's error of a failed start by one that names variables and rows.

    Parameters
    ----------
    model : pymc.Model
        The user's model.
    arguments : mapping
        Arguments of ``pm.sample``; ``initvals`` and ``compile_kwargs`` are used.

    Raises
    ------
    pymc.exceptions.SamplingError
        If nutpie finds no initial point, or a deterministic cannot be computed.
    """
    try:
        yield
    except BaseException as error:
        is_panic = type(error).__name__ == PANIC
        if not is_panic and not str(error).startswith(FAILED_START):
            raise
        # Frames of nutpie.sample hold the sampler, which can crash the process if it is freed at interpreter exit.
        clear_frames(error.__traceback__)
        causes = _causes_or_none(model, arguments, of_stored_values=is_panic)
        if is_panic and not causes:
            raise
        from pymc.exceptions import SamplingError

        if causes:
            raise SamplingError("sampling cannot start: " + "\n".join(causes)) from None
        raise SamplingError(
            "sampling cannot start: nutpie finds no initial point with a finite log density and gradient; run model.debug()"
        ) from error


def _causes_or_none(
    model: "pm.Model", arguments: Mapping[str, Any], *, of_stored_values: bool = False
) -> list[str]:
    """Return the causes, an empty list if the model cannot be evaluated without a compiler."""
    try:
        with without_tracebacks():
            points = _initial_points(model, arguments)
            return causes(model, points, of_stored_values=of_stored_values)
    except Exception:
        return []


def _initial_points(model: "pm.Model", arguments: Mapping[str, Any]) -> list[Point]:
    from pymc_fastlogp.compilation.model_source import ModelSource
    from pymc_fastlogp.sampling.request import request_of

    given = {"initial_points": arguments["initvals"], **(arguments["compile_kwargs"] or {})}
    options = {name: given[name] for name in FOR_STARTS if name in given}
    request = request_of(model, **options)
    source = ModelSource(model, request.options, freeze=False)
    return [source(seed) for seed in range(N_POINTS)]


def _abridged[T](failing: Sequence[T], describe: Callable[[T], str]) -> list[str]:
    """Return a sentence for each of the first failures, and the number of further failures."""
    n_more = len(failing) - MOST_CAUSES
    more = [f"and {n_more} more"] if n_more > 0 else []
    return [describe(x) for x in failing[:MOST_CAUSES]] + more


def causes(
    model: "pm.Model", points: Sequence[Point], *, of_stored_values: bool = False
) -> list[str]:
    """Return the causes of a non-finite log density or gradient, at the first point that has any.

    Parameters
    ----------
    model : pymc.Model
        The model.
    points : sequence of mapping of str to ndarray
        Values by the names of the value variables.
    of_stored_values : bool
        Whether to search for deterministics that raise an error instead.

    Returns
    -------
    list of str
        One sentence per variable; empty if there is no cause at any of the points.
    """
    finders = (_of_deterministics,) if of_stored_values else (_of_log_densities, _of_gradients)
    for finder in finders:
        find = finder(model)
        for point in points:
            if found := find(point):
                return found
    return []


def _of_log_densities(model: "pm.Model") -> Finder:
    from pytensor.tensor import as_tensor

    factors = [*model.basic_RVs, *model.potentials]
    logps = [as_tensor(x, allow_xtensor_conversion=True) for x in model.logp(factors, sum=False)]
    evaluate = _Evaluated(model, logps)

    def find(point: Point) -> list[str]:
        evaluated = zip(factors, logps, evaluate(point), strict=True)
        failing = [
            x for x in evaluated if isinstance(x[2], Exception) or not np.isfinite(x[2]).all()
        ]
        return _abridged(failing, lambda x: _sentence(x[0].name, _reasons(model, *x, point)))

    return find


def _reasons(
    model: "pm.Model", factor: "Variable", logp: "Variable", values: Any, point: Point
) -> Iterator[str]:
    """Yield the reasons why the log density of a variable, with the given values, is not finite."""
    if isinstance(values, Exception):
        yield _failure(values)
        return
    shown = _user_values(model, factor, point)
    yield _of_values(values, shown)
    yield from _checks(model, logp, point)
    if not _has_nan(shown):
        yield from _nan_arrays(logp)


def _of_gradients(model: "pm.Model") -> Finder:
    with switched(False):
        evaluate = _Evaluated(model, [model.dlogp()], is_rewritten=True)
    variables = model.continuous_value_vars

    def find(point: Point) -> list[str]:
        [gradient] = evaluate(point)
        if isinstance(gradient, Exception):
            return [_sentence("the gradient", [_failure(gradient)])]
        shapes = [np.shape(point[x.name]) for x in variables]
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
        parts = np.split(gradient, ends[:-1])
        by_name = {
            model.values_to_rvs[x].name: part.reshape(shape)
            for x, part, shape in zip(variables, parts, shapes, strict=True)
        }
        failing = [name for name, part in by_name.items() if not np.isfinite(part).all()]
        return _abridged(failing, lambda x: _sentence(x, [_counted(by_name[x], "gradient")]))

    return find


def _of_deterministics(model: "pm.Model") -> Finder:
    """Return a function that finds deterministics that raise an error; non-finite values are valid."""
    deterministics = model.deterministics
    evaluate = _Evaluated(model, model.replace_rvs_by_values(deterministics))

    def find(point: Point) -> list[str]:
        evaluated = zip(deterministics, evaluate(point), strict=True)
        failing = [x for x in evaluated if isinstance(x[1], Exception)]
        return _abridged(failing, lambda x: _sentence(x[0].name, [_failure(x[1])]))

    return find


class _Evaluated:
    """Uncompiled function from a point to values of variables, with an exception in place of a value that cannot be computed.

    A ``NotImplementedError`` is raised: a compiler may implement the Op.

    Parameters
    ----------
    model : pymc.Model
        The model.
    variables : sequence of Variable
        Functions of the value variables.
    is_rewritten : bool
        Whether PyTensor rewrites the graphs, which takes most of the time. Only gradients need rewrites, which replace ``0 * inf`` by zero.
    """

    def __init__(
        self, model: "pm.Model", variables: "Sequence[Variable]", *, is_rewritten: bool = False
    ):
        self._model, self._variables, self._is_rewritten = model, variables, is_rewritten

    def __call__(self, point: Point) -> list[Any]:
        try:
            return self._called(self._together, point)
        except Exception:
            return [self._value(function, point) for function in self._separately]

    @cached_property
    def _together(self) -> Any:
        return self._function(self._variables)

    @cached_property
    def _separately(self) -> list[Any]:
        return [self._function([x]) for x in self._variables]

    def _function(self, variables: "Sequence[Variable]") -> Any:
        import pytensor
        from pymc.logprob.utils import (
            local_check_parameter_to_ninf_switch,
            local_remove_check_parameter,
        )
        from pytensor.compile.mode import FAST_COMPILE, Mode
        from pytensor.graph.rewriting.basic import in2out

        check: Any = (
            local_check_parameter_to_ninf_switch
            if self._model.check_bounds
            else local_remove_check_parameter
        )
        simplified = FAST_COMPILE.provided_optimizer.including(check.__name__)
        rewrites: Any = simplified if self._is_rewritten else in2out(check)
        mode = Mode("py", rewrites)
        with switched(False):
            return pytensor.function(
                self._model.value_vars, variables, mode=mode, on_unused_input="ignore"
            )

    def _value(self, function: Any, point: Point) -> Any:
        try:
            return self._called(function, point)[0]
        except NotImplementedError:
            raise
        except Exception as error:
            return error

    def _called(self, function: Any, point: Point) -> list[Any]:
        from pytensor.configdefaults import config

        # Adds the failing node to the error.
        with np.errstate(all="ignore"), config.change_flags(exception_verbosity="medium"):
            return function(**{x.name: point[x.name] for x in self._model.value_vars})


def _sentence(name: str, reasons: Iterable[str]) -> str:
    return f"{name}: {'; '.join(reasons)}"


def _user_values(model: "pm.Model", factor: "Variable", point: Point) -> np.ndarray | None:
    """Return the values of a variable on the user's scale, None for potentials and transformed variables."""
    if factor in model.observed_RVs:
        [values] = _Evaluated(model, [model.rvs_to_values[factor]])(point)
        return None if isinstance(values, Exception) else np.asarray(values)
    if factor in model.free_RVs and model.rvs_to_transforms[factor] is None:
        return point[model.rvs_to_values[factor].name]
    return None


def _has_nan(x: np.ndarray | None) -> bool:
    return x is not None and x.dtype.kind == "f" and bool(np.isnan(x).any())


def _of_values(logp: np.ndarray, values: np.ndarray | None) -> str:
    if values is not None and _has_nan(values):
        return _counted(values)
    is_row_by_row = values is not None and values.shape == logp.shape
    return _counted(logp, "log density", values if is_row_by_row else None)


def _counted(x: np.ndarray, quantity: str = "", values: np.ndarray | None = None) -> str:
    """Describe the number of NaN or infinite entries of an array, and the first of them."""
    state = next(name for name, is_so in STATES.items() if is_so(x).any())
    return _counted_mask(STATES[state](x), state, quantity, values)


def _counted_mask(
    mask: np.ndarray, state: str, quantity: str = "", values: np.ndarray | None = None
) -> str:
    """Describe the number of true entries of a mask, and the first of them.

    Parameters
    ----------
    mask : ndarray of bool
        The entries.
    state : str
        State of a true entry.
    quantity : str
        Quantity of a row that is in this state, if it is not the row itself.
    values : ndarray, optional
        Values of the rows, of the same shape.
    """
    index = tuple(int(i) for i in np.argwhere(mask)[0])
    value = "" if values is None else f" (value {values[index]:.6g})"
    if mask.ndim == 0:
        return f"{f'the {quantity}' if quantity else 'it'} is {state}{value}"
    n = int(mask.sum())
    rows = "rows" if mask.ndim == 1 else "entries"
    verbs = (f"has {quantity}", f"have {quantity}") if quantity else ("is", "are")
    at = index[0] if mask.ndim == 1 else list(index)
    return f"{n} of {mask.size} {rows} {verbs[n > 1]} {state}, the first at index {at}{value}"


def _checks(model: "pm.Model", logp: "Variable", point: Point) -> Iterator[str]:
    """Yield the failing checks of parameters, with the rows where they fail."""
    from pymc.logprob.utils import CheckParameterValue
    from pytensor.graph.traversal import ancestors

    if not model.check_bounds:
        return
    nodes = {x.owner for x in ancestors([logp]) if x.owner}
    checks = [x for x in nodes if isinstance(x.op, CheckParameterValue)]
    for node in sorted(checks, key=lambda node: node.op.msg):
        conditions = list(_conditions(node.inputs[1]))
        for holds in _Evaluated(model, conditions)(point):
            if isinstance(holds, Exception) or np.all(holds):
                continue
            holds = np.asarray(holds, dtype=bool)
            of = "" if holds.ndim == 0 else f" ({_counted_mask(~holds, 'outside')})"
            yield f"{node.op.msg} does not hold{of}"
            break


def _conditions(condition: "Variable") -> "Iterator[Variable]":
    """Yield the boolean arrays whose entries all have to be true for a check."""
    from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor
    from pytensor.tensor.math import All

    match condition.owner and condition.owner.op:
        case ScalarFromTensor() | All() | MakeVector() | Join():
            for x in condition.owner.inputs:
                if x.type.dtype == "bool":
                    yield from _conditions(x)
        case _:
            yield condition


def _arrays(variables: "Iterable[Variable]") -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and values of the non-scalar data in graphs."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import ancestors

    for x in ancestors(list(variables)):
        match x:
            case SharedVariable():
                value = x.get_value(borrow=True)
            case Constant():
                value = x.data
            case _:
                continue
        if isinstance(value, np.ndarray) and value.ndim:
            # PyMC masks NaN in data that were set.
            yield x.name or f"an array of shape {value.shape}", np.ma.getdata(value)


def _nan_arrays(logp: "Variable") -> Iterator[str]:
    """Yield a sentence for each array of data of a log density with NaN."""
    for name, value in _arrays([logp]):
        if _has_nan(value):
            yield _sentence(name, [_counted(value)])


def _failure(error: Exception) -> str:
    """Return the first line of an error, and the positions of an index that is out of range."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    # PyTensor stores the node in the first of its two errors.
    node = getattr(error.__context__, "__op_instance__", None)
    found = OUT_OF_RANGE.search(line)
    if not isinstance(error, IndexError) or node is None or found is None:
        return line
    index, size = map(int, found.groups())
    reasons = [line]
    for name, value in _arrays(node.inputs[1:]):
        if value.dtype.kind in "iu" and (value == index).any():
            mask = (value < -size) | (value >= size)
            reasons.append(_sentence(name, [_counted_mask(mask, "out of range", "", value)]))
    return "; ".join(reasons)
