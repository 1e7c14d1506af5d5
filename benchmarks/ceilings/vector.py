"""A small kit for log densities written by hand in vector LLVM IR.

A :class:`Kernel` is one function with the signature of nutpie's callback. Its loops over rows
take ``WIDTH`` rows at a time, two AVX-512 registers in flight; the last, partial block goes
through the same code under a mask.
"""

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pymc_fastlogp.benchmarking.native import LOGP_TYPE, LogpCallback, compile_ir
from pymc_fastlogp.kernel.llvm import F64, I64

WIDTH = 16

I1, I32 = ir.IntType(1), ir.IntType(32)
VECTOR, INTEGERS, INDICES, MASK = (ir.VectorType(t, WIDTH) for t in (F64, I64, I32, I1))
POINTERS = ir.VectorType(F64.as_pointer(), WIDTH)
ZERO = ir.Constant(VECTOR, [0.0] * WIDTH)
LANES = ir.Constant(INDICES, list(range(WIDTH)))
ALL = ir.Constant(MASK, [1] * WIDTH)

# LLVM has one overload of an intrinsic for each vector type; llvmlite does not name them.
V, VI, VP = f"v{WIDTH}f64", f"v{WIDTH}i32", f"v{WIDTH}p0"


class Kernel:
    """A logp function under construction.

    Parameters
    ----------
    n_dim : int
        Length of the unconstrained point.

    Attributes
    ----------
    builder : ir.IRBuilder
        Where code goes next.
    x, gradient : ir.Value
        Pointers to the point and to the result, ``n_dim`` doubles each.
    """

    def __init__(self, n_dim: int):
        self.n_dim = n_dim
        self.module = ir.Module("ceiling")
        self.function = ir.Function(self.module, LOGP_TYPE, "logp")
        _, self.x, self.gradient, self._logp, _ = self.function.args
        for pointer in (self.x, self.gradient, self._logp):
            pointer.add_attribute("noalias")
            # `Rows.load` reads the type of the rows from the pointer.
            pointer.type = F64.as_pointer()
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self._arrays: list[NDArray] = []

    def array(self, values: NDArray) -> ir.Value:
        """Return a pointer to data, ``int32`` for integers and ``float64`` for the rest."""
        kind = np.int32 if values.dtype.kind in "iub" else np.float64
        values = np.ascontiguousarray(values, dtype=kind)
        self._arrays.append(values)
        pointer = (I32 if kind is np.int32 else F64).as_pointer()
        return ir.Constant(I64, values.ctypes.data).inttoptr(pointer)

    def lane_sums(self, n: int) -> ir.Value:
        """Return ``n`` accumulators of a vector each, all zero between calls."""
        return self.array(np.zeros(n * WIDTH))

    def total(self) -> ir.Value:
        """Return a vector accumulator, zero."""
        slot = self.builder.alloca(VECTOR)
        self.builder.store(ZERO, slot)
        return slot

    def number(self, value: float = 0.0) -> ir.Value:
        """Return a scalar accumulator."""
        slot = self.builder.alloca(F64)
        self.builder.store(F64(value), slot)
        return slot

    def rows(self, n: int, body: Callable[["Rows"], None]) -> None:
        """Run ``body`` over rows 0 to n - 1, ``WIDTH`` at a time."""
        whole = n - n % WIDTH
        self._loop(whole, WIDTH, lambda i: body(Rows(self, i, None)))
        if n > whole:
            present = ir.Constant(MASK, [int(lane < n - whole) for lane in range(WIDTH)])
            body(Rows(self, I64(whole), present))

    def each(self, n: int, body: Callable[[ir.Value], None]) -> None:
        """Run ``body`` with the index 0 to n - 1, one at a time."""
        self._loop(n, 1, body)

    def _loop(self, stop: int, step: int, body: Callable[[ir.Value], None]) -> None:
        if stop == 0:
            return
        before = self.builder.block
        loop, done = (self.function.append_basic_block(name) for name in ("loop", "done"))
        self.builder.branch(loop)
        self.builder.position_at_end(loop)
        i = self.builder.phi(I64)
        body(i)
        i_next = self.builder.add(i, I64(step))
        i.add_incoming(I64(0), before)
        i.add_incoming(i_next, self.builder.block)
        self.builder.cbranch(self.builder.icmp_signed("<", i_next, I64(stop)), loop, done)
        self.builder.position_at_end(done)

    def load(self, base: ir.Value, i: ir.Value | int) -> ir.Value:
        """Return element ``i``."""
        return self.builder.load(self.at(base, i))

    def at(self, base: ir.Value, i: ir.Value | int) -> ir.Value:
        """Return the pointer to element ``i``."""
        return self.builder.gep(base, [I64(i) if isinstance(i, int) else i])

    def add_to(self, slot: ir.Value, value: ir.Value) -> None:
        """Add to an accumulator."""
        self.builder.store(self.builder.fadd(self.builder.load(slot), value), slot)

    def splat(self, value: ir.Value | float) -> ir.Value:
        """Return a vector that repeats a number."""
        if isinstance(value, float):
            return ir.Constant(VECTOR, [value] * WIDTH)
        return self.repeat(value, VECTOR)

    def repeat(self, value: ir.Value, kind: ir.VectorType) -> ir.Value:
        """Return a vector of the given type with the value in every lane."""
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(undefined, value, I32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(INDICES, [0] * WIDTH))

    def sum_lanes(self, vector: ir.Value) -> ir.Value:
        """Return the sum of a vector."""
        reduce_add = self.intrinsic(f"vector.reduce.fadd.{V}", F64, [F64, VECTOR])
        return self.builder.call(reduce_add, [F64(-0.0), vector], fastmath=("reassoc",))

    def take_lane_sum(self, sums: ir.Value, i: ir.Value) -> ir.Value:
        """Return accumulator ``i`` of :meth:`lane_sums` as a number and set it to zero."""
        pointer = self.at(sums, self.builder.mul(i, I64(WIDTH)))
        pointer = self.builder.bitcast(pointer, VECTOR.as_pointer())
        vector = self.builder.load(pointer, align=8)
        self.builder.store(ZERO, pointer, align=8)
        return self.sum_lanes(vector)

    def scalar_exp(self, x: ir.Value) -> ir.Value:
        """Return exp of a single number, from libm."""
        return self.builder.call(self.intrinsic("exp.f64", F64, [F64]), [x])

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """Return ``x * y + z`` with one rounding."""
        return self.builder.call(self.intrinsic(f"fma.{V}", VECTOR, [VECTOR] * 3), [x, y, z])

    def exp(self, x: ir.Value) -> ir.Value:
        """Return exp, for arguments from -708 to 709; smaller ones give exp(-708).

        Cody and Waite's reduction to ``|r| <= log(2) / 2``, then the Taylor series. The
        exponent is added as an integer that the low bits of a shifted double hold.
        """
        b = self.builder
        x = b.call(self.intrinsic(f"maxnum.{V}", VECTOR, [VECTOR] * 2), [x, self.splat(-708.0)])
        shift = self.splat(1.5 * 2.0**52)
        shifted = self.fma(x, self.splat(1 / np.log(2.0)), shift)
        nearest = b.fsub(shifted, shift)
        r = self.fma(nearest, self.splat(-6.93147180369123816490e-01), x)
        r = self.fma(nearest, self.splat(-1.90821492927058770002e-10), r)
        coefficients = [1 / float(np.prod(np.arange(1.0, k + 1))) for k in range(12, 1, -1)]
        p = self._polynomial(r, coefficients)
        p = self.fma(p, b.fmul(r, r), r)
        bias, position = (ir.Constant(INTEGERS, [k] * WIDTH) for k in (1023, 52))
        scale = b.bitcast(b.shl(b.add(b.bitcast(shifted, INTEGERS), bias), position), VECTOR)
        return self.fma(scale, p, scale)

    def log1p_unit(self, u: ir.Value) -> ir.Value:
        """Return log(1 + u) for u from 0 to 1, by the series of atanh(s), s = (m - 1) / (m + 1).

        ``m`` is 1 + u, halved where it is above sqrt(2); the last term gives back what
        rounding 1 + u has lost.
        """
        b, one = self.builder, self.splat(1.0)
        f = b.fadd(u, one)
        big = b.fcmp_ordered(">", f, self.splat(2**0.5))
        m = b.select(big, b.fmul(f, self.splat(0.5)), f)
        s = b.fdiv(b.fsub(m, one), b.fadd(m, one))
        z = b.fmul(s, s)
        p = self._polynomial(z, [1 / k for k in range(21, 1, -2)])
        twice = b.fmul(s, self.splat(2.0))
        result = self.fma(b.fmul(twice, z), p, twice)
        result = b.fadd(result, b.select(big, self.splat(float(np.log(2.0))), ZERO))
        return b.fadd(result, b.fdiv(b.fsub(u, b.fsub(f, one)), f))

    def softplus_and_sigmoid(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return log(1 + exp(x)) and its derivative, from one exp(-abs(x))."""
        b = self.builder
        magnitude = b.call(self.intrinsic(f"fabs.{V}", VECTOR, [VECTOR]), [x])
        e = self.exp(b.fneg(magnitude))
        positive = b.fcmp_ordered(">=", x, ZERO)
        softplus = b.fadd(b.select(positive, x, ZERO), self.log1p_unit(e))
        q = b.fdiv(self.splat(1.0), b.fadd(e, self.splat(1.0)))
        return softplus, b.select(positive, q, b.fmul(e, q))

    def _polynomial(self, x: ir.Value, coefficients: list[float]) -> ir.Value:
        """Evaluate by Horner's rule, highest power first."""
        p = self.splat(coefficients[0])
        for coefficient in coefficients[1:]:
            p = self.fma(p, x, self.splat(coefficient))
        return p

    def intrinsic(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        """Return the overload of an intrinsic that its full name means."""
        full = f"llvm.{name}"
        known = self.module.globals.get(full)
        return known or ir.Function(self.module, ir.FunctionType(result, arguments), full)

    def finish(self, logp: ir.Value) -> LogpCallback:
        """Return ``logp`` from the function, compile it."""
        self.builder.store(logp, self._logp)
        self.builder.ret(I64(0))
        native = compile_ir(self.module, "logp")
        return LogpCallback(native.address, 0, self.n_dim, (native, self._arrays))


class Rows:
    """``WIDTH`` consecutive rows in the body of a loop; the last ones may be absent.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    i : ir.Value
        The first of the rows.
    present : ir.Value or None
        Which of them exist; None for all of them.
    """

    def __init__(self, kernel: Kernel, i: ir.Value, present: ir.Value | None):
        self.kernel = kernel
        self.i = i
        self.present = present

    def load(self, base: ir.Value) -> ir.Value:
        """Return the values of these rows, absent ones as 0."""
        b = self.kernel.builder
        kind, name = (INDICES, VI) if base.type.pointee == I32 else (VECTOR, V)
        pointer = b.bitcast(self.kernel.at(base, self.i), kind.as_pointer())
        align = 4 if kind is INDICES else 8
        if self.present is None:
            return b.load(pointer, align=align)
        masked_load = self.kernel.intrinsic(
            f"masked.load.{name}.p0", kind, [kind.as_pointer(), I32, MASK, kind]
        )
        nothing = ir.Constant(kind, [0] * WIDTH) if kind is INDICES else ZERO
        return b.call(masked_load, [pointer, I32(align), self.present, nothing])

    def store(self, value: ir.Value, base: ir.Value) -> None:
        """Write the values of these rows."""
        b = self.kernel.builder
        pointer = b.bitcast(self.kernel.at(base, self.i), VECTOR.as_pointer())
        if self.present is None:
            b.store(value, pointer, align=8)
            return
        masked_store = self.kernel.intrinsic(
            f"masked.store.{V}.p0", ir.VoidType(), [VECTOR, VECTOR.as_pointer(), I32, MASK]
        )
        b.call(masked_store, [value, pointer, I32(8), self.present])

    def gather(self, base: ir.Value, index: ir.Value) -> ir.Value:
        """Return ``base[index]``."""
        return self._gather(self._addresses(base, index))

    def add_lanes_at(self, sums: ir.Value, index: ir.Value, value: ir.Value) -> None:
        """Add to :meth:`Kernel.lane_sums`: each lane has accumulators of its own, none collide."""
        b = self.kernel.builder
        shift = ir.Constant(INDICES, [WIDTH.bit_length() - 1] * WIDTH)
        addresses = self._addresses(sums, b.add(b.shl(index, shift), LANES))
        new = b.fadd(self._gather(addresses), self._masked(value))
        scatter = self.kernel.intrinsic(
            f"masked.scatter.{V}.{VP}", ir.VoidType(), [VECTOR, POINTERS, I32, MASK]
        )
        b.call(scatter, [new, addresses, I32(8), self.present or ALL])

    def add_to(self, total: ir.Value, value: ir.Value) -> None:
        """Add to a vector accumulator."""
        self.kernel.add_to(total, self._masked(value))

    def _masked(self, value: ir.Value) -> ir.Value:
        if self.present is None:
            return value
        return self.kernel.builder.select(self.present, value, ZERO)

    def _addresses(self, base: ir.Value, index: ir.Value) -> ir.Value:
        bases = self.kernel.repeat(base, POINTERS)
        return self.kernel.builder.gep(bases, [index], source_etype=F64)

    def _gather(self, addresses: ir.Value) -> ir.Value:
        gather = self.kernel.intrinsic(
            f"masked.gather.{V}.{VP}", VECTOR, [POINTERS, I32, MASK, VECTOR]
        )
        return self.kernel.builder.call(gather, [addresses, I32(8), self.present or ALL, ZERO])
