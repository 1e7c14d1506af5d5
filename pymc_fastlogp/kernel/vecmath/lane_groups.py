"""Evaluation in groups of eight lanes, and lookup in tables of eight entries.

Eight doubles are one vector of AVX-512, two of AVX2 and four of NEON. Groups suit a function with a branch that is taken fairly often:
fewer lanes share the branch, and fewer registers are live at a time.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F64, I32, I64, private_constant, shuffle
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers

GROUP = 8

# Appends the instructions that load the entry at an index.
Entry = Callable[[ir.IRBuilder, ir.Value], ir.Value]


def map_groups(f: Callable[[Floats], Sequence[Floats]], x: Floats) -> tuple[Floats, ...]:
    """Apply f to each group of lanes, and concatenate the results; x may have any width."""
    starts = range(0, x.width, GROUP)
    results = [f(_lanes(x, range(i, min(i + GROUP, x.width)))) for i in starts]
    return tuple(reduce(_concatenate, parts) for parts in zip(*results))


def look_up(index: Integers, name: str, table: Sequence[float]) -> Floats:
    """Return the entries of a table of eight at indices from 0 to 7; the name is part of the symbol of the table.

    For eight lanes LLVM emits one register permutation if the CPU supports this size. Fewer lanes are loaded from memory.
    """
    builder = index.builder
    entry = (
        _register_lookup(table) if index.width == GROUP else _memory_lookup(builder, name, table)
    )
    found = ir.Constant(ir.VectorType(F64, index.width), ir.Undefined)
    for lane in map(I32, range(index.width)):
        value = entry(builder, builder.extract_element(index.value, lane))
        found = builder.insert_element(found, value, lane)
    return Floats(builder, found)


def _register_lookup(table: Sequence[float]) -> Entry:
    """Return the lookup of one entry in a constant vector, which stays in a register."""
    entries = ir.Constant(ir.VectorType(F64, len(table)), list(table))
    return lambda builder, i: builder.extract_element(entries, i)


def _memory_lookup(builder: ir.IRBuilder, name: str, table: Sequence[float]) -> Entry:
    """Return the lookup of one entry in a constant array in memory."""
    array = ir.Constant(ir.ArrayType(F64, len(table)), list(table))
    entries = private_constant(builder.module, f"pymc_fastlogp.table.{name}", array)
    return lambda builder, i: builder.load(builder.gep(entries, [I64(0), i]))


def _lanes(x: Floats, lanes: Sequence[int]) -> Floats:
    """Return the selected lanes."""
    return Floats(x.builder, shuffle(x.builder, x.value, x.value, lanes))


def _concatenate(first: Floats, second: Floats) -> Floats:
    """Return the lanes of both vectors; the second has at most as many as the first."""
    last = second.width - 1
    padded = _lanes(second, [min(i, last) for i in range(first.width)]).value
    both = range(first.width + second.width)
    return Floats(first.builder, shuffle(first.builder, first.value, padded, both))
