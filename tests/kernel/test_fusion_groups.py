"""Groups of fused loops: shared subexpressions, and reads of elements that the group writes."""

import numpy as np
import pytensor.scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Store
from pymc_fastlogp.kernel.ir.substitute import Substitution
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.fusion_groups import Group
from tests.kernel.emitted import given, output, program
from tests.kernel.native_kernel import compile_native

ROWS = 50


def vector(name):
    return Buffer(name, "float64", (ROWS,), Role.SCRATCH)


AT = (Index(0),)


def test_shared_subexpression_is_substituted_once():
    asked = []
    shared = Compute(ps.tanh, (Load(vector("x"), AT),), "float64")
    values = [Compute(ps.mul, (shared, Const(k, "float64")), "float64") for k in (2.0, 3.0)]
    substitution = Substitution(asked.append)
    stores = [Store(vector(f"y{k}"), AT, value) for k, value in enumerate(values)]
    assert [substitution.of(store) for store in stores] == stores
    assert asked.count(shared) == 1
    substitution.clear()
    substitution.of(stores[0])
    assert asked.count(shared) == 2


def test_mutated_element_is_reread():
    x, b, before, after = map(vector, ("x", "b", "before", "after"))
    one = Const(1.0, "float64")
    loops = [
        Loop((ROWS,), (Store(b, AT, Load(x, AT)),)),
        Loop(
            (ROWS,),
            (
                Store(before, AT, Load(b, AT)),
                Accumulate(b, AT, ps.add, one),
                Store(after, AT, Load(b, AT)),
            ),
        ),
    ]
    group = Group.of(*loops)
    raised = Compute(ps.add, (Load(x, AT), one), "float64")
    assert group.stored == {b: {AT: raised}, before: {AT: Load(x, AT)}, after: {AT: raised}}


def test_an_element_that_is_not_added_to_keeps_its_sign():
    position, y = given("position", dtype="int64"), output("y", 2)
    minus_zero = Const(-0.0, "float64")
    steps = [Loop((), (Store(y, (Const(k, "int64"),), minus_zero),)) for k in range(2)]
    at = (Load(position, ()),)
    added = Loop((), (Accumulate(y, at, ps.add, Const(1.0, "float64")),))
    fused = fuse_loops(program(*steps, added, inputs=(position,)))
    assert len(fused.steps) == 1
    [found] = compile_native(fused)(np.array(1))
    np.testing.assert_array_equal(found, [0.0, 1.0])
    assert np.signbit(found[0])
