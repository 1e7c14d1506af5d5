"""Calls of BLAS and LAPACK, and of the functions that :mod:`~pymc_fastlogp.kernel.emit.dense`, ``row_products`` and ``matrix_products`` generate.

By the Fortran convention each argument is passed by its address. Letters and known numbers are constants of the module. All other numbers
are stored on the stack before the call.
"""

from llvmlite import ir

from pymc_fastlogp.kernel.emit import dense, matrix_products, row_products
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Const, Expr, Load
from pymc_fastlogp.kernel.ir.loops import INFO, RESULT, Call, result_offset
from pymc_fastlogp.kernel.llvm import (
    F64,
    I8,
    I32,
    I64,
    POINTER,
    declared,
    private_constant,
    stack_variable,
)
from pymc_fastlogp.kernel.native import blas


def emit_call(scope: Scope, call: Call) -> None:
    """Append a call in a scope of one lane."""
    builder = scope.builder
    result = scope.address(call.buffer, call.index)
    given: dict[str | Expr, ir.Value] = {RESULT: result, INFO: stack_variable(builder, I32)}
    arguments = [given.get(a) or _address(scope, a, result) for a in call.arguments]
    builder.call(_callee(builder.module, call), arguments)
    if INFO in call.arguments:
        _mark_failure(scope, call, given[INFO])


def _callee(module: ir.Module, call: Call) -> ir.Function:
    if call.function in dense.FUNCTIONS:
        return dense.function(module, call.function)
    if call.function in row_products.FUNCTIONS:
        n_columns = call.arguments[0]
        assert isinstance(n_columns, Const)
        return row_products.function(module, call.function, int(n_columns.value))
    if call.function in matrix_products.FUNCTIONS:
        n_columns = call.arguments[6]
        assert isinstance(n_columns, Const)
        return matrix_products.function(module, call.function, int(n_columns.value))
    type_ = ir.FunctionType(ir.VoidType(), [POINTER] * len(call.arguments))
    return declared(module, blas.symbol(call.function), type_)


def _address(scope: Scope, argument: str | Expr, result: ir.Value) -> ir.Value:
    """Return the address of an argument."""
    if isinstance(argument, str) and argument.startswith(result_offset(0)[:-1]):
        offset = I64(int(argument.removeprefix(result_offset(0)[:-1])))
        return scope.builder.gep(result, [offset], source_etype=F64)
    if isinstance(argument, str):
        return _constant_argument(scope.builder.module, I8(ord(argument)))
    if isinstance(argument, Load) and argument.dtype == "float64":
        return scope.address(argument.buffer, argument.index)
    if isinstance(argument, Const):
        type_ = F64 if argument.dtype == "float64" else I32
        return _constant_argument(scope.builder.module, type_(argument.value))
    length = stack_variable(scope.builder, I32)
    scope.builder.store(scope.builder.trunc(scope.scalar(argument), I32), length)
    return length


def _constant_argument(module: ir.Module, value: ir.Constant) -> ir.Value:
    return private_constant(module, f"argument.{value.type}.{value.constant}", value)


def _mark_failure(scope: Scope, call: Call, info: ir.Value) -> None:
    """Append the store of nan in the element ``call.failed`` if the status that LAPACK returned is not 0."""
    builder = scope.builder
    has_failed = builder.icmp_signed("!=", builder.load(info, typ=I32), I32(0))
    with builder.if_then(has_failed, likely=False):
        builder.store(F64(float("nan")), scope.address(call.buffer, call.failed))
