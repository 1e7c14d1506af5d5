"""A fixed slice of the random graphs; differences are found and shrunk."""

from collections import Counter

import numpy as np
import pytest

from tests.fuzz import agreement
from tests.fuzz.agreement import findings
from tests.fuzz.drafts import Line
from tests.fuzz.evaluation import on_by_kernels
from tests.fuzz.nodes import NODES
from tests.fuzz.programs import Program, points, random_program
from tests.fuzz.shrink import shrunk

SLICE = range(40)


@pytest.mark.parametrize("seed", SLICE)
def test_plugin_agrees_with_upstream(seed):
    program = random_program(seed)
    found = [str(finding) for finding in findings(program, points(program, seed))]
    assert not found, program


def test_a_seed_makes_the_same_program_again():
    assert str(random_program(3)) == str(random_program(3))


def test_every_kind_of_line_is_drawn(monkeypatch):
    counts = Counter()

    def counted(name, draw):
        def draw_and_count(draft):
            drawn = draw(draft)
            counts[name] += drawn is not None
            return drawn

        return draw_and_count

    for name, draw in list(NODES.items()):
        monkeypatch.setitem(NODES, name, counted(name, draw))
    for seed in range(100):
        random_program(seed)
    assert min(counts[name] for name in NODES) >= 3, counts


def wrong_sum(inputs, outputs, *left_out):
    """Return a function whose first output has another sign."""
    right = on_by_kernels(inputs, outputs, *left_out)
    return lambda *arrays: [-x if k == 0 else x for k, x in enumerate(right(*arrays))]


def slightly_wrong(inputs, outputs, *left_out):
    """Return a function whose numbers are off by more than single precision."""
    right = on_by_kernels(inputs, outputs, *left_out)
    return lambda *arrays: [x * 1.00001 if x.dtype.kind == "f" else x for x in right(*arrays)]


def wrong_error(inputs, outputs, *left_out):
    """Return a function that raises what upstream does not."""

    def fail(*arrays):
        raise KeyError("index")

    return fail


@pytest.mark.parametrize(("wrong", "kind"), [(wrong_sum, "value"), (wrong_error, "raises")])
def test_a_difference_is_found_and_shrunk(monkeypatch, wrong, kind):
    monkeypatch.setattr(agreement, "on_by_kernels", wrong)
    # The side that decides in the end takes seconds to compile.
    monkeypatch.setattr(agreement, "off_in_numba", agreement.off_in_numpy)
    program = random_program(1)
    found = next(findings(program, points(program, 1)))
    small, again = shrunk(program, found)
    assert found.kind == again.kind == kind
    assert len(small.steps) < len(program.steps)
    assert len(small.outputs) == 1
    assert {name: np.shape(x) for name, x in again.point.items()} == {
        line.name: line.shape for line in small.inputs
    }


@pytest.mark.parametrize(("entry", "is_found"), [(np.nan, False), (1.0, True)])
def test_a_nan_of_the_plugin_alone_is_a_finding(monkeypatch, entry, is_found):
    """The number of nan in a failed factor is that of LAPACK."""
    matrix = np.diag([2.0, entry])
    factor = Line("L", "pt.linalg.cholesky(A)", (2, 2), "float64")
    A = Line("A", "pt.tensor('A', dtype='float64', shape=(2, 2))", (2, 2), "float64", matrix)

    def nan_all_over(inputs, outputs, *left_out):
        right = on_by_kernels(inputs, outputs, *left_out)
        return lambda *arrays: [np.full_like(x, np.nan) for x in right(*arrays)]

    monkeypatch.setattr(agreement, "on_by_kernels", nan_all_over)
    monkeypatch.setattr(agreement, "off_in_numba", agreement.off_in_numpy)
    found = findings(Program((A, factor), ("L",), False), [("a point", {"A": matrix})])
    assert any(found) == is_found


@pytest.mark.parametrize("seed", [46837, 49953])
def test_upstream_side_does_not_read_its_own_output(seed):
    """Sorting the nodes of such a graph had no end."""
    program = random_program(seed)
    assert next(findings(program, points(program, seed)), None) is None


@pytest.mark.parametrize("seed", [63879, 65639, 67948])
def test_graphs_that_once_differed_agree(seed):
    """Round-off of float32 where upstream raises around, a constant condition times itself, and lengths that do not fit."""
    program = random_program(seed)
    assert next(findings(program, points(program, seed)), None) is None


def test_wrong_value_in_a_float32_program_is_found(monkeypatch):
    """The leniency is that of single precision, and no more."""
    monkeypatch.setattr(agreement, "on_by_kernels", slightly_wrong)
    program = random_program(63879)
    assert next(findings(program, points(program, 63879))).kind == "value"
