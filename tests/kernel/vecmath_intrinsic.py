"""The vector functions in Numba: ``apply("exp")`` returns an ``njit`` function over arrays.

Numba adds the fast-math flags of a compiled function to each instruction of its LLVM module that has none
(``numba.core.fastmathpass``), those that an intrinsic appends included. Reassociation would then
cancel the compensated steps. So the loop is built in a module of its own, which that pass does not see,
and is linked to the caller as a library.
"""

from collections.abc import Callable
from functools import cache

from llvmlite import ir
from numba import njit, types
from numba.core.errors import TypingError
from numba.core.extending import intrinsic
from numba.np import arrayobj

from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from tests.kernel.vecmath_loop import SIGNATURE, emit_loop, n_arguments, n_results

WIDTHS = range(1, 65)


@cache
def apply(name: str, width: int | None = None) -> Callable:
    """Return a Numba function that applies a vector function to an array.

    Parameters
    ----------
    name : str
        A name in :data:`~pymc_fastlogp.kernel.vecmath.table.FUNCTIONS` or ``SHARED``.
    width : int, optional
        Lanes of a vector, from 1 to 64; two native vectors of this CPU by default.

    Returns
    -------
    callable
        ``f(x, out)`` for C-contiguous float64 arrays; it can be called from ``njit`` functions. A function
        of several arguments reads them from the rows of x, of several results writes them to the
        rows of out. ``out`` may be ``x``.

    Raises
    ------
    ValueError
        If there is no such function or width; from ``f``, if the sizes do not fit.
    numba.core.errors.TypingError
        From ``f``, if an array is not C-contiguous float64.
    """
    if name not in FUNCTIONS and name not in SHARED:
        raise ValueError(
            f"no vector function {name!r}; there are: {', '.join([*FUNCTIONS, *SHARED])}"
        )
    width = default_width() if width is None else width
    if width not in WIDTHS:
        raise ValueError(f"width {width} is not from {WIDTHS[0]} to {WIDTHS[-1]}")
    loop = _loop_intrinsic(name, width)
    arguments, results = n_arguments(name), n_results(name)

    @njit
    def f(x, out):  # type: ignore[no-untyped-def]
        n = out.size // results
        if n * results != out.size or n * arguments != x.size:
            raise ValueError("x and out must have one row for each argument and result")
        loop(x, out, n)

    return f


def _loop_intrinsic(name: str, width: int) -> Callable:
    symbol = f"pymc_fastlogp.{name}.v{width}"

    @intrinsic
    def loop(typing_context, x, out, n):  # type: ignore[no-untyped-def]
        for array in (x, out):
            _check(array)

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            codegen_library = context.codegen().create_library(symbol)
            module = codegen_library.create_ir_module(symbol)
            emit_loop(module, name, width, symbol)
            codegen_library.add_ir_module(module)
            context.add_linking_libs([codegen_library])
            function = builder.module.globals.get(symbol) or ir.Function(
                builder.module, SIGNATURE, symbol
            )
            data = [
                arrayobj.make_array(type_)(context, builder, value).data
                for type_, value in zip(signature.args[:2], args)
            ]
            builder.call(function, [*data, args[2]])
            return context.get_dummy_value()

        return types.void(x, out, types.int64), codegen

    return loop


def _check(array: types.Type) -> None:
    if not (
        isinstance(array, types.Array) and array.dtype == types.float64 and array.layout == "C"
    ):
        raise TypingError(f"a vector function needs C-contiguous float64 arrays, not {array}")
