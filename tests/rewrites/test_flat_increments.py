"""Increments of one tensor are added in one sum, from which PyTensor makes the same chain of increments."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import optdb
from pytensor.graph.basic import equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_made_by
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.flat_increments import MIN_INCREMENTS, FlatIncrements
from tests.rewrites.conftest import sketch
from tests.slices import examples

LENGTH = 4
SERIALIZE = "pre_local_IncSubtensor_serialize"

x, y, w = (pt.vector(name, shape=(LENGTH,)) for name in "xyw")
table = pt.vector("table", shape=(LENGTH,))
parts = [pt.vector(f"v{k}", shape=(k + 1,)) for k in range(5)]


def increment(k, start=0.0):
    return pt.inc_subtensor(pt.full((LENGTH,), np.float64(start))[np.arange(k + 1) % 3], parts[k])


def nested(*terms):
    total, *others = terms
    for term in others:
        total = total + term
    return total


many = [increment(k) for k in range(5)]

# What is added up, and how many terms the one sum has.
FLAT = {
    "increments alone": (nested(*many), 5),
    "one other first": (nested(x, *many), 6),
    "one other last": (nested(*many, x), 6),
    "one other between": (nested(many[0], x, *many[1:3]), 4),
    "two others": (nested(x, *many, y), 6),
    "others between": (nested(x, y, many[0], w, many[1], table, *many[2:]), 6),
    "others between increments": (nested(many[0], x, many[1], y, many[2], w), 4),
    "several in one sum": (pt.add(pt.add(x, many[0], y, many[1]), w, many[2], table), 4),
    "one that is read twice": (nested(*many, x, x), 6),
    "slices": (nested(*(pt.zeros(LENGTH)[k:].inc(1.0 * k) for k in range(1, 4))), 3),
}
LEFT_ALONE = {
    "from the right": many[0] + (many[1] + (many[2] + many[3])),
    "a sum of increments between": nested(many[0], many[1] + many[2], *many[3:], x + y),
    "sums of others and increments, deeper": nested(*many[:3], x + (y + (w + many[3])), many[4]),
    "two increments": nested(x, *many[:2]),
    "into other values": nested(*(increment(k, start=2.0) for k in range(4))),
    "one into other values": nested(*many, increment(3, start=2.0)),
    "sets": nested(*(pt.zeros(LENGTH)[k:].set(1.0 * k) for k in range(1, 4))),
    "one sum": pt.add(x, *many),
    "a part is read elsewhere": (part := nested(*many[:2])) + many[2] + pt.exp(part),
    "another type": nested(*(m.astype("float32") for m in many)).astype("float64") + w,
}


def flattened(out):
    [out] = clone_replace([out])
    fgraph = FunctionGraph(outputs=[out], clone=False)
    FlatIncrements().rewrite(fgraph)
    return fgraph.outputs[0]


def chain_of(out):
    """Return what PyTensor makes of a sum: what is added and where, the last first, and what is no increment, in the order of adding up."""
    fgraph = FunctionGraph(outputs=clone_replace([out]), clone=False)
    optdb.query(RewriteDatabaseQuery(include=[SERIALIZE])).rewrite(fgraph)
    step, added = fgraph.outputs[0], []
    while is_set(step):
        added.append([str(step.owner.op), *map(sketch, step.owner.inputs[1:])])
        step = step.owner.inputs[0]
    return added, as_added(step)


def as_added(x):
    """Spell out what is added to what, without zeros: a sum as a tuple."""
    if not is_made_by(x, ps.Add):
        value = fill_value(x)
        return sketch(x) if value is None else float(value)
    first, *others = (as_added(term) for term in x.owner.inputs)
    terms = [*(first if isinstance(first, tuple) else [first]), *others]
    terms = [term for term in terms if term not in (0.0, ())]
    return terms[0] if len(terms) == 1 else tuple(terms)


@pytest.mark.parametrize("name", FLAT)
def test_increments_become_one_sum(name):
    out, n_terms = FLAT[name]
    flat = flattened(out)
    assert len(flat.owner.inputs) == n_terms
    assert chain_of(flat) == chain_of(out)


@st.composite
def sums(draw):
    """Draw sums within sums of increments and of others, and how many increments there are."""
    n_increments, total = 0, None
    others = iter([x, y + w, w, many[0] + many[1], table, x + (y + many[2]), y, pt.exp(x)] * 2)
    for k in range(draw(st.integers(2, 5))):
        terms = [] if total is None else [total]
        for is_increment in draw(st.lists(st.booleans(), min_size=2 - len(terms), max_size=3)):
            terms.append(increment((k + len(terms)) % 5) if is_increment else next(others))
            n_increments += is_increment
        total = pt.add(*terms)
    return total, n_increments


@settings(max_examples=examples(25, 60))
@given(sums())
def test_chain_does_not_depend_on_the_order_of_the_sum(case):
    out, n_increments = case
    flat = flattened(out)
    assert chain_of(flat) == chain_of(out)
    is_left = equal_computations([flat], [out])
    assert is_left or sum(map(is_set, flat.owner.inputs)) == n_increments >= MIN_INCREMENTS


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_leaves_alone(name):
    out = LEFT_ALONE[name]
    assert equal_computations([flattened(out)], [out])


def test_number_of_nodes_is_linear():
    """Upstream alone makes as many as their square on the way."""
    total = nested(
        *(pt.zeros(LENGTH)[np.array([k % LENGTH])].inc(x[k % LENGTH]) for k in range(200))
    )
    fgraph = FunctionGraph(outputs=clone_replace([total]), clone=False)
    FlatIncrements().rewrite(fgraph)
    before = len(fgraph.apply_nodes)
    optdb.query(RewriteDatabaseQuery(include=[SERIALIZE])).rewrite(fgraph)
    made = [node for node in fgraph.apply_nodes if node.op == total.owner.op]
    assert len(made) == 1
    assert len(fgraph.apply_nodes) <= before


def test_registered_rule_flattens_increments():
    fgraph = FunctionGraph(outputs=clone_replace([FLAT["increments alone"][0]]), clone=False)
    query = RewriteDatabaseQuery(include=["fast_run"], exclude=[SERIALIZE], position_cutoff=0.99)
    optdb.query(query).rewrite(fgraph)
    assert len(fgraph.outputs[0].owner.inputs) == 5
