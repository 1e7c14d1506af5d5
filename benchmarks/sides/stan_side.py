"""Stan through stanli, which interprets Stan programs without a C++ toolchain.

stanli's gradient is a C function, ``int stanli_grad(model, x, logp, gradient)``. An adapter of
one call gives it the argument order of nutpie's callback, so that the same native loop times it.
"""

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pymc as pm
import stanli
from llvmlite import ir

from benchmarks.sides import Reference, Variant
from pymc_fastlogp.benchmarking.native import (
    LOGP_TYPE,
    LogpCallback,
    NativeFunction,
    compile_ir,
)
from pymc_fastlogp.kernel.llvm import I32, I64, POINTER

if TYPE_CHECKING:
    from benchmarks.suite import Case


def default_math(case: "Case", model: pm.Model, reference: Reference) -> Variant | None:
    """Build stanli's exact mode."""
    return _variant(case, reference, fast_math=False)


def fast_math(case: "Case", model: pm.Model, reference: Reference) -> Variant | None:
    """Build the mode in which stanli may round differently."""
    return _variant(case, reference, fast_math=True)


def _variant(case: "Case", reference: Reference, fast_math: bool) -> Variant | None:
    program = case.stan_code()
    if program is None:
        return None
    callback = _callback(program, case.stan_data(), fast_math)
    notes = ["fast_math" if fast_math else "default math"]
    points = reference.declared_points
    if not _same_density(callback, reference):
        notes.append("density on other unconstrained coordinates")
        points = np.random.default_rng(0).uniform(-1, 1, (len(points), callback.n_dim))
    return Variant(", ".join(notes), callback.timer(points))


def _callback(program: str, data: dict, fast_math: bool) -> LogpCallback:
    model = stanli.Model(stan_code=program, data=data, fast_math=fast_math)
    adapter = _adapter()
    # stanli's Python methods hide the handle and the library; only from Python is there another
    # way to the gradient, and a call from Python would be part of the time.
    return LogpCallback(adapter.address, model._m, model.n_unconstrained, (model, adapter))


def _adapter() -> NativeFunction:
    module = ir.Module("stanli_adapter")
    function = ir.Function(module, LOGP_TYPE, "adapter")
    _, x, gradient, logp, model = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    stanli_grad_type = ir.FunctionType(I32, [POINTER] * 4)
    address = ctypes.cast(stanli._lib.stanli_grad, ctypes.c_void_p).value
    stanli_grad = builder.inttoptr(I64(address), stanli_grad_type.as_pointer())
    status = builder.call(stanli_grad, [model, x, logp, gradient])
    builder.ret(builder.sext(status, I64))
    return compile_ir(module, "adapter")


def _same_density(callback: LogpCallback, reference: Reference) -> bool:
    """Return whether Stan's logp is that of PyMC plus a constant: whether their gradients are equal.

    Stan drops constants. Where its transforms or the order of its parameters are others, the
    two are the same model on different coordinates, and only their speed can be compared.
    """
    points = reference.declared_points
    if callback.n_dim != points.shape[1]:
        return False
    try:
        gradients = [callback.evaluate(point)[1] for point in points]
    except FloatingPointError:
        return False
    expected = np.array([reference.evaluate_declared(point)[1] for point in points])
    return np.allclose(gradients, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
