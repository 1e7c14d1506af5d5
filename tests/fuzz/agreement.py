"""Agreement of a random program with the plugin on and off, up to upstream's own round-off."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_fastlogp.config import switched
from pymc_fastlogp.verification.roundoff import N_NOISY, NOISE_ALLOWED, Noise, neighbors, numpy_mode
from tests.fuzz.drafts import FLOATS
from tests.fuzz.evaluation import (
    DROPS_CHECKS,
    Arrays,
    compiled,
    errors_off,
    off_in_numba,
    off_in_numpy,
    on_by_kernels,
)
from tests.fuzz.programs import Point, Program

Result = Arrays | Exception
# Lengths and indices that do not fit: SpecifyShape asserts lengths, others raise ValueError, and who comes first is nobody's promise.
OF_LENGTHS = (ValueError, AssertionError, IndexError)
# In units of the precision of the type.
ROUNDING = 256


@dataclass(frozen=True)
class Finding:
    """A point where the two sides differ.

    Attributes
    ----------
    kind : str
        ``compile``, ``raises``, ``type``, ``value``, or ``limit`` where upstream has an infinity or nan and the plugin something else.
    label : str
        Which point.
    detail : str
        What the two sides give.
    point : dict of str to ndarray
        The inputs.
    """

    kind: str
    label: str
    detail: str
    point: Point

    def __str__(self) -> str:
        inputs = "".join(f"\n{name} = {value!r}" for name, value in self.point.items())
        return f"{self.kind} at {self.label}: {self.detail}{inputs}"


class Sides:
    """The functions of a program; what is seldom needed is made when it is."""

    def __init__(self, program: Program):
        # LAPACK goes on with what is not a number, and where it ends is its own affair.
        self.has_factor = any("cholesky" in line.expression for line in program.lines)
        self._program = program
        with switched(False):
            self._inputs, self._outputs = program.variables()
        self.off = _caught(off_in_numpy(self._inputs, self._outputs))

    @cached_property
    def on(self) -> Callable[..., Result]:
        # Graphs are rewritten before the gradient, so each side needs its own.
        with switched(True):
            inputs, outputs = self._program.variables()
        return _caught(on_by_kernels(inputs, outputs))

    @cached_property
    def raise_if_checked(self) -> Callable[..., bool]:
        """Return whether lengths do not fit, which both sides say without the rewrites that drop what checks them."""
        with switched(True):
            own = self._program.variables()
        on = _caught(on_by_kernels(*own, *DROPS_CHECKS))
        off = _caught(off_in_numpy(self._inputs, self._outputs, *DROPS_CHECKS))
        return lambda *arrays: all(isinstance(f(*arrays), OF_LENGTHS) for f in (off, on))

    @cached_property
    def by_numba(self) -> Callable[..., Result]:
        return _caught(off_in_numba(self._inputs, self._outputs))

    @cached_property
    def noisy(self) -> Callable[..., Result]:
        noise = Noise(np.random.default_rng(0))
        function = compiled(self._inputs, self._outputs, numpy_mode(noise), on=False)

        def call(*arrays: np.ndarray) -> Arrays:
            with noise.on():
                return function(*arrays)

        return _caught(call)

    @cached_property
    def errors(self) -> Callable[..., set[type[Exception]]]:
        return errors_off(self._inputs, self._outputs)


def _caught(function: Callable[..., Arrays]) -> Callable[..., Result]:
    def call(*arrays: np.ndarray) -> Result:
        try:
            return function(*arrays)
        except Exception as error:
            return error

    return call


def findings(program: Program, points: Iterable[tuple[str, Point]]) -> Iterator[Finding]:
    """Yield where the two sides differ.

    Raises
    ------
    Exception
        What PyTensor raises when it compiles the program with the plugin off.
    """
    sides = Sides(program)
    try:
        assert sides.on
    except Exception as error:
        # Rewrites that the fast way leaves out may raise, too, as those of a Scan that works in place.
        assert sides.by_numba
        yield Finding("compile", "compiling", f"{type(error).__name__}: {error}", {})
        return
    for label, point in points:
        found = _difference(sides, list(point.values()))
        if found:
            yield Finding(*found[:1], label, found[1], point)


def _difference(sides: Sides, arrays: Arrays) -> tuple[str, str] | None:
    """Return what kind of difference there is at a point, and its description."""
    before = [array.copy() for array in arrays]
    off, on = sides.off(*arrays), sides.on(*arrays)
    for array, copied in zip(arrays, before, strict=True):
        if array.tobytes() != copied.tobytes():
            return "value", "an input was overwritten"
    found = _compared(off, on, [])
    if not found or (sides.has_factor and _has_nan(off)):
        return None
    near: list[Result] = []
    if isinstance(off, Exception) and isinstance(on, Exception):
        if isinstance(off, OF_LENGTHS) and isinstance(on, OF_LENGTHS):
            return None
        if isinstance(on, tuple(sides.errors(*arrays))):
            return None
    elif found[0] == "raises":
        if sides.raise_if_checked(*arrays):
            return None
    else:
        for result in _around(sides, arrays):
            near.append(result)
            if not _compared(off, on, near):
                return None
    decisive = sides.by_numba(*arrays)
    if any(array.dtype == np.float32 for array in arrays) and not _numbers(near):
        # Nothing says how far its sums are from each other.
        decisive, on = _in_single(decisive), _in_single(on)
    found = _compared(decisive, on, [*near, off])
    if found and found[0] != "raises" and sides.raise_if_checked(*arrays):
        return None
    return found


def _numbers(results: list[Result]) -> list[Arrays]:
    return [x for x in results if not isinstance(x, Exception)]


def _in_single(result: Result) -> Result:
    """Return results as if all of a program were in single precision."""
    if isinstance(result, Exception):
        return result
    return [x.astype(np.float32) if x.dtype == np.float64 else x for x in result]


def _has_nan(result: Result) -> bool:
    """Return whether upstream's arrays have a nan anywhere: beside one, a factor has numbers up to where LAPACK ended."""
    if isinstance(result, Exception):
        return False
    return any(x.dtype.kind == "f" and bool(np.isnan(x).any()) for x in result)


def _around(sides: Sides, arrays: Arrays) -> Iterator[Result]:
    """Yield upstream's results a few units in the last place away, then with other last digits of each operation."""
    rng = np.random.default_rng(0)
    moved = [list(_moved(array, rng)) for array in arrays]
    for point in zip(*moved, strict=True):
        yield sides.off(*point)
    for _ in range(N_NOISY):
        yield sides.noisy(*arrays)


def _moved(array: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for x in neighbors(array if array.dtype.kind == "f" else np.zeros(array.shape), rng):
        yield x.astype(array.dtype) if array.dtype.kind == "f" else array


def _compared(off: Result, on: Result, near: list[Result]) -> tuple[str, str] | None:
    if isinstance(off, Exception) or isinstance(on, Exception):
        if type(off) is type(on):
            return None
        return "raises", f"off {_described(off)}, on {_described(on)}"
    around = _numbers(near)
    limit = None
    for k, (a, b) in enumerate(zip(off, on, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return "type", f"output {k}: off {a.dtype}{a.shape}, on {b.dtype}{b.shape}"
        found = _of_arrays(a, b, [x[k] for x in around if x[k].shape == a.shape])
        if found and found[0] == "value":
            return "value", f"output {k}, {found[1]}"
        limit = limit or (found and ("limit", f"output {k}, {found[1]}"))
    return limit


def _described(result: Result) -> str:
    if isinstance(result, Exception):
        return f"{type(result).__name__}: {str(result).splitlines()[:1]}"
    return "gives " + ", ".join(np.array2string(x, threshold=5) for x in result[:3])


def _of_arrays(off: np.ndarray, on: np.ndarray, near: Arrays) -> tuple[str, str] | None:
    """Compare one output, as `verify` does."""
    if not off.size or np.array_equal(off, on, equal_nan=off.dtype.kind == "f"):
        return None
    with np.errstate(all="ignore"):
        wrong = ~_is_close(off, on, near)
    if not wrong.any():
        return None
    place = np.unravel_index(int(np.argmax(wrong)), off.shape)
    is_limit = off.dtype.kind == "f" and not np.isfinite(off[wrong]).any()
    text = f"{int(wrong.sum())} of {off.size} entries, at {list(map(int, place))}: off {off[place]!r}, on {on[place]!r}"
    return ("limit" if is_limit else "value"), text


def _is_close(off: np.ndarray, on: np.ndarray, near: Arrays) -> np.ndarray:
    around = np.array([off, *near])
    if off.dtype.name not in FLOATS:
        return (off == on) | (around != off).any(axis=0)
    finite = np.isfinite(off)
    scale = np.maximum(np.abs(off), np.abs(off[finite]).max(initial=0.0))
    noise = np.abs(np.where(finite, around - off, 0.0)).max(axis=0)
    allowed = ROUNDING * np.finfo(off.dtype).eps * scale + NOISE_ALLOWED * noise
    same = np.where(
        finite, np.abs(on - off) <= allowed, (off == on) | (np.isnan(off) & np.isnan(on))
    )
    # Upstream itself has another kind of number nearby, or more noise than a number can hold.
    vague = (np.isfinite(around) != finite).any(axis=0) | np.isnan(noise) | np.isinf(noise)
    vague |= ~finite & ~((around == off) | (np.isnan(around) & np.isnan(off))).all(axis=0)
    return same | vague
