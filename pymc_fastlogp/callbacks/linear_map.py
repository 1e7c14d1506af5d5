"""Callbacks in linearly transformed coordinates, see :mod:`pymc_fastlogp.reparametrization.linear_map`.

Two C functions with nutpie's signatures call the model's callbacks. They do not depend on the model, so they are compiled once; compiled model and stored
values stay the same. Let ``w`` be the point of the sampler, ``x`` the point of the model, ``p`` the indices of the transformed parameters and ``f``
the indices of their dependents. With the matrix ``A``, the factors ``L`` and ``R``, and the gradients ``dw`` and ``dx``

.. code-block:: text

    x = w,      x[p] = A @ w[p],    x[f] += x[p] @ L @ R
    dw = dx,    dw[p] = (dx[p] + L @ (R @ dx[f])) @ A

All matrices are read row by row. A point of another length than the model's is rejected before the map is applied.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pymc_fastlogp.callbacks.native import WRONG_LENGTH
from pymc_fastlogp.kernel.llvm import F64, I1, I64, POINTER, declared
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, engine
from pymc_fastlogp.kernel.native.object_files import object_code_of
from pymc_fastlogp.reparametrization.linear_map import LinearMap

LOGP, EXPAND = "mapped_logp", "mapped_expand"
# Words of the user data, eight bytes each.
INNER_LOGP, INNER_EXPAND, INNER_DATA = range(3)
INDICES, MATRIX, DEPENDENTS, LEFT, RIGHT = range(3, 8)
N_INDICES, RANK, N_DEPENDENTS, N_DIM = range(8, 12)
# Lets LLVM reorder sums, to vectorize them.
ANY_ORDER = ("reassoc",)


class TransformedCallbacks(NamedTuple):
    """The two callbacks in transformed coordinates.

    Attributes
    ----------
    logp, expand : LoadedCode
        The callbacks.
    user_data : ndarray
        Their user data: addresses of the model's callbacks and user data, and of the arrays of the map.
    linear_map : LinearMap
        The map, whose arrays have to stay alive.
    """

    logp: LoadedCode
    expand: LoadedCode
    user_data: NDArray[np.uintp]
    linear_map: LinearMap


def transform_callbacks(
    logp: int, expand: int, user_data: int, linear_map: LinearMap, *, n_dim: int
) -> TransformedCallbacks:
    """Return callbacks in the coordinates of the sampler.

    Parameters
    ----------
    logp, expand, user_data : int
        Addresses of the model's callbacks and of their user data.
    linear_map : LinearMap
        From the coordinates of the sampler to the coordinates of the model.
    n_dim : int
        Length of the point, which has to fit on the stack of a thread.
    """
    arrays: Any = map(np.ascontiguousarray, linear_map)
    held = LinearMap(*arrays)
    addresses = [x.ctypes.data for x in held]
    sizes = (*held.left.shape, held.right.shape[1], n_dim)
    words = [logp, expand, user_data, *addresses, *sizes]
    return TransformedCallbacks(_code(LOGP), _code(EXPAND), np.array(words, dtype=np.uintp), held)


def transform_initial_point(
    initial_point: Callable[[Any], Any], linear_map: LinearMap
) -> Callable[..., Any]:
    """Return the function from a seed to a point of the sampler, given the function to a point of the model."""

    def transformed(seed: Any = None) -> NDArray[np.float64]:
        return linear_map.inverse(initial_point(seed))

    return transformed


@cache
def _code(name: str) -> LoadedCode:
    """Return the machine code of a callback."""
    module = {LOGP: _logp_module, EXPAND: _expand_module}[name]()
    return LoadedCode(engine(object_code_of(module)), name)


def _logp_module() -> ir.Module:
    type_ = ir.FunctionType(I64, [I64, POINTER, POINTER, POINTER, POINTER])
    function = ir.Function(ir.Module(LOGP), type_, LOGP)
    n, w, gradient, logp, data = function.args
    emitter = _Emitter(ir.IRBuilder(function.append_basic_block()), data)
    emitter.return_unless_length(n)
    inner, inner_data = emitter.inner(INNER_LOGP, type_)
    status = emitter.builder.call(inner, [n, emitter.point(n, w), gradient, logp, inner_data])
    emitter.transform_gradient(gradient)
    emitter.builder.ret(status)
    return function.module


def _expand_module() -> ir.Module:
    type_ = ir.FunctionType(I64, [I64, I64, POINTER, POINTER, POINTER])
    function = ir.Function(ir.Module(EXPAND), type_, EXPAND)
    n, n_expanded, w, expanded, data = function.args
    emitter = _Emitter(ir.IRBuilder(function.append_basic_block()), data)
    emitter.return_unless_length(n)
    inner, inner_data = emitter.inner(INNER_EXPAND, type_)
    arguments = [n, n_expanded, emitter.point(n, w), expanded, inner_data]
    emitter.builder.ret(emitter.builder.call(inner, arguments))
    return function.module


class _Emitter:
    """Emitter of the instructions of a callback."""

    def __init__(self, builder: ir.IRBuilder, data: ir.Value):
        self.builder, self._data = builder, data
        self._k, self._r, self._m = (self._word(x) for x in (N_INDICES, RANK, N_DEPENDENTS))
        self._indices, self._matrix, self._dependents, self._left, self._right = (
            builder.inttoptr(self._word(x), POINTER)
            for x in (INDICES, MATRIX, DEPENDENTS, LEFT, RIGHT)
        )

    def return_unless_length(self, n: ir.Value) -> None:
        """Append a return for a point of another length than the model's."""
        is_other = self.builder.icmp_unsigned("!=", n, self._word(N_DIM))
        with self.builder.if_then(is_other, likely=False):
            self.builder.ret(I64(WRONG_LENGTH))

    def inner(self, which: int, type_: ir.FunctionType) -> tuple[ir.Value, ir.Value]:
        """Return a callback of the model, and its user data."""
        function = self.builder.inttoptr(self._word(which), type_.as_pointer())
        return function, self.builder.inttoptr(self._word(INNER_DATA), POINTER)

    def point(self, n: ir.Value, w: ir.Value) -> ir.Value:
        """Append the computation of ``x``, and return a pointer to ``x``."""
        x = self._array(n)
        type_ = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
        memcpy = declared(self.builder.module, "llvm.memcpy.p0.p0.i64", type_)
        self.builder.call(memcpy, [x, w, self.builder.mul(n, I64(8)), I1(0)])
        given = self._gathered(w, self._indices, self._k)
        parameters = self._zeros(self._k)
        self._add_products(parameters, self._matrix, given, self._k, self._k)
        self._scatter(x, self._indices, parameters, self._k)
        dependents = self._gathered(w, self._dependents, self._m)
        between = self._zeros(self._r)
        self._add_rows(between, self._left, parameters, self._k, self._r)
        self._add_rows(dependents, self._right, between, self._r, self._m)
        self._scatter(x, self._dependents, dependents, self._m)
        return x

    def transform_gradient(self, gradient: ir.Value) -> None:
        """Append the transformation of the gradient by ``x`` to the gradient by ``w``, in place."""
        total = self._gathered(gradient, self._indices, self._k)
        dependents = self._gathered(gradient, self._dependents, self._m)
        between = self._zeros(self._r)
        self._add_products(between, self._right, dependents, self._r, self._m)
        self._add_products(total, self._left, between, self._k, self._r)
        transformed = self._zeros(self._k)
        self._add_rows(transformed, self._matrix, total, self._k, self._k)
        self._scatter(gradient, self._indices, transformed, self._k)

    def _word(self, number: int) -> ir.Value:
        return self._load(self._data, I64(number), I64)

    def _load(self, array: ir.Value, i: ir.Value, type_: ir.Type = F64) -> ir.Value:
        return self.builder.load(self.builder.gep(array, [i], source_etype=type_), typ=type_)

    def _store(self, array: ir.Value, i: ir.Value, value: ir.Value) -> None:
        self.builder.store(value, self.builder.gep(array, [i], source_etype=F64))

    def _array(self, n: ir.Value) -> ir.Value:
        array = self.builder.alloca(F64, size=n)
        array.type = POINTER
        return array

    def _zeros(self, n: ir.Value) -> ir.Value:
        array = self._array(n)
        with self._loop(n) as i:
            self._store(array, i, F64(0.0))
        return array

    def _gathered(self, array: ir.Value, indices: ir.Value, n: ir.Value) -> ir.Value:
        gathered = self._array(n)
        with self._loop(n) as i:
            self._store(gathered, i, self._load(array, self._load(indices, i, I64)))
        return gathered

    def _scatter(self, array: ir.Value, indices: ir.Value, values: ir.Value, n: ir.Value) -> None:
        with self._loop(n) as i:
            self._store(array, self._load(indices, i, I64), self._load(values, i))

    def _add_products(self, to: ir.Value, matrix: ir.Value, x: ir.Value, *shape: ir.Value) -> None:
        """Append ``to += matrix @ x``."""
        total = self._array(I64(1))
        with self._loop(shape[0]) as i:
            row = self._row(matrix, i, shape[1])
            self._store(total, I64(0), self._load(to, i))
            with self._loop(shape[1]) as j:
                product = self.builder.fmul(self._load(row, j), self._load(x, j))
                so_far = self._load(total, I64(0))
                self._store(total, I64(0), self.builder.fadd(so_far, product, flags=ANY_ORDER))
            self._store(to, i, self._load(total, I64(0)))

    def _add_rows(self, to: ir.Value, matrix: ir.Value, x: ir.Value, *shape: ir.Value) -> None:
        """Append ``to += x @ matrix``."""
        with self._loop(shape[0]) as i:
            row, factor = self._row(matrix, i, shape[1]), self._load(x, i)
            with self._loop(shape[1]) as j:
                product = self.builder.fmul(self._load(row, j), factor)
                self._store(to, j, self.builder.fadd(self._load(to, j), product))

    def _row(self, matrix: ir.Value, i: ir.Value, length: ir.Value) -> ir.Value:
        return self.builder.gep(matrix, [self.builder.mul(i, length)], source_etype=F64)

    @contextmanager
    def _loop(self, n: ir.Value) -> Iterator[ir.Value]:
        """Append a loop over the numbers below ``n``."""
        builder, before = self.builder, self.builder.block
        head, body, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        i = builder.phi(I64)
        i.add_incoming(I64(0), before)
        builder.cbranch(builder.icmp_unsigned("<", i, n), body, after)
        builder.position_at_end(body)
        yield i
        i.add_incoming(builder.add(i, I64(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(after)
