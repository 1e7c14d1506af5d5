"""Conversion of values at the inputs and outputs of a kernel.

- Inputs and outputs of a kernel are tensors; scalars are converted.
- Small constants are embedded in the code.
- Large constants are inputs, in C order. Their int64 values are narrowed to int32 if they fit, which halves the memory that loops read.
"""

from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import cast, constant, scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.variable import TensorConstant, TensorVariable

# Largest embedded constant: 512 numbers of 8 bytes. Larger ones would dominate the size of the code; speed is not affected.
EMBEDDED_BYTES = 4096

INT32 = np.iinfo(np.int32)

# Narrowed constants by original, so that functions share them. Weak keys: an entry lives as long as the original.
_narrowed: WeakKeyDictionary[TensorConstant, TensorConstant] = WeakKeyDictionary()


def is_embedded(x: Variable) -> bool:
    """Return whether a variable is a constant that is embedded in the code."""
    if not isinstance(x, TensorConstant):
        return isinstance(x, Constant)
    return x.data.nbytes <= EMBEDDED_BYTES


def to_kernel_tensor(x: Variable) -> TensorVariable:
    """Convert a variable to the tensor that a kernel takes or returns."""
    if isinstance(x, TensorConstant):
        return _narrow(x)
    return tensor_from_scalar(x) if isinstance(x.type, ScalarType) else x


def from_kernel_tensor(x: TensorVariable, type_: Type) -> Variable:
    """Convert a tensor that a kernel takes or returns back to a variable of the original type."""
    if isinstance(type_, ScalarType):
        return scalar_from_tensor(x)
    return x if x.type.dtype == type_.dtype else cast(x, type_.dtype)


def _narrow(x: TensorConstant) -> TensorConstant:
    """Return a constant in C order and narrowed.

    A constant that needs no conversion is not cached: the cache would map the constant to itself, and a value keeps its weak key alive.
    """
    narrowed = _narrowed.get(x)
    if narrowed is not None:
        return narrowed
    data = _narrow_array(x.data)
    # `setdefault` is atomic, so that all threads get the same constant.
    return x if data is x.data else _narrowed.setdefault(x, constant(data, name=x.name))


def _narrow_array(data: np.ndarray) -> np.ndarray:
    """Return an array in C order, with int64 values as int32 if they fit; the same array if nothing changes."""
    if data.dtype == np.int64 and INT32.min <= data.min() and data.max() <= INT32.max:
        data = data.astype(np.int32, order="C")
        data.flags.writeable = False  # `hold` copies writeable arrays
    return np.ascontiguousarray(data)
