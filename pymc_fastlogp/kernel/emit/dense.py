r"""Cholesky factors and inverses of matrices of some hundred rows, as functions of our own.

LAPACK works on blocks that are multiplied by BLAS, which copies them first, and of these sizes most of the time is neither.
Here a matrix is small enough for the caches, and is read in tiles of registers, row of tiles by row of tiles:

.. math::

    U^\top U = A: \quad U_{i \cdot} = U_{ii}^{-\top} \Bigl(A_{i \cdot} - \sum_{k<i} U_{ki}^\top U_{k \cdot}\Bigr), \qquad
    V = U^{-\top}: \quad V_{i \cdot} = U_{ii}^{-\top} \Bigl(I_{i \cdot} - \sum_{k<i} U_{ki}^\top V_{k \cdot}\Bigr), \qquad
    A^{-1} = V^\top V.

That are the same sums as LAPACK's, in another order, each of :math:`n^3 / 6` multiplications. Matrices are in C order; their rows are a
multiple of the length of a tile, so that there is no rest: they are padded by the rows and columns of an identity.
"""

from collections.abc import Callable
from math import nan

from llvmlite import ir

from pymc_fastlogp.kernel.emit.tiles import (
    Matrix,
    Rows,
    add_products,
    count,
    identity,
    lower_part,
    minus_product,
    plus_product,
    substitute,
    transposed,
    upper_part,
    zeros,
)
from pymc_fastlogp.kernel.llvm import F64, I1, I32, I64, POINTER, declared, filled, lane, splat
from pymc_fastlogp.kernel.native.target import tile_length


def factor(module: ir.Module) -> ir.Function:
    """Return ``void factor(i32 *n, double *a)``: from the lower triangle of a matrix to ``U``, with zeros below.

    All is nan if the matrix is not positive definite.
    """
    return _function(module, "factor", _factor)


def _factor(a: Matrix) -> None:
    builder = a.builder

    def row_of_tiles(i: ir.Value, is_definite: Rows) -> Rows:
        tile = transposed(builder, a.load(i, i))
        tile = add_products(tile, (a, i), (a, i), (I64(0), i), minus_product)
        tile, reciprocals, pivots = _factor_of_tile(builder, tile)
        a.store(i, i, tile)

        def beside(j: ir.Value, _: Rows) -> Rows:
            tile = transposed(builder, a.load(j, i))
            a.store(j, i, zeros())
            tile = add_products(tile, (a, i), (a, j), (I64(0), i), minus_product)
            a.store(i, j, substitute(tile, a, i, reciprocals))
            return []

        count(builder, builder.add(i, I64(tile_length())), a.n, beside, step=tile_length())
        return [builder.and_(is_definite[0], pivots)]

    [is_definite] = count(builder, I64(0), a.n, row_of_tiles, [I1(1)], step=tile_length())
    with builder.if_then(builder.not_(is_definite), likely=False):
        _fill(a, nan)


def _fill(a: Matrix, number: float) -> None:
    def element(i: ir.Value, _: Rows) -> Rows:
        a.builder.store(F64(number), a.address(I64(0), i))
        return []

    count(a.builder, I64(0), a.builder.mul(a.n, a.n), element)


def _factor_of_tile(builder: ir.IRBuilder, tile: Rows) -> tuple[Rows, Rows, ir.Value]:
    """Return ``U`` of one tile, the reciprocals of its diagonal, and whether that is positive."""
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


def inverse(module: ir.Module) -> ir.Function:
    """Return ``void inverse(i32 *n, double *u)``: from ``U`` to the lower triangle of ``(U.T @ U)**-1``, with zeros above.

    Behind ``U`` in memory there is place for another matrix.
    """
    return _function(module, "inverse", _inverse)


def _inverse(u: Matrix) -> None:
    v = u.below()
    _invert_triangle(u, v)
    _square(v, u)


def _invert_triangle(u: Matrix, v: Matrix) -> None:
    """Append what fills the lower triangle of ``v`` with ``U**-T``, the tiles on its diagonal whole."""
    builder, n = u.builder, tile_length()

    def row_of_tiles(i: ir.Value, _: Rows) -> Rows:
        places = [builder.add(i, I64(r)) for r in range(n)]
        diagonal = [builder.load(u.address(place, place), typ=F64) for place in places]
        reciprocals = [splat(builder, builder.fdiv(F64(1.0), x), n) for x in diagonal]

        def before(j: ir.Value, _: Rows) -> Rows:
            tile = add_products(zeros(), (u, i), (v, j), (j, i), minus_product)
            v.store(i, j, substitute(tile, u, i, reciprocals))
            return []

        count(builder, I64(0), i, before, step=n)
        v.store(i, i, substitute(identity(), u, i, reciprocals))
        return []

    count(builder, I64(0), u.n, row_of_tiles, step=n)


def _square(v: Matrix, result: Matrix) -> None:
    """Append what stores the lower triangle of ``V.T @ V`` of a lower triangle."""

    def tile_at(i: ir.Value, j: ir.Value) -> Rows:
        return add_products(zeros(), (v, i), (v, j), (i, v.n))

    _store_lower(result, tile_at)


def _store_lower(
    result: Matrix, tile_at: Callable[[ir.Value, ir.Value], Rows], weight: float = 1.0
) -> None:
    """Append what stores the tiles of a lower triangle, with its diagonal multiplied by a weight, and zeros above."""
    builder, n = result.builder, tile_length()

    def row_of_tiles(i: ir.Value, _: Rows) -> Rows:
        def before(j: ir.Value, _: Rows) -> Rows:
            result.store(i, j, tile_at(i, j))
            result.store(j, i, zeros())
            return []

        count(builder, I64(0), i, before, step=n)
        result.store(i, i, lower_part(builder, tile_at(i, i), weight))
        return []

    count(builder, I64(0), result.n, row_of_tiles, step=n)


def rank_one_pullback(module: ir.Module) -> ir.Function:
    r"""Return ``void rank_one_pullback(i32 *n, double *a)``: the lower triangle of :class:`~pymc_fastlogp.ops.RankOnePullback`, with zeros above.

    In memory there are ``U = L.T``, which becomes the result, place for two more matrices, and ``u`` and ``z`` as two rows. The product of the triangle of
    :math:`u z^\top` and ``V`` needs no product of matrices: its rows are those of ``V`` times ``z``, added up, times ``u``.
    """
    return _function(module, "rank_one_pullback", _rank_one_pullback)


def _rank_one_pullback(u: Matrix) -> None:
    v = u.below()
    y = v.below()
    _invert_triangle(u, v)
    _add_up(v, y, y.below())
    _product(v, y, u)


def _add_up(v: Matrix, y: Matrix, vectors: Matrix) -> None:
    """Append what fills ``y`` with the triangle of ``u z^T``, its diagonal halved, times a lower triangle."""
    builder, n = v.builder, tile_length()
    half = filled(ir.VectorType(F64, n), 0.5)

    def columns(j: ir.Value, _: Rows) -> Rows:
        def row(k: ir.Value, sums: Rows) -> Rows:
            [total], values = sums, v.row(k, j)
            added = builder.fmul(vectors.number(I64(1), k), values)
            halfway = plus_product(builder, half, added, total)
            product = builder.fmul(vectors.number(I64(0), k), halfway)
            builder.store(product, y.address(k, j), align=8)
            return [builder.fadd(total, added)]

        count(builder, j, v.n, row, zeros()[:1])
        return []

    count(builder, I64(0), v.n, columns, step=n)


def _product(v: Matrix, y: Matrix, result: Matrix) -> None:
    """Append what stores the lower triangle of ``V.T @ Y + Y.T @ V``, its diagonal halved, of two lower triangles."""

    def tile_at(i: ir.Value, j: ir.Value) -> Rows:
        tile = add_products(zeros(), (v, i), (y, j), (i, v.n))
        return add_products(tile, (y, i), (v, j), (i, v.n))

    _store_lower(result, tile_at, 0.5)


# By the names that calls have.
FUNCTIONS: dict[str, Callable[[ir.Module], ir.Function]] = {
    "factor": factor,
    "inverse": inverse,
    "rank_one_pullback": rank_one_pullback,
}


def _function(module: ir.Module, name: str, body: Callable[[Matrix], None]) -> ir.Function:
    """Return a function of a matrix, which is made once in a module."""
    name = f"dense.{name}"
    if name in module.globals:
        return module.globals[name]
    type_ = ir.FunctionType(ir.VoidType(), [POINTER] * 2)
    function = ir.Function(module, type_, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    n, first = function.args
    rows = builder.sext(builder.load(n, typ=I32), I64)
    body(Matrix(builder, first, rows))
    builder.ret_void()
    return function
