"""Nodes that read from some positions, and write to them."""

from tests.fuzz.drafts import Draft, Line
from tests.fuzz.nodes.table import Drawn, node


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
