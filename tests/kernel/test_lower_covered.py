"""Each row of the table of lowering: value and gradient, with static and with run-time shapes."""

import re

import numpy as np
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pymc_fastlogp.kernel.lower.table import TABLE
from tests.conftest import REPOSITORY
from tests.kernel.covered import CASES
from tests.kernel.lowering import (
    assert_same,
    check_gradient,
    check_value,
    compiled,
    evaluated,
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
        inputs = case.inputs(static=False)
        nodes += FunctionGraph(inputs, case.outputs(inputs)).apply_nodes
    ops = [node.op for node in nodes]
    assert any(isinstance(found, op) for each in ops for found in (each, core_of(each)))


def core_of(op):
    """Return what a Blockwise repeats, and PyTensor wraps so from the start."""
    return op.core_op if isinstance(op, Blockwise) else op


@pytest.mark.parametrize(
    "layout",
    [np.asfortranarray, lambda x: np.repeat(x, 2, axis=-1)[..., ::2], lambda x: x[::-1]],
    ids=["Fortran", "strided", "backwards"],
)
def test_inputs_in_any_layout(layout):
    case = CASES[type_of("CAReduce")]["sum over the axis in the middle"]
    arrays = [layout(array) for array in case.arrays]
    inputs = case.inputs(static=True)
    outputs = case.outputs(inputs)
    kernel = compiled(FunctionGraph(inputs, outputs), arrays, contiguous=[False] * len(arrays))
    assert_same(kernel(*arrays), evaluated(inputs, outputs, arrays))


def type_of(name):
    return next(op for op in CASES if op.__name__ == name)


def test_every_row_has_a_case():
    assert set(TABLE) <= set(CASES)


def test_every_row_is_in_the_docs():
    listed = re.findall(r"^\| `(\w+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(op.__name__ for op in CASES)
