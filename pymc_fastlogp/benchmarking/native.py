"""Timing of the C function that nutpie calls, in a native loop.

One call from Python runs the loop ``n`` times, so that the time of ``n`` evaluations includes a single call from Python.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from numpy.typing import NDArray

from pymc_fastlogp._upstream.nutpie import callback_of
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.kernel.llvm import F64, I64, POINTER
from pymc_fastlogp.kernel.native.target import optimized, target_machine

Timer = Callable[[int], float]

# int64 logp(uint64 n_dim, double *x, double *gradient, double *logp, void *user_data)
LOGP_TYPE = ir.FunctionType(I64, [I64, *[POINTER] * 4])
_LOGP_CTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_void_p] * 4)


@dataclass(frozen=True)
class NativeFunction:
    """Address of a compiled function, and the engine that owns the machine code."""

    address: int
    engine: Any


@dataclass(frozen=True)
class LogpCallback:
    """A log density with its gradient, as the C function that nutpie calls.

    Parameters
    ----------
    address : int
        Address of ``int64 f(uint64 n_dim, double *x, double *gradient, double *logp, void *user_data)``,
        which returns 0 if both results are finite.
    user_data : int
        Address that is passed as ``user_data``, 0 for a null pointer.
    n_dim : int
        Length of the unconstrained point.
    owner : object
        Owner of the memory at both addresses.
    """

    address: int
    user_data: int
    n_dim: int
    owner: Any

    @classmethod
    def from_compiled(cls, compiled: Any) -> "LogpCallback":
        """Return the callback of a result of ``nutpie.compile_pymc_model`` (Numba backend)."""
        return cls(*callback_of(compiled), owner=compiled)

    def evaluate(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return logp and gradient, shape ``(n_dim,)``.

        Raises
        ------
        FloatingPointError
            If the callback reports a failure, for example a logp that is not finite.
        """
        x = np.ascontiguousarray(x, dtype=np.float64)
        gradient, logp = np.empty(self.n_dim), np.empty(1)
        function = _LOGP_CTYPE(self.address)
        status = function(
            x.size, x.ctypes.data, gradient.ctypes.data, logp.ctypes.data, self.user_data
        )
        if status != 0:
            raise FloatingPointError(f"the callback returned status {status} at this point")
        return float(logp[0]), gradient

    def timer(self, points: NDArray[np.float64], clock: Callable[[], float] = seconds_now) -> Timer:
        """Return a function that times evaluations at the rows of ``points`` in turn.

        Parameters
        ----------
        points : ndarray, shape (n_points, n_dim)
            Points with finite logp and gradient.
        clock : callable
            Function that returns seconds; by default the CPU time of this process, all threads.

        Returns
        -------
        callable
            Function from the number of evaluations to their total seconds.
        """
        points = np.ascontiguousarray(points, dtype=np.float64)
        gradient, logp = np.empty(self.n_dim), np.empty(1)
        repeat = _repeat()

        def seconds(n: int) -> float:
            start = clock()
            failures = repeat(
                n,
                self.address,
                self.n_dim,
                points.ctypes.data,
                len(points),
                gradient.ctypes.data,
                logp.ctypes.data,
                self.user_data,
            )
            elapsed = clock() - start
            if failures:
                raise FloatingPointError(f"{failures} of {n} timed evaluations failed")
            return elapsed

        return seconds


def compile_ir(module: ir.Module, name: str) -> NativeFunction:
    """Compile a function of an LLVM module for this CPU, at optimization level 3."""
    machine = target_machine()
    engine = llvm.create_mcjit_compiler(optimized(module, machine), machine)
    engine.finalize_object()
    return NativeFunction(engine.get_function_address(name), engine)


@cache
def _repeat() -> Callable[..., int]:
    """Compile the function that calls a logp function ``n`` times and counts the calls with a nonzero status."""
    native = compile_ir(_repeat_module(), "repeat")
    arguments = [ctypes.c_int64] + [ctypes.c_void_p] * 7
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(native.address)
    function.owner = native  # type: ignore[attr-defined]
    return function


def _repeat_module() -> ir.Module:
    module = ir.Module("pymc_fastlogp_benchmark")
    # n, logp_function, n_dim, points, n_points, gradient, logp, user_data
    arguments = [I64, LOGP_TYPE.as_pointer(), I64, POINTER, I64, *[POINTER] * 3]
    function = ir.Function(module, ir.FunctionType(I64, arguments), "repeat")
    n, logp_function, n_dim, points, n_points, gradient, logp, user_data = function.args
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "loop", "done"))

    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_signed(">", n, I64(0)), loop, done)

    builder.position_at_end(loop)
    i, failures = builder.phi(I64), builder.phi(I64)
    point = builder.gep(points, [builder.mul(builder.urem(i, n_points), n_dim)], source_etype=F64)
    status = builder.call(logp_function, [n_dim, point, gradient, logp, user_data])
    failed = builder.zext(builder.icmp_signed("!=", status, I64(0)), I64)
    new_failures, i_next = builder.add(failures, failed), builder.add(i, I64(1))
    for phi, start, following in ((i, I64(0), i_next), (failures, I64(0), new_failures)):
        phi.add_incoming(start, entry)
        phi.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", i_next, n), loop, done)

    builder.position_at_end(done)
    result = builder.phi(I64)
    result.add_incoming(I64(0), entry)
    result.add_incoming(new_failures, loop)
    builder.ret(result)
    return module
