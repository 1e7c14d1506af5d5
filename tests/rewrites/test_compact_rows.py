"""Repeated rows are summed once: the graphs, value and gradient, and refusals."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.basic import equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.typed_list import TypedListType

from pymc_fastlogp import verify
from pymc_fastlogp.decisions import Decision, collected
from pymc_fastlogp.rewrites.rows.compact.compact_rows import NAME
from tests.rewrites.conftest import (
    PYTHON,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
    sum_and_gradient,
)

N = 240
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, 5, N)
SEX = RNG.integers(0, 2, N).astype(float)
CONTINUOUS = RNG.normal(size=N)
ANSWER = RNG.integers(0, 2, N)
COUNT = RNG.poisson(2.0, N)
LEVEL = RNG.integers(0, 3, N)
ROUNDED = np.round(RNG.normal(size=N))
POSITIVE = np.round(RNG.gamma(2.0, size=N)) + 0.5
PAIRS = np.round(RNG.normal(size=(N, 2)))

FAMILIES = {
    "bernoulli": lambda eta, s, y: pm.Bernoulli("y", logit_p=eta, observed=y(ANSWER)),
    "binomial": lambda eta, s, y: pm.Binomial("y", n=12, logit_p=eta, observed=y(COUNT)),
    "poisson": lambda eta, s, y: pm.Poisson("y", pt.exp(eta), observed=y(COUNT)),
    "negative binomial": lambda eta, s, y: pm.NegativeBinomial(
        "y", mu=pt.exp(eta), alpha=s, observed=y(COUNT)
    ),
    "beta-binomial": lambda eta, s, y: pm.BetaBinomial(
        "y", n=12, alpha=pt.exp(eta), beta=s, observed=y(COUNT)
    ),
    "categorical": lambda eta, s, y: pm.Categorical(
        "y", logit_p=pt.stack([eta, 2 * eta, -eta], axis=1), observed=y(LEVEL)
    ),
    "ordered logistic": lambda eta, s, y: pm.OrderedLogistic(
        "y", eta=eta, cutpoints=[-1, 1], compute_p=False, observed=y(LEVEL)
    ),
    "gamma": lambda eta, s, y: pm.Gamma("y", alpha=s, beta=pt.exp(eta), observed=y(POSITIVE)),
    "exponential": lambda eta, s, y: pm.Exponential("y", lam=pt.exp(eta), observed=y(POSITIVE)),
    "normal": lambda eta, s, y: pm.Normal("y", eta, s, observed=y(ROUNDED)),
    "student": lambda eta, s, y: pm.StudentT("y", nu=3, mu=eta, sigma=s, observed=y(ROUNDED)),
    "laplace": lambda eta, s, y: pm.Laplace("y", eta, s, observed=y(ROUNDED)),
    "zero-inflated": lambda eta, s, y: pm.ZeroInflatedPoisson(
        "y", psi=pt.sigmoid(s), mu=pt.exp(eta), observed=y(COUNT)
    ),
    "censored": lambda eta, s, y: pm.Censored(
        "y", pm.Normal.dist(eta, s), lower=-1, upper=1, observed=y(np.clip(ROUNDED, -1, 1))
    ),
    "truncated": lambda eta, s, y: pm.Truncated(
        "y", pm.Normal.dist(eta, s), lower=-10, upper=10, observed=y(ROUNDED)
    ),
    "two columns": lambda eta, s, y: pm.Normal(
        "y", eta[:, None] + pt.stack([s, -s]), s, observed=y(PAIRS)
    ),
    "matrix of covariates": lambda eta, s, y: pm.Bernoulli(
        "y", logit_p=pt.dot(np.stack([SEX, 1 - SEX], axis=1), pt.stack([s, -s])), observed=y(ANSWER)
    ),
}


def model_of(family: str, *, sex: np.ndarray = SEX) -> pm.Model:
    with pm.Model() as model:
        a = pm.Normal("a", shape=5)
        b = pm.Normal("b")
        s = pm.HalfNormal("s")
        eta = a[pm.Data("group", GROUP)] + b * pm.Data("sex", sex)
        FAMILIES[family](eta, s, lambda values: pm.Data("observed", values))
    return model


def logp_dlogp(model: pm.Model, *, on: bool):
    """Return a function of the value variables that gives logp and its gradient."""
    logp = pregrad(model.logp(), on=on)
    inputs = model.continuous_value_vars
    return pytensor.function(inputs, [logp, *pytensor.grad(logp, inputs)], mode=PYTHON)


def random_point(model: pm.Model, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(0, 0.5, size=v.type.shape) for v in model.continuous_value_vars]


def longest(x) -> int:
    """Return the largest first dimension that an Elemwise or a Sum works on below ``x``."""
    nodes, to_see, found = set(), [x], [0]
    while to_see:
        node = to_see.pop().owner
        if node is None or node in nodes:
            continue
        nodes.add(node)
        to_see += node.inputs
        if isinstance(node.op, Elemwise | Sum):
            found += [v.type.shape[0] or N for v in node.inputs if v.type.ndim]
    return max(found)


def fired(decisions: list[Decision]) -> list[tuple[int, int]]:
    return [(d.rows_before, d.rows_after) for d in decisions if d.fired and d.rule == NAME]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_loop_of_a_family_is_over_cells(family):
    model = freeze_dims_and_data(model_of(family))
    assert longest(pregrad(model.logp(), on=False)) >= N
    assert longest(pregrad(model.logp(), on=True)) < 0.7 * N


@pytest.mark.parametrize("family", FAMILIES)
def test_families_agree(family):
    model = freeze_dims_and_data(model_of(family))
    off, on = (logp_dlogp(model, on=on) for on in (False, True))
    rng = np.random.default_rng(1)
    for _ in range(3):
        at = random_point(model, rng)
        for expected, found in zip(off(*at), on(*at), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


a = pt.vector("a", shape=(5,))
b = pt.scalar("b")
alpha = pt.scalar("alpha")
each = pt.vector("each", shape=(N,))
table = pt.matrix("table", shape=(5, 3))
shared = pytensor.shared(CONTINUOUS, name="covariate", shape=(N,))
unknown = pytensor.shared(CONTINUOUS, name="covariate")

VALUES = {
    a: np.array([0.3, -0.7, 0.1, 1.2, -0.4]),
    b: np.array(0.7),
    alpha: np.array(1.9),
    table: np.linspace(-1, 1, 15).reshape(5, 3),
}


def first_rows(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each cell, and the codes of all rows, in order of appearance."""
    seen: dict[tuple, int] = {}
    codes = np.array([seen.setdefault(key, len(seen)) for key in zip(*columns)])
    return np.array([np.flatnonzero(codes == k)[0] for k in range(len(seen))]), codes


ROWS, CELLS = first_rows(GROUP, SEX)
COUNT_ROWS, COUNT_CELLS = first_rows(COUNT)
N_CELLS = np.bincount(CELLS).astype(float)

GRAPHS = {
    "deduplication": (
        pt.exp(a[GROUP] + b * SEX).sum(),
        (N_CELLS * pt.exp(a[GROUP[ROWS]] + b * SEX[ROWS])).sum(),
    ),
    "sufficient statistic": (
        (POSITIVE * pt.exp(a[GROUP] + b * SEX)).sum(),
        (np.bincount(CELLS, POSITIVE) * pt.exp(a[GROUP[ROWS]] + b * SEX[ROWS])).sum(),
    ),
    "hoisting": (
        pt.gammaln(COUNT + alpha).sum(),
        (np.bincount(COUNT_CELLS) * 1.0 * pt.gammaln(COUNT[COUNT_ROWS] + alpha)).sum(),
    ),
    "a condition": (
        pt.all(a[GROUP] + b * SEX > 0),
        pt.all(a[GROUP[ROWS]] + b * SEX[ROWS] > 0),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name):
    before, after = GRAPHS[name]
    assert sketch(pregrad(before, on=True)) == sketch(pregrad(after, on=False))


EXPRESSIONS = {
    **{name: before for name, (before, _) in GRAPHS.items() if name != "a condition"},
    "terms of two keys": (pt.exp(a[GROUP] + b * CONTINUOUS) + pt.gammaln(COUNT + alpha)).sum(),
    "weights of both signs": (CONTINUOUS * pt.exp(a[GROUP])).sum(),
    "weights of a sum": (POSITIVE * (pt.exp(a[GROUP]) + pt.exp(b * CONTINUOUS))).sum(),
    "known switch": pt.switch(ANSWER, pt.log1p(a[GROUP] ** 2), pt.exp(a[GROUP])).sum(),
    "one branch without rows of a cell": pt.switch(
        GROUP > 2, pt.exp(a[GROUP]), pt.log1p(pt.sqr(a[GROUP]))
    ).sum(),
    "switch on a parameter": pt.switch(b > 0, pt.exp(a[GROUP]), pt.sin(a[GROUP] * SEX)).sum(),
    "divided by a parameter": ((COUNT * a[GROUP] - pt.exp(a[GROUP])) / alpha).sum(),
    "row-wise sum inside": pt.exp((table[GROUP] * LEVEL[:, None]).sum(-1)).sum(),
    "softmax inside": pt.special.log_softmax(table[GROUP], axis=1)[np.arange(N), LEVEL].sum(),
    "sum over the row axis": pt.exp(table[GROUP] * SEX[:, None]).sum(axis=0).prod(),
    "sum over rows of a broadcast": (pt.exp(a[GROUP])[:, None] + table[:1]).sum(),
    "pairs of rows and columns": pt.exp(a[GROUP][:, None] * PAIRS).sum(),
    "term that is the same everywhere": (pt.log(alpha) + pt.exp(a[GROUP])).sum(),
    "boolean and float32 terms": (
        pt.constant(ANSWER > 0) + pt.constant(POSITIVE.astype("float32")) / 3 + pt.exp(a[GROUP])
    ).sum(),
    "slices": pt.exp(table[GROUP][:, 1] + table[GROUP][:, 2]).sum(),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_value_and_gradient(name):
    out = EXPRESSIONS[name]
    with collected() as decisions:
        on = pregrad(out, on=True)
    assert fired(decisions)
    off = pregrad(out, on=False)
    for expected, found in zip(*(sum_and_gradient(x, VALUES) for x in (off, on)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_weighted_sum_is_split_into_terms_with_keys_of_their_own():
    with collected() as decisions:
        pregrad(EXPRESSIONS["weights of a sum"], on=True)
    assert fired(decisions) == [(N, 5)]


@pytest.mark.parametrize("name", [*EXPRESSIONS, "a condition"])
def test_rewrite_is_idempotent(name):
    out = EXPRESSIONS.get(name, GRAPHS["a condition"][0])
    once = pregrad(out, on=True)
    with collected() as decisions:
        settled = pregrad(without_tags(once), on=True)  # PyTensor simplifies what came out
        again = pregrad(without_tags(settled), on=True)
    assert not fired(decisions)
    assert equal_computations([again], [settled])


def without_tags(out):
    """Return a copy of a graph in which no rule has left a word."""
    [copy] = clone_replace([out])
    for variable in ancestors([copy]):
        variable.tag.__dict__.pop(NAME, None)
    return copy


def test_terms_of_one_key_share_their_subexpressions():
    """A gather that two terms share is one gather, so that its gradient is scattered once."""
    model = freeze_dims_and_data(model_of("poisson"))
    out = pregrad(model.logp(vars=[model["y"]]), on=True)
    gathers = {v for v in ancestors([out]) if isinstance(v.owner_op, AdvancedSubtensor)}
    assert len(gathers) == 2  # one in the sum, one in the check


REFUSES = {
    "a random vector of row length": (pt.exp(each).sum(), "each has one value per row"),
    "continuous covariate": (pt.exp(a[GROUP] + b * CONTINUOUS).sum(), "too few rows repeat"),
    "shared, length known": (pt.exp(a[GROUP] + b * shared).sum(), "freeze_model=True"),
    "shared, length unknown": (pt.exp(b * unknown).sum(), "freeze_model=True"),
    "a parameter of unknown length": (
        pt.exp(pt.vector("latent")).sum(),
        "latent has one value per row",
    ),
    "computed from a parameter of unknown length": (
        pt.exp(pt.cumsum(pt.vector("steps"))).sum(),
        "steps has one value per row",
    ),
    "normalized by a sum that is needed with its terms": (
        pt.exp(each / pt.exp(each).sum()).sum(),
        "each has one value per row",
    ),
    "random numbers": (
        pt.exp(a[GROUP] * pt.random.normal(size=(N,), name="draw")).sum(),
        "random numbers",
    ),
    "minibatch": (
        pt.exp(b * pt.constant(SEX)[pt.random.integers(0, N, size=(N,))]).sum(),
        "random numbers",
    ),
    "a list": (pt.exp(TypedListType(pt.dvector)()[0]).sum(), "number of rows is not known"),
}


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    out, reason = REFUSES[name]
    with collected() as decisions:
        pregrad(out, on=True)
    assert not fired(decisions)
    assert any(reason in str(decision.refusal) for decision in decisions)


def test_refuses_if_rows_are_an_output():
    rows = pt.exp(a[GROUP])
    out = pt.concatenate([rows.sum()[None], rows])
    with collected() as decisions:
        pregrad(out, on=True)
    assert not fired(decisions)
    assert any("row by row" in str(decision.refusal) for decision in decisions)


def test_unfrozen_model_refuses_and_says_how_to_freeze():
    with collected() as decisions:
        pregrad(model_of("bernoulli").logp(), on=True)
    assert not fired(decisions)
    assert any("freeze_model=True" in str(decision.refusal) for decision in decisions)


def test_row_invariant_factors_join_the_cells():
    """A multinomial logit whose data have one of two groups: a join does not broadcast its first column."""
    categories = np.arange(200) % 3
    with pm.Model() as model:
        effect, others = pm.Normal("effect", shape=2), pm.Normal("others", shape=2)
        first = pt.broadcast_to(effect[np.zeros(200, int)], (200,))
        logits = [first[:, None], pt.broadcast_to(others, (200, 2))]
        pm.Categorical("y", logit_p=pt.concatenate(logits, axis=1), observed=categories)
    with collected() as decisions:
        assert verify(model, n_random=1)
    assert fired(decisions)


WEIGHTS = {
    "one is zero": [0.0, 2.0],
    "positive": [1.0, 2.0],
    "negative": [-1.0, -2.0],
    "both signs": [1.0, -2.0],
}


@pytest.mark.parametrize("h", [np.inf, -np.inf, np.nan, 1.5])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_infinite_terms_agree_with_the_sum_over_rows(weights, h):
    out = (np.tile(WEIGHTS[weights], N // 2) * pt.exp(a[np.zeros(N, dtype=int)])).sum()
    out = clone_replace([out], {a: pt.log(a)})[0]
    with collected() as decisions:
        on = pregrad(out, on=True)
    assert fired(decisions)
    values = [x.eval({a: np.full(5, h)}, mode=PYTHON) for x in (pregrad(out, on=False), on)]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-14)


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 2e35), ("float64", 2e307)])
def test_non_finite_weight_sums_keep_their_rows(dtype, largest):
    weights = np.where(np.arange(10_000) % 3, largest / 2, largest).astype(dtype)
    x = pt.scalar("x", dtype=dtype)
    out = (weights * pt.exp(-x * np.tile(np.array([1, 2], dtype), 5000))).sum()
    with collected() as decisions:
        on = pregrad(out, on=True)
    assert not fired(decisions)
    assert any("equal rows overflows" in str(decision.refusal) for decision in decisions)
    found = on.eval({x: np.array(60 if dtype == "float32" else 600, dtype)}, mode=PYTHON)
    assert 0 < found < np.inf


def test_half_precision_stays_with_its_rows():
    """Half precision cannot represent the number of rows of a cell."""
    h = pt.vector("h", shape=(5,), dtype="float16")
    with collected() as decisions:
        on = pregrad(pt.exp(h[np.arange(400_000) % 5]).sum(), on=True)
    assert not fired(decisions)
    assert np.isfinite(on.eval({h: np.arange(-15, -10, dtype="float16")}, mode=PYTHON))


def test_a_group_without_rows_of_one_kind_has_a_finite_gradient():
    """A cell of zero rows would contribute the derivative of log(1 - 1)."""
    group = np.tile([0, 1], N // 2)
    p = 0.5 * pt.erfc(-a[group] / np.sqrt(2.0))
    out = pt.switch((group == 1) | (np.arange(N) % 4 < 2), pt.log(p), pt.log1p(-p)).sum()
    with collected() as decisions:
        on = pregrad(out, on=True)
    assert fired(decisions)
    far = np.array([0.5, 8.5, 0.0, 0.0, 0.0])
    of_p = 0.5 * pt.erfc(-a / np.sqrt(2.0))
    assert of_p.eval({a: far}, mode=PYTHON)[1] == 1.0
    # Without a switch, whose gradient node by node is nan with the plugin off, too.
    n = N // 2
    density = n / 2 * (pt.log(of_p[0]) + pt.log1p(-of_p[0])) + n * pt.log(of_p[1])
    for x, y in zip([on, pytensor.grad(on, a)], [density, pytensor.grad(density, a)], strict=True):
        values = [z.eval({a: far}, mode=PYTHON) for z in (x, y)]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-13)


def test_a_failed_check_raises():
    with pm.Model() as model:
        rate = pm.Normal("rate", shape=5)
        pm.Poisson("y", rate[GROUP], observed=COUNT)
    on = logp_dlogp(model, on=True)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="mu >= 0"):
        on(np.array([1.0, 1.0, 1.0, 1.0, -1.0]))


@pytest.mark.parametrize("imaginary", [SEX, 2.0 * ANSWER])
def test_complex_rows_are_compacted(imaginary):
    z = pt.vector("z", shape=(5,), dtype="complex128")
    out = pt.all(pt.real((SEX + 1j * imaginary) * z[GROUP]) > -3)
    with collected() as decisions:
        on = pregrad(out, on=True)
    n_cells = len(np.unique(np.column_stack([GROUP, SEX, imaginary]), axis=0))
    assert fired(decisions) == [(N, n_cells)]
    for scale in (1, 3):
        values = {z: scale * np.exp(1j * np.arange(5))}
        found, expected = (x.eval(values, mode=PYTHON) for x in (on, out))
        assert found == expected == (scale == 1)


def test_float32_stays_float32():
    x = pt.vector("x", shape=(5,), dtype="float32")
    out = (SEX.astype("float32") * pt.exp(x[GROUP])).sum()
    with collected() as decisions:
        on = pregrad(out, on=True)
    assert fired(decisions)
    assert on.type == out.type


def test_slices_of_open_lengths_agree():
    known, opened = pt.vector("known", shape=(40,)), pt.vector("opened")
    chosen = pt.switch(pt.as_tensor(np.arange(40) % 3 == 0), known, opened)
    values = {known: np.linspace(0.0, 1.0, 40), opened: np.linspace(2.0, 1.0, 40)}
    assert_same_value_and_gradient(pt.exp(pt.diff(chosen)), values, rtol=1e-13)
