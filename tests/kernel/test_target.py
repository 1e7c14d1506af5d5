"""Optimizing a module: LLVM keeps it valid."""

import ctypes

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from llvmlite.binding.targets import FeatureMap

from pymc_fastlogp.kernel.llvm import F64, I32, POINTER, stack_variable
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, engine
from pymc_fastlogp.kernel.native.target import (
    IN_FLIGHT,
    default_width,
    features,
    native_lanes,
    optimized,
    target_machine,
    uses_gathers,
)

HALF, WHOLE = ir.VectorType(F64, 2), ir.VectorType(F64, 4)


def halves_joined(order: tuple[int, int]) -> ir.Module:
    """Return ``f(x, y)``: both halves of x are doubled and stored in an order, and read as a whole into y."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, POINTER]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    x, y = function.args
    array = stack_variable(builder, ir.ArrayType(F64, 4))
    for half in order:
        place = [I32(2 * half)]
        value = builder.load(builder.gep(x, place, source_etype=F64), typ=HALF, align=8)
        doubled = builder.fadd(value, value)
        builder.store(doubled, builder.gep(array, place, source_etype=F64), align=8)
    builder.store(builder.load(array, typ=WHOLE, align=8), y, align=8)
    builder.ret_void()
    return module


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_halves_of_an_array_are_joined_in_any_order(order):
    machine = target_machine()
    code = LoadedCode(engine(machine.emit_object(optimized(halves_joined(order), machine))), "f")
    x, y = np.arange(4.0), np.empty(4)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address)(
        x.ctypes.data, y.ctypes.data
    )
    np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize(
    ("name", "has_avx512", "decision"),
    [
        ("znver5", True, False),
        ("znver4", True, False),
        ("znver3", False, False),
        ("sapphirerapids", True, True),
        ("skylake-avx512", True, True),
        ("haswell", False, False),
        ("apple-m1", False, False),
        ("a CPU of the future", True, True),
    ],
)
def test_gathers_are_decided_by_cpu(name, has_avx512, decision, monkeypatch):
    host = FeatureMap({"avx512f": has_avx512})
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: host)
    assert uses_gathers() == decision
    is_tuned = "+prefer-no-gather,+prefer-no-scatter" in features()
    assert is_tuned == name.startswith("znver")
    assert features().startswith(host.flatten())


def test_features_of_the_cpu_are_read_once(monkeypatch):
    host, reads = llvm.get_host_cpu_features(), []
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: reads.append(1) or host)
    assert features() == features()
    assert (native_lanes(), default_width()) == (native_lanes(), IN_FLIGHT * native_lanes())
    assert len(reads) == 1
