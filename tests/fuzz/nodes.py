"""The lines that a random program is made of: each function returns an expression and its shape, or None where nothing fits."""

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.drafts import FLOATS, Draft, Line, Shape

Drawn = tuple[str, Shape] | None
NODES: dict[str, Callable[[Draft], Drawn]] = {}

UNARY = [
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "sqr",
    "sigmoid",
    "softplus",
    "tanh",
    "sin",
    "cos",
    "tan",
    "arctan",
    "arcsin",
    "arccos",
    "sinh",
    "cosh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "erf",
    "erfc",
    "erfinv",
    "erfcx",
    "gammaln",
    "digamma",
    "abs",
    "neg",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "reciprocal",
    "log2",
    "log10",
    "exp2",
    "log1mexp",
    "gamma",
    "deg2rad",
    "isnan",
    "isinf",
]
TAME = [
    "exp",
    "log",
    "sqr",
    "sigmoid",
    "softplus",
    "tanh",
    "sin",
    "cos",
    "arctan",
    "abs",
    "neg",
    "sqrt",
    "log1p",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "true_div",
    "maximum",
    "minimum",
    "logaddexp",
    "arctan2",
    "power",
    "add",
    "mul",
    "sub",
    "true_div",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "neq",
]
INTEGERS = ["add", "sub", "mul", "true_div", "maximum", "minimum", "lt", "ge", "eq", "neq"]
# By zero, Python raises what neither NumPy nor Numba do.
DIVISIONS = ["pt.mod({}, 2)", "pt.floor_div({}, 3)", "pt.mod({}, -3)", "pt.floor_div({}, -2)"]
OF_INTEGERS = ["neg", "abs", "sqr", "sign", "exp", "sqrt", "sin", "gammaln", "invert"]
DTYPES = ("float64", "float32", "int64", "int32", "int8", "bool")
REDUCED = ["sum", "sum", "prod", "max", "min", "mean", "var", "std", "logsumexp"]


def node(draw: Callable[[Draft], Drawn]) -> Callable[[Draft], Drawn]:
    NODES[draw.__name__] = draw
    return draw


def _is_integer(line: Line) -> bool:
    return line.dtype not in FLOATS and line.dtype != "bool"


def _is_bool(line: Line) -> bool:
    return line.dtype == "bool"


def _is_number(line: Line) -> bool:
    return line.dtype != "bool"


@node
def unary(draft: Draft) -> Drawn:
    x = draft.real()
    assert x is not None
    function = draft.choice(UNARY if draft.chance(0.5) else TAME)
    return f"pt.{function}({x.name})", x.shape


@node
def binary(draft: Draft) -> Drawn:
    x = draft.real()
    assert x is not None
    y = draft.beside(x, _is_number)
    assert y is not None
    x, y = draft.choice([(x, y), (y, x)])
    if draft.chance(0.05):
        return draft.choice(DIVISIONS).format(x.name), x.shape
    if draft.chance(0.15):
        number = draft.choice(["2", "0.5", "-1.0", "0.0", "1", "3.0", "1e-3", "-0.5"])
        return f"pt.{draft.choice(BINARY)}({x.name}, {number})", x.shape
    return _combined(f"pt.{draft.choice(BINARY)}({x.name}, {y.name})", x, y)


def _combined(expression: str, *lines: Line) -> Drawn:
    return expression, np.broadcast_shapes(*(line.shape for line in lines))


@node
def integers(draft: Draft) -> Drawn:
    x = draft.find(_is_integer)
    if x is None:
        return None
    y = draft.beside(x, _is_integer)
    if draft.chance(0.2):
        return draft.choice(DIVISIONS).format(x.name), x.shape
    if y is None or draft.chance(0.3):
        return f"pt.{draft.choice(OF_INTEGERS)}({x.name})", x.shape
    return _combined(f"pt.{draft.choice(INTEGERS)}({x.name}, {y.name})", x, y)


@node
def booleans(draft: Draft) -> Drawn:
    x = draft.find(_is_bool)
    y = x and draft.beside(x, _is_bool)
    if x is None or y is None:
        return None
    function = draft.choice(["bitwise_and", "bitwise_or", "bitwise_xor", "eq", "add", "mul"])
    if draft.chance(0.2):
        return f"~{x.name}", x.shape
    return _combined(f"pt.{function}({x.name}, {y.name})", x, y)


@node
def switch(draft: Draft) -> Drawn:
    x = draft.real()
    assert x is not None
    y, condition = draft.beside(x, _is_number), draft.beside(x, _is_bool)
    if condition is None or y is None or not draft.combines(condition, y):
        return None
    return _combined(f"pt.switch({condition.name}, {x.name}, {y.name})", condition, x, y)


@node
def clip(draft: Draft) -> Drawn:
    x = draft.real()
    assert x is not None
    return f"pt.clip({x.name}, {draft.choice(['-1', '0.0', '-0.5'])}, 2.0)", x.shape


@node
def cast(draft: Draft) -> Drawn:
    x = draft.find(lambda _: True)
    assert x is not None
    dtype = draft.choice(DTYPES)
    # What is beyond an integer type is another number in each implementation.
    if dtype.startswith("int") and x.dtype in FLOATS:
        return (
            f"pt.switch(pt.isnan({x.name}), 0, pt.clip({x.name}, -9, 9)).astype({dtype!r})",
            x.shape,
        )
    return f"{x.name}.astype({dtype!r})", x.shape


@node
def gather(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) in (1, 2, 3))
    return x and _at_index(draft, x)


def _at_index(draft: Draft, x: Line) -> Drawn:
    """Return some elements of an array at indices."""
    found = draft.index(x.shape[0])
    if found is None:
        return None
    index, shape = found
    rest = x.shape[1:]
    name = x.name
    if not rest or draft.chance(0.3):
        return f"{name}[{index}]", shape + rest
    other = draft.index(rest[0])
    match draft.choice(["both", "second", "outer", "slice", "number"]):
        case "both" if other and other[1] == shape:
            return f"{name}[{index}, {other[0]}]", shape + rest[1:]
        case "second" if other:
            return f"{name}[:, {other[0]}]", (x.shape[0], *other[1], *rest[1:])
        case "outer" if other and len(shape) == len(other[1]) == 1:
            return (
                f"{name}[{index}[:, None], {other[0]}[None, :]]",
                (*shape, *other[1], *rest[1:]),
            )
        case "slice":
            text, n = draft.slice(rest[0])
            return f"{name}[{index}, {text}]", (*shape, n, *rest[1:])
        case "number" if rest[0]:
            number = draft.rng.integers(-rest[0], rest[0])
            return f"{name}[{index}, {number}]", shape + rest[1:]
    return None


@node
def part(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) in (1, 2, 3))
    return x and _slices(draft, x)


def _slices(draft: Draft, x: Line) -> Drawn:
    texts, shape = [], []
    for n in x.shape[: draft.choice([1, len(x.shape)])]:
        if n and draft.chance(0.25):
            texts.append(str(draft.rng.integers(-n, n)))
            continue
        text, length = draft.slice(n)
        texts.append(text)
        shape.append(length)
    return f"{x.name}[{', '.join(texts)}]", (*shape, *x.shape[len(texts) :])


@node
def scatter(draft: Draft) -> Drawn:
    x = draft.real(1, 2, 3)
    assert x is not None
    return _written(draft, x, _at_index(draft, x))


@node
def part_written(draft: Draft) -> Drawn:
    x = draft.real(1, 2, 3)
    assert x is not None
    return _written(draft, x, _slices(draft, x))


def _written(draft: Draft, x: Line, place: Drawn) -> Drawn:
    if place is None:
        return None
    text, shape = place
    value = draft.write_value(shape)
    if value is None:
        return None
    # Float64 does not fit into float32.
    written = f"{value.name}.astype({x.dtype!r})" if value.dtype != x.dtype else value.name
    if draft.chance(0.4):
        text = f"pt.zeros_like({x.name})" + text.removeprefix(x.name)
    return f"{text}.{draft.choice(['inc', 'inc', 'set'])}({written})", x.shape


@node
def reshape(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) > 0)
    assert x is not None
    size = math.prod(x.shape)
    shapes: list[Shape] = [(size,), (1, size), (size, 1)]
    shapes += [(k, size // k) for k in (2, 3, 7) if size % k == 0]
    if size % 2 == 0:
        shapes.append((2, 1, size // 2))
    shape = draft.choice(shapes)
    written: list[str] = [str(n) for n in shape]
    others = [k for k in range(len(shape)) if math.prod(shape) and draft.chance(0.3)]
    for k in others[:1]:
        written[k] = "-1"
    return f"{x.name}.reshape(({', '.join(written)},))", shape


@node
def join(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) in (1, 2))
    assert x is not None
    axis = draft.choice(range(len(x.shape)))
    rest = _without(x.shape, axis)
    y = draft.find(lambda y: len(y.shape) == len(x.shape) and _without(y.shape, axis) == rest)
    assert y is not None
    shape = list(x.shape)
    shape[axis] += y.shape[axis]
    return f"pt.concatenate([{x.name}, {y.name}], axis={axis})", tuple(shape)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


@node
def stack(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) <= 2)
    assert x is not None
    y = draft.find(lambda y: y.shape == x.shape)
    assert y is not None
    axis = draft.choice(range(len(x.shape) + 1))
    shape = (*x.shape[:axis], 2, *x.shape[axis:])
    return f"pt.stack([{x.name}, {y.name}], axis={axis})", shape


@node
def transpose(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) in (2, 3))
    if x is None:
        return None
    if len(x.shape) == 3:
        return f"{x.name}.transpose(2, 0, 1)", (x.shape[2], *x.shape[:2])
    return f"{x.name}.T", x.shape[::-1]


@node
def new_axis(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) in (0, 1, 2))
    assert x is not None
    if draft.chance(0.5):
        return f"{x.name}[..., None]", (*x.shape, 1)
    return f"{x.name}[None]", (1, *x.shape)


@node
def squeeze(draft: Draft) -> Drawn:
    x = draft.find(lambda line: 1 in draft.static(line))
    if x is None:
        return None
    axis = draft.static(x).index(1)
    return f"pt.squeeze({x.name}, axis={axis})", _without(x.shape, axis)


@node
def repeated(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) in (0, 1, 2))
    assert x is not None
    n = draft.choice([1, 2, 7])
    match draft.choice(["broadcast", "alloc", "repeat", "tile", "like", "full"]):
        case "broadcast":
            return f"pt.broadcast_to({x.name}, ({n}, *{x.name}.shape))", (n, *x.shape)
        case "alloc":
            return f"pt.alloc({x.name}, {n}, *{x.name}.shape)", (n, *x.shape)
        case "repeat" if len(x.shape) == 1:
            return f"pt.repeat({x.name}, {n})", (n * x.shape[0],)
        case "tile" if len(x.shape) == 1:
            return f"pt.tile({x.name}, ({n},))", (n * x.shape[0],)
        case "like":
            return f"pt.{draft.choice(['ones', 'zeros'])}_like({x.name})", x.shape
        case "full":
            value = draft.real(0)
            return value and (f"pt.full_like({x.name}, {value.name}, dtype='float64')", x.shape)
    return None


@node
def reduced(draft: Draft) -> Drawn:
    x = draft.real(1, 2, 3)
    assert x is not None
    axis = draft.choice([None, *range(len(x.shape))])
    if len(x.shape) > 1 and draft.chance(0.2):
        axis = (0, len(x.shape) - 1)
    axes = range(len(x.shape)) if axis is None else np.atleast_1d(axis)
    name = draft.choice(REDUCED)
    if name in ("max", "min", "logsumexp") and not all(x.shape[k] for k in axes):
        return None
    if draft.chance(0.2):
        shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
        return f"pt.{name}({x.name}, axis={axis}, keepdims=True)", shape
    shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
    return f"pt.{name}({x.name}, axis={axis})", shape


@node
def reduced_integers(draft: Draft) -> Drawn:
    x = draft.find(lambda line: line.dtype not in FLOATS and len(line.shape) in (1, 2))
    if x is None:
        return None
    axis = draft.choice([None, *range(len(x.shape))])
    names = ["all", "any"] if x.dtype == "bool" else ["max", "min", "prod"]
    name = draft.choice([*names, "sum", "sum", "mean"])
    if name in ("max", "min") and 0 in x.shape:
        return None
    return f"pt.{name}({x.name}, axis={axis})", () if axis is None else _without(x.shape, axis)


@node
def position(draft: Draft) -> Drawn:
    x = draft.real(1, 2)
    assert x is not None
    if 0 in x.shape:
        return None
    name = draft.choice(["argmax", "argmin"])
    if len(x.shape) == 1 and draft.chance(0.5):
        return f"{x.name}[pt.{name}({x.name})]", ()
    axis = draft.choice([None, *range(len(x.shape))])
    return f"pt.{name}({x.name}, axis={axis})", () if axis is None else _without(x.shape, axis)


@node
def cumulative(draft: Draft) -> Drawn:
    x = draft.real(1, 2)
    assert x is not None
    axis = draft.choice(range(len(x.shape)))
    name = draft.choice(["cumsum", "cumsum", "cumprod", "diff"])
    if name != "diff":
        return f"pt.{name}({x.name}, axis={axis})", x.shape
    if not x.shape[axis]:
        return None
    shape = tuple(n - 1 if k == axis else n for k, n in enumerate(x.shape))
    return f"pt.diff({x.name}, axis={axis})", shape


@node
def in_order(draft: Draft) -> Drawn:
    x = draft.real(1)
    return x and (
        f"{draft.choice(['pt.sort({})', '{0}[pt.argsort({0})]']).format(x.name)}",
        x.shape,
    )


@node
def masked(draft: Draft) -> Drawn:
    x = draft.real(1)
    mask = x and draft.find(lambda line: line.dtype == "bool" and line.shape == x.shape)
    if x is None or mask is None:
        return None
    if draft.chance(0.5):
        return f"{x.name}[{mask.name}].sum()", ()
    return f"{x.name}[{mask.name}].set(0.5)", x.shape


@node
def softmax(draft: Draft) -> Drawn:
    x = draft.real(1, 2)
    assert x is not None
    if 0 in x.shape:
        return None
    return f"pt.special.{draft.choice(['softmax', 'log_softmax'])}({x.name}, axis=-1)", x.shape


@node
def dot(draft: Draft) -> Drawn:
    x = draft.real(1, 2)
    assert x is not None
    y = draft.real(1, 2, wanted=lambda y: y.shape[0] == x.shape[-1])
    if y is None:
        return None
    return f"pt.dot({x.name}, {y.name})", x.shape[:-1] + y.shape[1:]


@node
def gram(draft: Draft) -> Drawn:
    x = draft.real(2)
    if x is None or x.shape[0] > 14:
        return None
    return f"pt.dot({x.name}, {x.name}.T)", (x.shape[0], x.shape[0])


@node
def factor(draft: Draft) -> Drawn:
    x = draft.real(2)
    if x is None or not 0 < x.shape[0] <= 14:
        return None
    n = x.shape[0]
    covariance = f"pt.dot(pt.tanh({x.name}), pt.tanh({x.name}).T) + pt.eye({n})"
    return f"pt.linalg.cholesky({covariance})", (n, n)


@node
def solve(draft: Draft) -> Drawn:
    x = draft.real(2)
    if x is None or not 0 < x.shape[0] <= 14 or x.shape[0] != x.shape[1]:
        return None
    y = draft.real(1, 2, wanted=lambda y: y.shape[0] == x.shape[0])
    if y is None:
        return None
    lower = draft.chance(0.5)
    triangle = f"pt.tri{'l' if lower else 'u'}(pt.tanh({x.name})) + 2 * pt.eye({x.shape[0]})"
    b_ndim = len(y.shape)
    return (
        f"pt.linalg.solve_triangular({triangle}, {y.name}, lower={lower}, b_ndim={b_ndim})",
        y.shape,
    )


@node
def diagonal(draft: Draft) -> Drawn:
    x = draft.real(1, 2)
    assert x is not None
    match len(x.shape):
        case 1 if x.shape[0] <= 7:
            return f"pt.diag({x.name})", (x.shape[0], x.shape[0])
        case 2 if draft.chance(0.5):
            return f"pt.tri{draft.choice('lu')}({x.name})", x.shape
        case 2:
            return f"pt.diag({x.name})", (min(x.shape),)
    return None


@node
def counted(draft: Draft) -> Drawn:
    x = draft.find(lambda line: len(line.shape) == 1)
    assert x is not None
    text = draft.choice(["{}.shape[0]", "{0}.shape[0] * 1.5", "pt.arange({}.shape[0])", "{}.size"])
    return text.format(x.name), x.shape if "arange" in text else ()


@node
def recursion(draft: Draft) -> Drawn:
    x = draft.real(1, 2)
    assert x is not None
    if not 0 < x.shape[0] <= 7 or x.dtype != "float64":
        return None
    other = draft.real(0, wanted=lambda line: line.dtype == "float64")
    assert other is not None
    step = draft.choice(
        [
            "lambda x, before, k: 0.5 * before + pt.tanh(x) * k",
            "lambda x, before, k: pt.tanh(before - x) + k",
            "lambda x, before, k: pt.switch(x > 0, before, x)",
            "lambda x, before, k: pt.maximum(x, before)",
        ]
    )
    start = f"{x.name}[0]" if draft.chance(0.5) else f"pt.zeros_like({x.name}[0])"
    backwards = ", go_backwards=True" if draft.chance(0.2) else ""
    call = (
        f"pytensor.scan({step}, sequences=[{x.name}], outputs_info=[{start}],"
        f" non_sequences=[{other.name}]{backwards}, return_updates=False)"
    )
    return (f"{call}[-1]", x.shape[1:]) if draft.chance(0.3) else (call, x.shape)
