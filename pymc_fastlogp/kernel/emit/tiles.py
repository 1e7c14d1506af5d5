r"""Register tiles: square blocks of a matrix, used by the factorizations of :mod:`~pymc_fastlogp.kernel.emit.dense`.

A tile has one vector register per row. The rows of a product are accumulated as

.. math::

    T_{r \cdot} \leftarrow T_{r \cdot} \pm \sum_k a_{k, r}\, b_{k \cdot}

Each multiplication takes one vector of :math:`b` and one broadcast number of :math:`a`. No operand is packed beforehand. A tile has as
many rows as a register has lanes. With eight rows the latency of a multiplication is hidden.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F64, I1, I64, declared, filled, shuffle, splat
from pymc_fastlogp.kernel.native.target import tile_length

Rows = list[ir.Value]


@dataclass(frozen=True)
class Matrix:
    """A square matrix in C order whose number of rows is a multiple of the tile length.

    Attributes
    ----------
    first : llvmlite.ir.Value
        Address of the first element.
    n : llvmlite.ir.Value
        Number of rows, an i64.
    """

    builder: ir.IRBuilder
    first: ir.Value
    n: ir.Value

    def below(self) -> "Matrix":
        """Return the matrix that directly follows this matrix in memory."""
        return Matrix(self.builder, self.address(self.n, I64(0)), self.n)

    def address(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Return the address of an element."""
        position = self.builder.add(self.builder.mul(row, self.n), column)
        return self.builder.gep(self.first, [position], source_etype=F64)

    def number(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Load an element and broadcast it to all lanes."""
        value = self.builder.load(self.address(row, column), typ=F64)
        return splat(self.builder, value, tile_length())

    def row(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Load one row of a tile, given the position of its first element."""
        vector = ir.VectorType(F64, tile_length())
        return self.builder.load(self.address(row, column), typ=vector, align=8)

    def load(self, row: ir.Value, column: ir.Value) -> Rows:
        """Load a tile, given the position of its first element."""
        return [self.row(i, column) for i in rows_from(self.builder, row)]

    def store(self, row: ir.Value, column: ir.Value, tile: Sequence[ir.Value]) -> None:
        """Store a tile, given the position of its first element."""
        for i, value in zip(rows_from(self.builder, row), tile, strict=True):
            self.builder.store(value, self.address(i, column), align=8)


def rows_from(builder: ir.IRBuilder, first: ir.Value) -> list[ir.Value]:
    """Return the indices of the rows of a tile."""
    return [builder.add(first, I64(r)) for r in range(tile_length())]


def zeros() -> Rows:
    """Return a tile of zeros."""
    return [filled(ir.VectorType(F64, tile_length()), 0.0)] * tile_length()


def identity() -> Rows:
    """Return a tile with ones on its diagonal."""
    n = tile_length()
    vector = ir.VectorType(F64, n)
    return [ir.Constant(vector, [float(i == r) for i in range(n)]) for r in range(n)]


def transposed(builder: ir.IRBuilder, tile: Sequence[ir.Value]) -> Rows:
    """Return the transpose of a tile.

    For each bit of the row numbers, rows that differ in this bit exchange the lanes that differ in this bit.
    """
    n, rows = tile_length(), list(tile)
    half = 1
    while half < n:
        for r in range(n):
            if r & half:
                continue
            upper, lower = rows[r], rows[r + half]
            lanes = range(n)
            rows[r] = shuffle(
                builder, upper, lower, [n + i - half if i & half else i for i in lanes]
            )
            rows[r + half] = shuffle(
                builder, upper, lower, [n + i if i & half else i + half for i in lanes]
            )
        half *= 2
    return rows


def upper_part(builder: ir.IRBuilder, tile: Sequence[ir.Value]) -> Rows:
    """Return a tile with zeros below its diagonal."""
    lanes = range(tile_length())
    masks = ([i >= r for i in lanes] for r in lanes)
    return [_masked(builder, row, mask) for row, mask in zip(tile, masks, strict=True)]


def lower_part(builder: ir.IRBuilder, tile: Sequence[ir.Value], weight: float = 1.0) -> Rows:
    """Return a tile with zeros above its diagonal, and its diagonal multiplied by a weight."""
    lanes = range(tile_length())
    masks = ([i <= r for i in lanes] for r in lanes)
    rows = [_masked(builder, row, mask) for row, mask in zip(tile, masks, strict=True)]
    if weight == 1:
        return rows
    weights = ([weight if i == r else 1.0 for i in lanes] for r in lanes)
    return [
        builder.fmul(row, ir.Constant(row.type, factors))
        for row, factors in zip(rows, weights, strict=True)
    ]


def _masked(builder: ir.IRBuilder, row: ir.Value, lanes: Sequence[bool]) -> ir.Value:
    mask = ir.Constant(ir.VectorType(I1, len(lanes)), list(lanes))
    return builder.select(mask, row, filled(row.type, 0.0))


def plus_product(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Return ``a * b + c``, as one instruction on CPUs with fused multiply-add."""
    type_ = a.type
    signature = ir.FunctionType(type_, [type_] * 3)
    function = declared(builder.module, f"llvm.fmuladd.v{type_.count}f64", signature)
    return builder.call(function, [a, b, c])


def minus_product(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Return ``c - a * b``."""
    return plus_product(builder, builder.fneg(a), b, c)


@dataclass(eq=False)
class Counter:
    """A loop under construction, see :func:`counted`.

    Attributes
    ----------
    index : llvmlite.ir.Value
        Loop counter.
    values : list of llvmlite.ir.Value
        Carried values: at the start of an iteration within the loop, and at the end of the last iteration after it.
    following : sequence of llvmlite.ir.Value
        Carried values of the next iteration; the body has to set them.
    """

    index: ir.Value
    values: Rows
    following: Sequence[ir.Value] = ()


@contextmanager
def counted(
    builder: ir.IRBuilder,
    start: ir.Value,
    stop: ir.Value,
    carried: Sequence[ir.Value] = (),
    step: int = 1,
) -> Iterator[Counter]:
    """Append a loop from ``start`` up to ``stop``, with the code of the ``with`` block as its body.

    ``carried`` are the carried values of the first iteration.
    """
    before = builder.block
    head, inside, after = (builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    i = builder.phi(I64)
    phis = [builder.phi(value.type) for value in carried]
    builder.cbranch(builder.icmp_signed("<", i, stop), inside, after)
    builder.position_at_end(inside)
    counter = Counter(i, phis)
    yield counter
    following = (builder.add(i, I64(step)), *counter.following)
    for phi, first, last in zip((i, *phis), (start, *carried), following, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(last, builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def add_products(
    tile: Rows,
    left: tuple[Matrix, ir.Value],
    right: tuple[Matrix, ir.Value],
    between: tuple[ir.Value, ir.Value],
    combine: Callable[..., ir.Value] = plus_product,
) -> Rows:
    """Append a loop that adds ``left[k, i + r] * right[k, j:]`` to each row ``r`` of a tile, for all ``k`` of a range.

    Parameters
    ----------
    tile : list of Value
        Initial values.
    left, right : tuple of Matrix and Value
        A matrix, and its column ``i`` or ``j``.
    between : tuple of Value
        The first ``k``, and the last ``k`` plus 1.
    combine : callable
        :func:`plus_product`, or :func:`minus_product` to subtract.
    """
    (a, i), (b, j) = left, right
    builder = a.builder
    with counted(builder, *between, tile) as terms:
        row = b.row(terms.index, j)
        numbers = [a.number(terms.index, column) for column in rows_from(builder, i)]
        terms.following = [
            combine(builder, x, row, y) for x, y in zip(numbers, terms.values, strict=True)
        ]
    return terms.values


def substitute(
    tile: Rows, triangle: Matrix, first: ir.Value, reciprocals: Sequence[ir.Value]
) -> Rows:
    """Return ``X`` with ``U.T @ X = tile`` by forward substitution.

    ``U`` is the upper triangle of the diagonal tile of ``triangle`` whose first row is ``first``. ``reciprocals`` are those of its diagonal.
    """
    builder, rows = triangle.builder, list(tile)
    places = rows_from(builder, first)
    for r, reciprocal in enumerate(reciprocals):
        rows[r] = builder.fmul(rows[r], reciprocal)
        for below in range(r + 1, tile_length()):
            number = triangle.number(places[r], places[below])
            rows[below] = minus_product(builder, number, rows[r], rows[below])
    return rows
