"""Table of supported Ops: a row holds the function that appends the loops of an Op, and a condition on its nodes."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scan.op import Scan
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, FillDiagonal
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pymc_fastlogp.kernel.lower import (
    bessel,
    dense,
    diagonals,
    elemwise,
    indexing,
    inverse,
    lapack,
    linalg,
    products,
    reduction,
    scan,
    shape,
    triangle,
)
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.ops import (
    EighUpToSigns,
    IveOfOrders,
    LowerInverse,
    PackTriangle,
    RankOnePullback,
    SiteNode,
    UnpackTriangle,
)


def always(node: Apply) -> bool:
    """Return True: each node of an Op is supported."""
    return True


class Lowering(NamedTuple):
    """The lowering rule of an Op, and a condition on its nodes.

    ``lower`` takes the context, the node and its inputs. It appends loops and returns the outputs.
    """

    lower: Callable[[Context, Apply, list[Array]], list[Array]]
    supports: Callable[[Apply], bool] = always


TABLE: dict[type[Op], Lowering] = {
    Elemwise: Lowering(elemwise.lower, elemwise.supports),
    CAReduce: Lowering(reduction.lower_reduction, reduction.supports_reduction),
    Subtensor: Lowering(indexing.lower_read, indexing.supports_read),
    AdvancedSubtensor: Lowering(indexing.lower_read, indexing.supports_read),
    IncSubtensor: Lowering(indexing.lower_write, indexing.supports_write),
    AdvancedIncSubtensor: Lowering(indexing.lower_write, indexing.supports_write),
    DimShuffle: Lowering(shape.lower_dimshuffle),
    SpecifyShape: Lowering(shape.lower_specify_shape),
    TensorFromScalar: Lowering(shape.lower_same),
    ScalarFromTensor: Lowering(shape.lower_same),
    Alloc: Lowering(shape.lower_alloc),
    AllocEmpty: Lowering(shape.lower_alloc_empty),
    Reshape: Lowering(shape.lower_reshape),
    Join: Lowering(shape.lower_join),
    Split: Lowering(shape.lower_split),
    MakeVector: Lowering(shape.lower_make_vector),
    ExtractDiag: Lowering(diagonals.lower_extract_diag),
    FillDiagonal: Lowering(diagonals.lower_fill_diagonal),
    Eye: Lowering(diagonals.lower_eye),
    ARange: Lowering(shape.lower_arange, shape.supports_arange),
    Shape: Lowering(shape.lower_shape),
    Shape_i: Lowering(shape.lower_shape_i),
    CumOp: Lowering(reduction.lower_cumulative, reduction.supports_cumulative),
    Dot: Lowering(products.lower, products.supports),
    BatchedDot: Lowering(products.lower, products.supports),
    AllocDiag: Lowering(diagonals.lower_alloc_diag, diagonals.supports_alloc_diag),
    Cholesky: Lowering(linalg.lower_cholesky, linalg.supports),
    SolveTriangular: Lowering(linalg.lower_solve_triangular, linalg.supports),
    CholeskySolve: Lowering(linalg.lower_cholesky_solve, linalg.supports_library),
    LowerInverse: Lowering(inverse.lower, inverse.supports),
    EighUpToSigns: Lowering(lapack.lower_eigh, lapack.supports_eigh),
    IveOfOrders: Lowering(bessel.lower, bessel.supports),
    RankOnePullback: Lowering(dense.lower_pullback, dense.supports_pullback),
    PackTriangle: Lowering(triangle.lower_pack),
    UnpackTriangle: Lowering(triangle.lower_unpack),
    CheckAndRaise: Lowering(shape.lower_check_and_raise),
    Scan: Lowering(scan.lower, scan.supports),
    SiteNode: Lowering(scan.lower_site_node),
}

# Core Ops that are supported inside Blockwise, for each index of a batch.
BATCHED = (AllocDiag, Cholesky, CholeskySolve, Dot, SolveTriangular)


def lowering_of(op: Op) -> Lowering | None:
    """Return the lowering of an Op or of one of its base classes, or None."""
    if isinstance(op, Blockwise):
        return lowering_of(op.core_op) if isinstance(op.core_op, BATCHED) else None
    return next((TABLE[base] for base in type(op).__mro__ if base in TABLE), None)


def inner_nodes(node: Apply) -> Iterable[Apply]:
    """Return the nodes of the inner graph that is lowered with a node, if it has one."""
    return node.op.fgraph.apply_nodes if isinstance(node.op, Scan | SiteNode) else ()
