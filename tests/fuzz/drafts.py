"""A random program of PyTensor while it is drawn line by line, with the shape of each variable."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytensor
import pytensor.tensor as pt

Shape = tuple[int, ...]
FLOATS = ("float32", "float64")
LENGTHS = (0, 1, 1, 2, 2, 7, 7, 7, 40)
NAMES = {"np": np, "pt": pt, "pytensor": pytensor}


@dataclass(frozen=True)
class Line:
    """``name = expression``, and what that is at the first point.

    An input has no expression, but a type, and its value.
    """

    name: str
    expression: str
    shape: Shape
    dtype: str
    value: np.ndarray | None = None

    def __str__(self) -> str:
        return f"{self.name} = {self.expression}"


@dataclass
class Draft:
    """The lines so far, and the variables that they make."""

    rng: np.random.Generator
    lines: list[Line] = field(default_factory=list)
    names: dict = field(default_factory=lambda: dict(NAMES))

    def choice(self, options):
        return options[self.rng.integers(len(options))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def add(
        self, expression: str, shape: Shape, value: np.ndarray | None = None, name: str = ""
    ) -> Line:
        """Append a line."""
        name = name or f"v{len(self.lines)}"
        variable = eval(expression, dict(self.names))
        if not isinstance(variable, np.ndarray | np.generic):
            variable = pt.as_tensor(variable)
        assert variable.ndim == len(shape), (expression, variable.type, shape)
        line = Line(name, expression, shape, str(variable.dtype), value)
        self.names[name] = variable
        self.lines.append(line)
        return line

    def static(self, line: Line) -> tuple[int | None, ...]:
        """Return the shape that PyTensor knows."""
        variable = self.names[line.name]
        return variable.shape if isinstance(variable, np.ndarray) else variable.type.shape

    def find(self, wanted: Callable[[Line], bool]) -> Line | None:
        """Return some line, late ones more often."""
        found = [line for line in self.lines if wanted(line)]
        if not found:
            return None
        return found[-1 - int(len(found) * self.rng.random() ** 1.7)]

    def real(self, *ndims: int, wanted: Callable[[Line], bool] = lambda _: True) -> Line | None:
        """Return some floats with one of these numbers of axes."""
        return self.find(
            lambda x: x.dtype in FLOATS and (not ndims or len(x.shape) in ndims) and wanted(x)
        )

    def beside(self, line: Line, wanted: Callable[[Line], bool]) -> Line | None:
        """Return what can be combined with a line, element by element."""
        return self.find(lambda other: wanted(other) and self.combines(line, other))

    def combines(self, first: Line, second: Line) -> bool:
        """Return whether all axes are equally long, or of static length 1 on one side."""
        axes = zip(
            reversed(list(zip(first.shape, self.static(first)))),
            reversed(list(zip(second.shape, self.static(second)))),
        )
        return all(n == m or 1 in (s, t) for (n, s), (m, t) in axes)

    def fits(self, line: Line, shape: Shape) -> bool:
        """Return whether a line can be written to a place of this shape."""
        if len(line.shape) > len(shape):
            return False
        axes = zip(line.shape[::-1], self.static(line)[::-1], shape[::-1])
        return all(n == m or s == 1 for n, s, m in axes)

    def write_value(self, shape: Shape) -> Line | None:
        """Return floats that can be written to a place of this shape."""
        return self.real(wanted=lambda x: self.fits(x, shape))

    def slice(self, n: int) -> tuple[str, int]:
        """Return a slice, and how much of n it takes."""
        low, high = -n - 2, n + 3
        begin, end = (int(self.rng.integers(low, high)) for _ in range(2))
        parts = [
            self.choice(["", str(begin), self.bound()]),
            self.choice(["", str(end), self.bound()]),
        ]
        step = self.choice(["", "", "1", "2", "-1", "-3"])
        values = [self.value_of(part) for part in [*parts, step]]
        return ":".join([*parts, step]), len(range(n)[slice(*values)])

    def bound(self) -> str:
        """Return a number that is known only at run time."""
        found = self.find(lambda x: x.shape == () and x.value is not None and x.dtype == "int64")
        return found.name if found else "1"

    def value_of(self, text: str) -> int | None:
        if not text:
            return None
        found = [line.value for line in self.lines if line.name == text]
        return int(found[0] if found and found[0] is not None else text)

    def index(self, n: int) -> tuple[str, Shape] | None:
        """Return integers that index an axis of n, constant or an input, and their shape."""
        if not n:
            return None
        if self.chance(0.5):
            found = self.find(lambda x: _indexes(x, n))
            return found and (found.name, found.shape)
        shape = self.choice([(1,), (2,), (3,), (7,), (40,), (2, 3)])
        values = self.rng.integers(self.choice([0, -n]), n, shape)
        if self.chance(0.3):
            values = np.sort(values, axis=None).reshape(shape)
        dtype = self.choice(["int64", "int64", "int32", "int8"])
        return f"np.array({values.tolist()}, {dtype!r})", shape


def _indexes(line: Line, n: int) -> bool:
    value = line.value
    if value is None or value.dtype.kind not in "iu" or not value.ndim or value.size == 0:
        return False
    return bool(value.min() >= -n and value.max() < n)
