r"""Products of a block of rows with vectors, as generated functions.

.. math::

    e_i \leftarrow e_i + \sum_j x_{ij} b_j, \qquad g_j \leftarrow g_j + \sum_i x_{ij} r_i

A block lies in a cache (:mod:`pymc_fastlogp.kernel.passes.row_blocks`). Both functions take :func:`~pymc_fastlogp.kernel.native.target.tile_length` rows at
once, so that a vector of :math:`b` or :math:`g` is loaded once for all of them. In the first product each row has its own sum, whose latencies overlap.
The lanes of these sums are added as the rows of a transposed tile. In the second product the next block is prefetched.

The number of columns is static, so the mask of the last vector of a row is constant.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from llvmlite import ir

from pymc_fastlogp.kernel.emit.tiles import counted, plus_product, transposed
from pymc_fastlogp.kernel.llvm import F64, I1, I32, I64, POINTER, declared, filled, once, splat
from pymc_fastlogp.kernel.native.target import tile_length

# Bytes of a float64, and elements of a cache line.
SIZE, LINE = 8, 8
# Most columns of rows that are prefetched: longer rows evict the block from the L1 cache (``python -m benchmarks.limits``).
LONGEST_PREFETCHED = 256
N_ARGUMENTS = 6


class Rows(NamedTuple):
    """Some rows of a matrix.

    Attributes
    ----------
    addresses : list of llvmlite.ir.Value
        Address of each row.
    n_columns : int
        Number of columns.
    """

    builder: ir.IRBuilder
    addresses: list[ir.Value]
    n_columns: int

    @property
    def n_rest(self) -> int:
        """Number of columns behind the last whole vector."""
        return self.n_columns % tile_length()

    @property
    def n_whole(self) -> ir.Value:
        """Number of columns of whole vectors."""
        return I64(self.n_columns - self.n_rest)

    def add_dots(self, operand: ir.Value, result: ir.Value) -> None:
        """Add the product of each row with ``operand`` to the elements of ``result``."""
        builder, width = self.builder, tile_length()
        zero = filled(ir.VectorType(F64, width), 0.0)
        with counted(builder, I64(0), self.n_whole, [zero] * len(self.addresses), width) as columns:
            columns.following = self._plus_products(columns.values, operand, columns.index, width)
        sums = columns.values
        if self.n_rest:
            sums = self._plus_products(sums, operand, self.n_whole, self.n_rest)
        # Lane k of the total is row k.
        tile = [*sums, *[zero] * (width - len(sums))]
        total = reduce(builder.fadd, transposed(builder, tile))
        before = load_vector(builder, result, len(sums))
        store_vector(builder, builder.fadd(before, total), result, len(sums))

    def _plus_products(
        self, sums: Sequence[ir.Value], operand: ir.Value, column: ir.Value, live: int
    ) -> list[ir.Value]:
        """Return each sum plus the product of a vector of the row with a vector of the operand."""
        factor = load_vector(self.builder, element(self.builder, operand, column), live)
        return [
            plus_product(self.builder, factor, vector, total)
            for vector, total in zip(self._vectors(column, live), sums, strict=True)
        ]

    def add(self, factors: Sequence[ir.Value], result: ir.Value, following: ir.Value) -> None:
        """Add the rows times factors to ``result``, and prefetch as many elements from the address ``following``."""
        builder, width = self.builder, tile_length()
        with counted(builder, I64(0), self.n_whole, step=width) as columns:
            self._add_vector(factors, result, columns.index, width)
            if self.n_columns <= LONGEST_PREFETCHED:
                self._prefetch(following, columns.index)
        if self.n_rest:
            self._add_vector(factors, result, self.n_whole, self.n_rest)

    def _add_vector(
        self, factors: Sequence[ir.Value], result: ir.Value, column: ir.Value, live: int
    ) -> None:
        at = element(self.builder, result, column)
        total = load_vector(self.builder, at, live)
        for factor, vector in zip(factors, self._vectors(column, live), strict=True):
            total = plus_product(self.builder, factor, vector, total)
        store_vector(self.builder, total, at, live)

    def _prefetch(self, following: ir.Value, column: ir.Value) -> None:
        """Prefetch as many elements as a vector of each row has."""
        n_rows = len(self.addresses)
        begin = element(self.builder, following, self.builder.mul(column, I64(n_rows)))
        for k in range(0, n_rows * tile_length(), LINE):
            _prefetch(self.builder, element(self.builder, begin, I64(k)))

    def _vectors(self, column: ir.Value, live: int) -> list[ir.Value]:
        return [
            load_vector(self.builder, element(self.builder, x, column), live)
            for x in self.addresses
        ]


class Block(NamedTuple):
    """A block of rows at equal distances.

    Attributes
    ----------
    first, stride : llvmlite.ir.Value
        Address of the first row, and distance of rows in elements, an i64.
    n_rows : llvmlite.ir.Value
        Number of rows, an i64.
    n_columns : int
        Number of columns.
    """

    builder: ir.IRBuilder
    first: ir.Value
    stride: ir.Value
    n_rows: ir.Value
    n_columns: int

    def rows(self, first: ir.Value, n: int) -> Rows:
        """Return some consecutive rows."""
        numbers = [self.builder.add(first, I64(k)) for k in range(n)]
        offsets = [self.builder.mul(number, self.stride) for number in numbers]
        addresses = [element(self.builder, self.first, offset) for offset in offsets]
        return Rows(self.builder, addresses, self.n_columns)

    def add_dots(self, first: ir.Value, n: int, operand: ir.Value, result: ir.Value) -> None:
        """Add the products of ``n`` rows with ``operand`` to elements of ``result``."""
        self.rows(first, n).add_dots(operand, element(self.builder, result, first))

    def add_rows(self, first: ir.Value, n: int, operand: ir.Value, result: ir.Value) -> None:
        """Add ``n`` rows times elements of ``operand`` to ``result``."""
        places = (self.builder.add(first, I64(k)) for k in range(n))
        factors = [
            splat(
                self.builder,
                self.builder.load(element(self.builder, operand, k), typ=F64),
                tile_length(),
            )
            for k in places
        ]
        [following] = self.rows(self.builder.add(first, self.n_rows), 1).addresses
        self.rows(first, n).add(factors, result, following)


# Functions by the names that a Call statement has.
FUNCTIONS: dict[str, Callable[[Block, ir.Value, int, ir.Value, ir.Value], None]] = {
    "add_dots": Block.add_dots,
    "add_rows": Block.add_rows,
}


def function(module: ir.Module, name: str, n_columns: int) -> ir.Function:
    """Return ``void name(i32 *columns, i32 *rows, double *matrix, i32 *stride, double *operand, double *result)`` for a number of columns."""

    def body(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        _, n_rows, matrix, stride, operand, result = arguments
        n_rows, stride = (builder.sext(builder.load(x, typ=I32), I64) for x in (n_rows, stride))
        block, at_once = Block(builder, matrix, stride, n_rows, n_columns), tile_length()
        whole = builder.and_(n_rows, I64(-at_once))
        with counted(builder, I64(0), whole, step=at_once) as groups:
            FUNCTIONS[name](block, groups.index, at_once, operand, result)
        with counted(builder, whole, n_rows) as rest:
            FUNCTIONS[name](block, rest.index, 1, operand, result)

    signature = ir.FunctionType(ir.VoidType(), [POINTER] * N_ARGUMENTS)
    return once(module, f"{name}.{n_columns}", signature, body)


def element(builder: ir.IRBuilder, first: ir.Value, number: ir.Value) -> ir.Value:
    """Return the address of an element."""
    return builder.gep(first, [number], source_etype=F64)


def load_vector(builder: ir.IRBuilder, address: ir.Value, live: int) -> ir.Value:
    """Load a vector, of which only the first lanes are in memory; the others are 0."""
    vector = ir.VectorType(F64, tile_length())
    if live == vector.count:
        return builder.load(address, typ=vector, align=SIZE)
    mask, signature = _mask(live), [POINTER, I32, _mask(live).type, vector]
    name = f"llvm.masked.load.v{vector.count}f64.p0"
    load = declared(builder.module, name, ir.FunctionType(vector, signature))
    return builder.call(load, [address, I32(SIZE), mask, filled(vector, 0.0)])


def store_vector(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, live: int) -> None:
    """Store the first lanes of a vector."""
    if live == value.type.count:
        builder.store(value, address, align=SIZE)
        return
    mask, signature = _mask(live), [value.type, POINTER, I32, _mask(live).type]
    name = f"llvm.masked.store.v{value.type.count}f64.p0"
    store = declared(builder.module, name, ir.FunctionType(ir.VoidType(), signature))
    builder.call(store, [value, address, I32(SIZE), mask])


def _mask(live: int) -> ir.Constant:
    width = tile_length()
    return ir.Constant(ir.VectorType(I1, width), [i < live for i in range(width)])


def _prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Load a cache line early; the address may be behind the matrix."""
    signature = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    function = declared(builder.module, "llvm.prefetch.p0", signature)
    read, keep, data = I32(0), I32(3), I32(1)
    builder.call(function, [address, read, keep, data])
