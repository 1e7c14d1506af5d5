r"""Cholesky factorizations and inverses of matrices of a few hundred rows, as generated functions.

LAPACK factors a matrix in blocks and multiplies the blocks by BLAS, which packs them first. For a few hundred rows, packing and other overhead take
most of the time. Here the whole matrix fits into the caches, so it is processed in register tiles, one row of tiles after another:

.. math::

    U^\top U = A: \quad U_{i \cdot} = U_{ii}^{-\top} \Bigl(A_{i \cdot} - \sum_{k<i} U_{ki}^\top U_{k \cdot}\Bigr), \qquad
    V = U^{-\top}: \quad V_{i \cdot} = U_{ii}^{-\top} \Bigl(I_{i \cdot} - \sum_{k<i} U_{ki}^\top V_{k \cdot}\Bigr), \qquad
    A^{-1} = V^\top V.

LAPACK computes the same sums in a different order. Each of the three takes :math:`n^3 / 6` multiplications.

Matrices are in C order. The number of rows is a multiple of the tile length: the caller pads a matrix by rows and columns of the identity.
"""

from collections.abc import Callable, Sequence
from math import nan

from llvmlite import ir

from pymc_fastlogp.kernel.emit.tiles import (
    Matrix,
    Rows,
    add_products,
    counted,
    identity,
    lower_part,
    minus_product,
    plus_product,
    rows_from,
    substitute,
    transposed,
    upper_part,
    zeros,
)
from pymc_fastlogp.kernel.llvm import (
    F64,
    I1,
    I32,
    I64,
    POINTER,
    declared,
    filled,
    lane,
    once,
    splat,
)
from pymc_fastlogp.kernel.native.target import tile_length


def function(module: ir.Module, name: str) -> ir.Function:
    """Return a function of :data:`FUNCTIONS`, ``void name(i32 *n, double *matrix)``, which a module has at most once."""

    def body(builder: ir.IRBuilder, n: ir.Value, first: ir.Value) -> None:
        rows = builder.sext(builder.load(n, typ=I32), I64)
        FUNCTIONS[name](Matrix(builder, first, rows))

    return once(module, f"dense.{name}", ir.FunctionType(ir.VoidType(), [POINTER] * 2), body)


def _factor(a: Matrix) -> None:
    """Replace a matrix, given by its lower triangle, by ``U``, with zeros below the diagonal.

    All elements are nan if the matrix is not positive definite.
    """
    builder, n = a.builder, tile_length()
    with counted(builder, I64(0), a.n, [I1(1)], step=n) as rows:
        i, [is_definite] = rows.index, rows.values
        tile = transposed(builder, a.load(i, i))
        tile = add_products(tile, (a, i), (a, i), (I64(0), i), minus_product)
        tile, reciprocals, has_positive_pivots = _factor_of_tile(builder, tile)
        a.store(i, i, tile)
        with counted(builder, builder.add(i, I64(n)), a.n, step=n) as columns:
            j = columns.index
            tile = transposed(builder, a.load(j, i))
            a.store(j, i, zeros())
            tile = add_products(tile, (a, i), (a, j), (I64(0), i), minus_product)
            a.store(i, j, substitute(tile, a, i, reciprocals))
        rows.following = [builder.and_(is_definite, has_positive_pivots)]
    with builder.if_then(builder.not_(is_definite), likely=False):
        _fill(a, nan)


def _fill(a: Matrix, number: float) -> None:
    with counted(a.builder, I64(0), a.builder.mul(a.n, a.n)) as elements:
        a.builder.store(F64(number), a.address(I64(0), elements.index))


def _factor_of_tile(builder: ir.IRBuilder, tile: Rows) -> tuple[Rows, Rows, ir.Value]:
    """Return ``U`` of one tile, the reciprocals of its diagonal, and whether all pivots are positive."""
    n, rows = tile_length(), list(tile)
    reciprocals, is_definite = [], I1(1)
    root_of = declared(builder.module, "llvm.sqrt.f64", ir.FunctionType(F64, [F64]))
    for r in range(n):
        pivot = lane(builder, rows[r], r)
        is_definite = builder.and_(is_definite, builder.fcmp_ordered(">", pivot, F64(0.0)))
        root = builder.call(root_of, [pivot])
        reciprocals.append(splat(builder, builder.fdiv(F64(1.0), root), n))
        scaled = builder.fmul(rows[r], reciprocals[r])
        rows[r] = builder.insert_element(scaled, root, I32(r))
        for below in range(r + 1, n):
            number = splat(builder, lane(builder, rows[r], below), n)
            rows[below] = minus_product(builder, number, rows[r], rows[below])
    return upper_part(builder, rows), reciprocals, is_definite


def _inverse(u: Matrix) -> None:
    """Replace ``U`` by the lower triangle of ``(U.T @ U)**-1``, with zeros above the diagonal.

    The memory behind ``U`` has room for a second matrix.
    """
    v = u.below()
    _invert_triangle(u, v)
    _store_lower(u, [(v, v)])


def _invert_triangle(u: Matrix, v: Matrix) -> None:
    """Append the computation of ``V = U**-T`` in the lower triangle of ``v``; tiles on the diagonal are stored whole."""
    builder, n = u.builder, tile_length()
    with counted(builder, I64(0), u.n, step=n) as rows:
        i = rows.index
        diagonal = [builder.load(u.address(k, k), typ=F64) for k in rows_from(builder, i)]
        reciprocals = [splat(builder, builder.fdiv(F64(1.0), x), n) for x in diagonal]
        with counted(builder, I64(0), i, step=n) as columns:
            j = columns.index
            tile = add_products(zeros(), (u, i), (v, j), (j, i), minus_product)
            v.store(i, j, substitute(tile, u, i, reciprocals))
        v.store(i, i, substitute(identity(), u, i, reciprocals))


def _store_lower(
    result: Matrix, factors: Sequence[tuple[Matrix, Matrix]], weight: float = 1.0
) -> None:
    """Append the computation of the lower triangle of a sum of products ``X.T @ Y``, with zeros above the diagonal.

    Parameters
    ----------
    result : Matrix
        Its elements are overwritten. It is none of the factors.
    factors : sequence of tuple of Matrix
        Lower triangles ``X`` and ``Y`` of each product.
    weight : float
        Factor of the diagonal.
    """
    builder, n = result.builder, tile_length()
    with counted(builder, I64(0), result.n, step=n) as rows:
        i = rows.index
        with counted(builder, I64(0), i, step=n) as columns:
            j = columns.index
            result.store(i, j, _tile_of_products(factors, i, j))
            result.store(j, i, zeros())
        result.store(i, i, lower_part(builder, _tile_of_products(factors, i, i), weight))


def _tile_of_products(factors: Sequence[tuple[Matrix, Matrix]], i: ir.Value, j: ir.Value) -> Rows:
    tile = zeros()
    for x, y in factors:
        tile = add_products(tile, (x, i), (y, j), (i, x.n))
    return tile


def _rank_one_pullback(u: Matrix) -> None:
    r"""Replace ``U = L.T`` by the lower triangle of :class:`~pymc_fastlogp.ops.RankOnePullback`, with zeros above the diagonal.

    The memory behind ``U`` has room for two more matrices, and then holds the vectors ``u`` and ``z`` as two rows.

    With :math:`V = L^{-1}` and :math:`S` the lower triangle of :math:`u z^\top` whose diagonal is halved, the result is
    :math:`V^\top Y + Y^\top V` with its diagonal halved, where :math:`Y = S V`. The product :math:`S V` takes :math:`O(n^2)` operations:
    row :math:`k` of :math:`Y` is :math:`u_k` times a running sum of the rows of :math:`V` scaled by :math:`z`.
    """
    v = u.below()
    y = v.below()
    _invert_triangle(u, v)
    _multiply_by_rank_one(v, y, vectors=y.below())
    _store_lower(u, [(v, y), (y, v)], weight=0.5)


def _multiply_by_rank_one(v: Matrix, y: Matrix, vectors: Matrix) -> None:
    r"""Append the computation of ``Y = S V``, with ``S`` the lower triangle of :math:`u z^\top` whose diagonal is halved."""
    builder, n = v.builder, tile_length()
    half = filled(ir.VectorType(F64, n), 0.5)
    with counted(builder, I64(0), v.n, step=n) as columns:
        j = columns.index
        with counted(builder, j, v.n, zeros()[:1]) as rows:
            k, [total] = rows.index, rows.values
            values = v.row(k, j)
            added = builder.fmul(vectors.number(I64(1), k), values)
            halfway = plus_product(builder, half, added, total)
            product = builder.fmul(vectors.number(I64(0), k), halfway)
            builder.store(product, y.address(k, j), align=8)
            rows.following = [builder.fadd(total, added)]


# Functions by the names that a Call statement has.
FUNCTIONS: dict[str, Callable[[Matrix], None]] = {
    "factor": _factor,
    "inverse": _inverse,
    "rank_one_pullback": _rank_one_pullback,
}
