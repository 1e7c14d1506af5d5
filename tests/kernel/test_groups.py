"""Groups of loops that have become one: what their statements share, and what they read of one another."""

import pytensor.scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Store
from pymc_fastlogp.kernel.ir.substitute import Substitution
from pymc_fastlogp.kernel.passes.groups import Group

ROWS = 50


def vector(name):
    return Buffer(name, "float64", (ROWS,), Role.SCRATCH)


AT = (Index(0),)


def test_what_statements_share_is_replaced_once():
    asked = []
    shared = Compute(ps.tanh, (Load(vector("x"), AT),), "float64")
    values = [Compute(ps.mul, (shared, Const(k, "float64")), "float64") for k in (2.0, 3.0)]
    substitution = Substitution(asked.append)
    stores = [Store(vector(f"y{k}"), AT, value) for k, value in enumerate(values)]
    assert [substitution.of(store) for store in stores] == stores
    assert asked.count(shared) == 1
    substitution.forget()
    substitution.of(stores[0])
    assert asked.count(shared) == 2


def test_an_element_that_changes_within_a_loop_is_read_as_it_is_then():
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
