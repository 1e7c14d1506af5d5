"""An expression at chosen rows, and the identity of positions."""

import math
import re
import sys
from functools import _lru_cache_wrapper

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.scalar import Tanh
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.analysis.gathers import position_key
from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.gaussian.gaussian_rows import NAME
from pymc_fastlogp.rewrites.rows.view import keys
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows
from tests.fuzz.evaluation import off_in_numpy, on_by_kernels
from tests.rewrites.conftest import PYTHON, pregrad

N = 6
theta = pt.vector("theta", shape=(N,))


@pytest.mark.parametrize("n_chosen", [1, 3])
def test_freed_positions_are_not_confused(n_chosen):
    """numpy gives the memory of an array that is gone to the next of its size."""
    grid, x = ChosenRows((N,), n_chosen), theta[np.arange(N)[::-1]]
    starts = range(N - n_chosen + 1)
    found = [grid.at(x, {0: np.arange(k, k + n_chosen)}) for k in starts]
    for k, at in zip(starts, found, strict=True):
        value = at.eval({theta: np.arange(N, 0.0, -1.0)}, mode=PYTHON)
        np.testing.assert_array_equal(value, 1.0 + np.arange(k, k + n_chosen))


def test_views_of_one_position_are_one_variable():
    grid, x, rows = ChosenRows((N,), 2), pt.exp(theta), np.array([1, 4])
    assert grid.at(x, {0: rows}) is grid.at(x, {0: rows})
    one = ChosenRows((N,), 1)
    assert one.at(x, {0: np.array([3])}) is one.at(x, {0: np.array([3])})


AGES = np.clip(np.subtract.outer(np.arange(30.0), np.arange(30.0)) ** 2, 0, np.inf)
AGES[np.triu_indices(30)] = 0.0
BY_ROW = {
    "sum": lambda x: x.sum(axis=1),
    "sum of columns": lambda x: x.sum(axis=0),
    "max": lambda x: x.max(axis=1),
    "product": lambda x: x @ np.linspace(1, 2, 30),
    "log of a sum": lambda x: pt.exp(pt.logsumexp(x, axis=1)),
    "softmax": lambda x: pt.special.softmax(x, axis=1)[:, 3],
}


@pytest.mark.parametrize("name", BY_ROW)
def test_a_row_of_a_matrix_is_reduced_once(name):
    """Half of a matrix of distances is zero. In the gradient the sum of a row stood in each entry that is not, as a sum: n cubed."""
    rate, scale = pt.scalar("rate"), pt.scalar("scale")
    logp = pt.log(scale + BY_ROW[name](pt.exp(-rate * AGES))).sum()

    def graph():
        value = pregrad(logp, on=True)
        return [rate, scale], [value, *pytensor.grad(value, [rate, scale])]

    mode = Mode("py", "fast_run").excluding("fusion", "fastlogp_fused_kernel")
    function = pytensor.function(*graph(), mode=mode)
    assert all(math.prod(x.type.shape) <= AGES.size for x in function.maker.fgraph.variables)
    at = np.array(0.01), np.array(0.7)
    off = off_in_numpy([rate, scale], [logp, *pytensor.grad(logp, [rate, scale])])(*at)
    for found in (function(*at), on_by_kernels(*graph())(*at)):
        np.testing.assert_allclose(found, off, rtol=1e-12)


ROWS = np.tile(np.arange(27.0).reshape(3, 9), (100, 1))


@pytest.mark.parametrize(
    "op", [Softmax(axis=-1), Softmax(axis=(-1,)), LogSoftmax(axis=-1), LogSumExp(axis=(-1,))]
)
def test_negative_axes_are_normalized(op):
    b = pt.vector("b", shape=(9,))
    out = pt.sin(op(ROWS * b)).sum()
    with collected() as decisions:
        pregrad(out, on=True)
    assert any(decision.fired for decision in decisions)
    off, on = (
        pregrad(out, on=on).eval({b: np.linspace(0, 0.1, 9)}, mode=PYTHON) for on in (False, True)
    )
    np.testing.assert_allclose(on, off, rtol=1e-12)


many, wide = pt.vector("many", shape=(100,)), pt.matrix("wide", shape=(100, 9))
BEYOND = np.arange(100) % 10
BEYOND[3] = 100
# Each with the rules that meet it before the one that it is about.
READS_BEYOND = {
    "summed": (pt.exp(BEYOND - pt.cumsum(many)[BEYOND]).sum(), ()),
    "before the first": (pt.exp(BEYOND - pt.cumsum(many)[-1 - BEYOND]).sum(), ()),
    "narrow": (pt.exp(BEYOND - pt.cumsum(many)[BEYOND.astype("uint8")]).sum(), ()),
    "joined": (pt.exp(pt.join(1, wide, wide)[BEYOND]).sum(axis=0), ()),
    "a costly function": (pt.gammaln(pt.cumsum(many)[BEYOND]), ()),
    "a reduction": (pt.logsumexp(pt.cumsum(wide, axis=0)[BEYOND], axis=1), ()),
    "ordered": (
        pt.exp(pt.cumsum(many)[BEYOND] * np.arange(100.0)).sum(),
        ("fastlogp_compact_rows", "fastlogp_gaussian_rows"),
    ),
}


@pytest.mark.parametrize("name", READS_BEYOND)
def test_index_out_of_range_raises_at_the_call(name):
    out, exclude = READS_BEYOND[name]
    for on in (False, True):
        rewritten = pregrad(out, on=on, exclude=exclude)
        function = pytensor.function([many, wide], rewritten, mode=PYTHON, on_unused_input="ignore")
        with pytest.raises(IndexError):
            function(np.ones(100), np.ones((100, 9)))


def test_a_function_of_one_axis_is_computed_along_it():
    """And not at each cell of a grid of two axes, of which there are more."""
    data = np.random.default_rng(0).integers(0, 20, size=(30, 40)) / 20
    a = pt.vector("a", shape=(30,))
    logp = pt.sqrt(1 + pt.sqr(pt.tanh(a)[:, None] - data)).sum()

    def graph():
        value = pregrad(logp, on=True)
        return [a], [value, pytensor.grad(value, a)]

    mode = Mode("py", "fast_run").excluding("fusion", "fastlogp_fused_kernel")
    nodes = pytensor.function(*graph(), mode=mode).maker.fgraph.apply_nodes
    sizes = [node.outputs[0].type.shape for node in nodes if is_elemwise(node.op, Tanh)]
    assert sizes == [(30,)]
    assert any(isinstance(node.op, AdvancedSubtensor) for node in nodes), "no rule has fired"
    at = np.linspace(-1, 1, 30)
    off = off_in_numpy([a], [logp, pytensor.grad(logp, a)])(at)
    for found, expected in zip(on_by_kernels(*graph())(at), off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("is_column", [True, False])
def test_axes_before_the_one_that_is_gathered_along(is_column):
    """Leading axes stay before the axes of length one that the index adds."""
    g = np.random.default_rng(0).integers(0, 10, size=(200, 1))
    a, row = pt.vector("a", shape=(3,)), pt.vector("row", shape=(3,))
    table = pt.cumsum(pt.exp(a[:, None] * np.linspace(0, 1, 300)), axis=1)
    of_rows = table[:, g] if is_column else table[:, g[:, 0]][:, :, None]
    out = pt.sqrt(1 + of_rows * row).sum(axis=1)
    with collected() as decisions:
        pregrad(out, on=True)
    assert any(decision.fired for decision in decisions)
    values = {a: np.array([0.1, 0.2, 0.3]), row: np.array([1.0, 2.0, 3.0])}
    off, on = (pregrad(out, on=on).eval(values, mode=PYTHON) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-12)


@pytest.mark.parametrize("is_masked", [False, True])
def test_entries_of_rows_that_all_read_the_same(is_masked):
    """A function of one group has one row, in which each chosen row reads its own entry."""
    rng = np.random.default_rng(3)
    n, choice = 200, rng.integers(0, 4, 200)
    counts = np.arange(n) % 3 == 0
    group = np.where(counts, 1, rng.integers(0, 5, n)) if is_masked else np.full(n, 2)
    table = pt.matrix("table", shape=(5, 4))
    log_p = pt.log(pt.special.softmax(table[group], axis=1)[np.arange(n), choice])
    out = pt.switch(counts, log_p, 0.0).sum() if is_masked else log_p.sum()
    at = rng.normal(size=(5, 4))
    found = on_by_kernels([table], [out, pytensor.grad(out, table)])(at)
    expected = off_in_numpy([table], [out, pytensor.grad(out, table)])(at)
    for on, off in zip(found, expected, strict=True):
        np.testing.assert_allclose(on, off, rtol=1e-12)


def test_positions_of_different_dtypes_differ():
    """With an unknown static shape 255 and -1 are different positions, although their bytes are equal."""
    n = 300
    below = np.random.default_rng(0).choice([-1, -2, 3], size=n).astype("int8")
    v = pt.vector("v")
    x = v + np.linspace(0, 1, n)
    out = (pt.exp(x[below]) * pt.exp(-0.5 * x[below.view("uint8")])).sum()
    at = np.linspace(-1, 1, n)
    found = on_by_kernels([v], [out])(at)
    np.testing.assert_allclose(found, off_in_numpy([v], [out])(at), rtol=1e-12)


def test_many_columns_along_one_axis_are_combined_first(monkeypatch):
    """The columns are combined along that axis before they meet columns that vary along both axes."""
    rng = np.random.default_rng(0)
    rows, cells = rng.integers(0, 2, size=(60, 1, 5)), rng.integers(0, 9, size=(60, 50, 1))
    expected = np.unique(
        np.concatenate([np.broadcast_to(rows, (60, 50, 5)), cells], axis=2).reshape(-1, 6),
        axis=0,
        return_inverse=True,
    )[1]
    for sample in (keys.SAMPLE, 1000):
        monkeypatch.setattr(keys, "SAMPLE", sample)
        row_keys = keys.RowKeys((60, 50))
        codes = row_keys.codes(row_keys.add(rows) | row_keys.add(cells))
        assert codes.n_cells == expected.max() + 1
        assert len({*zip(codes.of_row, expected, strict=True)}) == codes.n_cells
        continuous = row_keys.add(rng.normal(size=(60, 50)))
        assert row_keys.codes(continuous | row_keys.add(rows)) is None


@pytest.mark.parametrize("n_distinct", [1, 5, 12])
@pytest.mark.parametrize("n_columns", [10, 1000])
def test_columns_that_change_no_code_are_left_out(n_distinct, n_columns):
    rng = np.random.default_rng(0)
    of_row = rng.permutation(np.arange(12) % n_distinct)
    rows = rng.normal(size=(n_distinct, n_columns))[of_row]
    row_keys = keys.RowKeys((12,))
    columns = row_keys.add(rows)
    assert len(columns) == (
        keys.FIRST_COLUMNS if (n_distinct, n_columns) == (12, 1000) else n_columns
    )
    codes = row_keys.codes(columns)
    assert (codes and codes.n_cells) == (None if n_distinct == 12 else n_distinct)


def test_rows_that_differ_in_the_last_of_many_columns_are_distinct():
    rows = np.zeros((12, 1000))
    rows[3, -1] = 1
    row_keys = keys.RowKeys((12,))
    codes = row_keys.codes(row_keys.add(rows))
    assert np.array_equal(codes.of_row, np.arange(12) == 3)


@pytest.mark.parametrize("differs_at", [1, keys.FIRST_ROWS, 4 * keys.FIRST_ROWS - 1, None])
def test_columns_that_differ_within_a_mask_are_found(differs_at):
    rng = np.random.default_rng(0)
    mask = rng.random(4 * keys.FIRST_ROWS) < 0.5
    column = np.where(mask, 2.0, rng.normal(size=mask.size))
    if differs_at is not None:
        mask[differs_at], column[differs_at] = True, 3.0
    row_keys = keys.RowKeys(mask.shape)
    columns = row_keys.add(column)
    assert row_keys.differing(columns, mask) == (columns if differs_at is not None else set())


def test_a_column_that_soon_differs_is_not_read_whole(monkeypatch):
    read, bits = [], keys.bits
    monkeypatch.setattr(keys, "bits", lambda x: read.append(np.size(x)) or bits(x))
    row_keys = keys.RowKeys((10**6,))
    columns = row_keys.add(np.arange(10.0**6))
    assert row_keys.differing(columns, np.ones(10**6, dtype=bool)) == columns
    assert sum(read) <= 2 * keys.FIRST_ROWS


def test_keys_identify_positions():
    rows = np.array([1, 4])
    assert position_key(rows) == position_key(rows)
    assert position_key(rows) != position_key(rows.copy())
    assert position_key(np.array([2])) == position_key(np.array([2]))
    assert len({position_key(p) for p in (2, np.array([2]), np.array([[2]]), np.array([3]))}) == 4


def kept_by_modules() -> dict[tuple[str, str], int]:
    """Return how much is in each container, and in each cache of a function, of all modules but the kernel's."""
    names = [name for name in sys.modules if re.match(r"pymc_fastlogp\.(?!kernel)", name)]
    kept = {}
    for module in names:
        for name, value in vars(sys.modules[module]).items():
            if isinstance(value, _lru_cache_wrapper):
                kept[module, name] = value.cache_info().currsize
            elif isinstance(value, dict | list | set):
                kept[module, name] = len(value)
    return kept


def rewrite_a_regression(n_columns):
    rng = np.random.default_rng(0)
    beta = pt.vector("beta", shape=(n_columns,))
    y, design = rng.normal(size=600), rng.normal(size=(600, n_columns))
    out = pt.sqr(y - (design * beta).sum(axis=-1)).sum()
    with collected() as decisions:
        pregrad(out, on=True)
    assert any(d.fired and d.rule == NAME for d in decisions)


def test_modules_hold_no_rewritten_graphs():
    rewrite_a_regression(59)  # which classes are elementwise is kept, once for each
    before = kept_by_modules()
    rewrite_a_regression(61)
    rewrite_a_regression(67)
    assert before
    assert kept_by_modules() == before
