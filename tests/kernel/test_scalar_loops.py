"""Vectorized loops of scalar functions agree with upstream lane by lane, independent of the other lanes."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from llvmlite import ir
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.lower.elemwise import scalar_op_is_supported
from pymc_fastlogp.kernel.native.target import optimized, target_machine
from pymc_fastlogp.kernel.scalars.loops import results_of
from tests.fuzz.evaluation import by_kernels, off_in_numba, on_by_kernels
from tests.kernel import scalar_loop

N = 203
RNG = np.random.default_rng(0)
SHAPES = RNG.gamma(1.0, 3.0, size=(2, N))
UNIT, POSITIVE = RNG.uniform(size=N), RNG.gamma(1.0, 4.0, size=N)
# Where a series changes to another, nothing goes round, or nothing converges.
SPECIAL = np.array([0.0, 1.0, -1.0, 1e-300, 1e-3, 0.5, 0.999, 2.0, 1e3, np.inf, np.nan])

FUNCTIONS = {
    "betainc": (pt.betainc, (*SHAPES, UNIT)),
    "gammainc": (pt.gammainc, (SHAPES[0], POSITIVE)),
    "gammaincc": (pt.gammaincc, (SHAPES[0], POSITIVE)),
}


def gradient_of(f, n, dtype="float64"):
    inputs = [pt.tensor(name, dtype=dtype, shape=(None,)) for name in "abc"[:n]]
    return inputs, pytensor.grad(f(*inputs).sum(), inputs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_upstream(name):
    f, arrays = FUNCTIONS[name]
    inputs, gradient = gradient_of(f, len(arrays))
    # In Python, hundreds of turns of each of a thousand numbers take minutes.
    off, on = off_in_numba(inputs, gradient), on_by_kernels(inputs, gradient)
    for expected, found in zip(off(*arrays), on(*arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=0)
    grid = [x.ravel() for x in np.meshgrid(*[SPECIAL] * len(arrays))]
    for expected, found in zip(off(*grid), on(*grid), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_loop_is_part_of_the_kernel(name):
    f, arrays = FUNCTIONS[name]
    function = pytensor.function(*gradient_of(f, len(arrays)), mode=by_kernels())
    assert [type(node.op) for node in function.maker.fgraph.toposort()] == [FusedKernel]


def test_a_lane_does_not_depend_on_others():
    f, arrays = FUNCTIONS["betainc"]
    inputs, gradient = gradient_of(f, 3)
    on = on_by_kernels(inputs, gradient)
    together = on(*arrays)
    for i in range(11):
        alone = on(*(array[i : i + 1] for array in arrays))
        assert all((x == y[i]).all() for x, y in zip(alone, together, strict=True))


@pytest.mark.slow
def test_censored_likelihood_is_one_kernel():
    """A censored likelihood is compiled without Numba."""
    y = np.minimum(np.random.default_rng(0).gamma(2.0, size=40), 2.0)
    with pm.Model() as model:
        alpha, beta = pm.HalfNormal("alpha"), pm.HalfNormal("beta")
        pm.Censored("y", pm.Gamma.dist(alpha, beta), lower=None, upper=2.0, observed=y)
    out = model.logp()
    outputs = [out, *pytensor.grad(out, model.value_vars)]
    function = pytensor.function(model.value_vars, outputs, mode=by_kernels())
    ops = {type(node.op) for node in function.maker.fgraph.toposort()}
    assert ops == {FusedKernel}


def loop_of(turn, state, n_constants=1, dtype="float64", until=None):
    """Return a loop of these: from state and constants to state."""
    xs = [ps.get_scalar_type(dtype)(f"x{i}") for i in range(state)]
    cs = [ps.get_scalar_type(dtype)(f"c{i}") for i in range(n_constants)]
    update = turn(*xs, *cs)
    return ScalarLoop(init=xs, update=update, constant=cs, until=until and until(*update))


def results(op, *arrays):
    """Return all results of a loop by its vector form, and by Python."""
    found = [scalar_loop.apply(result, *arrays) for result in results_of(op)]
    rows = zip(*(array.tolist() for array in arrays), strict=True)
    expected = np.array([in_python(op, row) for row in rows]).T
    return found, expected


def in_python(op, row):
    storage = [[None] for _ in op.outputs]
    n_steps, *rest = row
    # As upstream's code for Numba, where there is no turn.
    op.perform(None, [max(int(n_steps), 0), *rest], storage)
    return [x[0] for x in storage]


TURNS = np.array([0, 1, 2, 3, 7, -2, 40, 5, 1])
STARTS = np.linspace(-2.0, 3.0, len(TURNS))
halved = loop_of(lambda x, c: [x * 0.5 + c], 1)
stopped = loop_of(lambda x, c: [x * 0.5 + c], 1, until=lambda x: ps.abs(x - 2.0) < 0.1)
swapped = loop_of(lambda x, y, c: [ps.identity(y), x + c * y], 2)


@pytest.mark.parametrize("op", [halved, stopped, swapped], ids=["for", "while", "two"])
def test_loops_agree_with_upstream(op):
    arrays = [TURNS, *[STARTS] * (op.nin - 2), np.full(len(TURNS), 1.1)]
    found, expected = results(op, *arrays)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=1e-14)


def test_integers_overflow():
    op = loop_of(lambda x, c: [x**3 + c], 1, dtype="int8")
    arrays = TURNS, np.arange(len(TURNS), dtype="int8"), np.full(len(TURNS), 3, "int8")
    [found], _ = results(op, *arrays)
    x = arrays[1].copy()
    for i, n in enumerate(TURNS):
        for _ in range(n):
            x[i : i + 1] = x[i : i + 1] ** 3 + arrays[2][i : i + 1]
    assert found.dtype == "int8"
    assert (found == x).all()


def test_names_tell_loops_apart():
    """Programs are kept on disk by names of their Ops."""
    again = loop_of(lambda x, c: [x * 0.5 + c], 1)
    other_number = loop_of(lambda x, c: [x * 0.25 + c], 1)
    other_op = loop_of(lambda x, c: [x * 0.5 - c], 1)
    other_order = loop_of(lambda x, c: [c * 0.5 + x], 1)
    single = loop_of(lambda x, c: [x * 0.5 + c], 1, dtype="float32")
    assert results_of(again)[0] == results_of(halved)[0] != results_of(stopped)[0]
    others = halved, stopped, other_number, other_op, other_order, single
    assert len({results_of(op)[0].name for op in others}) == len(others)
    assert results_of(stopped)[0] != results_of(stopped)[1]


def test_results_of_a_loop_are_of_one_call():
    op = stopped
    inputs = [pt.lvector("n"), pt.vector("x"), pt.vector("c")]
    outputs = Elemwise(op)(*inputs)
    function = pytensor.function(
        inputs, [pt.switch(outputs[1], outputs[0], -1.0)], mode=by_kernels()
    )
    [node] = function.maker.fgraph.toposort()
    symbol = results_of(op)[0].symbol
    module = ir.Module("m")
    emit(module, node.op.build_program(), "m", [True] * 3)

    def calls(text):
        return [line for line in text.splitlines() if "call" in line and symbol in line]

    before, after = calls(str(module)), calls(str(optimized(module, target_machine())))
    assert len(after) * 2 == len(before) > 0


@pytest.mark.parametrize(
    "op",
    [
        loop_of(lambda x, c: [ps.gammainc(x, c)], 1),
        loop_of(lambda x, c: [x + c], 1, dtype="uint64"),
    ],
    ids=["upstream's function", "a type without a form"],
)
def test_refuses(op):
    inputs = ["int64", *(x.type.dtype for x in op.fgraph.inputs)]
    outputs = [x.type.dtype for x in op.fgraph.outputs]
    assert scalar_op_is_supported(halved, ["int64", "float64", "float64"], ["float64"])
    assert not scalar_op_is_supported(op, inputs, outputs)
