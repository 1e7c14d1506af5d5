"""``EighUpToSigns``: eigenvalues and eigenvectors of a small symmetric matrix, by LAPACK.

The function writes the eigenvectors in place of the matrix, its columns as rows of ours, and needs other memory. All of it is one buffer:

.. code-block:: text

    n * n    the matrix, then the eigenvectors
    n        the eigenvalues
    3 * n    for the function
    1        nan if it failed; then all results are nan, as upstream
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import (
    ZERO,
    const,
    domain_of,
    int64,
    plus,
    switch,
    times,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Expr, Load
from pymc_fastlogp.kernel.ir.loops import INFO, RESULT, Call, Store, behind
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.native import blas
from pymc_fastlogp.ops import MAX_ROWS_SYEV


def supports(node: Apply) -> bool:
    """Return whether the matrix is float64 and has few rows, which are known."""
    [a] = node.inputs
    rows, columns = a.type.shape
    is_small = rows is not None and rows == columns and 0 < rows <= MAX_ROWS_SYEV
    return is_small and a.type.dtype == "float64" and blas.is_available()


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a copy of the matrix and the call; return views of what it leaves."""
    [a] = inputs
    n = node.inputs[0].type.shape[0]
    values, work, failed = n * n, n * n + n, n * n + 4 * n
    buffer = context.buffer("float64", (failed + 1,))

    def place(i: Expr, j: Expr) -> tuple[Expr]:
        return (plus(times(j, int64(n)), i),)

    domain, (i, j) = domain_of((n, n))
    context.add(domain, Store(buffer, place(i, j), a.at((i, j))))
    context.add((), Store(buffer, (int64(failed),), const(0.0, "float64")))
    memory = (behind(values), behind(work), int64(3 * n), INFO)
    arguments = ("V", "L", int64(n), RESULT, int64(n), *memory)
    context.add((), Call(buffer, (ZERO,), "dsyev", arguments, (int64(failed),)))
    has_failed = truth(ps.isnan, Load(buffer, (int64(failed),)))

    def unless_failed(index: tuple[Expr]) -> Expr:
        return switch(has_failed, const(float("nan"), "float64"), Load(buffer, index))

    eigenvalues = Array((n,), "float64", lambda i: unless_failed((plus(i[0], int64(values)),)))
    vectors = Array((n, n), "float64", lambda index: unless_failed(place(*index)))
    return [eigenvalues, vectors]
