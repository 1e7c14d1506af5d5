"""Upstream's scalar functions, called by code that has no address in it, in Numba and its on-disk cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import ir
from numba import njit, types
from numba.core.extending import intrinsic
from numpy.testing import assert_allclose
from pytensor.scalar import math as psm
from scipy.special import betainc

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.llvm import F64
from pymc_fastlogp.kernel.native.scalar_library import address, compile_upstream
from pymc_fastlogp.kernel.vecmath.vector import Floats

ROOT = Path(__file__).parents[2]
EXTERNALS = scalars.externals(psm.betainc, 3)
SYMBOL = "test.betainc"
SIGNATURE = ir.FunctionType(F64, [F64] * 3)


def link(library, needed):
    """Link functions to a code library of Numba, before it is handed on or finalized."""
    for external in needed:
        compiled = compile_upstream(external)
        module = library.create_ir_module(external.symbol)
        _add_alias(module, external, compiled.native_name)
        library.add_ir_module(module)
        library.add_linking_library(compiled._library)


def _add_alias(module, external, name):
    """Define the function by its stable name; Numba's own differs from process to process."""
    compiled = ir.Function(module, external.signature, name)
    function = ir.Function(module, external.signature, external.symbol)
    function.linkage = "linkonce_odr"
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.call(compiled, function.args))


def add_betainc(module):
    """Add a function that computes betainc by way of vectors of four lanes."""
    function = ir.Function(module, SIGNATURE, SYMBOL)
    builder = ir.IRBuilder(function.append_basic_block())
    undefined = ir.Constant(ir.VectorType(F64, 4), ir.Undefined)
    lane = ir.IntType(32)(2)
    vectors = [Floats(builder, builder.insert_element(undefined, x, lane)) for x in function.args]
    result = scalars.emit(psm.betainc, vectors, ["float64"] * 3, "float64")
    builder.ret(builder.extract_element(result.value, lane))


@intrinsic
def vector_betainc(typing_context, a, b, x):
    def codegen(context, builder, signature, args):
        library = context.codegen().create_library(SYMBOL)
        module = library.create_ir_module(SYMBOL)
        add_betainc(module)
        library.add_ir_module(module)
        link(library, EXTERNALS)
        context.add_linking_libs([library])
        function = ir.Function(builder.module, SIGNATURE, SYMBOL)
        return builder.call(function, args)

    return types.float64(types.float64, types.float64, types.float64), codegen


def test_vector_function_is_callable_from_numba():
    f = njit(lambda a, b, x: vector_betainc(a, b, x))
    assert_allclose(f(2.0, 3.0, 0.5), betainc(2, 3, 0.5), rtol=1e-15)


CACHED = """
import numba
from tests.kernel.test_scalar_upstream import vector_betainc

@numba.njit(cache=True)
def f(a, b, x):
    return vector_betainc(a, b, x)

print(f(2.0, 3.0, 0.5), sum(f.stats.cache_hits.values()))
"""


def test_another_process_loads_vector_functions_from_numbas_cache(tmp_path):
    script = tmp_path / "cached.py"
    script.write_text(CACHED)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}

    def run():
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        value, hits = done.stdout.split()
        return float(value), int(hits)

    expected = pytest.approx(betainc(2, 3, 0.5), rel=1e-15)
    assert run() == (expected, 0)
    assert run() == (expected, 1)


def test_the_code_names_the_function_and_has_no_address():
    module = ir.Module()
    add_betainc(module)
    (external,) = EXTERNALS
    assert external.symbol == "pymc_fastlogp.scalar.BetaInc.3"
    assert f'declare double @"{external.symbol}"(double' in str(module)
    assert str(address(external)) not in str(module)


def test_only_ops_without_a_vector_form_need_linking():
    assert scalars.externals(psm.sigmoid, 1) == ()
    assert scalars.externals(psm.polygamma, 2) == ()
    assert scalars.externals(psm.betainc, 3) == EXTERNALS


def test_symbols_are_distinct():
    ops = [row.op for row in scalars.ROWS.values() if row.computed_by == "upstream"]
    assert len({scalars.External(op, 1).symbol for op in ops}) == len(ops)
