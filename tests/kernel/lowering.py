"""Lower graphs, run the kernels, and compare with PyTensor's own Python code on the graph as it was written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode, optdb
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from pymc_fastlogp.analysis.index_facts import index_facts
from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.lower import is_supported, lower
from pymc_fastlogp.verification.roundoff import NOISE_ALLOWED, neighbors
from tests.conftest import PYTHON
from tests.kernel.check import optimize
from tests.kernel.native_kernel import NativeKernel, compile_native

# Where regions are selected: behind the fusion of Elemwise, before anything works in place.
REGION_POSITION = 49.3
FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class Case:
    """A graph, and arrays to evaluate it at.

    Attributes
    ----------
    build : callable
        Takes a variable for each array, returns the output or a list of them.
    arrays : tuple of ndarray
        The values.
    runtime : bool
        Whether the graph is supported where no length is known before the kernel is called.
    gradient : bool
        Whether PyTensor has a gradient, without an Op that stays outside of kernels.
    """

    build: Callable
    arrays: tuple[np.ndarray, ...]
    runtime: bool = True
    gradient: bool = True

    def inputs(self, *, static: bool) -> list[pt.TensorVariable]:
        """Return the inputs; an axis that may broadcast has its length 1 in either case."""
        return [
            pt.tensor(
                f"x{i}",
                dtype=array.dtype,
                shape=tuple(n if static or n == 1 else None for n in array.shape),
            )
            for i, array in enumerate(self.arrays)
        ]

    def outputs(self, inputs: Sequence[pt.TensorVariable]) -> list[pt.TensorVariable]:
        """Return the outputs."""
        built = self.build(*inputs)
        return list(built) if isinstance(built, list | tuple) else [built]


def case(build: Callable, *arrays: object, runtime: bool = True, gradient: bool = True) -> Case:
    """Return a case; lists become arrays."""
    return Case(build, tuple(np.array(array, order="C") for array in arrays), runtime, gradient)


def gradients(
    inputs: Sequence[pt.TensorVariable], outputs: Sequence[pt.TensorVariable]
) -> list[pt.TensorVariable]:
    """Return the gradients of a sum of functions of all outputs.

    The function's slope depends on the output, and for no output does it magnify rounding.
    """
    wrt = [x for x in inputs if x.dtype in FLOATS]
    costs = [pt.arctan(y).sum() for y in outputs if y.dtype in FLOATS]
    if not (wrt and costs):
        return []
    return pytensor.grad(pt.add(0.0, *costs), wrt, disconnected_inputs="ignore")


def as_for_a_region(
    inputs: Sequence[pt.TensorVariable], outputs: Sequence[pt.TensorVariable]
) -> FunctionGraph:
    """Return the graph as mode NUMBA has it where regions are selected."""
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    mode = get_mode("NUMBA")
    query = mode.provided_optimizer.excluding(*mode.linker.incompatible_rewrites)
    query.position_cutoff = REGION_POSITION
    optdb.query(query).rewrite(fgraph)
    return fgraph


def program_of(
    inputs: Sequence[pt.TensorVariable],
    outputs: Sequence[pt.TensorVariable],
    **data: np.ndarray,
) -> Program:
    """Lower a graph and run all passes; ``data`` gives the values of integer inputs by name."""
    facts = [index_facts(data[x.name]) if x.name in data else None for x in inputs]
    graph = FrozenFunctionGraph.from_io(list(inputs), list(outputs), dedup_nodes=True)
    return optimize(lower(graph, facts))


def lowered(build, arrays):
    """Return the program of a graph of arrays before the passes; integer arrays are constants whose facts are known."""
    inputs = [pt.tensor(f"x{i}", dtype=x.dtype, shape=x.shape) for i, x in enumerate(arrays)]
    outputs = build(*inputs)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    graph = FrozenFunctionGraph.from_io(inputs, outputs, dedup_nodes=True)
    return lower(graph, [index_facts(x) for x in arrays])


def compiled(
    fgraph: FunctionGraph,
    arrays: Sequence[np.ndarray],
    known: Sequence[int] = (),
    contiguous: Sequence[bool] | None = None,
) -> NativeKernel:
    """Return the kernel of a graph.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph.
    arrays : sequence of ndarray
        What the inputs will be.
    known : sequence of int
        Numbers of the inputs that are constants.
    contiguous : sequence of bool, optional
        For each input whether it is C-contiguous.
    """
    rewrite_scan_inner_graphs(fgraph)
    unsupported = [str(node) for node in fgraph.toposort() if not is_supported(node)]
    assert not unsupported, unsupported
    facts = [index_facts(array) if i in known else None for i, array in enumerate(arrays)]
    return compile_native(optimize(lower(fgraph, facts)), contiguous)


def evaluated(
    inputs: Sequence[pt.TensorVariable],
    outputs: Sequence[pt.TensorVariable],
    arrays: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Return what PyTensor's Python code computes."""
    return in_python(inputs, outputs)(*arrays)


def in_python(
    inputs: Sequence[pt.TensorVariable], outputs: Sequence[pt.TensorVariable]
) -> Callable[..., list[np.ndarray]]:
    """Return PyTensor's Python code of a graph as it was written."""
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(list(inputs), list(outputs), mode=PYTHON, on_unused_input="ignore")


def noise(function: Callable[..., list[np.ndarray]], arrays: Sequence[np.ndarray]) -> list[float]:
    """Return how much each result may differ where larger numbers cancel: what a few units in the last place of the inputs change."""
    rng = np.random.default_rng(0)
    here, points = function(*arrays), zip(*(neighbors(x, rng) for x in arrays), strict=True)
    around = [function(*point) for point in points]
    return [
        NOISE_ALLOWED * float(np.abs(np.array(results) - result).max(initial=0.0))
        for result, *results in zip(here, *around, strict=True)
    ]


def assert_same(
    found: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    noise: Sequence[float] | None = None,
) -> None:
    """Assert equal types and shapes, and values that differ by no more than rounding, or the noise.

    The sums of both sides run in different orders, and so differ relative to the largest number.
    """
    assert len(found) == len(expected)
    allowed = [0.0] * len(found) if noise is None else noise
    for a, b, more in zip(found, map(np.asarray, expected), allowed, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if b.dtype.name not in FLOATS:
            np.testing.assert_array_equal(a, b)
            continue
        epsilon = np.finfo(b.dtype).eps
        largest = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=32 * epsilon, atol=32 * epsilon * largest + more)


def check_value(case: Case, *, static: bool = True, known: Sequence[int] = ()) -> None:
    """Assert that the kernel of the outputs, as they were written, gives the same."""
    inputs = case.inputs(static=static)
    outputs = case.outputs(inputs)
    kernel = compiled(FunctionGraph(inputs, outputs, clone=True), case.arrays, known)
    assert_same(kernel(*case.arrays), evaluated(inputs, outputs, case.arrays))


def check_gradient(case: Case, *, static: bool = True, known: Sequence[int] = ()) -> None:
    """Assert that the kernel of the outputs and gradients, as rewritten, gives the same."""
    kernel, function = sides(case, static=static, known=known)
    assert_same(kernel(*case.arrays), function(*case.arrays))


def sides(
    case: Case, *, static: bool = True, known: Sequence[int] = ()
) -> tuple[NativeKernel, Callable[..., list[np.ndarray]]]:
    """Return the kernel of the outputs and gradients, as rewritten, and PyTensor's Python code of them, as written."""
    inputs = case.inputs(static=static)
    outputs = case.outputs(inputs)
    together = [*outputs, *gradients(inputs, outputs)]
    kernel = compiled(as_for_a_region(inputs, together), case.arrays, known)
    return kernel, in_python(inputs, together)
