"""Eight lanes at a time: vectors cut into groups, and look-ups in tables of eight.

Eight doubles are one vector of AVX-512, two of AVX2 and four of NEON. A function whose rare case is not so rare
is better computed in groups, as then fewer lanes share its branch, and it needs fewer registers at a time.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F64, I32, I64, private_constant, shuffle
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers

GROUP = 8

# Appends what returns the entry at an index.
Entry = Callable[[ir.IRBuilder, ir.Value], ir.Value]


def in_groups(f: Callable[[Floats], Sequence[Floats]], x: Floats) -> tuple[Floats, ...]:
    """Return the results of f, of one group of lanes after the other; x is of any width."""
    starts = range(0, x.width, GROUP)
    results = [f(_lanes(x, range(i, min(i + GROUP, x.width)))) for i in starts]
    return tuple(reduce(_joined, parts) for parts in zip(*results))


def look_up(index: Integers, name: str, table: Sequence[float]) -> Floats:
    """Return the entries of a table of eight, whose name is part of a symbol, at indices from 0 to 7.

    Of eight lanes LLVM makes one permutation of a register, where the CPU has one of that size; fewer are
    loaded from memory.
    """
    builder = index.builder
    entry = _in_register(table) if index.width == GROUP else _in_memory(builder, name, table)
    found = ir.Constant(ir.VectorType(F64, index.width), ir.Undefined)
    for lane in map(I32, range(index.width)):
        value = entry(builder, builder.extract_element(index.value, lane))
        found = builder.insert_element(found, value, lane)
    return Floats(builder, found)


def _in_register(table: Sequence[float]) -> Entry:
    entries = ir.Constant(ir.VectorType(F64, len(table)), list(table))
    return lambda builder, i: builder.extract_element(entries, i)


def _in_memory(builder: ir.IRBuilder, name: str, table: Sequence[float]) -> Entry:
    array = ir.Constant(ir.ArrayType(F64, len(table)), list(table))
    entries = private_constant(builder.module, f"pymc_fastlogp.table.{name}", array)
    return lambda builder, i: builder.load(builder.gep(entries, [I64(0), i]))


def _lanes(x: Floats, lanes: Sequence[int]) -> Floats:
    """Return some lanes."""
    return Floats(x.builder, shuffle(x.builder, x.value, x.value, lanes))


def _joined(first: Floats, second: Floats) -> Floats:
    """Return the lanes of both; the second has no more than the first."""
    last = second.width - 1
    padded = _lanes(second, [min(i, last) for i in range(first.width)]).value
    both = range(first.width + second.width)
    return Floats(first.builder, shuffle(first.builder, first.value, padded, both))
