"""Upstream's scalar functions, compiled by Numba for code that calls them.

``cfunc`` makes a function of the C calling convention of what PyTensor compiles for the Op. Code in Numba links
its LLVM module (:func:`link`), so that it goes with that code into Numba's cache; other code takes
the address (:func:`address`).
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import numba_funcify
from pytensor.scalar import basic as ps

from pymc_fastlogp.kernel.scalars.upstream import External


def link(library: Any, needed: Iterable[External]) -> None:
    """Link functions to a code library, before it is handed on or finalized.

    Parameters
    ----------
    library : numba.core.codegen.CodeLibrary
        Of the code that calls them.
    needed : iterable of External
        The functions.
    """
    for external in needed:
        compiled = compile_upstream(external)
        module = library.create_ir_module(external.symbol)
        _emit_alias(module, external, compiled.native_name)
        library.add_ir_module(module)
        library.add_linking_library(compiled._library)


def address(external: External) -> int:
    """Return the address of a function, which is valid in this process."""
    return compile_upstream(external).address


@cache
def compile_upstream(external: External) -> Any:
    """Return the compiled function.

    Parameters
    ----------
    external : External
        What it computes.
    """
    node = external.op(ps.upgrade_to_float).make_node(
        *[ps.float64() for _ in range(external.n_arguments)]
    )
    arguments = ", ".join(f"x{i}" for i in range(external.n_arguments))
    # A cfunc needs a Python function of fixed arity around what PyTensor compiles.
    call = compile_numba_function_src(
        src=f"def call({arguments}):\n    return scalar({arguments})",
        function_name="call",
        global_env={"scalar": numba_funcify(node.op, node=node)},
    )
    float64 = numba.types.float64
    return numba.cfunc(float64(*[float64] * external.n_arguments))(call)


def _emit_alias(module: ir.Module, external: External, name: str) -> None:
    """Define the function by its stable name; Numba's own differs from process to process."""
    compiled = ir.Function(module, external.signature, name)
    function = ir.Function(module, external.signature, external.symbol)
    function.linkage = "linkonce_odr"
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.call(compiled, function.args))
