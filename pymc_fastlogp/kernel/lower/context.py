"""State of the lowering of one graph: the buffers, and the steps in execution order."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.ir.arithmetic import all_of, domain_of, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Role, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check, Error, Loop, Statement, Step, Store
from pymc_fastlogp.kernel.ir.traversal import loaded, reads_directly
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError, buffer_array
from pymc_fastlogp.kernel.lower.lengths import is_known_at_call

Clients = Mapping[Variable, Sequence[tuple[Apply, int]]]
LowerGraph = Callable[["Context", AbstractFunctionGraph, Sequence[Array]], list[Array]]


class Context:
    """The program of a graph under construction.

    Attributes
    ----------
    steps : list of Step
        The steps so far, one or a few for each node.
    lower_graph : callable
        Takes a context, a graph and its inputs. It appends the loops of the graph, and returns the outputs.
    runs : tuple of Expr
        The steps of an inner graph run only if all these conditions hold, which are known when the kernel is called.
    requirements : dict of Check
        The checks that run before all loops.
    scratch, constants : list of Buffer
        The buffers so far.
    errors : list of Error
        The exceptions of the checks.
    clients : mapping of Variable to sequence
        The clients of each variable of the graph, as in a ``FunctionGraph``.
    delays_elemwise : bool
        Whether results of Elemwise that only other Elemwise nodes read are inlined there instead of stored.
    """

    def __init__(self, clients: Clients, lower_graph: "LowerGraph"):
        self.steps: list[Step] = []
        self.lower_graph = lower_graph
        self.runs: tuple[Expr, ...] = ()
        self.requirements: dict[Check, None] = {}
        self.scratch: list[Buffer] = []
        self.constants: list[Buffer] = []
        self.errors: list[Error] = []
        self.clients = clients
        self.delays_elemwise = False

    def for_inner_graph(self, clients: Clients, runs: Expr | None) -> Self:
        """Return the context of an inner graph: it has its own steps, which run if ``runs`` holds, and shares the buffers."""
        inner = copy(self)
        inner.steps, inner.clients, inner.delays_elemwise = [], clients, False
        inner.runs = self.runs if runs is None else (*self.runs, runs)
        return inner

    def add(self, domain: tuple[Size, ...], *body: Statement) -> None:
        """Append a loop; without axes, one loop for each statement.

        Scalars of one Op may depend on each other through another loop: one is read by the loop, one depends on its sum.
        In one step they would prevent fusion of the loop.
        """
        parts = [body] if domain else [(statement,) for statement in body]
        self.steps += [Loop(domain, part) for part in parts]

    def buffer(self, dtype: str, shape: tuple[Size, ...]) -> Buffer:
        """Return a new scratch buffer."""
        buffer = Buffer(f"b{len(self.scratch)}", dtype, shape, Role.SCRATCH)
        self.scratch.append(buffer)
        return buffer

    def constant(self, dtype: str, shape: tuple[Size, ...], data: bytes) -> Buffer:
        """Return a new buffer with constant elements."""
        buffer = Buffer(f"c{len(self.constants)}", dtype, shape, Role.CONSTANT, data)
        self.constants.append(buffer)
        return buffer

    def store(self, shape: tuple[Size, ...], dtype: str, at: Any) -> Array:
        """Append a loop that stores the elements of an array, and return the stored array."""
        buffer = self.buffer(dtype, shape)
        domain, index = domain_of(shape)
        self.add(domain, Store(buffer, index, at(index)))
        return buffer_array(buffer)

    def owned_copy(self, array: Array, variable: Variable) -> Buffer:
        """Return a scratch buffer with the elements of a variable that may be overwritten."""
        owned = self.owned(array, variable)
        return owned or self.store(array.shape, array.dtype, array.at).whole

    def owned(self, array: Array, variable: Variable) -> Buffer | None:
        """Return the buffer of a variable if it has no other reader and may be overwritten, otherwise None."""
        if array.is_uninitialized:
            return self.buffer(array.dtype, array.shape)
        buffer = array.buffer
        is_scratch = buffer is not None and buffer.role is Role.SCRATCH
        return buffer if is_scratch and len(self.clients[variable]) == 1 else None

    def reduce(self, op: ScalarOp, identity: Expr, array: Array, axes: Sequence[int]) -> Array:
        """Append loops that reduce an array over axes, and return the result."""
        kept = tuple(size for axis, size in enumerate(array.shape) if axis not in axes)
        result = self.store(kept, array.dtype, lambda _: identity)
        domain, index = domain_of(array.shape)
        target = tuple(i for axis, i in enumerate(index) if axis not in axes)
        self.add(domain, Accumulate(result.whole, target, op, array.at(index)))
        return result

    def check(self, shape: tuple[Size, ...], condition: Any, error: Error) -> None:
        """Append a loop that checks a condition for each index.

        A condition that is known when the kernel is called, such as a comparison of lengths, is checked before all loops. So loops
        stay in bounds wherever passes move them. An earlier check guards each element that such a condition reads. In an inner graph
        that may not run, only conditions on lengths are checked first.
        """
        if error not in self.errors:
            self.errors.append(error)
        domain, index = domain_of(shape)
        check = Check(condition(index), self.errors.index(error) + 1)
        if domain or not self._can_be_first(check.condition):
            self.add(domain, check)
        elif self.runs:
            never = truth(ps.invert, all_of(self.runs))
            self.requirements[replace(check, condition=truth(ps.or_, never, check.condition))] = (
                None
            )
        else:
            self.requirements[check] = None

    def _can_be_first(self, condition: Expr) -> bool:
        """Return whether a condition can be checked before all loops."""
        if self.runs:
            return is_known_at_call(condition) and not loaded([condition])
        return is_known_at_call(condition) and reads_directly(condition)

    def require(self, condition: Expr, error: Error) -> None:
        """Check a condition once."""
        self.check((), lambda _: condition, error)

    def require_equal(self, first: Size, second: Size, error: Error) -> None:
        """Check that two lengths are equal, unless they are equal as expressions."""
        if first == second:
            return
        if isinstance(first, int) and isinstance(second, int):
            raise UnsupportedError("unequal lengths, for which upstream raises an exception")
        self.require(Compute(ps.eq, (as_expr(first), as_expr(second)), "bool"), error)
