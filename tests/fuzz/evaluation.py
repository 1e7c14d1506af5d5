"""A graph as mode NUMBA rewrites it, run node by node: kernels as machine code, all else in NumPy. Nothing waits for Numba."""

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.basic import PerformLinker, WrapLinker

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.kernel.native_kernel import NativeKernel, compile_native

Arrays = list[np.ndarray]
# What Python code has no form for. Without fusion, `scalarize` may go on for ever; without `inplace`, nothing keeps PyTensor from
# fusing an increment with what its base is made of, and the sorting of a node that reads its own output may have no end.
LEFT_OUT_OFF = (
    "fusion",
    "fuse_indexed_into_elemwise",
    "scalarize",
    "inplace",
    "BlasOpt",
    "compile_inner_graph",
)
# PyTensor's rewrites that drop what checks lengths. Which of them get a chance depends on all others.
DROPS_CHECKS = ("shape_unsafe", "scalar_solve_to_division")


def numba_rewrites(*left_out: str) -> Any:
    """Return the query of the rewrites of mode NUMBA."""
    mode = get_mode("NUMBA")
    return mode.provided_optimizer.excluding(*mode.linker.incompatible_rewrites, *left_out)


class Queried(Mode):
    """A mode that looks its rewrites up once, and not for each graph."""

    @cached_property
    def optimizer(self) -> Any:
        """The rewriter."""
        return super().optimizer


@cache
def by_numpy(*left_out: str) -> Mode:
    """Return the mode of the side without the plugin."""
    return Queried(PerformLinker(), numba_rewrites(*LEFT_OUT_OFF, *left_out))


@cache
def by_kernels(*left_out: str) -> Mode:
    """Return the mode of the side with the plugin."""
    kernels: dict[tuple[Apply, tuple[bool, ...]], NativeKernel] = {}

    def run(fgraph: FunctionGraph, position: int, node: Apply, thunk: Any) -> None:
        if not isinstance(node.op, FusedKernel):
            thunk()
            return
        arrays = [np.asarray(storage[0]) for storage in thunk.inputs]
        layout = tuple(array.flags.c_contiguous for array in arrays)
        if (node, layout) not in kernels:
            kernels[node, layout] = compile_native(node.op.build_program(), layout)
        for storage, result in zip(thunk.outputs, kernels[node, layout](*arrays), strict=True):
            storage[0] = result

    return Queried(
        WrapLinker([PerformLinker()], run), numba_rewrites("compile_inner_graph", *left_out)
    )


def compiled(
    inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Mode | str, *, on: bool
) -> Callable[..., Arrays]:
    """Return a function of arrays."""
    with switched(on):
        function = pytensor.function(
            list(inputs), list(outputs), mode=mode, on_unused_input="ignore"
        )
    function.trust_input = True

    def call(*arrays: np.ndarray) -> Arrays:
        with np.errstate(all="ignore"):
            return [np.asarray(x) for x in function(*arrays)]

    return call


def off_in_numpy(
    inputs: Sequence[Variable], outputs: Sequence[Variable], *left_out: str
) -> Callable[..., Arrays]:
    """Return upstream's function, rewritten for Numba and run in NumPy."""
    return compiled(inputs, outputs, by_numpy(*left_out), on=False)


def on_by_kernels(
    inputs: Sequence[Variable], outputs: Sequence[Variable], *left_out: str
) -> Callable[..., Arrays]:
    """Return the function with the plugin."""
    return compiled(inputs, outputs, by_kernels(*left_out), on=True)


def errors_off(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[..., set[type[Exception]]]:
    """Return a function of arrays that gives the types of all exceptions which some node of upstream's graph raises.

    Which comes first depends on the order of the nodes, which is nobody's promise.
    """
    raised: set[type[Exception]] = set()

    def run(fgraph: FunctionGraph, position: int, node: Apply, thunk: Any) -> None:
        for storage in thunk.outputs:
            storage[0] = None
        if any(storage[0] is None for storage in thunk.inputs):
            return
        try:
            thunk()
        except Exception as error:
            raised.add(type(error))

    mode = Mode(WrapLinker([PerformLinker(allow_gc=False)], run), numba_rewrites(*LEFT_OUT_OFF))
    with switched(False):
        function = pytensor.function(
            list(inputs), list(outputs), mode=mode, on_unused_input="ignore"
        )
    function.trust_input = True

    def call(*arrays: np.ndarray) -> set[type[Exception]]:
        raised.clear()
        with np.errstate(all="ignore"):
            function(*arrays)
        return set(raised)

    return call


def off_in_numba(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable[..., Arrays]:
    """Return upstream's function, compiled, which decides where NumPy is another."""
    return compiled(inputs, outputs, "NUMBA", on=False)
