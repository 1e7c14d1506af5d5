"""Elementwise functions of reals, integers and truth values."""

import numpy as np

from tests.fuzz.drafts import FLOATS, Draft, Line
from tests.fuzz.nodes.table import Drawn, is_bool, is_integer, is_number, node

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
    y = draft.beside(x, is_number)
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
    x = draft.find(is_integer)
    if x is None:
        return None
    y = draft.beside(x, is_integer)
    if draft.chance(0.2):
        return draft.choice(DIVISIONS).format(x.name), x.shape
    if y is None or draft.chance(0.3):
        return f"pt.{draft.choice(OF_INTEGERS)}({x.name})", x.shape
    return _combined(f"pt.{draft.choice(INTEGERS)}({x.name}, {y.name})", x, y)


@node
def booleans(draft: Draft) -> Drawn:
    x = draft.find(is_bool)
    y = x and draft.beside(x, is_bool)
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
    y, condition = draft.beside(x, is_number), draft.beside(x, is_bool)
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
