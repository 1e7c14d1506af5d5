"""The same entries in another shape, joined or repeated."""

import math

from tests.fuzz.drafts import Draft, Shape
from tests.fuzz.nodes.table import Drawn, node, without


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
    rest = without(x.shape, axis)
    y = draft.find(lambda y: len(y.shape) == len(x.shape) and without(y.shape, axis) == rest)
    assert y is not None
    shape = list(x.shape)
    shape[axis] += y.shape[axis]
    return f"pt.concatenate([{x.name}, {y.name}], axis={axis})", tuple(shape)


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
    return f"pt.squeeze({x.name}, axis={axis})", without(x.shape, axis)


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
