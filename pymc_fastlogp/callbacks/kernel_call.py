"""A rewritten graph as one call of a kernel, or as a copy of the point.

``FusedKernel`` takes all of most graphs, ``HeldConstants`` gives its large constants. What is left are copies that
PyTensor makes so that an output is no view of an input; a callback writes its outputs to memory of the caller anyway.
"""

from dataclasses import dataclass

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from pymc_fastlogp.kernel.graph.held_constants import HeldConstants
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.native.kernels import Kernel


class NotCoveredError(Exception):
    """A graph that is not one call of a kernel; the text names the Ops that it needs besides."""


@dataclass(frozen=True)
class Plan:
    """A call of a kernel.

    Attributes
    ----------
    kernel : Kernel, optional
        What is called; None where the only output is the point itself, as for the stored values of a model without transforms.
    arguments : tuple of int or ndarray
        For each input of the kernel, which input of the graph it is, or a constant in C order.
    outputs : tuple of int
        For each output of the graph, which output of the kernel it is.
    """

    kernel: Kernel | None
    arguments: tuple[int | np.ndarray, ...]
    outputs: tuple[int, ...]

    @property
    def constants(self) -> list[np.ndarray]:
        """The arguments that are constants."""
        return [x for x in self.arguments if isinstance(x, np.ndarray)]


def plan_of(fgraph: FunctionGraph) -> Plan:
    """Return the call that a graph is.

    Parameters
    ----------
    fgraph : FunctionGraph
        Rewritten for the mode NUMBA; all inputs are dense tensors in C order.

    Raises
    ------
    NotCoveredError
        If there is more to it.
    """
    calls, arrays, copies = _parts(fgraph)
    outputs = [copies.get(x, x) for x in fgraph.outputs]
    if outputs == fgraph.inputs[:1]:
        return Plan(None, (), ())
    if len(calls) != 1:
        raise NotCoveredError(f"{len(calls)} kernels")
    call = calls[0]
    kernel = call.op.uncompiled()
    if not set(outputs) <= set(call.outputs):
        raise NotCoveredError("an output that no kernel computes")
    inputs = {x: i for i, x in enumerate(fgraph.inputs)}
    arguments = [_argument(x, inputs, arrays) for x in call.inputs]
    return checked(Plan(kernel, tuple(arguments), tuple(call.outputs.index(x) for x in outputs)))


def checked(plan: Plan) -> Plan:
    """Return a plan if nutpie has memory for all outputs of its kernel, of which each is float64 and goes to one place.

    Raises
    ------
    NotCoveredError
        If not.
    """
    assert plan.kernel is not None
    made = plan.kernel.program.outputs
    if sorted(plan.outputs) != list(range(len(made))):
        raise NotCoveredError("an output that goes nowhere or twice")
    for buffer in made:
        if buffer.dtype != "float64":
            raise NotCoveredError(f"an output of type {buffer.dtype}")
    return plan


def _parts(
    fgraph: FunctionGraph,
) -> tuple[list[Apply], dict[Variable, np.ndarray], dict[Variable, Variable]]:
    """Return the kernels, the large constants, and of what each copy is one."""
    calls: list[Apply] = []
    arrays: dict[Variable, np.ndarray] = {}
    copies: dict[Variable, Variable] = {}
    others: dict[str, None] = {}
    for node in fgraph.toposort():
        match node.op:
            case FusedKernel():
                calls.append(node)
            case HeldConstants():
                arrays.update(zip(node.outputs, (held.array for held in node.op.held), strict=True))
            case DeepCopyOp() | ViewOp():
                copies[node.outputs[0]] = copies.get(node.inputs[0], node.inputs[0])
            case _:
                others[type(node.op).__name__] = None
    if others:
        raise NotCoveredError(", ".join(others))
    return calls, arrays, copies


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
