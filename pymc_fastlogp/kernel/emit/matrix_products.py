r"""Products of a block of rows with a matrix, as generated functions.

.. math::

    P_{i \cdot} = \sum_j x_{ij} W_{j \cdot}, \qquad G_{j \cdot} \leftarrow G_{j \cdot} + \sum_i x_{ij} S_{i \cdot}

The first function, ``set_products``, overwrites :math:`P`. The second one, ``add_products``, adds to :math:`G`. Both compute

.. math:: C_{r \cdot} = \sum_t a_{rt} B_{t \cdot}

in tiles of :func:`~pymc_fastlogp.kernel.native.target.tile_length` rows and up to :data:`MOST_VECTORS` vectors, whose sums stay in registers. Each vector of
:math:`B` is multiplied by one number of each row. BLAS copies blocks of both operands first. Here both lie in the caches
(:mod:`pymc_fastlogp.kernel.passes.row_blocks`), and the copies would take as long as a third of the product.

The number of columns of :math:`B` is static, so the mask of the last vector of a row is constant.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from llvmlite import ir

from pymc_fastlogp.kernel.emit.row_products import element, load_vector, store_vector
from pymc_fastlogp.kernel.emit.tiles import counted, plus_product
from pymc_fastlogp.kernel.llvm import F64, I32, I64, POINTER, filled, once, splat
from pymc_fastlogp.kernel.native.target import tile_length

# Vectors of a row of a tile: with the vectors of an operand, as many as fit into the registers.
MOST_VECTORS = 3
N_ARGUMENTS = 8


class Strip(NamedTuple):
    """Adjacent columns of one tile.

    Attributes
    ----------
    first : int
        The first column.
    lives : list of int
        Number of lanes of each vector that are columns.
    """

    first: int
    lives: list[int]


def strips(n_columns: int) -> Iterator[Strip]:
    """Yield strips of about as many vectors each, which cover all columns."""
    width = tile_length()
    lives = [min(width, n_columns - first) for first in range(0, n_columns, width)]
    n_strips = -(-len(lives) // MOST_VECTORS)
    ends = [k * len(lives) // n_strips for k in range(n_strips + 1)]
    for begin, end in pairwise(ends):
        yield Strip(begin * width, lives[begin:end])


class Matrix(NamedTuple):
    """A matrix in memory.

    Attributes
    ----------
    first : llvmlite.ir.Value
        Address of the first element.
    down, right : llvmlite.ir.Value
        Distance of rows and of columns in elements, as i64.
    """

    builder: ir.IRBuilder
    first: ir.Value
    down: ir.Value
    right: ir.Value = I64(1)

    def address(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Return the address of an element."""
        builder = self.builder
        offset = builder.add(builder.mul(row, self.down), builder.mul(column, self.right))
        return element(builder, self.first, offset)

    def addresses(self, row: ir.Value, strip: Strip) -> list[ir.Value]:
        """Return the address of each vector of a row of a strip."""
        width = tile_length()
        columns = range(strip.first, strip.first + width * len(strip.lives), width)
        return [self.address(row, I64(column)) for column in columns]

    def vectors(self, row: ir.Value, strip: Strip) -> list[ir.Value]:
        """Load one row of a strip."""
        addresses = self.addresses(row, strip)
        return [load_vector(self.builder, *each) for each in zip(addresses, strip.lives)]

    def transposed(self) -> "Matrix":
        """Return the transpose."""
        return self._replace(down=self.right, right=self.down)


class Product(NamedTuple):
    """``C = A @ B``, or ``C += A @ B``.

    Attributes
    ----------
    a, b, c : Matrix
        The operands and the result.
    n_rows, n_terms : llvmlite.ir.Value
        Number of rows of ``A`` and of ``B``, as i64.
    is_added : bool
        Whether ``C`` keeps its elements as addends.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    n_rows: ir.Value
    n_terms: ir.Value
    is_added: bool

    def append(self, strip: Strip) -> None:
        """Append the computation of a strip of all rows."""
        builder, at_once = self.a.builder, tile_length()
        whole = builder.and_(self.n_rows, I64(-at_once))
        with counted(builder, I64(0), whole, step=at_once) as groups:
            self._append_tile([builder.add(groups.index, I64(k)) for k in range(at_once)], strip)
        with counted(builder, whole, self.n_rows) as rest:
            self._append_tile([rest.index], strip)

    def _append_tile(self, rows: Sequence[ir.Value], strip: Strip) -> None:
        builder, n_vectors = self.a.builder, len(strip.lives)
        zero = filled(ir.VectorType(F64, tile_length()), 0.0)
        sums = [zero] * (len(rows) * n_vectors)
        if self.is_added:
            sums = [vector for row in rows for vector in self.c.vectors(row, strip)]
        with counted(builder, I64(0), self.n_terms, sums) as terms:
            vectors = self.b.vectors(terms.index, strip)
            numbers = [self._number(row, terms.index) for row in rows]
            factors = [(number, vector) for number in numbers for vector in vectors]
            terms.following = [
                plus_product(builder, *pair, total)
                for pair, total in zip(factors, terms.values, strict=True)
            ]
        addresses = [address for row in rows for address in self.c.addresses(row, strip)]
        for total, address, live in zip(terms.values, addresses, strip.lives * len(rows)):
            store_vector(builder, total, address, live)

    def _number(self, row: ir.Value, term: ir.Value) -> ir.Value:
        """Load an element of ``A`` into all lanes."""
        builder = self.a.builder
        return splat(builder, builder.load(self.a.address(row, term), typ=F64), tile_length())


# By the names that a Call statement has, whether the rows of the matrix are the terms of the sum.
FUNCTIONS: dict[str, bool] = {"set_products": False, "add_products": True}


def function(module: ir.Module, name: str, n_columns: int) -> ir.Function:
    """Return a function of :data:`FUNCTIONS` for a number of columns of the operand.

    Its type is ``void name(i32 *columns, i32 *rows, double *matrix, i32 *stride, double *operand, i32 *distance, i32 *operand_columns, double *result)``.
    """

    def body(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        columns, rows, first, stride, operand, distance, _, result = arguments
        n_inner, n_rows, down, below = (
            builder.sext(builder.load(x, typ=I32), I64) for x in (columns, rows, stride, distance)
        )
        a, b = Matrix(builder, first, down), Matrix(builder, operand, below)
        c = Matrix(builder, result, I64(n_columns))
        product = Product(a, b, c, n_rows, n_inner, is_added=False)
        if FUNCTIONS[name]:
            product = Product(a.transposed(), b, c, n_inner, n_rows, is_added=True)
        for strip in strips(n_columns):
            product.append(strip)

    signature = ir.FunctionType(ir.VoidType(), [POINTER] * N_ARGUMENTS)
    return once(module, f"{name}.{n_columns}", signature, body)
