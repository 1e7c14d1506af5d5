"""Vectors of an index with repeated values: tests of equality, and loads of two elements instead of a gather.

If an index has long runs, a vector of it lies within one run, or spans the end of one run and the start of the next. The vector then reads
at most two elements of a table. Two loads and a select are cheaper than a gather:

.. code-block:: text

    every i is the first or the last    t[first] where i is the first, t[last] elsewhere
    otherwise                           a gather

The result is correct for any index.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from llvmlite import ir

from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.emit.memory import load_neighbors
from pymc_fastlogp.kernel.llvm import I1, Number, declared, is_vector, lane, splat, widened
from pymc_fastlogp.kernel.vecmath.vector import Mask


def load_first_or_last(
    builder: ir.IRBuilder, array: Array, indices: Sequence[Number], gather: Callable[[], ir.Value]
) -> ir.Value:
    """Load the elements of an array at an index that is a vector along at least one axis; ``gather`` appends the general case."""
    varying = [i for i in indices if is_vector(i)]
    width = varying[0].type.count
    first, last = ([lane(builder, i, k) for i in varying] for k in (0, width - 1))
    is_first, is_last = (are_equal(builder, varying, element) for element in (first, last))
    with builder.if_else(all_lanes(is_first | is_last), likely=True) as (of_two, of_several):
        with of_two:
            a, b = (_load(builder, array, indices, element, width) for element in (first, last))
            chosen, after_two = builder.select(is_first.value, a, b), builder.block
        with of_several:
            gathered, after_several = gather(), builder.block
    result = builder.phi(chosen.type)
    result.add_incoming(chosen, after_two)
    result.add_incoming(gathered, after_several)
    return result


def _load(
    builder: ir.IRBuilder,
    array: Array,
    indices: Sequence[Number],
    element: Sequence[ir.Value],
    width: int,
) -> ir.Value:
    """Load one element into all lanes; ``element`` has the index of each axis along which ``indices`` has a vector."""
    numbers = iter(element)
    index = [next(numbers) if is_vector(i) else i for i in indices]
    address = array.address(builder, index)
    return widened(builder, load_neighbors(builder, array, address, 1, None), width)


def are_equal(
    builder: ir.IRBuilder, indices: Sequence[ir.Value], element: Sequence[ir.Value]
) -> Mask:
    """Return the mask of the lanes whose index equals the index of an element along all axes."""
    pairs = zip(indices, element, strict=True)
    equal = (builder.icmp_signed("==", i, splat(builder, j, i.type.count)) for i, j in pairs)
    return Mask(builder, reduce(builder.and_, equal))


def all_lanes(mask: Mask) -> ir.Value:
    """Return whether a mask is true in all lanes."""
    name = f"llvm.vector.reduce.and.v{mask.width}i1"
    function = declared(mask.builder.module, name, ir.FunctionType(I1, [mask.value.type]))
    return mask.builder.call(function, [mask.value])
