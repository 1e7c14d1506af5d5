"""Scalar functions of PyTensor, compiled by Numba for calls from machine code.

``numba.cfunc`` compiles PyTensor's implementation of an Op to a function of the C calling convention.
"""

from functools import cache
from typing import Any

import numba
from pytensor.scalar import basic as ps

from pymc_fastlogp._upstream.numba import compile_numba_function_src, numba_funcify
from pymc_fastlogp.kernel.scalars.upstream import External


def address(external: External) -> int:
    """Return the address of a function in this process."""
    return compile_upstream(external).address


@cache
def compile_upstream(external: External) -> Any:
    """Compile a function."""
    node = external.op(ps.upgrade_to_float).make_node(
        *[ps.float64() for _ in range(external.n_arguments)]
    )
    arguments = ", ".join(f"x{i}" for i in range(external.n_arguments))
    # `cfunc` needs a Python function of fixed arity, which calls the function that PyTensor compiles.
    call = compile_numba_function_src(
        src=f"def call({arguments}):\n    return scalar({arguments})",
        function_name="call",
        global_env={"scalar": numba_funcify(node.op, node=node)},
    )
    float64 = numba.types.float64
    return numba.cfunc(float64(*[float64] * external.n_arguments))(call)
