"""Each row of the table of lowering: value and gradient, with static and with run-time shapes."""

import re

import numpy as np
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.kernel.lower.table import TABLE
from pymc_fastlogp.ops import (
    EighUpToSigns,
    IveOfOrders,
    PackTriangle,
    RankOnePullback,
    UnpackTriangle,
)
from tests.conftest import REPOSITORY
from tests.kernel.covered import CASES
from tests.kernel.lowering import (
    as_for_a_region,
    assert_same,
    check_gradient,
    check_value,
    compiled,
    evaluated,
    gradients,
)

NAMED = [
    pytest.param(op, case, id=f"{op.__name__}: {name}")
    for op, cases in CASES.items()
    for name, case in cases.items()
]
DOCS = REPOSITORY / "docs" / "kernel" / "covered.md"


@pytest.mark.parametrize(("op", "case"), NAMED)
def test_value(op, case):
    for static in (True, False) if case.runtime else (True,):
        check_value(case, static=static)


@pytest.mark.parametrize(("op", "case"), [p for p in NAMED if p.values[1].gradient])
def test_gradient(op, case):
    for static in (True, False) if case.runtime else (True,):
        check_gradient(case, static=static)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(p.values[1], id=p.id)
        for p in NAMED
        if p.values[0] in (AdvancedSubtensor, AdvancedIncSubtensor)
    ],
)
def test_index_arrays_that_are_known(case):
    known = [i for i, array in enumerate(case.arrays) if array.dtype.kind in "iu"]
    check_value(case, known=known)
    check_gradient(case, known=known)


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.__name__)
def test_the_graphs_of_an_op_have_it(op):
    nodes = []
    for case in CASES[op].values():
        inputs = case.inputs(static=not case.runtime)
        nodes += FunctionGraph(inputs, case.outputs(inputs)).apply_nodes
    ops = [node.op for node in nodes]
    assert any(isinstance(found, op) for each in ops for found in (each, core_op(each)))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: np.array(x, order="F"),
        lambda x: np.repeat(x, 2, axis=-1)[..., ::-2] if x.ndim else x,
    ],
    ids=["Fortran", "strided backwards"],
)
@pytest.mark.parametrize("op", CASES, ids=lambda op: op.__name__)
def test_inputs_in_any_layout(op, layout):
    """The case with the most axes, with its gradient where it has one."""
    case = max(CASES[op].values(), key=lambda case: max(array.ndim for array in case.arrays))
    arrays = [layout(array) for array in case.arrays]
    inputs = case.inputs(static=not case.runtime)
    outputs = case.outputs(inputs)
    fgraph = FunctionGraph(inputs, outputs, clone=True)
    if case.gradient:
        outputs += gradients(inputs, outputs)
        fgraph = as_for_a_region(inputs, outputs)
    kernel = compiled(fgraph, arrays, contiguous=[False] * len(arrays))
    assert_same(kernel(*arrays), evaluated(inputs, outputs, arrays))


def test_every_row_has_a_case():
    assert set(TABLE) <= set(CASES)


# What a row cannot have, see the table in the docs.
WITHOUT_AXES = {ScalarFromTensor, TensorFromScalar}
OF_KNOWN_LENGTHS = {EighUpToSigns, IveOfOrders, PackTriangle, RankOnePullback, UnpackTriangle}
# Those that are there for a gradient, and one whose gradient has nodes that stay outside.
WITHOUT_GRADIENT = {EighUpToSigns, IveOfOrders, RankOnePullback}
NEVER_EMPTY = {EighUpToSigns, IveOfOrders}


def has_axis(case, length):
    """Return whether an input or an output has an axis of a length."""
    inputs = case.inputs(static=True)
    outputs = FunctionGraph(inputs, case.outputs(inputs), clone=True).outputs
    return any(length in v.type.shape for v in (*inputs, *outputs))


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.__name__)
def test_every_row_is_tried_at_its_edges(op):
    cases = CASES[op].values()
    has_runtime = any(case.runtime for case in cases)
    assert has_runtime != (op in OF_KNOWN_LENGTHS), "no case has run-time lengths"
    has_gradient = any(case.gradient and gradient_of(case) for case in cases)
    assert has_gradient != (op in WITHOUT_GRADIENT), "no case has a gradient"
    for length in (0, 1):
        has_none = op in WITHOUT_AXES or (length == 0 and op in NEVER_EMPTY)
        has_length = any(has_axis(case, length) for case in cases)
        assert has_length != has_none, f"no case has an axis of length {length}"


def gradient_of(case):
    inputs = case.inputs(static=True)
    return gradients(inputs, case.outputs(inputs))


def test_every_row_is_in_the_docs():
    listed = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(op.__name__ for op in CASES)
