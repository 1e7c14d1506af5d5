"""Regions of a graph that become kernels: convex, few, and without a change of values."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Cos, Exp
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_fastlogp.analysis.index_facts import index_facts
from pymc_fastlogp.kernel import lower
from pymc_fastlogp.kernel.graph import region
from pymc_fastlogp.kernel.graph.boundary import EMBEDDED_BYTES
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.graph.region import FuseRegions, outputs_of, regions
from pymc_fastlogp.kernel.lower.table import TABLE
from tests.conftest import PYTHON
from tests.slices import examples

# Too long to be part of the code.
N = EMBEDDED_BYTES


@pytest.fixture(autouse=True, scope="module")
def cos_is_not_supported():
    """Let ``cos`` stand for an Op that stays outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "is_supported", lambda node: not is_cos(node))
        yield


def is_cos(node):
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cos)


def fused(inputs, outputs):
    """Return a clone of a graph, its regions replaced."""
    fgraph = FunctionGraph(inputs, outputs, clone=True)
    FuseRegions().apply(fgraph)
    return fgraph


def kernels(fgraph):
    return [node for node in fgraph.toposort() if isinstance(node.op, FusedKernel)]


def assert_same_values(fgraph, inputs, outputs, values):
    expected = pytensor.function(inputs, outputs, mode=PYTHON, on_unused_input="ignore")(*values)
    found = pytensor.function(fgraph.inputs, fgraph.outputs, mode=PYTHON, on_unused_input="ignore")
    for a, b, before, after in zip(expected, found(*values), outputs, fgraph.outputs, strict=True):
        assert before.type == after.type
        np.testing.assert_allclose(b, a, rtol=1e-14)


@st.composite
def graphs(draw):
    """Return inputs and outputs of a random graph of ``add``, ``mul`` and ``cos``."""
    inputs = [pt.dvector(name) for name in "xy"]
    variables = list(inputs)
    for _ in range(draw(st.integers(1, 12))):
        x, y = (variables[draw(st.integers(0, len(variables) - 1))] for _ in range(2))
        variables.append(draw(st.sampled_from([x + y, x * y, pt.cos(x)])))
    outputs = draw(st.lists(st.sampled_from(variables), min_size=1, max_size=3, unique=True))
    return inputs, outputs


@given(graphs())
@settings(max_examples=examples(60, 200))
def test_regions_are_convex_and_cover_what_is_supported(graph):
    fgraph = FunctionGraph(*graph, clone=True)
    found = regions(fgraph, region.is_supported)
    covered = [node for nodes in found for node in nodes]
    assert sorted(map(id, covered)) == sorted(
        id(node) for node in fgraph.apply_nodes if not is_cos(node)
    )
    for nodes in found:
        read = [x for node in nodes for x in node.inputs if x.owner not in nodes]
        # What a region reads does not depend on the region.
        assert not {x.owner for x in ancestors(read)} & set(nodes)


@given(graphs())
@settings(max_examples=examples(20, 50))
def test_a_random_graph_keeps_its_values(graph):
    inputs, outputs = graph
    fgraph = fused(inputs, outputs)
    values = [np.array([0.5, -1.5]), np.array([0.25, 2.0])]
    assert_same_values(fgraph, inputs, outputs, values)


def test_one_region_for_each_unsupported_step_on_a_path():
    x, y = pt.dvectors("xy")
    first = pt.exp(x) * y
    second = pt.cos(first) + pt.exp(first)
    third = pt.cos(pt.cos(second)) * pt.log(second)
    fgraph = FunctionGraph([x, y], [third, pt.sqrt(y) - 1], clone=True)
    assert [len(nodes) for nodes in regions(fgraph, region.is_supported)] == [6, 2, 1]


def test_unconnected_nodes_share_a_kernel():
    x, y = pt.dvectors("xy")
    fgraph = fused([x, y], [pt.exp(x), pt.log(y)])
    [kernel] = kernels(fgraph)
    assert set(kernel.outputs) == set(fgraph.outputs)


def test_each_kernel_logs_a_line(caplog):
    x, y = pt.vectors("x", "y")
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        fused([x, y], [pt.exp(x).sum(), pt.sqr(y).sum()])
    assert caplog.messages == ["fastlogp_fused_kernel: 4 nodes -> 1"]


def test_single_node_stays_outside():
    x = pt.dmatrix("x")
    assert not kernels(fused([x], [pt.exp(x).T]))


def test_a_view_of_an_input_stays_outside():
    x = pt.dmatrix("x")
    row = x[0]
    fgraph = FunctionGraph([x], [pt.exp(row) + 1, pt.cos(row)], clone=True)
    [nodes] = regions(fgraph, region.is_supported)
    assert outputs_of(fgraph, nodes) == [fgraph.outputs[0]]
    FuseRegions().apply(fgraph)
    [kernel] = kernels(fgraph)
    assert kernel.inputs[0] is fgraph.inputs[0]
    assert_same_values(fgraph, [x], [pt.exp(row) + 1, pt.cos(row)], [np.ones((2, 3))])


@pytest.mark.parametrize("n", [EMBEDDED_BYTES // 8, EMBEDDED_BYTES // 8 + 1])
def test_small_constants_are_embedded_and_large_ones_passed(n):
    x = pt.dvector("x")
    [kernel] = kernels(fused([x], [pt.exp(x) * np.linspace(0, 1, n)]))
    assert len(kernel.inputs) == (1 if n * 8 <= EMBEDDED_BYTES else 2)


def test_index_arrays_are_narrowed_with_what_is_known_of_them():
    x = pt.dvector("x")
    values = np.arange(N, dtype="int64") * 100_000
    values[0] = -1
    index = pt.constant(values)
    outputs = [pt.exp(x[index]), pt.log(x)[index]]
    [kernel] = kernels(fused([x], outputs))
    [_, passed] = kernel.inputs
    assert passed.type.dtype == "int32"
    np.testing.assert_array_equal(passed.data, values)
    assert kernel.op.facts == (None, index_facts(values))
    assert kernel.op.facts[1].minimum == -1
    inner = [n for n in kernel.op.fgraph.toposort() if isinstance(n.op, AdvancedSubtensor)]
    assert all(node.inputs[1].type.dtype == "int64" for node in inner)


def test_large_indices_are_not_narrowed():
    x = pt.dvector("x")
    wide = np.arange(N, dtype="int64") + 2**40
    fgraph = fused([x], [pt.exp(x) + wide])
    [kernel] = kernels(fgraph)
    assert kernel.inputs[1].data.dtype == "int64"
    assert_same_values(fgraph, [x], [pt.exp(x) + wide], [np.ones(N)])


def test_constants_are_passed_in_c_order_and_held_once():
    x = pt.dmatrix("x")
    index = pt.constant(np.arange(N, dtype="int64"))
    data = pt.constant(np.asfortranarray(np.ones((N, 2))))
    first, second = (kernels(fused([x], [f(x)[index] * data]))[0] for f in (pt.exp, pt.log))
    assert all(x.data.flags.c_contiguous for x in first.inputs[1:])
    assert first.inputs[1:] == second.inputs[1:]


def test_a_constant_is_passed_transposed_where_vectors_run_along_its_rows():
    x, b = pt.dvector("x"), pt.vector("b", shape=(4,))
    design = pt.constant(np.random.default_rng(0).normal(size=(N, 4)))
    outputs = [pt.exp(x[:N, None] * design * b).sum(axis=1)]
    fgraph = fused([x, b], outputs)
    [kernel] = kernels(fgraph)
    [passed] = [v for v in kernel.inputs if isinstance(v, Constant)]
    np.testing.assert_array_equal(passed.data, design.data.T)
    assert passed.data.flags.c_contiguous
    at = [np.linspace(-1, 1, N), np.arange(4.0)]
    assert_same_values(fgraph, [x, b], outputs, at)


def test_a_constant_stays_in_its_order_where_vectors_run_along_its_columns():
    x = pt.dvector("x")
    table = pt.constant(np.random.default_rng(0).normal(size=(N // 20, 40)))
    [kernel] = kernels(fused([x], [pt.exp(x[:40] * table).sum(axis=1)]))
    assert kernel.inputs[1].data is table.data


def product_and_its_gradient(design, transposed):
    """Return inputs and outputs of what reads a constant matrix forwards and backwards."""
    rows, columns = design.shape
    b, r = pt.vector("b", shape=(columns,)), pt.vector("r", shape=(rows,))
    design, transposed = pt.constant(design), pt.constant(np.ascontiguousarray(transposed))
    return [b, r], [design @ b + 1, transposed @ r + 1]


def constants_of(kernel):
    return [x.data for x in kernel.inputs if isinstance(x, Constant)]


@pytest.mark.parametrize(
    ("shape", "passed"),
    [
        ((300, 40), [(300, 40)]),
        ((40, 300), [(300, 40)]),
        ((70, 70), [(70, 70)]),
        ((4000, 40), [(4000, 40)]),  # products by BLAS
        ((60, 60), [(60, 60), (60, 60)]),  # the first cache has room for both
        ((2000, 4), [(4, 2000), (4, 2000)]),  # vectors run along the rows, both times
    ],
)
def test_a_large_matrix_and_its_transpose_are_one_constant(shape, passed):
    rng = np.random.default_rng(0)
    design = rng.integers(-3, 4, size=shape).astype(float)  # so that sums are exact
    inputs, outputs = product_and_its_gradient(design, design.T)
    fgraph = fused(inputs, outputs)
    [kernel] = kernels(fgraph)
    assert [x.shape for x in constants_of(kernel)] == passed
    at = [rng.integers(-3, 4, size=x.type.shape).astype(float) for x in inputs]
    assert_same_values(fgraph, inputs, outputs, at)
    results = pytensor.function(inputs, outputs, mode="NUMBA")(*at)
    for result, expected in zip(results, (design @ at[0], design.T @ at[1]), strict=True):
        np.testing.assert_array_equal(result, expected + 1)


@pytest.mark.parametrize("other", [1.0, -0.0])
def test_matrices_that_differ_in_one_bit_are_two_constants(other):
    design = np.zeros((300, 40))
    transposed = design.T.copy()
    transposed[-1, -1] = other
    inputs, outputs = product_and_its_gradient(design, transposed)
    fgraph = fused(inputs, outputs)
    [kernel] = kernels(fgraph)
    assert {x.shape for x in constants_of(kernel)} == {(300, 40), (40, 300)}
    assert_same_values(fgraph, inputs, outputs, [np.ones(40), np.ones(300)])


def test_scalars_cross_the_boundary_as_tensors():
    x, start = pt.dvector("x"), pt.lscalar("start")
    outside = pt.scalar_from_tensor(pt.cos(start).astype("int64"))
    outputs = [pt.exp(x[outside:]) + 1, pt.scalar_from_tensor(start + 2)]
    fgraph = fused([x, start], outputs)
    assert len(kernels(fgraph)) == 2
    for kernel in kernels(fgraph):
        assert all(isinstance(v.type, pt.TensorType) for v in (*kernel.inputs, *kernel.outputs))
    assert_same_values(fgraph, [x, start], outputs, [np.arange(4.0), np.array(0)])


def test_stack_traces_are_kept():
    x = pt.dvector("x")
    with pytensor.config.change_flags(traceback__limit=8):
        fgraph = FunctionGraph([x], [pt.exp(x) * 2], clone=False)
    trace = fgraph.outputs[0].tag.trace
    assert trace
    FuseRegions().apply(fgraph)
    assert kernels(fgraph)
    assert fgraph.outputs[0].tag.trace[-len(trace) :] == trace


def test_a_node_that_cannot_be_lowered_stays_outside_alone(caplog):
    x = pt.dvector("x")
    n = pt.exp(x).sum().astype("int64")  # computed from data, so not the length of a loop
    outputs = [(pt.arange(n) * pt.log(x)[0]).sum() + 1, pt.exp(x) - 1]
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        fgraph = fused([x], outputs)
    assert "1 nodes stay with PyTensor: a length that is computed from data" in caplog.text
    assert len(kernels(fgraph)) == 2
    [outside] = [n for n in fgraph.apply_nodes if not isinstance(n.op, FusedKernel)]
    assert isinstance(outside.op, ARange)
    assert_same_values(fgraph, [x], outputs, [np.array([0.5, 1.0])])


def test_verbose_pytensor_prints_the_replacement(capsys):
    x = pt.dvector("x")
    n = pt.exp(x).sum().astype("int64")  # as above: a region of which nothing is replaced
    with pytensor.config.change_flags(optimizer_verbose=True):
        fgraph = fused([x], [pt.arange(n), pt.exp(x) - 1])
    assert kernels(fgraph)
    assert "rewrite fastlogp_fused_kernel replaces" in capsys.readouterr().out


def test_a_constant_index_out_of_bounds_raises_when_it_is_called():
    x = pt.dvector("x", shape=(3,))
    fgraph = fused([x], [pt.exp(x)[np.array([1, 3])] * 2, pt.log(x) + pt.exp(-x)])
    assert len(kernels(fgraph)) == len(fgraph.apply_nodes) == 1
    with pytest.raises(IndexError):
        pytensor.function(fgraph.inputs, fgraph.outputs, mode=PYTHON)(np.ones(3))


def test_two_nodes_that_cannot_be_lowered_stay_outside():
    x = pt.dvector("x")
    lengths = [f(x).sum().astype("int64") for f in (pt.exp, pt.log)]
    outputs = [(pt.arange(n) + 1).sum() * 2 for n in lengths]
    fgraph = fused([x], outputs)
    aranges = [n for n in fgraph.apply_nodes if isinstance(n.op, ARange)]
    assert len(aranges) == len(kernels(fgraph)) == 2
    assert_same_values(fgraph, [x], outputs, [np.array([1.5, 7.0])])


def beside_each_other(vectors):
    """Return the sums of arrays as long as what is computed of each vector."""
    scaled = [pt.exp(x) for x in vectors]
    return [pt.sqr(pt.cumsum(x)[: x.sum().astype("int64")]).sum() for x in scaled]


def one_behind_the_other(vectors):
    """Return what comes of cutting one array to a length that is computed of it, once for each vector."""
    x = vectors[0]
    for y in vectors:
        x = (pt.cumsum(pt.exp(x)) + y.sum())[: x.sum().astype("int64")]
    return [x.sum()]


@pytest.mark.parametrize("graph", [beside_each_other, one_behind_the_other])
def test_lowering_attempts_do_not_grow_with_failures(graph, monkeypatch):
    calls = []

    def lowered(context, node, operands):
        calls.append(node)
        return lower_one(context, node, operands)

    lower_one = lower._apply_rule
    monkeypatch.setattr(lower, "_apply_rule", lowered)

    def calls_for(n):
        calls.clear()
        vectors = [pt.dvector() for _ in range(n)]
        fgraph = fused(vectors, graph(vectors))
        assert sum(isinstance(node.op, Subtensor) for node in fgraph.apply_nodes) == n
        return len(calls)

    assert calls_for(8) <= 2.2 * calls_for(4)


def test_a_node_behind_one_that_cannot_be_lowered_is_in_the_next_kernel():
    """The region ends at the first node, so its length becomes an input of the next kernel."""
    x, y = pt.dvectors("x", "y")
    first, second = (pt.exp(v).sum().astype("int64") for v in (x, y))
    outputs = [(pt.exp(pt.cumsum(x)[:first])[:second] * 2).sum()]
    fgraph = fused([x, y], outputs)
    assert sum(isinstance(node.op, Subtensor) for node in fgraph.apply_nodes) == 1
    assert len(kernels(fgraph)) == 2
    assert_same_values(fgraph, [x, y], outputs, [np.array([0.5, 0.1, -2.0]), np.array([0.2])])


def test_the_length_of_an_output_may_be_the_value_of_an_input():
    n, x = pt.lscalar("n"), pt.dscalar("x")
    outputs = [pt.exp(pt.arange(n) * x) + 1, pt.alloc(x, n)]
    fgraph = fused([n, x], outputs)
    assert len(fgraph.apply_nodes) == 1
    assert_same_values(fgraph, [n, x], outputs, [4, 0.5])


def test_unsupported_region_stays_outside(monkeypatch, caplog):
    def lower(fgraph, facts):
        raise region.UnsupportedError("too many axes")

    monkeypatch.setattr("pymc_fastlogp.kernel.graph.op.lower", lower)
    x = pt.dvector("x")
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        assert not kernels(fused([x], [pt.exp(x) * 2]))
    assert "too many axes" in caplog.text


@pytest.fixture
def broken_exp(monkeypatch):
    """Let the lowering of a graph with ``exp`` fail as nobody expected."""
    lower_elemwise = TABLE[Elemwise].lower

    def lower(context, node, inputs):
        if isinstance(node.op.scalar_op, Exp):
            raise RuntimeError("nobody\nexpected this")
        return lower_elemwise(context, node, inputs)

    monkeypatch.setitem(TABLE, Elemwise, TABLE[Elemwise]._replace(lower=lower))


def of_two_regions(x):
    return pt.log(pt.cos(pt.exp(x) * 2)) + pt.sqrt(x)


def test_an_unexpected_exception_costs_one_region_and_asks_for_a_report(broken_exp, caplog):
    x = pt.dvector("x")
    with pytensor.config.change_flags(on_opt_error="warn"), caplog.at_level("WARNING"):
        fgraph = fused([x], [of_two_regions(x)])
    [warning] = caplog.records
    assert (warning.name, warning.levelname) == ("pymc_fastlogp", "WARNING")
    for text in (
        "4 nodes",
        "RuntimeError: nobody expected this",
        "lowering Exp",
        "test_region.py",
        "report",
    ):
        assert text in warning.message
    assert "\n" not in warning.message
    [kernel] = kernels(fgraph)
    assert not any(is_exp(node) for node in kernel.op.fgraph.apply_nodes)
    assert_same_values(fgraph, [x], [of_two_regions(x)], [np.array([0.1, 0.2])])


def is_exp(node):
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Exp)


def test_an_exception_while_looking_for_what_cannot_be_lowered_is_contained(broken_exp, caplog):
    x = pt.dvector("x")
    n = pt.log(x).sum().astype("int64")
    outputs = [(pt.arange(n) * pt.log(x)[0]).sum() + pt.exp(x)]
    with pytensor.config.change_flags(on_opt_error="warn"), caplog.at_level("WARNING"):
        fgraph = fused([x], outputs)
    assert "RuntimeError" in caplog.text
    assert_same_values(fgraph, [x], outputs, [np.array([4.0, 3.0])])


@pytest.mark.parametrize("flag", ["raise", "pdb"])
def test_an_unexpected_exception_is_raised_where_pytensor_is_told_to(flag, broken_exp):
    x = pt.dvector("x")
    with (
        pytensor.config.change_flags(on_opt_error=flag),
        pytest.raises(RuntimeError, match="nobody") as raised,
    ):
        fused([x], [of_two_regions(x)])
    assert raised.traceback[-1].name == "lower"
