r"""Round-off of upstream's own result, from neighboring points and from noise in each operation.

Neighboring points, a few units in the last place away (:func:`neighbors`), are cheap and show most of the round-off.
The rest needs every operation repeated with noise (:func:`numpy_mode`). This is Monte Carlo arithmetic (D. S. Parker
1997, Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic): after each operation that rounds,
every element :math:`v` becomes

.. math:: v \, (1 + \epsilon u), \qquad u = (u_1 + u_2) / 2, \qquad u_1, u_2 \in [-1, 1].

- :math:`u_1` is drawn for each element. :math:`u_2` is equal for equal elements, as true rounding is: over repeated rows
  errors add up, where independent noise would cancel.
- A scatter adds :math:`n` terms one by one, so its noise is :math:`\sqrt{n}` times as large.
- A cumulative sum rounds at each step and propagates the error to all later steps.

Digits of the result that change are noise. NumPy does not fuse or reassociate operations, and its sums are pairwise, so
noise also covers the error of a long sum taken term by term.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, reduce
from math import sqrt
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.basic import PerformLinker, WrapLinker
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg import (
    Cholesky,
    CholeskySolve,
    Det,
    Eigh,
    MatrixInverse,
    Solve,
    SolveTriangular,
)
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.analysis.scalar_facts import Trait, ops_where

# Neighboring points of each point.
N_NEIGHBORS = 8
# Evaluations with noise: more than neighbors, since half of the noise is rounded away below a power of two.
N_NOISY = 32
# Largest distance of a neighbor, in units in the last place.
ULPS = 4
# Multiple of the largest change among all of these that counts as round-off.
NOISE_ALLOWED = 16

# `OpFromGraph` (a softmax, a logsumexp and its derivative) and `Scan` run as one operation.
ROUNDING = (
    Elemwise,
    CAReduce,
    CumOp,
    Dot,
    BatchedDot,
    Cholesky,
    CholeskySolve,
    Det,
    Eigh,
    MatrixInverse,
    Solve,
    SolveTriangular,
    OpFromGraph,
    Scan,
)
EXACT = ops_where(lambda facts: Trait.EXACT in facts.traits)
# Limit of NumPy on the operands of an Elemwise.
MOST_OPERANDS = 31
IN_TURN = {ps.Add: np.add, ps.Mul: np.multiply}
# Rewrites that fuse, work in place, or need C or a compiled inner graph. BlasOpt is wrong:
# GemmOptimizer of PyTensor 3.3.7 loses an integer k of `y - (A @ x + k)`.
NOT_REWRITTEN = ["fusion", "inplace", "cxx_only", "compile_inner_graph", "BlasOpt"]


def neighbors(x: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield points of the same shape, at most :data:`ULPS` units in the last place away from ``x``."""
    for _ in range(N_NEIGHBORS):
        digits = rng.integers(-ULPS, ULPS + 1, size=x.shape).astype(x.dtype)
        yield x + np.spacing(x) * digits


class Noise:
    """Switch and random numbers of the noise in the last digits of operations.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the noise.
    """

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.is_on = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """Switch the noise on for a block."""
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


def numpy_mode(noise: Noise | None = None) -> Mode:
    """Return a mode that runs each operation in NumPy, with noise while the noise is on."""
    loops: dict[Apply, Any] = {}

    def run(fgraph: FunctionGraph, position: int, node: Apply, thunk: Any) -> None:
        if is_elemwise(node.op, ScalarLoop):
            _run_loop(node, thunk, loops)
        elif len(node.inputs) > MOST_OPERANDS and is_elemwise(node.op, *IN_TURN):
            _run_in_turn(node, thunk)
        else:
            thunk()
        if noise is None or not noise.is_on:
            return
        ulps = _ulps(node, thunk)
        if not ulps:
            return
        for output, storage in zip(node.outputs, thunk.outputs, strict=True):
            if output.type.dtype in ("float32", "float64"):
                noisy = _with_noise(storage[0], ulps, noise.rng)
                if isinstance(node.op, CumOp):
                    noisy = _propagated(storage[0], noisy, node.op)
                storage[0] = noisy

    linker = WrapLinker([PerformLinker()], run)
    rewrites = RewriteDatabaseQuery(include=["fast_run", "py_only"], exclude=NOT_REWRITTEN)
    return Mode(linker, rewrites)


def _run_loop(node: Apply, thunk: Any, compiled: dict[Apply, Any]) -> None:
    """Run a :class:`ScalarLoop` (as in the derivative of ``betainc``) in upstream's mode NUMBA; in Python this takes minutes."""
    if node not in compiled:
        mode = get_mode("NUMBA").excluding("fastlogp")
        inputs = [x.type() for x in node.inputs]
        compiled[node] = pytensor.function(inputs, node.op(*inputs, return_list=True), mode=mode)
    results = compiled[node](*(storage[0] for storage in thunk.inputs))
    for storage, result in zip(thunk.outputs, results, strict=True):
        storage[0] = result


def _run_in_turn(node: Apply, thunk: Any) -> None:
    """Run a sum or product of more than :data:`MOST_OPERANDS` operands in pairs."""
    values = [storage[0] for storage in thunk.inputs]
    ufunc = IN_TURN[type(node.op.scalar_op)]
    [output] = node.outputs
    result = reduce(partial(ufunc, dtype=output.type.dtype), values)
    [storage] = thunk.outputs
    storage[0] = np.asarray(result)


def _ulps(node: Apply, thunk: Any) -> float:
    """Return the round-off of an operation that has run, in units in the last place."""
    if isinstance(node.op, AdvancedIncSubtensor) and not node.op.set_instead_of_inc:
        return sqrt(max(1.0, np.size(thunk.inputs[1][0]) / max(1, np.size(thunk.outputs[0][0]))))
    if is_elemwise(node.op, *EXACT) and not _narrows(node):
        return 0.0
    return float(isinstance(core_op(node.op), ROUNDING))


def _narrows(node: Apply) -> bool:
    """Return whether a cast rounds floats to single precision."""
    types = [x.type.dtype for x in (*node.inputs, *node.outputs)]
    return is_elemwise(node.op, ps.Cast) and types == ["float64", "float32"]


def _with_noise(value: np.ndarray, ulps: float, rng: np.random.Generator) -> np.ndarray:
    own = rng.uniform(-1.0, 1.0, size=np.shape(value))
    noise = ulps * (own + _noise_of_values(value, rng)) / 2
    return np.asarray(value * (1.0 + np.finfo(value.dtype).eps * noise), dtype=value.dtype)


def _propagated(value: np.ndarray, noisy: np.ndarray, op: CumOp) -> np.ndarray:
    """Propagate the noise of each element of a cumulative sum or product to all later elements."""
    if op.mode == "add":
        steps = np.subtract(noisy, value, out=np.zeros_like(value), where=np.isfinite(value))
        return np.asarray(value + np.cumsum(steps, axis=op.axis), dtype=value.dtype)
    is_regular = np.isfinite(value) & (value != 0)
    factors = np.divide(noisy, value, out=np.ones_like(value), where=is_regular)
    return np.asarray(value * np.cumprod(factors, axis=op.axis), dtype=value.dtype)


def _noise_of_values(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return pseudorandom numbers from -1 to 1 that are equal for equal values.

    A hash with random keys: the bits of a value are multiplied by a key and folded, twice.
    """
    bits = np.atleast_1d(value).astype("float64").view("uint64")
    for key in rng.integers(2**63, size=2, dtype="uint64"):
        bits = (bits ^ key) * (key | np.uint64(1))
        bits = bits ^ (bits >> np.uint64(32))
    return np.reshape(bits / 2.0**63 - 1.0, np.shape(value))
