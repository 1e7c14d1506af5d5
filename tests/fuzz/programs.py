"""Random programs of PyTensor, each made by its seed alone: inputs, lines, and points to evaluate them at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph

from tests.fuzz.drafts import FLOATS, LENGTHS, NAMES, Draft, Line
from tests.fuzz.nodes import NODES

EXTREME = (1e3, -1e3, 40.0, -40.0, 0.0, -0.0, 1e-300, -1e-300, 1.0, -1.0)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, 1.0)

Point = dict[str, np.ndarray]


@dataclass(frozen=True)
class Program:
    """Lines, the inputs first, and what is computed of them.

    Attributes
    ----------
    lines : tuple of Line
        All of them.
    outputs : tuple of str
        The lines that are outputs as they are. Their sum and its gradient are outputs, too.
    like_a_model : bool
        Whether the sum is rewritten before its gradient is taken, as PyMC and nutpie do.
    """

    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    like_a_model: bool

    @property
    def inputs(self) -> list[Line]:
        return [line for line in self.lines if line.value is not None]

    @property
    def steps(self) -> list[Line]:
        return [line for line in self.lines if line.value is None]

    def __str__(self) -> str:
        how = "rewritten before its gradient" if self.like_a_model else "with its gradient"
        lines = [*map(str, self.lines), f"# the sum of {', '.join(self.outputs)}, {how}"]
        return "\n".join(lines)

    def variables(self) -> tuple[list[Variable], list[Variable]]:
        """Return the inputs and the outputs: the sum, the others, the gradient.

        Where nothing is rewritten before the gradient, the plugin has no part in them, and both sides get the same.
        """
        return self._like_a_model() if self.like_a_model else self._as_written

    @cached_property
    def _as_written(self) -> tuple[list[Variable], list[Variable]]:
        inputs, total, made = self._sum()
        return inputs, [total, *made, *_gradient(total, inputs)]

    def _like_a_model(self) -> tuple[list[Variable], list[Variable]]:
        inputs, total, made = self._sum()
        [total] = clone_replace([total])
        total = rewrite_graph(total, include=["canonicalize", "stabilize"])
        return inputs, [total, *made, *_gradient(total, inputs)]

    def _sum(self) -> tuple[list[Variable], Variable, list[Variable]]:
        """Return the inputs, the sum, and what is added up."""
        names = dict(NAMES)
        for line in self.lines:
            names[line.name] = eval(line.expression, dict(names))
        inputs = [names[line.name] for line in self.inputs]
        made = [pt.as_tensor(names[name]) for name in self.outputs]
        terms = [_term(x, k) for k, x in enumerate(made)]
        return inputs, pt.add(0.0, *terms), made


def _term(x: Variable, k: int) -> Variable:
    """Return what an output adds to the sum, whose gradient then depends on it."""
    if x.type.dtype not in FLOATS:
        return x.astype("float64").sum() * (0.25 * k + 0.5)
    return (x * (0.25 * k + 0.5)).sum()


def _gradient(total: Variable, inputs: Sequence[Variable]) -> list[Variable]:
    """Return the gradient; nothing where PyTensor has none.

    Its zeros are of the type of an input that the sum does not depend on, and of floatX where a step has no derivative.
    Which of both is said depends on what was rewritten before.
    """
    wrt = [x for x in inputs if x.type.dtype in FLOATS]
    try:
        gradient = pytensor.grad(total, wrt, disconnected_inputs="ignore")
    except (
        NotImplementedError,
        TypeError,
        DisconnectedInputError,
        pytensor.gradient.NullTypeGradError,
    ):
        return []
    return [g.astype(x.type.dtype) for g, x in zip(gradient, wrt, strict=True)]


def random_program(seed: int) -> Program:
    """Return the program of a seed."""
    draft = Draft(np.random.default_rng(seed))
    _draw_inputs(draft)
    n_inputs = len(draft.lines)
    for _ in range(draft.rng.integers(2, 15)):
        drawn = NODES[draft.choice(sorted(NODES))](draft)
        if drawn is not None and np.prod(drawn[1], initial=1.0) <= 4000 and len(drawn[1]) <= 3:
            draft.add(*drawn)
    made = draft.lines[n_inputs:] or draft.lines
    n_outputs = min(len(made), int(draft.rng.integers(1, 4)))
    outputs = tuple(line.name for line in made[-n_outputs:])
    return needed(Program(tuple(draft.lines), outputs, draft.chance(0.5)))


def _draw_inputs(draft: Draft) -> None:
    """Append the inputs: floats of several shapes, integers that index them, truth values."""
    n, m = (int(draft.choice(LENGTHS)) for _ in range(2))
    rng = draft.rng
    _input(draft, "a", rng.normal(size=n))
    _input(draft, "b", rng.normal(size=m))
    _input(draft, "A", rng.normal(size=(n, m)))
    _input(draft, "s", rng.normal(size=()))
    _input(draft, "f", rng.normal(size=n).astype("float32"))
    _input(draft, "h", rng.random(n) < 0.5)
    _input(draft, "c", rng.integers(-3, 9, size=n).astype(draft.choice(["int64", "int32", "int8"])))
    _input(draft, "k", rng.integers(-2, 4))
    for name, length in ("i", n), ("j", m):
        if length:
            index = rng.integers(draft.choice([0, -length]), length, int(draft.choice(LENGTHS)))
            _input(draft, name, index.astype(draft.choice(["int64", "int32", "int8"])))


def _input(draft: Draft, name: str, value) -> None:
    value = np.asarray(value)
    shape = tuple(n if draft.chance(0.6) else None for n in value.shape)
    draft.add(
        f"pt.tensor({name!r}, dtype={str(value.dtype)!r}, shape={shape})", value.shape, value, name
    )


def needed(program: Program) -> Program:
    """Return a program without the lines that its outputs do not need."""
    wanted = set(program.outputs)
    lines = []
    for line in reversed(program.lines):
        if line.name in wanted:
            lines.append(line)
            wanted |= names_in(line)
    return Program(tuple(lines[::-1]), program.outputs, program.like_a_model)


def names_in(line: Line) -> set[str]:
    """Return the names that an expression reads."""
    return set(compile(line.expression, "", "eval").co_names) | _names_in_lambdas(line)


def _names_in_lambdas(line: Line) -> set[str]:
    import ast

    return {x.id for x in ast.walk(ast.parse(line.expression)) if isinstance(x, ast.Name)}


def points(program: Program, seed: int) -> Iterator[tuple[str, Point]]:
    """Yield ordinary, extreme and illegal points, and such where an index or a length does not fit."""
    rng = np.random.default_rng([seed, 1])
    ordinary = {line.name: line.value for line in program.inputs}
    floats = [line for line in program.inputs if line.dtype in FLOATS]
    yield "ordinary", ordinary

    def other(values) -> Point:
        return ordinary | {x.name: np.asarray(values(x), dtype=x.dtype) for x in floats}

    if floats:
        yield "other", other(lambda x: 2 * rng.normal(size=x.shape))
        yield "extreme", other(lambda x: rng.choice(EXTREME, size=x.shape))
        extreme = rng.choice(EXTREME)
        yield f"all {extreme:g}", other(lambda x: np.full(x.shape, extreme))
        few = other(
            lambda x: np.where(
                rng.random(x.shape) < 0.3, rng.choice(SPECIAL, x.shape), rng.normal(size=x.shape)
            )
        )
        # What LAPACK makes of infinities and nan is its own affair.
        if not any("cholesky" in line.expression for line in program.lines):
            yield "special", few
    yield from _broken(program, ordinary, rng)


def _broken(
    program: Program, ordinary: Point, rng: np.random.Generator
) -> Iterator[tuple[str, Point]]:
    """Yield points with an index out of range, or another length of an axis."""
    for line in program.inputs:
        value = ordinary[line.name]
        if line.name in ("i", "j") and value.size:
            index = value.copy()
            index[rng.integers(index.size)] = rng.choice([-1, 1]) * rng.integers(41, 50)
            yield f"{line.name} out of range", ordinary | {line.name: index}
        if line.name == "k":
            yield "k elsewhere", ordinary | {"k": np.asarray(rng.integers(-9, 10))}
        open_axes = [
            k for k, n in enumerate(eval(line.expression, dict(NAMES)).type.shape) if n is None
        ]
        if open_axes and rng.random() < 0.5:
            axis = int(rng.choice(open_axes))
            n = int(rng.choice([0, 1, 3, value.shape[axis] + 1]))
            longer = (
                value
                if value.shape[axis]
                else np.ones([max(1, k) for k in value.shape], value.dtype)
            )
            resized = np.take(longer, np.arange(n) % longer.shape[axis], axis=axis)
            if 0 in value.shape[:axis] + value.shape[axis + 1 :]:
                continue
            yield f"axis {axis} of {line.name} of length {n}", ordinary | {line.name: resized}
