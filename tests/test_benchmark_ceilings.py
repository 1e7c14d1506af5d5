import numpy as np
import pytest
from llvmlite import ir
from scipy.special import expit

from benchmarks.ceilings import CEILINGS
from benchmarks.ceilings.vector import Kernel
from benchmarks.sides import Reference
from benchmarks.suite import case
from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points

F64 = ir.DoubleType()


def elementwise(function, x):
    """Run a vector function of a kernel over x; 37 values leave a partial block."""
    kernel = Kernel(x.size)
    kernel.rows(
        x.size, lambda rows: rows.store(function(kernel, rows.load(kernel.x)), kernel.gradient)
    )
    return kernel.finish(F64(0.0)).evaluate(x)[1]


def test_vector_exp_is_accurate():
    x = np.linspace(-700, 700, 37)
    np.testing.assert_allclose(elementwise(Kernel.exp, x), np.exp(x), rtol=1e-15)


def test_vector_softplus_and_sigmoid_are_accurate():
    x = np.linspace(-30, 30, 37)
    softplus = elementwise(lambda kernel, v: kernel.softplus_and_sigmoid(v)[0], x)
    sigmoid = elementwise(lambda kernel, v: kernel.softplus_and_sigmoid(v)[1], x)
    np.testing.assert_allclose(softplus, np.logaddexp(0, x), rtol=1e-14)
    np.testing.assert_allclose(sigmoid, expit(x), rtol=1e-14)


def test_sums_by_group_see_every_row_and_start_from_zero_in_each_call():
    values, groups = np.arange(37.0), np.arange(37) % 3
    kernel = Kernel(3)
    index, data, sums = kernel.array(groups), kernel.array(values), kernel.lane_sums(3)
    kernel.rows(37, lambda rows: rows.add_lanes_at(sums, rows.load(index), rows.load(data)))
    kernel.each(
        3,
        lambda i: kernel.builder.store(
            kernel.take_lane_sum(sums, i), kernel.at(kernel.gradient, i)
        ),
    )
    callback = kernel.finish(F64(0.0))
    for _ in range(2):
        result = callback.evaluate(np.zeros(3))[1]
        np.testing.assert_array_equal(result, np.bincount(groups, values))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poisson", "irt_2pl", "mrp_10k"])
def test_kernel_computes_the_density_of_the_model(name):
    model = case(name).make()
    callback = compile_side(model, "off")
    reference = Reference.of(model, callback, legal_points(callback, seed=0))
    kernel = CEILINGS[name](case(name).stan_data())
    check_agreement(kernel.evaluate, reference.evaluate_declared, reference.declared_points)
