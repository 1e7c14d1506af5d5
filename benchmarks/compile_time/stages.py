"""Processor time of the stages of a compilation, without the time of the measurement itself."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pymc as pm
from pytensor.graph.rewriting.basic import GraphRewriter

from pymc_fastlogp import compile_pymc_model
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.registration import SwitchedGraphRewriter, SwitchedRewriter
from pymc_fastlogp.rewrites.rows.row_rewriter import RowRewriter

UPSTREAM, ROWS, KERNELS = "PyTensor", "walks of row rules", "kernels"


class Clock:
    """Processor time of calls without that of other counted calls inside of them.

    Attributes
    ----------
    seconds, calls : Counter
        Time and number of calls by name.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._inner = [0.0]
        # Overhead of a counted call: the part that the call counts, and all of it.
        self._own, self._whole = 0.0, 0.0

    def calibrate(self, calls: int = 20_000) -> None:
        """Measure the overhead of a counted call, which is about the time of a rule without work."""
        empty = self.timed(lambda _: None, lambda _: UPSTREAM)
        start = seconds_now()
        for _ in range(calls):
            empty(None)
        self._whole = (seconds_now() - start) / calls
        self._own = self.seconds[UPSTREAM] / calls
        self.seconds.clear()
        self.calls.clear()

    def timed(self, method: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable:
        """Return a method that counts its calls."""

        def counted(rewriter: Any, *args: Any, **kwargs: Any) -> Any:
            start = seconds_now()
            self._inner.append(0.0)
            try:
                return method(rewriter, *args, **kwargs)
            finally:
                taken, name = seconds_now() - start, name_of(rewriter)
                self.seconds[name] += taken - self._own - self._inner.pop()
                self.calls[name] += 1
                self._inner[-1] += taken - self._own + self._whole

        return counted


def _name(rewriter: Any) -> str:
    return str(rewriter.name).removeprefix("fastlogp_")


COUNTED: tuple[tuple[type, str, Callable[[Any], str]], ...] = (
    (GraphRewriter, "rewrite", lambda _: UPSTREAM),
    (SwitchedRewriter, "transform", _name),
    (RowRewriter, "apply", lambda _: ROWS),
    (SwitchedGraphRewriter, "apply", lambda _: KERNELS),
)


@contextmanager
def counted() -> Iterator[Clock]:
    """Count the time of rewriters in this block."""
    clock = Clock()
    clock.calibrate()
    with ExitStack() as stack:
        for kind, method, name_of in COUNTED:
            new = clock.timed(getattr(kind, method), name_of)
            stack.enter_context(mock.patch.object(kind, method, new))
        yield clock


def compile_small() -> None:
    """Compile a model of two rows, so that all modules are imported and all caches of types filled."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("x", shape=2)), observed=[1, 2])
    compile_pymc_model(model)


def compile_seconds(model: pm.Model, **options: Any) -> float:
    """Return the processor time of a compilation."""
    start = seconds_now()
    compile_pymc_model(model, **options)
    return seconds_now() - start
