"""Conversion of values at the inputs and outputs of a kernel.

A kernel takes and gives tensors. Small constants are part of its code. Large ones are passed to it, in C
order and integers in 32 bits where they fit, so that code does not embed megabytes and loops read
less memory.
"""

from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import cast, constant, scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.variable import TensorConstant, TensorVariable

# A page of memory: 512 numbers of 8 bytes. More would be most of the code of a typical kernel; a matter of
# the size of code, not of speed.
EMBEDDED_BYTES = 4096

INT32 = np.iinfo(np.int32)

# Each constant is narrowed once, however many functions it is passed to, and kept no longer than it lives.
_narrowed: WeakKeyDictionary[TensorConstant, TensorConstant] = WeakKeyDictionary()


def is_embedded(x: Variable) -> bool:
    """Return whether a variable is a constant that is part of the code."""
    if not isinstance(x, TensorConstant):
        return isinstance(x, Constant)
    return x.data.nbytes <= EMBEDDED_BYTES


def passed(x: Variable) -> TensorVariable:
    """Return the tensor that is passed to a kernel for a variable."""
    if isinstance(x, TensorConstant):
        return _narrow(x)
    return tensor_from_scalar(x) if isinstance(x.type, ScalarType) else x


def restored(x: TensorVariable, type_: Type) -> Variable:
    """Return what a tensor stands for inside of a kernel, or outside after it, as a variable of a type."""
    if isinstance(type_, ScalarType):
        return scalar_from_tensor(x)
    return x if x.type.dtype == type_.dtype else cast(x, type_.dtype)


def _narrow(x: TensorConstant) -> TensorConstant:
    """Return a constant as it is passed; a weak dictionary that has it as key and value would keep it for good."""
    narrowed = _narrowed.get(x)
    if narrowed is not None:
        return narrowed
    data = _narrow_array(x.data)
    # `setdefault` is one step for all threads.
    return x if data is x.data else _narrowed.setdefault(x, constant(data, name=x.name))


def _narrow_array(data: np.ndarray) -> np.ndarray:
    """Return an array in C order, integers in 32 bits where they fit; itself where it is so already."""
    if data.dtype == np.int64 and INT32.min <= data.min() and data.max() <= INT32.max:
        data = data.astype(np.int32, order="C")
        data.flags.writeable = False  # so that it need not be copied to be held
    return np.ascontiguousarray(data)
