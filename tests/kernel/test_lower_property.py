"""Random graphs of elementwise work, gathers, scatters and reductions give what PyTensor gives."""

import numpy as np
import pytensor.tensor as pt
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.lowering import Case, check_value
from tests.slices import examples

N, GROUPS = 21, 6
ELEMENTWISE = (
    lambda x, y: pt.tanh(x) + y,
    lambda x, y: x * pt.cos(y),
    lambda x, y: pt.switch(pt.lt(x, y), x, pt.sin(y)),
    lambda x, y: pt.maximum(x, y) - 0.5,
)
REDUCE = (
    lambda x: pt.tanh(x.sum()),
    lambda x: x.max(),
    lambda x: x.min(),
    lambda x: pt.tanh(x).prod(),
)


def scattered(x, index):
    """Return a vector of groups from one of rows."""
    return pt.tanh(pt.zeros(GROUPS)[index].inc(x))


@st.composite
def cases(draw):
    """Return a graph of rows and groups, each node made of random ones before it."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["row", "group", "gather", "scatter", "reduce", "set"]),
                *[st.integers(0, 99)] * 3,
            ),
            min_size=2,
            max_size=9,
        )
    )
    seed = draw(st.integers(0, 2**16))
    is_sorted = draw(st.booleans())

    def build(theta, x, index):
        rows, groups, scalars = [x], [theta], [theta[0]]
        for kind, i, j, k in steps:
            row, group = rows[i % len(rows)], groups[j % len(groups)]
            scalar, function = scalars[k % len(scalars)], ELEMENTWISE[k % len(ELEMENTWISE)]
            match kind:
                case "row":
                    rows.append(function(row, rows[j % len(rows)]))
                case "group":
                    groups.append(function(group, scalar))
                case "gather":
                    rows.append(function(row, group[index]))
                case "scatter":
                    groups.append(scattered(row, index))
                case "reduce":
                    scalars.append(REDUCE[k % len(REDUCE)]((row, group)[i % 2]))
                case "set":
                    groups.append(group[index].set(row))
        return [rows[-1], groups[-1], scalars[-1]]

    random = np.random.default_rng(seed)
    index = random.integers(0, GROUPS, N)
    return Case(
        build,
        (random.normal(size=GROUPS), random.normal(size=N), np.sort(index) if is_sorted else index),
    )


@given(cases(), st.booleans(), st.booleans())
@settings(max_examples=examples(12, 60))
def test_random_graphs_agree_with_upstream(case, static, is_constant):
    check_value(case, static=static, known=(2,) if is_constant else ())
