"""Scopes of a loop nest: one for each level, in which expressions are evaluated once.

A scope evaluates an expression once, in the outermost scope in which its indices are known. Each scope has
a builder of its own, and its block is closed only when the code inside it is complete (see
:mod:`pymc_fastlogp.kernel.emit.loop_nest`). So an expression that turns out to be needed deep inside is
appended to the block before the inner loop, which is all that hoisting takes.

The scope of the innermost axis has one lane for each of ``width`` neighbors. What is known outside has one
lane and is spread where it meets vectors.
"""

from dataclasses import dataclass, field

from llvmlite import ir

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.access_patterns import AccessPatterns
from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.emit.packs import Pack, together
from pymc_fastlogp.kernel.emit.repeated_indices import load_of_two
from pymc_fastlogp.kernel.emit.shared_functions import Shared
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Index, Length, Load
from pymc_fastlogp.kernel.ir.traversal import walk
from pymc_fastlogp.kernel.llvm import I1, I32, I64, Number, lane, splat, widened
from pymc_fastlogp.kernel.vecmath.vector import Integers, Lanes, Mask

Element = tuple[Expr, ...]

# How many operations on an index are repeated in each lane, beside its loads (``python -m benchmarks.limits``).
CHEAP = 2


@dataclass(frozen=True, eq=False)
class Known:
    """Values that are constant while a kernel runs: addresses of buffers, lengths by input and axis, use of gather and scatter instructions."""

    arrays: dict[Buffer, Array]
    lengths: dict[tuple[int, int], ir.Value]
    uses_gathers: bool = False


@dataclass(eq=False)
class Scope:
    """One level of a nest of loops, whose code the builder appends to.

    Attributes
    ----------
    level : int
        Number of loops around.
    outer : Scope, optional
        The level outside; None at level 0.
    start : llvmlite.ir.Value, optional
        Index of the first lane along axis ``level - 1``.
    live : int or llvmlite.ir.Value, optional
        How many of the ``width`` lanes, from the first one on, are in the domain; all by default.
    values : dict
        What was evaluated.
    """

    builder: ir.IRBuilder
    known: Known
    patterns: AccessPatterns
    level: int = 0
    outer: "Scope | None" = None
    start: ir.Value | None = None
    width: int = 1
    live: int | ir.Value | None = None
    values: dict[Expr, Lanes] = field(default_factory=dict)
    _first: "Scope | None" = None

    def inside(
        self,
        builder: ir.IRBuilder,
        start: ir.Value,
        width: int = 1,
        live: int | ir.Value | None = None,
    ) -> "Scope":
        """Return the scope of the next level."""
        return Scope(builder, self.known, self.patterns, self.level + 1, self, start, width, live)

    def first(self) -> "Scope":
        """Return the scope of the first lane alone."""
        if self.width == 1:
            return self
        if self._first is None:
            self._first = self.lane(I64(0))
        return self._first

    def lane(self, number: ir.Value) -> "Scope":
        """Return the scope of one lane alone, which evaluates anew what changes from lane to lane."""
        assert self.outer is not None
        return self.outer.inside(self.builder, self.builder.add(self.start, number))

    def mask(self) -> Mask | None:
        """Return which lanes are in the domain, None if all."""
        if self.live is None:
            return None
        masks = ir.VectorType(I1, self.width)
        if isinstance(self.live, int):
            live = self.live
            return Mask(self.builder, ir.Constant(masks, [i < live for i in range(self.width)]))
        bound = splat(self.builder, self.live, self.width)
        return Mask(self.builder, self.builder.icmp_signed("<", _lane_numbers(self.width), bound))

    def value(self, expr: Expr) -> Lanes:
        """Return the value of an expression, with one lane or ``width``, for use by this builder."""
        pending = [expr]
        while pending:
            last = pending[-1]
            home = self._home(last)
            if last in home.values:
                pending.pop()
                continue
            missing = [arg for arg in self._needed(last) if arg not in self._home(arg).values]
            if missing:
                pending.extend(reversed(missing))
                continue
            home.values[last] = home._evaluated(last)
            pending.pop()
        value = self._home(expr).values[expr]
        return type(value)(self.builder, value.value)

    def spread(self, expr: Expr) -> Lanes:
        """Return the value of an expression in all lanes."""
        if isinstance(expr, Const):
            return scalars.constant(self.builder, self.width, expr.value, expr.dtype)
        value = self.value(expr)
        return type(value)(self.builder, widened(self.builder, value.value, self.width))

    def scalar(self, expr: Expr) -> ir.Value:
        """Return the value of an expression in the first lane, not as a vector."""
        return lane(self.builder, self.first().value(expr).value, 0)

    def number(self, expr: Expr) -> Number:
        """Return the value of an integer in the first lane, as an int if it is constant."""
        return int(expr.value) if isinstance(expr, Const) else self.scalar(expr)

    def index(self, expr: Expr) -> Number:
        """Return the value of an index: a vector where it changes from lane to lane."""
        is_common = self.width == 1 or self.patterns.is_uniform((expr,))
        return self.number(expr) if is_common else self.spread(expr).value

    def address(self, buffer: Buffer, index: Element) -> ir.Value:
        """Return the address of the element of the first lane."""
        return self.known.arrays[buffer].address(self.builder, list(map(self.number, index)))

    def addresses(self, buffer: Buffer, index: Element) -> ir.Value:
        """Return a vector of the addresses of the elements of all lanes."""
        return self.known.arrays[buffer].address(self.builder, list(map(self.index, index)))

    def is_contiguous(self, buffer: Buffer, index: Element) -> bool:
        """Return whether the lanes are neighbors in memory; a single lane is."""
        if self.width == 1:
            return True
        array = self.known.arrays[buffer]
        return array.step(list(map(self.patterns.coefficient, index))) == 1

    def is_cheap_by_lane(self, index: Element) -> bool:
        """Return whether an index takes loads of neighbors and a few operations on each axis, so that each lane evaluates it anew."""
        return all(map(self._is_cheap_by_lane, index))

    def _is_cheap_by_lane(self, index: Expr) -> bool:
        patterns = self.patterns
        varying = [expr for expr in walk([index]) if patterns.level[expr] == patterns.depth]
        loads = [expr for expr in varying if isinstance(expr, Load)]
        n_operations = sum(isinstance(expr, Compute) for expr in varying)
        return n_operations <= CHEAP and all(
            self.is_contiguous(load.buffer, load.index) for load in loads
        )

    def load(self, buffer: Buffer, index: Element) -> Lanes:
        """Return the elements of a buffer at an index, in all lanes."""
        builder, array = self.builder, self.known.arrays[buffer]
        if self.is_contiguous(buffer, index):
            address = self.address(buffer, index)
            loaded = memory.load_neighbors(builder, array, address, self.width, self.mask())
        elif self.live is None and self.patterns.has_runs(index, self.width):
            # What is first evaluated in one of two branches is not known after them.
            indices = list(map(self.index, index))
            loaded = load_of_two(builder, array, indices, lambda: self._gather(buffer, index))
        else:
            loaded = self._gather(buffer, index)
        return scalars.from_memory(builder, loaded, array.dtype)

    def store(self, buffer: Buffer, index: Element, value: Lanes) -> None:
        """Store the value of each lane of the domain; if lanes store to one element, the last counts."""
        builder, array = self.builder, self.known.arrays[buffer]
        if self.patterns.is_uniform(index):
            memory.store_one(builder, array, self.address(buffer, index), self._last(value))
            return
        content = scalars.to_memory(value, array.dtype)
        if self.is_contiguous(buffer, index):
            address = self.address(buffer, index)
            memory.store_neighbors(builder, array, address, content, self.mask())
        else:
            addresses = self.addresses(buffer, index)
            memory.scatter(builder, array, addresses, content, self.mask())

    def _gather(self, buffer: Buffer, index: Element) -> ir.Value:
        """Return the element of each lane.

        Without gather instructions LLVM takes a vector of addresses to pieces. To load each index as a scalar is cheaper.
        """
        if self.live is None and not self.known.uses_gathers and self.is_cheap_by_lane(index):
            return self._load_each(buffer, index)
        addresses = self.addresses(buffer, index)
        return memory.gather(self.builder, self.known.arrays[buffer], addresses, self.mask())

    def _load_each(self, buffer: Buffer, index: Element) -> ir.Value:
        builder, array = self.builder, self.known.arrays[buffer]
        loaded = ir.Constant(ir.VectorType(array.element, self.width), ir.Undefined)
        for number in range(self.width):
            address = self.lane(I64(number)).address(buffer, index)
            one = memory.load_neighbors(builder, array, address, 1, None)
            loaded = builder.insert_element(loaded, lane(builder, one, 0), I32(number))
        return loaded

    def _last(self, value: Lanes) -> Lanes:
        """Return the value of the last lane of the domain."""
        live = self.width if self.live is None else self.live
        last = I32(live - 1) if isinstance(live, int) else self.builder.sub(live, live.type(1))
        element = self.builder.extract_element(value.value, last)
        return type(value)(self.builder, splat(self.builder, element, 1))

    def _evaluated(self, expr: Expr) -> Lanes:
        """Append what evaluates an expression whose arguments are known, here."""
        match expr:
            case Const(value, dtype):
                return scalars.constant(self.builder, 1, value, dtype)
            case Index():
                return self._numbers()
            case Length(number, axis):
                return Integers(
                    self.builder, splat(self.builder, self.known.lengths[number, axis], 1)
                )
            case Load(buffer, index):
                return self.load(buffer, index)
            case Compute(op, args, dtype):
                shared = self.patterns.shared.get(expr)
                if shared:
                    self._evaluate_together(shared)
                    return self.values[expr]
                if pack := self.patterns.packs.get(expr):
                    self._evaluate_in_lanes(pack)
                    return self.values[expr]
                values = [self.spread(arg) for arg in args]
                return scalars.emit(op, values, [arg.dtype for arg in args], dtype)

    def _numbers(self) -> Integers:
        """Return the index of each lane along the axis of this level."""
        start = splat(self.builder, self.start, self.width)
        if self.width == 1:
            return Integers(self.builder, start)
        return Integers(self.builder, self.builder.add(start, _lane_numbers(self.width)))

    def _evaluate_together(self, shared: Shared) -> None:
        """Evaluate functions of one argument together, as they have the same argument, at the same level."""
        x = self.spread(shared.argument)
        dtypes = [expr.dtype if expr else "float64" for expr in shared.results]
        results = scalars.emit_shared(shared.name, x, dtypes)
        self.values |= {expr: value for expr, value in zip(shared.results, results) if expr}

    def _evaluate_in_lanes(self, pack: Pack) -> None:
        """Evaluate a function of several numbers at once."""
        x = together([self.spread(argument) for argument in pack.arguments])
        first = pack.members[0]
        result = scalars.emit(pack.op, [x], [first.args[0].dtype], first.dtype)
        for position, member in enumerate(pack.members):
            own = splat(self.builder, lane(self.builder, result.value, position), 1)
            self.values[member] = type(result)(self.builder, own)

    def _needed(self, expr: Expr) -> tuple[Expr, ...]:
        """Return what is evaluated before an expression; a load takes care of its index itself."""
        if not isinstance(expr, Compute):
            return ()
        pack = self.patterns.packs.get(expr)
        return pack.arguments if pack else expr.args

    def _home(self, expr: Expr) -> "Scope":
        """Return the outermost scope in which an expression can be evaluated."""
        scope = self
        while scope.outer is not None and scope.patterns.level[expr] < scope.level:
            scope = scope.outer
        return scope


def _lane_numbers(width: int) -> ir.Value:
    return ir.Constant(ir.VectorType(I64, width), list(range(width)))
