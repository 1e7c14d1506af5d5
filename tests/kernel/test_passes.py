"""Each pass over the loop IR: programs that it changes, and programs that it leaves alone."""

from dataclasses import replace

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, Store
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.simplify import simplify
from pymc_fastlogp.kernel.scalars.softplus_sum import softplus_sum
from tests.conftest import PYTHON
from tests.kernel.check import check
from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native

ROWS, GROUPS = 50, 4


def domains(program):
    """Return the domains of the loops."""
    return [loop.domain for loop in program.steps]


def operations(program):
    """Return the names of the scalar Ops of a program."""
    return [
        str(expr.op)
        for loop in program.steps
        for expr in expressions(loop)
        if isinstance(expr, Compute) and expr.dtype != "int64"
    ]


@pytest.fixture
def rows():
    """Return a gather, its residual and a scatter over the same rows."""
    a = pt.vector("a", shape=(GROUPS,))
    y = pt.vector("y", shape=(ROWS,))
    g = pt.vector("g", dtype="uint8", shape=(ROWS,))
    return a, y, g


def index(seed=0):
    return np.random.default_rng(seed).integers(0, GROUPS, ROWS).astype("uint8")


def test_loops_over_the_same_rows_become_one(rows):
    a, y, g = rows
    residual = y - a[g]
    gradient = pt.zeros(GROUPS)[g].inc(residual)
    program = program_of([a, y, g], [pt.sum(residual**2), gradient], g=index())
    assert domains(program).count((ROWS,)) == 1
    assert not [buffer for buffer in program.scratch if buffer.shape == (ROWS,)]


def test_loop_follows_the_sum_that_it_uses(rows):
    _, y, _ = rows
    program = program_of([y], [pt.sum(y / pt.sum(y))])
    assert domains(program).count((ROWS,)) == 2


def test_a_loop_waits_for_a_scatter_that_it_reads(rows):
    a, y, g = rows
    sums = a[g].inc(y)
    program = program_of([a, y, g], [pt.sum(sums[g] * y)], g=index())
    order = [loop.domain for loop in program.steps]
    assert order.count((ROWS,)) == 2


SHORT = 2


def buffers(**shapes):
    return {name: Buffer(name, "float64", shape, Role.SCRATCH) for name, shape in shapes.items()}


def at(buffer, *index):
    return Load(buffer, index or tuple(Index(axis) for axis in range(len(buffer.shape))))


def stored(buffer, value):
    return Loop(buffer.shape, (Store(buffer, at(buffer).index, value),))


def added(domain, buffer, value):
    return Loop(domain, (Accumulate(buffer, at(buffer).index, ps.add, value),))


def fused(*loops):
    return [loop.domain for loop in fuse_loops(Program((), (), (), (), loops)).steps]


def test_row_weights_are_not_delayed_by_other_loops():
    """A pair that is computed from all rows, and one that all rows read: as one loop, they would part the rows."""
    b = buffers(x=(ROWS,), y=(ROWS,), total=(), of_rows=(SHORT,), weights=(SHORT,), v=(SHORT,))
    first = Load(b["weights"], (Const(0, "int64"),))
    waits, weights = stored(b["of_rows"], at(b["total"])), stored(b["weights"], at(b["v"]))
    for pairs in ((waits, weights), (weights, waits)):
        found = fused(
            stored(b["total"], Const(0.0, "float64")),
            added((ROWS,), b["total"], at(b["x"])),
            *pairs,
            stored(b["y"], f(ps.mul, at(b["x"]), first)),
        )
        assert found.count((ROWS,)) == 1
        assert found.index((SHORT,)) < found.index((ROWS,))


def test_loops_fuse_across_dependent_loops():
    b = buffers(x=(ROWS,), y=(ROWS,), total=(), other=(3,), pair=(SHORT,), v=(SHORT,))
    found = fused(
        stored(b["total"], Const(0.0, "float64")),
        added((ROWS,), b["total"], at(b["x"])),
        stored(b["other"], at(b["total"])),
        stored(b["pair"], at(b["v"])),
        stored(b["y"], f(ps.mul, at(b["x"]), Load(b["pair"], (Const(0, "int64"),)))),
    )
    assert found == [(SHORT,), (), (ROWS,), (3,)]


def test_updates_of_a_delayed_buffer_are_delayed():
    b = buffers(x=(ROWS,), y=(ROWS,), total=(), pair=(SHORT,))
    loops = (
        stored(b["total"], Const(0.0, "float64")),
        added((ROWS,), b["total"], at(b["x"])),
        stored(b["pair"], at(b["total"])),
        added((SHORT,), b["pair"], Const(1.0, "float64")),
        stored(b["y"], f(ps.mul, at(b["x"]), Load(b["pair"], (Const(0, "int64"),)))),
    )
    steps = fuse_loops(Program((), (), (), (), loops)).steps
    assert [loop.domain for loop in steps] == [(), (ROWS,), (SHORT,), (ROWS,)]
    [store] = steps[2].body
    assert store.value == f(ps.add, at(b["total"]), Const(1.0, "float64"))


def test_scalars_become_steps_of_their_own():
    first, second = (
        Store(Buffer(name, "float64", (), Role.SCRATCH), (), S) for name in ("first", "second")
    )
    context = Context({}, lambda *_: [])
    context.add((), first, second)
    context.add((ROWS,), first, second)
    assert context.steps == [
        Loop((), (first,)),
        Loop((), (second,)),
        Loop((ROWS,), (first, second)),
    ]


def test_dead_stores_are_dropped():
    program = _valid()
    unread, on_the_way = (Buffer(n, "float64", (ROWS,), Role.SCRATCH) for n in ("u", "v"))
    first = Loop((ROWS,), (Store(on_the_way, (Index(0),), X),))
    second = Loop((ROWS,), (Store(unread, (Index(0),), Load(on_the_way, (Index(0),))),))
    longer = replace(program, scratch=(unread, on_the_way), steps=(first, second, *program.steps))
    assert drop_dead_stores(longer) == program


@pytest.fixture
def checked_sum():
    """Return a sum over rows that is -inf unless a check over all rows holds."""
    x = pt.vector("x", shape=(ROWS,))
    p = pt.sigmoid(x)
    holds = pt.all(pt.le(p, 0.9))
    return x, [pt.sum(pt.switch(holds, pt.log(p), -np.inf)), pt.switch(holds, p, 0.0)]


def test_rows_run_once_where_their_check_is_assumed(checked_sum):
    x, outputs = checked_sum
    program = program_of([x], outputs)
    assert domains(program).count((ROWS,)) == 1
    assert domains(program.fallback.program).count((ROWS,)) == 2


@pytest.mark.parametrize("largest", [0.0, 5.0, np.nan, np.inf])
def test_a_failed_check_gives_what_upstream_gives(checked_sum, largest):
    x, outputs = checked_sum
    values = np.linspace(-3, 0, ROWS)
    values[7] = largest
    total, selected = compile_native(program_of([x], outputs))(values)
    p = 1 / (1 + np.exp(-values))
    holds = bool(np.all(p <= 0.9))
    assert holds == (largest == 0.0)
    np.testing.assert_allclose(total, np.log(p).sum() if holds else -np.inf, rtol=1e-14)
    np.testing.assert_allclose(selected, p if holds else np.zeros(ROWS), rtol=1e-14)


def test_a_check_of_scalars_alone_is_not_speculated_on():
    x, s = pt.vector("x", shape=(ROWS,)), pt.scalar("s")
    program = program_of([x, s], [pt.sum(pt.switch(s > 0, x / s, -np.inf))])
    assert program.fallback is None


@pytest.fixture
def two_limits():
    x, s = pt.vector("x", shape=(ROWS,)), pt.scalar("s")
    return [x, s], [pt.sum(pt.switch(s > 1, pt.gammaln(x), pt.exp(x) * pt.psi(x)))]


def test_a_costly_switch_on_a_scalar_is_decided_before_the_loop(two_limits):
    program = program_of(*two_limits)
    assert [loop.domain for loop in program.steps if loop.when is not None] == [(ROWS,)] * 2
    assert "Switch" not in operations(program)


@pytest.mark.parametrize("s", [0.5, 2.0, np.nan])
def test_unswitched_loops_compute_either_branch(two_limits, s):
    from scipy.special import gammaln, psi

    x = np.linspace(0.5, 4, ROWS)
    [total] = compile_native(program_of(*two_limits))(x, np.array(s))
    expected = gammaln(x) if s > 1 else np.exp(x) * psi(x)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-14)


@pytest.mark.parametrize(("dtype", "s"), [("int32", 0), ("int32", -2), ("float64", np.nan)])
def test_a_number_is_the_condition_of_a_decided_switch(dtype, s):
    x, number = pt.vector("x", shape=(ROWS,)), pt.scalar("s", dtype=dtype)
    costly = pt.switch(number, pt.gammaln(x), pt.exp(x) * pt.psi(x))
    program = program_of([x, number], [costly])
    assert any(loop.when is not None for loop in program.steps)
    at, value = np.linspace(0.5, 4, ROWS), np.array(s, dtype=dtype)
    [result] = compile_native(program)(at, value)
    np.testing.assert_allclose(result, costly.eval({x: at, number: value}, mode=PYTHON), rtol=1e-13)


def test_unswitching_removes_the_unused_branch():
    # Of the gradient of a limit that is not taken, zeros are left to choose from.
    x, s = pt.vector("x", shape=(ROWS,)), pt.scalar("s")
    is_limit = s > 1
    of_limit = pt.switch(pt.eq(pt.log(x), 0), 0.0, pt.switch(is_limit, x, 0.0))
    of_other = pt.switch(is_limit, 0.0, pt.gammaln(x))
    program = program_of([x, s], [pt.sum(of_limit + of_other)])
    loops = [loop for loop in program.steps if loop.when is not None]
    functions = [{str(e.op) for e in expressions(loop) if isinstance(e, Compute)} for loop in loops]
    assert ["log" in names for names in functions] == [True, False]
    assert ["gammaln" in names for names in functions] == [False, True]


def test_a_cheap_switch_on_a_scalar_stays_in_the_loop():
    x, s = pt.vector("x", shape=(ROWS,)), pt.scalar("s")
    program = program_of([x, s], [pt.sum(pt.switch(s > 0, x, -x))])
    assert all(loop.when is None for loop in program.steps)


def test_rows_that_are_gathered_stay_rows_in_every_loop():
    """Effects by group: what is computed of a gathered row is not stored to be read across rows."""
    program = gathered_rows_of(8)
    assert sum(len(domain) == 2 for domain in domains(program)) == 1
    assert all(buffer.shape != (100, 8) for buffer in program.scratch)


def test_gathered_rows_that_fill_no_vector_are_unrolled():
    """Cut points by group: one loop over the rows, of which each gathers a few numbers."""
    assert [domain for domain in domains(gathered_rows_of(4)) if 100 in domain] == [(100,)]


def gathered_rows_of(length):
    table, x = pt.matrix("table", shape=(GROUPS, length)), pt.matrix("x", shape=(100, length))
    g = pt.vector("g", dtype="uint8", shape=(100,))
    outputs = [pt.sum(pt.exp(pt.sum(table[g] * x, axis=1)))]
    return program_of([table, x, g], outputs, g=np.arange(100) % GROUPS)


def test_rows_without_a_gather_are_unrolled():
    table, x = pt.matrix("table", shape=(100, 3)), pt.matrix("x", shape=(100, 3))
    program = program_of([table, x], [pt.sum(pt.exp(pt.sum(table * x, axis=1)))])
    assert [domain for domain in domains(program) if 100 in domain] == [(100,)]


@pytest.mark.parametrize("reduce", [pt.sum, pt.prod, pt.max, pt.min, pt.all, pt.any])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_unrolled_axis_accumulates_once_per_element(reduce, length):
    is_truth = reduce in (pt.all, pt.any)
    x = pt.matrix("x", shape=(100, length), dtype="bool" if is_truth else "float64")
    columns = reduce(x, axis=0)
    program = program_of([x], [reduce(x), columns])
    accumulates = [s for loop in program.steps for s in loop.body if isinstance(s, Accumulate)]
    assert len(accumulates) == 1 + length
    rng = np.random.default_rng(length)
    values = rng.uniform(0.5, 2, (100, length))
    values = values < 1.98 if is_truth else values
    whole, each = compile_native(program)(values)
    by_numpy = getattr(np, reduce.__name__)
    np.testing.assert_allclose(whole, by_numpy(values), rtol=1e-13)
    np.testing.assert_allclose(each, by_numpy(values, axis=0), rtol=1e-13)


def test_vectors_run_along_neighbors_that_are_summed_in_a_column():
    x, v = pt.matrix("x", shape=(300, 40)), pt.vector("v", shape=(300,))
    program = program_of([x, v], [pt.exp(x.T @ v)])
    [loop] = [loop for loop in program.steps if len(loop.domain) == 2]
    [load] = [e for e in expressions(loop) if isinstance(e, Load) and e.buffer.shape == (300, 40)]
    assert loop.domain == (300, 40)
    assert load.index == (Index(0), Index(1))


def test_vectors_run_along_neighbors():
    x = pt.matrix("x", shape=(30, 20))
    program = program_of([x], [pt.sum(pt.exp(x.T))])
    [loop] = [loop for loop in program.steps if len(loop.domain) == 2]
    [load] = [e for e in expressions(loop) if isinstance(e, Load)]
    assert loop.domain[-1] == 20
    assert load.index == (Index(0), Index(1))


def test_a_store_in_order_keeps_its_axes(rows):
    a, y, g = rows
    program = program_of([a, y, g], [a[g].set(y)], g=index())
    [store] = [
        s for loop in program.steps for s in loop.body if isinstance(s, Store) and s.in_order
    ]
    assert store.buffer.shape == (GROUPS,)


# Rules of simplify, on one expression: what is built and what comes out.
X = Load(Buffer("x", "float64", (ROWS,), Role.INPUT), (Index(0),))
Y = Load(Buffer("y", "float64", (ROWS,), Role.INPUT), (Index(0),))
S = Load(Buffer("s", "float64", (), Role.INPUT), ())
C = Load(Buffer("c", "bool", (ROWS,), Role.INPUT), (Index(0),))
MINUS_ONE = Const(-1.0, "float64")


def f(op, *args, dtype="float64"):
    return Compute(op, args, dtype)


SOFTPLUS_X, SOFTPLUS_Y = f(psm.softplus, X), f(psm.softplus, Y)
RULES = {
    "a product with -1": (f(ps.mul, MINUS_ONE, X, Y), f(ps.neg, f(ps.mul, X, Y))),
    "a product of two negatives": (f(ps.mul, f(ps.neg, X), f(ps.neg, Y)), f(ps.mul, X, Y)),
    "a negative numerator": (
        f(ps.true_div, f(ps.neg, X), Y),
        f(ps.neg, f(ps.true_div, X, Y)),
    ),
    "two negations": (f(ps.neg, f(ps.neg, X)), X),
    "a sum with a negative": (f(ps.add, X, f(ps.neg, Y)), f(ps.sub, X, Y)),
    "a negative subtracted": (f(ps.sub, X, f(ps.neg, Y)), f(ps.add, X, Y)),
    "one function in both branches": (
        f(ps.switch, C, f(ps.exp, X), f(ps.exp, Y)),
        f(ps.exp, f(ps.switch, C, X, Y)),
    ),
    "a division by what is fixed": (f(ps.true_div, X, S), f(ps.true_div, X, S)),
    "a division by what changes": (f(ps.true_div, X, Y), f(ps.true_div, X, Y)),
    "two softplus functions": (f(ps.add, SOFTPLUS_X, SOFTPLUS_Y), f(softplus_sum, X, Y)),
    "two softplus functions subtracted": (
        f(ps.sub, f(ps.sub, S, SOFTPLUS_X), SOFTPLUS_Y),
        f(ps.sub, S, f(softplus_sum, X, Y)),
    ),
    "two negative softplus functions": (
        f(ps.sub, f(ps.neg, SOFTPLUS_X), SOFTPLUS_Y),
        f(ps.neg, f(softplus_sum, X, Y)),
    ),
    "a difference of softplus functions": (
        f(ps.sub, SOFTPLUS_X, SOFTPLUS_Y),
        f(ps.sub, SOFTPLUS_X, SOFTPLUS_Y),
    ),
    "two functions in the branches": (
        f(ps.switch, C, f(ps.exp, X), f(ps.log, Y)),
        f(ps.switch, C, f(ps.exp, X), f(ps.log, Y)),
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_expression_is_simplified(case):
    before, after = RULES[case]
    assert _simplified(before) is after


def test_a_branch_that_is_needed_anyway_is_not_computed_again():
    exp_x = f(ps.exp, X)
    kept = f(ps.add, f(ps.switch, C, exp_x, f(ps.exp, Y)), exp_x)
    assert _simplified(kept) is kept


def test_a_softplus_that_is_needed_anyway_stays():
    kept = f(ps.mul, f(ps.add, SOFTPLUS_X, SOFTPLUS_Y), SOFTPLUS_X)
    assert _simplified(kept) is kept


def _simplified(expr):
    out = Buffer("out", "float64", (ROWS,), Role.OUTPUT)
    loop = Loop((ROWS,), (Store(out, (Index(0),), expr),))
    [loop] = simplify(Program((), (out,), (), (), (loop,))).steps
    return loop.body[0].value


def _valid():
    x, out = X.buffer, Buffer("out", "float64", (ROWS,), Role.OUTPUT)
    return Program((x,), (out,), (), (), (Loop((ROWS,), (Store(out, (Index(0),), X),)),))


def test_check_accepts_a_valid_program():
    check(_valid())


def _with_body(*body):
    program = _valid()
    return replace(program, steps=(replace(program.steps[0], body=body),))


OUT = Buffer("out", "float64", (ROWS,), Role.OUTPUT)
SCRATCH = Buffer("b", "float64", (ROWS,), Role.SCRATCH)
BROKEN = {
    "uses an axis that it does not have": [Store(OUT, (Index(1),), X)],
    "indexes with too few or many axes": [Store(OUT, (Index(0), Index(0)), X)],
    "reads what it writes": [Store(X.buffer, (Index(0),), X)],
    "stores int64 as float64": [Store(OUT, (Index(0),), Index(0))],
    "writes an input": [Store(Y.buffer, (Index(0),), X)],
    "reads before anything is written": [Store(OUT, (Index(0),), Load(SCRATCH, (Index(0),)))],
    "mixes kinds of writes": [
        Store(SCRATCH, (Index(0),), X),
        Accumulate(SCRATCH, (Index(0),), ps.add, X),
    ],
}


@pytest.mark.parametrize("what", BROKEN)
def test_check_refuses(what):
    with pytest.raises(AssertionError, match=what):
        check(_with_body(*BROKEN[what]))


def test_text_tells_programs_apart(rows):
    a, y, g = rows
    first = program_of([a, y, g], [a[g] - y], g=index())
    same = program_of([a, y, g], [a[g] - y], g=index(1))
    other = program_of([a, y, g], [y - a[g]], g=index())
    assert as_text(first) == as_text(same)
    assert as_text(first) != as_text(other)
