"""Kernel inputs: equal constants are passed once, in the memory order that vector loads need.

A vector that runs along the rows of a design matrix reads a column of the matrix. In C order such a read is a gather; from the transposed matrix it is a
contiguous load (:mod:`pymc_fastlogp.kernel.passes.layout`). Only the optimized program shows how a constant is read. So a kernel is lowered once, and a
second time if a constant was transposed.

The gradient of a product with a constant :math:`X` is a product with :math:`X^T`, for which PyTensor makes a second constant. If :math:`X` is large, the
kernel reads :math:`X` for both products, so that the two do not compete for the cache.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import constant, moveaxis
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.kernel.graph.boundary import to_kernel_tensor
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.lower import products
from pymc_fastlogp.kernel.passes import row_blocks
from pymc_fastlogp.kernel.passes.layout import axes_of_vectors

# Least size of a matrix that also serves as its own transpose (``python -m benchmarks.limits``). Smaller matrices fit into the L1 cache, and
# narrower ones become straight-line code (:mod:`pymc_fastlogp.kernel.passes.unroll`). Sharing slows such kernels down, by up to 5 %: the shared
# values occupy registers. A narrower matrix that BLAS would multiply by a vector serves both products as blocks of rows
# (:mod:`pymc_fastlogp.kernel.passes.row_blocks`).
LEAST_BYTES, LEAST_COLUMNS = 2**15, 17


class KernelInput(NamedTuple):
    """An input of a kernel, as a view of a tensor that several inputs may share.

    Attributes
    ----------
    tensor : TensorVariable
        The input of the node.
    moved_axis : int, optional
        The axis of the kernel input that is the last axis of the tensor; None if no axis was moved.
    """

    tensor: TensorVariable
    moved_axis: int | None = None

    def restore_axes(self, x: TensorVariable) -> TensorVariable:
        """Return a tensor of this type with its last axis moved back to ``moved_axis``."""
        return x if self.moved_axis is None else moveaxis(x, -1, self.moved_axis)


def distinct_tensors(inputs: Sequence[KernelInput]) -> list[TensorVariable]:
    """Return the tensors of kernel inputs, each once: the inputs of the node."""
    return list(dict.fromkeys(each.tensor for each in inputs))


def share_transposed_constants(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> list[KernelInput]:
    """Return the inputs of the kernel of ``outputs``, in which a large matrix and its transpose are one constant.

    The matrix with more rows than columns is kept: products then accumulate along its rows.
    """
    tensors = [*map(to_kernel_tensor, inputs)]
    in_blocks = _in_blocks(inputs, outputs)
    matrices = [
        tensor
        for x, tensor in zip(inputs, tensors, strict=True)
        if x in in_blocks or _is_large_matrix(tensor)
    ]
    kept = defaultdict[tuple[int, ...], list[TensorConstant]](list)
    shared: dict[TensorVariable, KernelInput] = {}
    for x in sorted(matrices, key=lambda x: -x.data.shape[0]):
        transposes = (y for y in kept[x.data.T.shape] if _is_transpose(x.data, y.data))
        if (transpose := next(transposes, None)) is None:
            kept[x.data.shape].append(x)
        else:
            shared[x] = KernelInput(transpose, moved_axis=0)
    return [shared.get(tensor, KernelInput(tensor)) for tensor in tensors]


def transpose_for_vectors(inputs: Sequence[KernelInput], program: Program) -> list[KernelInput]:
    """Return the inputs of a program with those constants transposed whose columns the program reads."""
    axes = axes_of_vectors(program)
    transposed = {
        x: (_with_axis_last(x, axes[buffer]), axes[buffer])
        for x, buffer in zip(distinct_tensors(inputs), program.inputs, strict=True)
        if buffer in axes and isinstance(x, TensorConstant)
    }
    return [
        _with_tensor(each, *transposed[each.tensor]) if each.tensor in transposed else each
        for each in inputs
    ]


def _is_large_matrix(x: TensorVariable) -> bool:
    if not isinstance(x, TensorConstant) or x.data.ndim != 2 or x.data.dtype != "float64":
        return False
    return x.data.nbytes >= LEAST_BYTES and min(x.data.shape) >= LEAST_COLUMNS


def _in_blocks(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> set[Variable]:
    """Return the constant matrices that are multiplied by a vector in blocks of rows, if the transpose is, too."""
    return {
        x
        for node in io_toposort(inputs, outputs)
        if isinstance(node.op, Dot)
        for x, other in (node.inputs, node.inputs[::-1])
        if isinstance(x, TensorConstant)
        and x.data.dtype == "float64"
        and x.data.size > products.LARGEST_WITH_VECTOR
        and min(x.data.shape) >= row_blocks.FEWEST_COLUMNS
        and 1 in other.type.shape
    }


def _is_transpose(x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether ``x`` is the transpose of ``y`` bit by bit; the first row rules most pairs out."""
    x, y = x.view(np.int64), y.view(np.int64).T
    return np.array_equal(x[:1], y[:1]) and np.array_equal(x, y)


def _with_axis_last(x: TensorConstant, axis: int) -> TensorConstant:
    data = np.ascontiguousarray(np.moveaxis(x.data, axis, -1))
    data.flags.writeable = False  # `hold` copies writeable arrays
    return constant(data, name=x.name)


def _with_tensor(each: KernelInput, x: TensorConstant, axis: int) -> KernelInput:
    """Return a kernel input with its tensor replaced by the transpose; a second transposition undoes the first."""
    return KernelInput(x, axis if each.moved_axis is None else None)
