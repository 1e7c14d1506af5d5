"""Shared data that are known before the first evaluation: :class:`KnownData` marks them in a graph.

A compiled model whose data are set once for many evaluations need not repeat what depends on data alone. A graph with marks can be split into
this part and the rest, see :mod:`pymc_fastlogp.compilation.derived_data`. Rules may move more into this part, as they do for constants.
"""

from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable


class UnusableDataError(ValueError):
    """Data for which an expression of data alone can't be computed, although the log density can."""


class KnownData(Op):
    """Data of a static shape, which do not change between evaluations.

    Parameters
    ----------
    shape : tuple of int
        Shape of the data.
    """

    __props__: ClassVar[tuple[str, ...]] = ("shape",)
    view_map: ClassVar[dict[int, list[int]]] = {0: [0]}

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape

    def make_node(self, data: Variable) -> Apply:
        """Return the node of shared data."""
        return Apply(self, [data], [TensorType(data.type.dtype, self.shape)()])

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[list[Any]]) -> None:
        """Return the data."""
        output_storage[0][0] = inputs[0]


# Ops of one entry at a time, whose inputs a rule may read row by row.
BY_ENTRY = (Elemwise, DimShuffle, Subtensor, AdvancedSubtensor)


def is_known(x: TensorVariable) -> bool:
    """Return whether ``x`` is a constant, marked data, or computed from these by Ops that read single entries."""
    return isinstance(x, Constant) or depends_on_data(x)


def depends_on_data(x: TensorVariable) -> bool:
    """Return whether ``x`` is known, and no constant."""
    if x.owner is None:
        return False
    op = x.owner.op
    if isinstance(op, KnownData):
        return True
    return isinstance(op, BY_ENTRY) and all(map(is_known, x.owner.inputs))
