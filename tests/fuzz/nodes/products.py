"""Products, factors and solves, diagonals, and recursions."""

from tests.fuzz.drafts import Draft
from tests.fuzz.nodes.table import Drawn, node


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
