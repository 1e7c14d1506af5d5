"""Arguments of a kernel for constants, and their lifetime."""

import gc
from weakref import ref

import numpy as np
import pytest
from pytensor.tensor.basic import constant

from pymc_fastlogp.kernel.graph.boundary import to_kernel_tensor

ARRAYS = {
    "float64": np.linspace(0, 1, 1000),
    "large integers": np.arange(1000) + 2**40,
    "small integers": np.arange(1000),
    "Fortran order": np.asfortranarray(np.ones((30, 40))),
}


@pytest.mark.parametrize("data", ARRAYS.values(), ids=ARRAYS)
def test_a_constant_is_freed_with_the_graph(data):
    x = constant(data.copy(order="K"))
    narrowed = to_kernel_tensor(x)
    np.testing.assert_array_equal(narrowed.data, data)
    gone = [ref(each) for each in (x, x.data, narrowed, narrowed.data)]
    del x, narrowed
    gc.collect()
    assert not any(each() is not None for each in gone)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_constant_is_narrowed_once(name):
    x = constant(ARRAYS[name])
    assert to_kernel_tensor(x) is to_kernel_tensor(x)
    assert (to_kernel_tensor(x) is x) == (name in ("float64", "large integers"))
