"""Comparisons with a provable result are folded; a possible NaN keeps its test."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Sigmoid
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.analysis.ranges import DEEPEST, range_of
from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.checks.fold_checks_by_range import local_fold_checks_by_range
from tests.fuzz.evaluation import off_in_numpy, on_by_kernels
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
    sketch,
)

RULE = "fastlogp_fold_checks_by_range"
N = 6

x = pt.vector("x", shape=(N,))
y = pt.vector("y", shape=(N,))
s = pt.scalar("s")
k = pt.lvector("k", shape=(N,))
flags = pt.vector("flags", shape=(N,), dtype="bool")
length_unknown = pt.vector("length_unknown")
small = pt.vector("small", shape=(N,), dtype="float32")
bytes_ = pt.vector("bytes_", shape=(N,), dtype="uint8")
other_length = pt.vector("other_length")

numbers = pt.cast(flags, "float64")  # zeros and ones, never nan
is_number = ~pt.isnan(x)
TRUE, FALSE = (pt.alloc(np.array(value), N) for value in (True, False))


def check(*conditions):
    """Return the condition of a check as PyMC writes it."""
    return pt.all([pt.all(condition) for condition in conditions])


FIRES = {
    "exp": (pt.exp(x) >= 0, is_number),
    "written the other way round": (pt.le(0, pt.exp(x)), is_number),
    "above a bound": (pt.exp(x) + 0.5 > 0, is_number),
    "sigmoid": (pt.sigmoid(x) <= 1, is_number),
    "square": (pt.sqr(x) >= 0, is_number),
    "absolute value": (abs(x) >= 0, is_number),
    "softplus": (pt.softplus(x) >= 0, is_number),
    "clipped": (pt.clip(x, 0.1, 0.9) < 1, ~pt.isnan(pt.clip(x, 0.1, 0.9))),
    "the argument may make nan": (pt.sigmoid(x + y) <= 1, ~pt.isnan(x + y)),
    "the function may make nan": (
        pt.exp(pt.log(x) * pt.log(x)) > -1,
        ~pt.isnan(pt.log(x) * pt.log(x)),
    ),
    "unknown length": (pt.exp(length_unknown) >= 0, ~pt.isnan(length_unknown)),
    "a scalar": (pt.exp(s) >= 0, ~pt.isnan(s)),
    "never nan": (pt.exp(numbers) >= 1 / 2, TRUE),
    "never nan, of both sides": (pt.exp(numbers) > -numbers, TRUE),
    "never true": (pt.sigmoid(x) > 1, FALSE),
    "never true, nan or not": (pt.exp(x) < 0, FALSE),
    "never equal, nan or not": (pt.eq(pt.exp(x) + 1e-10, 0), FALSE),
    "never equal, written the other way round": (pt.eq(2, pt.sigmoid(x)), FALSE),
    "never equal, in single precision": (pt.eq(pt.exp(small) + np.float32(0.1), 0), FALSE),
    "never equal, of integers": (pt.eq(bytes_, -1), FALSE),
    "never equal, an infinity": (pt.eq(pt.sigmoid(x), np.inf), FALSE),
    "what fails for nan anyway, an equality": (
        check(pt.eq(pt.exp(x), y), is_number),
        pt.all(pt.eq(pt.exp(x), y)),
    ),
    "not nan": (pt.isnan(pt.exp(numbers)), FALSE),
    "not infinite": (pt.isinf(10 * pt.tanh(x)), FALSE),
    "a probability": (check(pt.sigmoid(x) >= 0, pt.sigmoid(x) <= 1), pt.all(is_number)),
    "one check": (check(pt.exp(x) >= 0), pt.all([pt.all(is_number)])),
    "what fails for nan anyway": (
        check(pt.tanh(x) >= 0, pt.tanh(x) <= 1),
        pt.all(pt.tanh(x) >= 0),
    ),
    "through a sum": (
        check(pt.tanh(x) <= 1, pt.lt(pt.sum(pt.tanh(x) + 1), 3)),
        pt.all(pt.lt(pt.sum(pt.tanh(x) + 1), 3)),
    ),
    "some of several": (
        check(pt.exp(x) > 0, pt.exp(y) >= 0),
        pt.all(pt.stack([pt.all(pt.exp(x) > 0), pt.all(~pt.isnan(y))])),
    ),
    "all of several": (check(pt.exp(numbers) > 0, numbers <= 1), pt.constant(np.array(True))),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


REFUSES = {
    "a scale that can be negative": x > 0,
    "a scale that can be zero": pt.exp(x) > 0,
    "a scale that underflows": pt.sqr(x) > 0,
    "equal once it underflows": pt.eq(pt.exp(x), 0),
    "equal at the bound": pt.eq(pt.exp(x) + 0.5, 0.5),
    "equal, of the other sign": pt.eq(abs(x), -0.0),
    "all of what may be nothing": pt.all(pt.eq(pt.exp(length_unknown) + 1, 0)),
    "all of what may be nothing, and more": pt.all(
        pt.eq(pt.exp(length_unknown) + 1, 0) & (length_unknown > 0)
    ),
    "any of what may be nothing": pt.any(~pt.eq(pt.exp(length_unknown) + 1, 0)),
    "any of what may be nothing, and is true": pt.any(pt.exp(pt.isnan(length_unknown)) > 0),
    "a probability above one": pt.exp(x) <= 1,
    "a probability below zero": 1 - 2 * pt.sigmoid(x) >= 0,
    "a probability by a factor": 1.5 * pt.sigmoid(x) <= 1,
    "integers that wrap round": k * k >= 0,
    "integers of either sign": k >= 0,
    "division by zero": numbers / numbers >= 0,
    "both sides may be nan": pt.exp(x) >= -pt.exp(y),
    "lengths that may differ": pt.exp(length_unknown) >= -pt.exp(other_length),
    "nan of an operand that is stretched": pt.exp(s) >= -numbers,
    "a maximum that may hide nan": ~pt.isnan(pt.maximum(x, 0)),
    "nan that the function makes": ~pt.isnan(pt.log(x)),
    "infinity": pt.isinf(pt.exp(x)),
    "one check of another": check(x > 0, y > 0),
    "constants, which PyTensor folds": check(pt.constant([1.0, 2.0]) > 0),
}


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_function_that_is_needed_anyway_is_asked_itself():
    found = pregrad(pt.switch(pt.exp(x) >= 0, pt.exp(x), -1.0), on=True)
    assert sketch(found) == sketch(pt.switch(~pt.isnan(pt.exp(x)), pt.exp(x), -1.0))


def test_argument_that_is_known_though_the_function_is_too_deep():
    deep = numbers
    for _ in range(DEEPEST - 1):
        deep = deep[::-1]
    out = pt.isnan(pt.exp(deep))
    assert not range_of(deep).nan
    assert range_of(pt.exp(deep)).nan
    fgraph = FunctionGraph(outputs=[out], clone=False)
    assert not local_fold_checks_by_range.transform(fgraph, out.owner)


KEPT = {
    "another variable": (x + y, y > 0),
    "one entry": (x, x[0] > 0),
    "a maximum that may hide it": (x, pt.maximum(x, 1) > 2),
    "an operand that is stretched": (s, s * length_unknown > 0),
    "equal, where nan is": (x, pt.neq(x, 1)),
}


@pytest.mark.parametrize("name", KEPT)
def test_keeps_a_test_for_nan_beside(name):
    argument, other = KEPT[name]
    kept = pt.all(pt.stack([pt.all(~pt.isnan(argument)), pt.all(other)]))
    assert_rewritten(check(pt.exp(argument) >= 0, other), kept)


def inputs_with(value):
    return {
        x: np.array([0.5, value, -1.0, 0.1, 2.0, 0.0]),
        y: np.full(N, 0.5),
        s: np.asarray(value),
        flags: np.arange(N) % 2 == 0,
        length_unknown: np.full(N, value),
        small: np.array([0.5, min(value, 1e30), -1.0, 0.1, 2.0, 0.0], dtype="float32"),
        bytes_: np.arange(N, dtype="uint8"),
    }


@pytest.mark.parametrize("value", [-3.0, 1e300, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", FIRES)
def test_truth_is_unchanged(name, value):
    condition = FIRES[name][0]
    inputs = inputs_of(condition, inputs_with(value))
    with np.errstate(all="ignore"):
        off, on = (
            pytensor.function(
                list(inputs), pregrad(condition, on=on), mode=PYTHON, on_unused_input="ignore"
            )(*inputs.values())
            for on in (False, True)
        )
    np.testing.assert_array_equal(on, off)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient_of_what_is_chosen(name):
    chosen = pt.switch(FIRES[name][0], pt.sin(x) * pt.exp(s), pt.cos(x))
    assert_same_value_and_gradient(chosen, inputs_with(0.7), rtol=1e-15)


@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize(
    "condition",
    [
        pt.all(pt.eq(pt.exp(length_unknown) + 1, 0)),
        pt.any(pt.eq(pt.exp(length_unknown) + 1, 0)),
        pt.any(~(pt.sigmoid(length_unknown) > 1)),
        pt.all(pt.isinf(pt.tanh(length_unknown))),
        pt.any(pt.exp(pt.isnan(length_unknown)) > 0),
        pt.all(pt.exp(pt.isnan(length_unknown)) > 0),
    ],
)
def test_truth_of_an_empty_array_is_unchanged(condition, length):
    off, on = (
        pytensor.function(
            [length_unknown], pregrad(condition, on=on), mode=PYTHON, on_unused_input="ignore"
        )(np.ones(length))
        for on in (False, True)
    )
    assert on == off


TRUE = pt.constant(np.array(True))
is_false = pt.exp(length_unknown) < 0


@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize(
    "condition",
    [
        pt.any(is_false ^ TRUE),
        pt.all(~(is_false ^ TRUE)),
        pt.any(pt.eq(is_false, ~TRUE)),
        pt.any(pt.neq(is_false, TRUE)),
        pt.any(pt.switch(is_false, pt.isnan(length_unknown), TRUE)),
        pt.all(pt.switch(is_false, pt.isnan(length_unknown), ~TRUE)),
    ],
)
def test_negated_truth_of_an_empty_array_is_unchanged(condition, length):
    """PyTensor exchanges negated comparisons after the gradient, so all of its rewrites run here."""
    [off], [on] = (
        compiled([length_unknown], [condition])(np.ones(length))
        for compiled in (off_in_numpy, on_by_kernels)
    )
    assert on == off


def logp(model, *, on):
    with switched(on):
        out = pregrad(model.logp(), on=on)
    return pytensor.function(model.value_vars, out, mode=PYTHON)


@pytest.fixture(scope="module")
def bernoulli():
    """Half of the people, each with two attempts, and the probability of each."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=3)
        p = pm.math.sigmoid(a[np.arange(200) % 3])
        pm.Bernoulli("y", p=p, observed=np.arange(200) % 2)
    return model


@pytest.mark.skipif(
    tuple(map(int, pm.__version__.split(".")[:2])) < (6, 4),
    reason="PyMC 6.3 writes log1p(-p), of which PyTensor does not take the sigmoid away",
)
def test_density_of_a_probability_needs_no_sigmoid(bernoulli):
    """Neither for its rows, which read the logarithm, nor for its bounds."""

    def has_sigmoid(on):
        variables = ancestors([pregrad(bernoulli.logp(), on=on)])
        ops = [v.owner.op for v in variables if v.owner is not None]
        return any(isinstance(op, Elemwise) and isinstance(op.scalar_op, Sigmoid) for op in ops)

    assert has_sigmoid(on=False)
    assert not has_sigmoid(on=True)


@pytest.mark.parametrize("a", [0.3, 800.0, -800.0, np.inf, -np.inf, np.nan])
def test_raises_where_upstream_raises(bernoulli, a):
    point = np.array([0.1, a, -0.2])
    found = []
    for on in (False, True):
        try:
            with np.errstate(all="ignore"):
                found.append(logp(bernoulli, on=on)(point))
        except ParameterValueError as error:
            found.append(str(error))
    if isinstance(found[0], str):
        assert found[1] == found[0] == "0 <= p <= 1"
        assert np.isnan(a)
    else:
        np.testing.assert_allclose(found[1], found[0], rtol=1e-13)


@pytest.mark.parametrize("sigma_log", [-800.0, np.nan])
def test_scale_that_underflows_raises(sigma_log):
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", 0, sigma, observed=np.arange(3.0))
    for on in (False, True):
        with np.errstate(all="ignore"), pytest.raises(ParameterValueError, match="sigma > 0"):
            logp(model, on=on)(np.asarray(sigma_log))


def test_value_outside_of_its_support_is_impossible():
    """A switch on the value is not a check; nan is outside of the support too."""
    with pm.Model() as model:
        pm.Exponential("rate", 2.0)
    for at in (0.3, np.inf, -np.inf, np.nan):
        off, on = (logp(model, on=on)(np.asarray(at)) for on in (False, True))
        np.testing.assert_array_equal(on, off)


@pytest.fixture(scope="module")
def counts():
    """Counts, most of them zero, of which each has a rate that a small number keeps from zero."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("a", shape=4)) + 1e-10, observed=[0, 0, 2, 0])
    return model


def test_rate_that_is_not_zero_is_not_asked_whether_it_is(counts):
    def asks(on):
        nodes = (v.owner for v in ancestors([pregrad(counts.logp(), on=on)]))
        return any(node and isinstance(node.op, Elemwise) and node.op == pt.eq for node in nodes)

    assert asks(on=False)
    assert not asks(on=True)


@pytest.mark.parametrize("a", [0.3, 709.0, 800.0, -800.0, np.inf, -np.inf, np.nan])
def test_logp_and_gradient_of_counts_at_limits(counts, a):
    point = np.array([0.1, a, -0.2, 1.0])
    off, on = (_logp_and_gradient(counts, point, on=on) for on in (False, True))
    assert on.keys() == off.keys()
    for what in off:
        np.testing.assert_allclose(on[what], off[what], rtol=1e-13)


def _logp_and_gradient(model, point, *, on):
    """Return what is computed, or the message of what is raised."""
    with switched(on), np.errstate(all="ignore"):
        logp = pregrad(model.logp(), on=on)
        graph = [logp, *pt.grad(logp, model.value_vars)]
        try:
            found = pytensor.function(model.value_vars, graph, mode=PYTHON)(point)
        except ParameterValueError as error:
            return {str(error): 0.0}
    return {"logp": found[0], "gradient": found[1]}
