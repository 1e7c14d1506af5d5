"""Slices whose bounds and steps are as large as integers are."""

import numpy as np
import pytensor.tensor as pt
import pytest

from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native

LARGEST, LEAST = 2**63 - 1, -(2**63)
BOUNDS = (LEAST, LEAST + 1, LEAST + 3, -(2**62), -6, -2, 0, 3, 7, 2**62, LARGEST - 1, LARGEST)
STEPS = (1, 2, LARGEST, -1, -2, LEAST + 1)


def kernel_of(inputs, output):
    return compile_native(program_of(inputs, [output]))


@pytest.mark.parametrize("step", STEPS)
def test_bounds_that_are_known_at_the_call(step):
    v, start, stop = pt.vector("v"), pt.lscalar("start"), pt.lscalar("stop")
    kernel = kernel_of([v, start, stop], pt.exp(v[start:stop:step]) * 2)
    for size in (0, 1, 5):
        values = np.arange(float(size))
        for a in BOUNDS:
            for b in BOUNDS:
                [found] = kernel(values, np.array(a), np.array(b))
                np.testing.assert_allclose(found, np.exp(values[a:b:step]) * 2, rtol=1e-14)


@pytest.mark.parametrize("bound", [LEAST + 1, LEAST + 3, -2, 3, LARGEST])
@pytest.mark.parametrize("step", [1, -1])
def test_slices_with_one_constant_bound_agree_with_numpy(bound, step):
    v, other = pt.vector("v"), pt.lscalar("other")
    kernels = [
        kernel_of([v, other], pt.exp(v[bound:other:step]) * 2),
        kernel_of([v, other], pt.exp(v[other:bound:step]) * 2),
    ]
    for size in (0, 5):
        values = np.arange(float(size))
        for b in BOUNDS:
            found = [kernel(values, np.array(b))[0] for kernel in kernels]
            slices = slice(bound, b, step), slice(b, bound, step)
            for each, positions in zip(found, slices, strict=True):
                np.testing.assert_allclose(each, np.exp(values[positions]) * 2, rtol=1e-14)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("start", "stop"), [(None, None), (3, LEAST + 1), (LARGEST, LEAST + 1)])
def test_bounds_that_are_known_before(start, stop, step):
    v, positions = pt.vector("v"), slice(start, stop, step)
    kernel = kernel_of([v], pt.exp(v[positions]) * 2)
    for size in (0, 1, 5):
        values = np.arange(float(size))
        np.testing.assert_allclose(kernel(values)[0], np.exp(values[positions]) * 2, rtol=1e-14)
