r"""Register form and memory form of the values of a dtype.

=========================== ======================================= ======================
dtype                       register                                memory
=========================== ======================================= ======================
float64                     :class:`Floats`                         double
float32                     :class:`Floats`, rounded to float32     float
int8, int16, int32, int64   :class:`Integers`, in range             integer of that size
uint8, uint16, uint32       :class:`Integers`, in range             integer of that size
bool                        :class:`Mask`                           i8, true where not 0
=========================== ======================================= ======================

All float dtypes share one register form, and all integer dtypes another, so a loop of mixed dtypes has one vector width.

- A float32 is a double that is rounded to 24 bits after each operation. For ``+ - * /`` and the square root
  the result equals that of float32 arithmetic. Double rounding is innocuous if the wider format has at least
  :math:`2 \cdot 24 + 2` bits (Figueroa 1995, When is double rounding innocuous?), and a double has 53.
- The float32 result of ``//`` is the floor of the double quotient, as in NumPy. Numba rounds the quotient to float32 first.
- An elementary function of float32 errs by at most half a float32 ulp.
- Integers are computed modulo :math:`2^{64}` and wrapped to the dtype after each operation.

uint64, float16 and complex numbers have no form.
"""

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F32, F64, I1, I8, I64, filled
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Lanes, Mask

MEMORY_TYPES: dict[str, ir.Type] = {
    "float64": F64,
    "float32": F32,
    "bool": I8,
    **{f"int{bits}": ir.IntType(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": ir.IntType(bits) for bits in (8, 16, 32)},
}
FORMS: dict[str, type[Lanes]] = {
    dtype: {"f": Floats, "b": Mask, "i": Integers, "u": Integers}[np.dtype(dtype).kind]
    for dtype in MEMORY_TYPES
}
ELEMENTS: dict[type[Lanes], ir.Type] = {Floats: F64, Integers: I64, Mask: I1}


def memory_type(dtype: str) -> ir.Type:
    """Return the LLVM type of one element in memory."""
    return MEMORY_TYPES[dtype]


def constant(builder: ir.IRBuilder, width: int, value: float | int | bool, dtype: str) -> Lanes:
    """Return lanes that all hold one number, rounded or wrapped to the dtype."""
    with np.errstate(over="ignore"):
        number = np.asarray(value).astype(dtype).item()
    form = FORMS[dtype]
    vector = ir.VectorType(ELEMENTS[form], width)
    return form(builder, filled(vector, number))


def from_memory(builder: ir.IRBuilder, value: ir.Value, dtype: str) -> Lanes:
    """Convert a vector of ``memory_type(dtype)`` to register form."""
    form = FORMS[dtype]
    if form is Mask:
        zeros = filled(value.type, 0)
        return Mask(builder, builder.icmp_unsigned("!=", value, zeros))
    vector = ir.VectorType(ELEMENTS[form], value.type.count)
    if value.type == vector:
        return form(builder, value)
    extend = builder.fpext if form is Floats else _extension(builder, dtype)
    return form(builder, extend(value, vector))


def to_memory(lanes: Lanes, dtype: str) -> ir.Value:
    """Convert lanes in the register form of a dtype to a vector of ``memory_type(dtype)``."""
    vector = ir.VectorType(MEMORY_TYPES[dtype], lanes.width)
    if lanes.value.type == vector:
        return lanes.value
    builder = lanes.builder
    change = {Floats: builder.fptrunc, Integers: builder.trunc, Mask: builder.zext}
    return change[type(lanes)](lanes.value, vector)


def normalize(lanes: Lanes, dtype: str) -> Lanes:
    """Round or wrap lanes in the register form of a dtype to the dtype."""
    if dtype in ("float64", "int64", "bool"):
        return lanes
    return from_memory(lanes.builder, to_memory(lanes, dtype), dtype)


def convert(lanes: Lanes, dtype: str) -> Lanes:
    """Convert lanes of any register form to a dtype, as NumPy's ``astype`` does.

    A float is truncated towards zero. The integer is unspecified for nan and for a float outside the range of int64, as in PyTensor.
    """
    form = FORMS[dtype]
    if type(lanes) is form:
        return normalize(lanes, dtype)
    if isinstance(lanes, Floats):
        return lanes.compare("!=", 0.0) if form is Mask else _floats_to_integers(lanes, dtype)
    if isinstance(lanes, Mask):
        return _from_mask(lanes, form)
    assert isinstance(lanes, Integers)
    return lanes.compare("!=", 0) if form is Mask else _integers_to_floats(lanes, dtype)


def _extension(builder: ir.IRBuilder, dtype: str) -> Callable[..., ir.Value]:
    return builder.zext if dtype.startswith("u") else builder.sext


def _from_mask(mask: Mask, form: type[Lanes]) -> Lanes:
    builder, vector = mask.builder, ir.VectorType(ELEMENTS[form], mask.width)
    change = builder.uitofp if form is Floats else builder.zext
    return form(builder, change(mask.value, vector))


def _floats_to_integers(floats: Floats, dtype: str) -> Lanes:
    vector = ir.VectorType(I64, floats.width)
    return normalize(Integers(floats.builder, floats.builder.fptosi(floats.value, vector)), dtype)


def _integers_to_floats(integers: Integers, dtype: str) -> Lanes:
    """Convert integers with one rounding; a conversion through double would round a large integer twice to float32."""
    vector = ir.VectorType(MEMORY_TYPES[dtype], integers.width)
    floats = integers.builder.sitofp(integers.value, vector)
    return from_memory(integers.builder, floats, dtype)
