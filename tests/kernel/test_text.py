"""The text of a program: shared lengths are written once, and different programs have different texts."""

import re

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FrozenFunctionGraph

from pymc_fastlogp.kernel.ir.text import LONGEST_SIZE, as_text
from pymc_fastlogp.kernel.lower import lower

U, K = pt.vector("u"), pt.lscalar("k")


def text_of(output):
    graph = FrozenFunctionGraph.from_io([U, K], [output], dedup_nodes=True)
    return as_text(lower(graph, [None, None]))


def rolled(u):
    return pt.tanh(pt.roll(u, K))


def cut_and_pasted(u):
    return pt.tanh(pt.concatenate([u[K:], u[:K]]))


def head(u):
    return pt.cumsum(u)[: K + u.shape[0] // 2]


def repeatedly(step, times):
    u = U
    for _ in range(times):
        u = step(u)
    return u


@pytest.mark.parametrize("step", [rolled, cut_and_pasted, head])
def test_text_does_not_grow_with_the_paths_through_lengths(step):
    """Twice the steps are at most twice the loops, and indices that are twice as long."""
    two, four = (len(text_of(repeatedly(step, n))) for n in (2, 4))
    assert four < 4 * two


@pytest.mark.parametrize("step", [rolled, cut_and_pasted])
def test_a_long_size_that_is_used_again_has_a_name(step):
    *sizes, rest = re.split(r"^size ", text_of(repeatedly(step, 3)), flags=re.MULTILINE)[1:]
    last, rest = rest.split("\n", 1)
    named = dict(line.strip().split(" = ") for line in [*sizes, last])
    assert list(named) == [f"n{i}" for i in range(len(named))]
    assert all(len(text) > LONGEST_SIZE for text in named.values())
    assert set(re.findall(r"\bn\d+\b", " ".join((*named.values(), rest)))) == set(named)


def test_a_short_size_is_written_out_where_it_is_used():
    text = text_of(pt.tanh(U[1:] * U[:-1]))
    assert "size" not in text
    assert "output y0: float64[" in text


def test_text_tells_apart_what_differs_in_a_size_alone():
    """The elements are the same, the lengths are not."""

    def cut(least):
        u = repeatedly(cut_and_pasted, 2)
        return pt.tanh(u[: pt.maximum(u.shape[0] - K, least)])

    assert "size n0" in text_of(cut(2))
    assert text_of(cut(2)) == text_of(cut(2))
    assert text_of(cut(2)) != text_of(cut(3))
