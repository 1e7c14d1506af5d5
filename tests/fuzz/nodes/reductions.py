"""Reductions, positions and what runs along an axis."""

import numpy as np

from tests.fuzz.drafts import FLOATS, Draft
from tests.fuzz.nodes.table import Drawn, node, without

REDUCED = ["sum", "sum", "prod", "max", "min", "mean", "var", "std", "logsumexp"]


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
    return f"pt.{name}({x.name}, axis={axis})", () if axis is None else without(x.shape, axis)


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
    return f"pt.{name}({x.name}, axis={axis})", () if axis is None else without(x.shape, axis)


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
