"""Costly functions and scatters get loops of their own where no kernel is: what is split, what is not, and the values."""

from functools import reduce

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.compiled.loop_fission import ARITHMETIC, LENGTH, NAME, without
from pymc_fastlogp.rewrites.compiled.unit_log1p import UnitLog1p

MODE = get_mode("NUMBA").excluding("fastlogp_fused_kernel")
N = 2 * LENGTH
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, 7, N)

x, y = (pt.vector(name, shape=(N,)) for name in "xy")
short = pt.vector("short", shape=(LENGTH - 1,))
unknown = pt.vector("unknown")


def arithmetic(x, e, n=ARITHMETIC):
    """Return an expression of at least so many operations that nothing simplifies."""
    return reduce(lambda v, k: pt.minimum(pt.sqr(v) - e, k), range(1, n // 3 + 2), x)


def long(x):
    return arithmetic(x, pt.exp(x))


def functions_of(node):
    """Return the types of the scalar Ops in a loop."""
    op = node.op
    while isinstance(op, FusedElemwise):
        [op] = [n.op for n in op.fgraph.apply_nodes if isinstance(n.op, Elemwise)]
    if not isinstance(op, Elemwise):
        return set()
    scalar_op = op.scalar_op
    if not isinstance(scalar_op, ps.Composite):
        return {type(scalar_op)}
    return {type(n.op) for n in scalar_op.fgraph.apply_nodes}


def compiled(inputs, outputs, mode=MODE):
    """Return a function, the loops in its graph, and whether the rule fired."""
    with collected() as decisions:
        function = pytensor.function(inputs, outputs, mode=mode)
    loops = [functions_of(node) for node in function.maker.fgraph.toposort()]
    return function, [f for f in loops if f], any(d.rule == NAME for d in decisions)


def same(inputs, outputs):
    """Assert that values are the same without the rule, but for the order of sums."""
    rng = np.random.default_rng(1)
    values = [rng.normal(size=v.type.shape) for v in inputs]
    on, off = (compiled(inputs, outputs, m)[0] for m in (MODE, MODE.excluding(NAME)))
    for found, expected in zip(on(*values), off(*values), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_costly_function_has_a_loop_of_its_own():
    _, loops, fired = compiled([x], [long(x).sum()])
    assert fired
    assert {ps.Exp} in loops
    assert sum(ps.Exp in f for f in loops) == 1
    same([x], [long(x).sum()])


def test_a_loop_without_calls_becomes_vectors_apart_from_them():
    both = arithmetic(pt.softplus(x), pt.sigmoid(x))
    _, loops, fired = compiled([x], [both.sum()])
    assert fired
    assert {UnitLog1p} in loops
    assert not any({UnitLog1p, ps.Exp} <= f for f in loops)
    assert not any(UnitLog1p in f and ps.ScalarMinimum in f for f in loops)
    same([x], [both.sum()])


def test_a_scatter_has_a_loop_of_its_own():
    into = pt.zeros(7)[GROUP].inc(long(x))
    _, loops, fired = compiled([x], [into])
    assert fired
    assert {ps.Identity} in loops
    same([x], [into])


def test_what_is_read_with_an_index():
    theta = pt.vector("theta", shape=(7,))
    out = [long(theta[GROUP] + y).sum(), pt.zeros(7)[GROUP].inc(long(theta[GROUP]))]
    assert compiled([theta, y], out)[2]
    same([theta, y], out)


def test_functions_of_functions():
    inner = pt.exp(x + y)
    out = arithmetic(y, pt.log1p(inner) + pt.gammaln(inner) * inner).sum()
    assert compiled([x, y], [out])[2]
    same([x, y], [out])


def test_infinities_and_nan():
    values = np.resize([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e308, 800.0, -800.0], N)
    on, off = (compiled([x], [long(x)], m)[0] for m in (MODE, MODE.excluding(NAME)))
    np.testing.assert_array_equal(on(values), off(values))


STAYS = {
    "little arithmetic": ([x], arithmetic(x, pt.exp(x), ARITHMETIC // 2)),
    "no costly function": ([x], arithmetic(x, 2 * x)),
    "few elements": ([short], long(short)),
    "of any number": ([unknown], long(unknown)),
    "scalars": ([], long(pt.constant(0.5) + pytensor.shared(1.0))),
}


@pytest.mark.parametrize("name", STAYS)
def test_stays_one_loop(name):
    inputs, out = STAYS[name]
    assert not compiled(inputs, [out])[2]


def test_stays_one_loop_where_the_costly_function_is_an_output_too():
    v = ps.float64("v")
    e = ps.exp(v)
    many = reduce(lambda u, _: ps.sqr(u) - e, range(ARITHMETIC), e)
    node = Elemwise(ps.Composite([v], [e, many])).make_node(x)
    assert without(node, (ps.Exp,)) is node


def test_a_kernel_takes_it_first():
    assert not compiled([x], [long(x).sum()], get_mode("NUMBA"))[2]


def test_what_is_no_tensor_stays():
    rng = pt.random.type.random_generator_type("rng")
    next_rng, draws = pt.random.normal(size=N, rng=rng).owner.outputs
    function, _, fired = compiled([rng], [next_rng, long(draws).sum()])
    assert fired
    given = np.random.default_rng(3)
    after, _ = function(given)
    given.normal(size=N)
    assert after.bit_generator.state == given.bit_generator.state


def test_float32():
    z = pt.vector("z", shape=(N,), dtype="float32")
    function, _, fired = compiled([z], [long(z)])
    assert fired
    value = RNG.normal(size=N).astype("float32")
    [found] = function(value)
    [expected] = compiled([z], [long(z)], MODE.excluding(NAME))[0](value)
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, expected)
