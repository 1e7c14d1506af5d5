"""``log(a * exp(x))`` becomes ``log(a) + x`` after the gradient, infinite results excepted."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.config import switched

# What a function in mode NUMBA is rewritten to, before fusion, evaluated without compiling it.
MODE = get_mode("NUMBA").excluding("fusion", "inplace", "fastlogp_fused_kernel")
PYTHON = Mode(linker="py", optimizer=MODE.optimizer)

a = pt.scalar("a")
x = pt.vector("x", shape=(12,))
y = pt.vector("y", shape=(12,))
row = pt.matrix("row", shape=(1, 12))
column = pt.matrix("column", shape=(3, 1))
counts = pt.matrix("counts", shape=(3, 1), dtype="int8")
product = a * pt.exp(x)

FIRES = {
    "scalar": pt.log(product),
    "negative exponent": pt.log(a * pt.exp(-x)),
    "quotient": pt.log(a / pt.exp(x)),
    "two scales": pt.log(a * column * pt.exp(row)),
    "scale along another axis": pt.log(column * pt.exp(row)),
    "scale of integers": pt.log(counts * pt.exp(row)),
    "scales of integers": pt.log(pt.mul(counts, pt.exp(row), counts)),
    "narrower scale": pt.log(pt.cast(column, "float32") * pt.exp(row)),
    "float32": pt.log(pt.cast(a, "float32") * pt.exp(pt.cast(x, "float32"))),
}
REFUSES = {
    "scale as long as the rows": pt.log(y * pt.exp(x)),
    "no scale": pt.log(pt.exp(x)),
    "no exponential": pt.log(a * x),
    "sum": pt.log(a + pt.exp(x)),
    "log1p": pt.log1p(a * pt.exp(x)),
}
EXTREMES = np.array([-np.inf, -800, -705, -690, -1, -0.0, 0.3, 690, 709.5, 800, np.inf, np.nan])


def compiled(out, *, on):
    inputs = [v for v in (a, x, y, row, column, counts) if v in set(ancestors([out]))]
    with switched(on):
        function = pytensor.function(inputs, out, mode=PYTHON)
    return function, inputs


def logs_of_rows(function):
    return sum(
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, ps.Log)
        and 12 in node.outputs[0].type.shape
        for node in function.maker.fgraph.apply_nodes
    )


@pytest.mark.parametrize("name", FIRES)
def test_no_row_takes_a_logarithm(name):
    logs = [logs_of_rows(compiled(FIRES[name], on=on)[0]) for on in (False, True)]
    assert logs == [1, 0]


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    off, on = (compiled(REFUSES[name], on=on)[0] for on in (False, True))
    printed = [pytensor.dprint(f, file="str", id_type="") for f in (off, on)]
    assert printed[0] == printed[1]


@pytest.mark.parametrize("scale", [0.0, -0.0, 1e-300, 0.7, 3e8, 1e300, np.inf, -2.0, np.nan])
@pytest.mark.parametrize("name", FIRES)
def test_value(name, scale):
    values = {
        a: scale,
        x: EXTREMES,
        row: EXTREMES[None],
        column: np.array([[1e-8], [1.0], [2.5]]),
        counts: np.array([[0], [3], [120]], dtype="int8"),
    }
    expected, found = (
        function(*(values[v] for v in inputs))
        for function, inputs in (compiled(FIRES[name], on=on) for on in (False, True))
    )
    assert found.dtype == expected.dtype
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert (found[np.isinf(expected)] == expected[np.isinf(expected)]).all()
    # Where the product is subnormal, upstream has rounded it before it takes the logarithm.
    is_normal = np.abs(expected) < (80 if name == "float32" else 700)
    atol = np.finfo(found.dtype).eps * 1600  # of |log a| and |x| below 800
    np.testing.assert_allclose(found[is_normal], expected[is_normal], rtol=0, atol=atol)


def test_logarithm_of_a_subnormal_product():
    function, _ = compiled(FIRES["scalar"], on=True)
    found = function(0.7, np.full(12, -745.0))
    np.testing.assert_allclose(found, np.log(0.7) - 745.0, rtol=1e-15)


def test_the_gradient_is_that_of_upstream():
    grad = pytensor.grad((pt.log(product) * y).sum(), x)
    functions = [compiled(grad, on=on) for on in (False, True)]
    values = {a: 0.7, x: EXTREMES, y: np.linspace(-1, 1, 12)}
    off, on = (f(*(values[v] for v in inputs)) for f, inputs in functions)
    np.testing.assert_array_equal(on, off)
