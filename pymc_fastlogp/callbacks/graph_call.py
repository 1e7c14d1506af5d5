"""A rewritten graph as one call: of a kernel, of a copy of the point, or of a function that Numba compiles.

``FusedKernel`` covers most graphs completely, and ``HeldConstants`` returns large constants of a graph. PyTensor adds copies so that no output is a view
of an input. A callback writes its outputs to the caller's memory, so these copies are dropped.

Any other graph becomes the function that PyTensor's Numba linker makes, which nutpie's own callback calls, too, so results are bit-identical. Only nutpie's
code around the graph is not compiled by Numba; that code takes longer to compile than most graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from pymc_fastlogp.kernel.graph.held_constants import HeldConstants
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.native.kernels import Kernel

# Dtype and number of dimensions of the unconstrained point.
POINT = ("float64", 1)


class NotCoveredError(Exception):
    """A graph is not one kernel call; the text names the other Ops."""


@dataclass(frozen=True)
class KernelCall:
    """Call of a kernel.

    Attributes
    ----------
    kernel : Kernel, optional
        The kernel; None if the only output is a copy of the point, as for the stored values of a model without transforms.
    arguments : tuple of int or ndarray
        For each input of the kernel, the position of an input of the graph, or a constant in C order.
    outputs : tuple of int
        For each output of the graph, the position of an output of the kernel.
    """

    kernel: Kernel | None
    arguments: tuple[int | np.ndarray, ...]
    outputs: tuple[int, ...]

    @property
    def constants(self) -> list[np.ndarray]:
        """The constant arguments."""
        return [x for x in self.arguments if isinstance(x, np.ndarray)]


class NumbaCall:
    """Call of a C function that Numba compiles.

    Parameters
    ----------
    jitted : Dispatcher
        The function of the graph, from PyTensor's Numba linker.
    inputs : sequence of (str, int)
        Dtype and number of dimensions of each input, all in C order.
    shapes : sequence of tuple of int
        Shapes of the outputs, for which the caller allocates memory.

    Attributes
    ----------
    address : int
        Address of the C function, valid during the lifetime of the object; see :mod:`pymc_fastlogp._upstream.numba_c_function`.
    """

    kernel = None
    constants: Sequence[np.ndarray] = ()

    def __init__(
        self, jitted: Any, inputs: Sequence[tuple[str, int]], shapes: Sequence[tuple[int, ...]]
    ):
        # Imports Numba.
        from pymc_fastlogp._upstream.numba_c_function import c_function

        self.inputs = inputs
        self._function = c_function(jitted, inputs, shapes)
        self.address = self._function.address


GraphCall = KernelCall | NumbaCall


def kernel_call_of(fgraph: FunctionGraph) -> KernelCall:
    """Return the kernel call that a graph consists of.

    Parameters
    ----------
    fgraph : FunctionGraph
        Rewritten for the mode NUMBA; all inputs are dense tensors in C order.

    Raises
    ------
    NotCoveredError
        If the graph needs other Ops.
    """
    kernels, arrays, copies = _parts(fgraph)
    outputs = [copies.get(x, x) for x in fgraph.outputs]
    if outputs == fgraph.inputs[:1]:
        return KernelCall(None, (), ())
    if len(kernels) != 1:
        raise NotCoveredError(f"{len(kernels)} kernels")
    node = kernels[0]
    kernel = node.op.uncompiled()
    if not set(outputs) <= set(node.outputs):
        raise NotCoveredError("an output that no kernel computes")
    inputs = {x: i for i, x in enumerate(fgraph.inputs)}
    arguments = [_argument(x, inputs, arrays) for x in node.inputs]
    positions = tuple(node.outputs.index(x) for x in outputs)
    return checked(KernelCall(kernel, tuple(arguments), positions))


def checked(call: KernelCall) -> KernelCall:
    """Return a kernel call if each output of the kernel is float64 and is exactly one output of the graph.

    Raises
    ------
    NotCoveredError
        If not.
    """
    assert call.kernel is not None
    buffers = call.kernel.program.outputs
    if sorted(call.outputs) != list(range(len(buffers))):
        raise NotCoveredError("an output that goes nowhere or twice")
    for buffer in buffers:
        if buffer.dtype != "float64":
            raise NotCoveredError(f"an output of type {buffer.dtype}")
    return call


def input_types(variables: Sequence[Variable]) -> list[tuple[str, int]]:
    """Return dtype and number of dimensions of the inputs of a graph.

    Raises
    ------
    TypeError
        If an input is not a dense tensor, such as the state of a random generator or a sparse matrix.
    """
    for x in variables:
        if not isinstance(x.type, DenseTensorType):
            raise TypeError(
                f"the model reads {x.name or 'a variable'}, of {x.type}, which nutpie's samplers do not support: "
                "make it a constant of the model, or use pm.sample(nuts_sampler='pymc')."
            )
    return [(x.type.dtype, x.type.ndim) for x in variables]


def output_shapes(n_dim: int, n_expanded: int | None) -> list[tuple[int, ...]]:
    """Return the shapes of logp and gradient or, with ``n_expanded``, of all stored values."""
    return [(), (n_dim,)] if n_expanded is None else [(n_expanded,)]


def _parts(
    fgraph: FunctionGraph,
) -> tuple[list[Apply], dict[Variable, np.ndarray], dict[Variable, Variable]]:
    """Return the kernel nodes, the large constants, and the original of each copy."""
    kernels: list[Apply] = []
    arrays: dict[Variable, np.ndarray] = {}
    copies: dict[Variable, Variable] = {}
    others: dict[str, None] = {}
    for node in fgraph.toposort():
        match node.op:
            case FusedKernel():
                kernels.append(node)
            case HeldConstants():
                arrays.update(zip(node.outputs, (held.array for held in node.op.held), strict=True))
            case DeepCopyOp() | ViewOp():
                copies[node.outputs[0]] = copies.get(node.inputs[0], node.inputs[0])
            case _:
                others[type(node.op).__name__] = None
    if others:
        raise NotCoveredError(", ".join(others))
    return kernels, arrays, copies


def _argument(
    x: Variable, inputs: dict[Variable, int], arrays: dict[Variable, np.ndarray]
) -> int | np.ndarray:
    if x in inputs:
        if not isinstance(x.type, DenseTensorType):
            raise NotCoveredError(f"an input of type {x.type}")
        return inputs[x]
    array = x.data if isinstance(x, Constant) else arrays.get(x)
    if array is None:
        raise NotCoveredError("a copy that a kernel reads")
    return np.asarray(array, order="C")
