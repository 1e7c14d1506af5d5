r"""Upstream's own round-off, measured: every operation of a graph is repeated with other last digits.

This is Monte Carlo arithmetic (D. S. Parker 1997, Monte Carlo Arithmetic: exploiting randomness in floating-point
arithmetic): after each operation that rounds, every element is multiplied by ``1 + eps * u`` with u uniform from -1 to 1.
A scatter adds up n terms one by one, and its noise is :math:`\sqrt{n}` times that. Digits of the result that change are noise. Nothing is fused or reassociated and sums are NumPy's pairwise
ones, so that the error of a long sum that is taken term by term shows, too.
"""

from math import sqrt
from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.basic import PerformLinker, WrapLinker
from pytensor.tensor.blas import BatchedDot, Gemv
from pytensor.tensor.blas.gemm import GemmRelated
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedIncSubtensor

ROUNDING = (Elemwise, CAReduce, Dot, BatchedDot, GemmRelated, Gemv)
EXACT = (
    *(ps.Neg, ps.Abs, ps.Sign, ps.Switch, ps.Cast, ps.Identity, ps.ScalarMaximum, ps.ScalarMinimum),
    *(ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero),
)
# What fuses or overwrites, is for C, or has no form for a linker of this kind (inner graphs are left as they are).
NOT_REWRITTEN = ["fusion", "inplace", "cxx_only", "compile_inner_graph"]


def noisy_mode(rng: np.random.Generator) -> Mode:
    """Return a mode that runs operation by operation in NumPy, with noise from ``rng``."""

    def run(fgraph: FunctionGraph, position: int, node: Apply, thunk: Any) -> None:
        thunk()
        ulps = _ulps(node, thunk)
        if not ulps:
            return
        for output, storage in zip(node.outputs, thunk.outputs, strict=True):
            if output.type.dtype in ("float32", "float64"):
                storage[0] = _with_noise(storage[0], ulps, rng)

    linker = WrapLinker([PerformLinker()], run)
    rewrites = RewriteDatabaseQuery(include=["fast_run", "py_only"], exclude=NOT_REWRITTEN)
    return Mode(linker, rewrites)


def _ulps(node: Apply, thunk: Any) -> float:
    """Return how many units in the last place an operation that has run may be off."""
    if isinstance(node.op, AdvancedIncSubtensor) and not node.op.set_instead_of_inc:
        return sqrt(max(1.0, np.size(thunk.inputs[1][0]) / max(1, np.size(thunk.outputs[0][0]))))
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, EXACT):
        return 0.0
    return float(isinstance(node.op, ROUNDING))


def _with_noise(value: np.ndarray, ulps: float, rng: np.random.Generator) -> np.ndarray:
    noise = ulps * rng.uniform(-1.0, 1.0, size=np.shape(value))
    return np.asarray(value * (1.0 + np.finfo(value.dtype).eps * noise), dtype=value.dtype)
