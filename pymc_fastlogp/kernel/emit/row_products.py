r"""Products of a block of rows with vectors, as generated functions:

.. math::

    e_i \leftarrow e_i + \sum_j x_{ij} b_j, \qquad g_j \leftarrow g_j + \sum_i x_{ij} r_i.

The rows lie in the L1 or L2 cache (:mod:`pymc_fastlogp.kernel.passes.row_blocks`), so loads and arithmetic take the time.
Both functions take :data:`ROWS` rows at once: each vector of :math:`b` or :math:`g` is loaded once for all of them. For the first product each row has its own
sum, so that the latency of a multiplication is hidden. The lanes of the sums are added after a transposition of tiles.

The number of columns is static, so the last vector of a row has a constant mask.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from llvmlite import ir

from pymc_fastlogp.kernel.emit.tiles import Rows, counted, plus_product, transposed
from pymc_fastlogp.kernel.llvm import F64, I1, I32, I64, POINTER, declared, filled, splat
from pymc_fastlogp.kernel.native.target import tile_length

# Rows that are processed together: a multiple of all tile lengths.
ROWS = 4
N_ARGUMENTS = 6


class Arrays(NamedTuple):
    """Arguments of a function.

    Attributes
    ----------
    n_columns : int
        Number of columns.
    n_rows, stride : llvmlite.ir.Value
        Number of rows, and their distance in memory, i64.
    matrix, columns, rows : llvmlite.ir.Value
        Addresses of the matrix, of a vector with an element for each column, and of one with an element for each row.
    """

    builder: ir.IRBuilder
    n_columns: int
    n_rows: ir.Value
    stride: ir.Value
    matrix: ir.Value
    columns: ir.Value
    rows: ir.Value

    def row(self, number: ir.Value) -> ir.Value:
        """Return the address of a row of the matrix."""
        return element(self.builder, self.matrix, self.builder.mul(number, self.stride))


def function(module: ir.Module, name: str, n_columns: int) -> ir.Function:
    """Return ``void name(i32 *columns, i32 *rows, double *matrix, i32 *stride, double *operand, double *result)`` for a number of columns."""
    symbol = f"{name}.{n_columns}"
    if symbol in module.globals:
        return module.globals[symbol]
    type_ = ir.FunctionType(ir.VoidType(), [POINTER] * N_ARGUMENTS)
    function = ir.Function(module, type_, symbol)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    _, n_rows, matrix, stride, operand, result = function.args
    n_rows, stride = (builder.sext(builder.load(x, typ=I32), I64) for x in (n_rows, stride))
    FUNCTIONS[name](builder, n_columns, n_rows, stride, matrix, operand, result)
    builder.ret_void()
    return function


def _add_dots(
    builder: ir.IRBuilder,
    n_columns: int,
    n_rows: ir.Value,
    stride: ir.Value,
    matrix: ir.Value,
    operand: ir.Value,
    result: ir.Value,
) -> None:
    """Add the product of each row with ``operand`` to an element of ``result``."""
    arrays = Arrays(builder, n_columns, n_rows, stride, matrix, operand, result)

    def add(first: ir.Value, n: int) -> None:
        rows = [arrays.row(builder.add(first, I64(k))) for k in range(n)]
        sums = _dots(arrays, rows)
        address = element(builder, result, first)
        width = tile_length()
        for k in range(0, n, width):
            tile = sums[k : k + width]
            if len(tile) == width:
                total = reduce(builder.fadd, transposed(builder, tile))
                at = element(builder, address, I64(k))
                builder.store(builder.fadd(load(builder, at, width), total), at, align=8)
            else:
                _add_lanes(builder, tile, address)

    _in_groups(builder, n_rows, add)


def _add_lanes(builder: ir.IRBuilder, sums: Sequence[ir.Value], address: ir.Value) -> None:
    """Add the lanes of a single sum to an element."""
    [total] = sums
    signature = ir.FunctionType(F64, [F64, total.type])
    add = declared(builder.module, f"llvm.vector.reduce.fadd.v{total.type.count}f64", signature)
    number = builder.call(add, [builder.load(address, typ=F64), total], fastmath=("reassoc",))
    builder.store(number, address, align=8)


def _dots(arrays: Arrays, rows: Sequence[ir.Value]) -> Rows:
    """Return for each row a vector whose lanes sum to the product."""
    builder, width = arrays.builder, tile_length()
    rest = arrays.n_columns % width
    sums: Rows = [filled(ir.VectorType(F64, width), 0.0)] * len(rows)
    with counted(builder, I64(0), I64(arrays.n_columns - rest), sums, step=width) as columns:
        operand = load(builder, element(builder, arrays.columns, columns.index), width)
        columns.following = [
            plus_product(
                builder, operand, load(builder, element(builder, row, columns.index), width), total
            )
            for row, total in zip(rows, columns.values, strict=True)
        ]
    if not rest:
        return columns.values
    last = I64(arrays.n_columns - rest)
    operand = load_some(builder, element(builder, arrays.columns, last), rest)
    return [
        plus_product(builder, operand, load_some(builder, element(builder, row, last), rest), total)
        for row, total in zip(rows, columns.values, strict=True)
    ]


def _add_rows(
    builder: ir.IRBuilder,
    n_columns: int,
    n_rows: ir.Value,
    stride: ir.Value,
    matrix: ir.Value,
    operand: ir.Value,
    result: ir.Value,
) -> None:
    """Add the rows, each times an element of ``operand``, to ``result``."""
    arrays = Arrays(builder, n_columns, n_rows, stride, matrix, result, operand)
    width = tile_length()
    rest = n_columns % width

    def add(first: ir.Value, n: int) -> None:
        rows = [arrays.row(builder.add(first, I64(k))) for k in range(n)]
        places = (element(builder, operand, builder.add(first, I64(k))) for k in range(n))
        factors = [splat(builder, builder.load(place, typ=F64), width) for place in places]
        with counted(builder, I64(0), I64(n_columns - rest), step=width) as columns:
            at = element(builder, result, columns.index)
            vectors = [load(builder, element(builder, row, columns.index), width) for row in rows]
            total = _sum_of_products(builder, factors, vectors, load(builder, at, width))
            builder.store(total, at, align=8)
        if rest:
            last = I64(n_columns - rest)
            at = element(builder, result, last)
            vectors = [load_some(builder, element(builder, row, last), rest) for row in rows]
            total = _sum_of_products(builder, factors, vectors, load_some(builder, at, rest))
            store_some(builder, total, at, rest)

    _in_groups(builder, n_rows, add)


def _sum_of_products(
    builder: ir.IRBuilder, factors: Rows, vectors: Rows, start: ir.Value
) -> ir.Value:
    """Return ``start`` plus products, in two chains whose latencies overlap."""
    totals = [start, filled(start.type, 0.0)]
    for k, (factor, vector) in enumerate(zip(factors, vectors, strict=True)):
        totals[k % 2] = plus_product(builder, factor, vector, totals[k % 2])
    return builder.fadd(*totals) if len(factors) > 1 else totals[0]


def _in_groups(
    builder: ir.IRBuilder, n_rows: ir.Value, add: Callable[[ir.Value, int], None]
) -> None:
    """Append a loop over groups of rows, and a loop over the rows behind the last group."""
    whole = builder.and_(n_rows, I64(-ROWS))
    with counted(builder, I64(0), whole, step=ROWS) as groups:
        add(groups.index, ROWS)
    with counted(builder, whole, n_rows) as rows:
        add(rows.index, 1)


def element(builder: ir.IRBuilder, first: ir.Value, number: ir.Value) -> ir.Value:
    """Return the address of an element of an array of float64."""
    return builder.gep(first, [number], source_etype=F64)


def load(builder: ir.IRBuilder, address: ir.Value, width: int) -> ir.Value:
    """Load a vector."""
    return builder.load(address, typ=ir.VectorType(F64, width), align=8)


def _mask(live: int) -> ir.Constant:
    width = tile_length()
    return ir.Constant(ir.VectorType(I1, width), [i < live for i in range(width)])


def load_some(builder: ir.IRBuilder, address: ir.Value, live: int) -> ir.Value:
    """Load the first lanes of a vector; the others are 0."""
    width = tile_length()
    vector = ir.VectorType(F64, width)
    mask = _mask(live)
    signature = ir.FunctionType(vector, [POINTER, I32, mask.type, vector])
    masked = declared(builder.module, f"llvm.masked.load.v{width}f64.p0", signature)
    return builder.call(masked, [address, I32(8), mask, filled(vector, 0.0)])


def store_some(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, live: int) -> None:
    """Store the first lanes of a vector."""
    mask = _mask(live)
    signature = ir.FunctionType(ir.VoidType(), [value.type, POINTER, I32, mask.type])
    masked = declared(builder.module, f"llvm.masked.store.v{value.type.count}f64.p0", signature)
    builder.call(masked, [value, address, I32(8), mask])


# Functions by the names that a Call statement has.
FUNCTIONS: dict[str, Callable[..., None]] = {"add_dots": _add_dots, "add_rows": _add_rows}
