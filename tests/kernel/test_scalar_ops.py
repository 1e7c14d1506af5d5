"""Every scalar Op in the log density of a univariate distribution of PyMC, or in its gradient, has a row."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions import continuous, discrete
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import CAReduce, Elemwise

from pymc_fastlogp.kernel.lower.elemwise import scalar_op_is_supported
from tests.kernel.scalar_docs import PAGE, as_markdown, table_of

# The parametrizations: parameters are float vectors, those before a colon integer vectors.
PARAMETERS = {
    "AsymmetricLaplace": ["kappa mu b"],
    "Bernoulli": ["p", "logit_p"],
    "Beta": ["alpha beta", "mu sigma"],
    "BetaBinomial": ["n: alpha beta"],
    "Binomial": ["n: p", "n: logit_p"],
    "Cauchy": ["alpha beta"],
    "ChiSquared": ["nu"],
    "DiscreteUniform": ["lower upper:"],
    "DiscreteWeibull": ["q beta"],
    "ExGaussian": ["mu sigma nu"],
    "Exponential": ["lam", "scale"],
    "Flat": [""],
    "Gamma": ["alpha beta", "mu sigma"],
    "Geometric": ["p"],
    "Gumbel": ["mu beta"],
    "HalfCauchy": ["beta"],
    "HalfFlat": [""],
    "HalfNormal": ["sigma", "tau"],
    "HalfStudentT": ["nu sigma", "nu lam"],
    "HyperGeometric": ["N k n:"],
    "InverseGamma": ["alpha beta", "mu sigma"],
    "Kumaraswamy": ["a b"],
    "Laplace": ["mu b"],
    "LogNormal": ["mu sigma", "mu tau"],
    "Logistic": ["mu s"],
    "LogitNormal": ["mu sigma", "mu tau"],
    "Moyal": ["mu sigma"],
    "NegativeBinomial": ["mu alpha", "p n"],
    "Normal": ["mu sigma", "mu tau"],
    "OrderedLogistic": ["eta cutpoints"],
    "OrderedProbit": ["eta cutpoints sigma"],
    "Pareto": ["alpha m"],
    "Poisson": ["mu"],
    "PolyaGamma": ["h z"],
    "Rice": ["nu sigma", "b sigma"],
    "SkewNormal": ["alpha mu sigma", "alpha mu tau"],
    "SkewStudentT": ["a b mu sigma", "a b mu lam"],
    "StudentT": ["nu mu sigma", "nu mu lam"],
    "Triangular": ["lower upper c"],
    "TruncatedNormal": ["mu sigma lower upper", "mu sigma lower", "mu sigma upper", "mu tau lower"],
    "Uniform": ["lower upper"],
    "VonMises": ["mu kappa"],
    "Wald": ["mu lam alpha", "mu phi alpha", "lam phi alpha"],
    "Weibull": ["alpha beta"],
}
# These have parameters of other shapes, or constants.
GRID = np.linspace(0.0, 1.0, 5)
OTHERS = {
    "Categorical": [{"p": pt.matrix("p")}, {"logit_p": pt.matrix("logit_p")}],
    "Interpolated": [{"x_points": GRID, "pdf_points": np.ones_like(GRID)}],
}
WITHOUT_GRADIENT = {"PolyaGamma"}
WITHOUT_LOGCDF = {
    *("AsymmetricLaplace", "HalfStudentT", "Interpolated", "Rice", "SkewNormal", "VonMises"),
    *("BetaBinomial", "HyperGeometric"),  # they have one for scalars only
}

# What there is today. An Op that a later PyMC adds shows up here, and below if it has no row.
IN_LOGP = {
    *("AND", "Abs", "Add", "Cast", "Clip", "Cos", "EQ", "Erfc", "Erfcx", "Exp", "Expm1", "Floor"),
    *("GE", "GT", "GammaLn", "I0e", "I1e", "Invert", "IsInf", "IsNan", "LE", "LT", "Log", "Log1p"),
    *("Maximum", "Minimum", "Mul", "Neg", "OR", "Pow", "Psi", "Reciprocal", "Sigmoid", "Sign"),
    *("Sin", "Softplus", "Sqr", "Sqrt", "Sub", "Switch", "TrueDiv"),
}
IN_LOGCDF = {"ArcTan", "BetaInc", "Erf", "GammaInc", "GammaIncC", "Log1mexp", "ScalarLoop"}


def cases():
    """Yield the name of each distribution and its parameters, as variables or constants."""
    for name, parametrizations in PARAMETERS.items():
        for text in parametrizations:
            integers, _, floats = text.rpartition(":")
            yield (
                name,
                {
                    **{n: pt.lvector(n) for n in integers.split()},
                    **{n: pt.vector(n) for n in floats.split()},
                },
            )
    for name, parametrizations in OTHERS.items():
        for parameters in parametrizations:
            yield name, parameters


def graph_of(log_density, name, parameters):
    """Return the graph of a log density and its gradient, rewritten as for nutpie."""
    rv = getattr(pm, name).dist(**parameters)
    value = pt.vector("value", dtype=rv.dtype)
    total = rewrite_graph(log_density(rv, value).sum(), include=("canonicalize", "stabilize"))
    inputs = [x for x in (*parameters.values(), value) if isinstance(x, pt.TensorVariable)]
    wrt = [x for x in inputs if x.dtype == "float64" and name not in WITHOUT_GRADIENT]
    gradient = pt.grad(total, wrt, disconnected_inputs="ignore")
    fgraph = FunctionGraph(inputs, [total, *gradient], clone=True)
    get_mode("NUMBA").excluding("inplace").optimizer.rewrite(fgraph)
    return fgraph


def scalar_nodes(nodes):
    """Yield Op, input types and output types of each scalar node, Composites taken apart."""
    for node in nodes:
        op = node.op.scalar_op if isinstance(node.op, Elemwise | CAReduce) else node.op
        inner = getattr(op, "fgraph", None)
        if inner is not None and not isinstance(op, ScalarLoop):
            yield from scalar_nodes(inner.toposort())
        elif isinstance(op, ScalarOp):
            inputs = node.inputs * 2 if isinstance(node.op, CAReduce) else node.inputs
            yield op, [x.type.dtype for x in inputs], [x.type.dtype for x in node.outputs]


def walk(log_density, without=()):
    """Return the scalar nodes of the log densities of all distributions but these."""
    return [
        scalar
        for name, parameters in cases()
        if name not in without
        for scalar in scalar_nodes(graph_of(log_density, name, parameters).toposort())
    ]


def without_row(found):
    return {
        type(op) for op, inputs, outputs in found if not scalar_op_is_supported(op, inputs, outputs)
    }


@pytest.fixture(scope="module")
def in_logp():
    return walk(pm.logp)


def test_every_univariate_distribution_is_covered():
    assert {*PARAMETERS, *OTHERS} == {*continuous.__all__, *discrete.__all__}


@pytest.mark.slow
def test_the_list_of_ops_is_complete(in_logp):
    assert {type(op).__name__ for op, *_ in in_logp} == IN_LOGP


@pytest.mark.slow
def test_every_op_of_logp_and_gradient_has_a_row(in_logp):
    assert without_row(in_logp) == set()


@pytest.mark.slow
def test_every_op_of_logcdf_and_gradient_has_a_row_or_is_a_loop_of_such():
    found = walk(pm.logcdf, WITHOUT_LOGCDF)
    assert {type(op).__name__ for op, *_ in found} - IN_LOGP == IN_LOGCDF
    assert without_row(found) == set()


def test_the_page_shows_the_table():
    assert table_of(PAGE.read_text()) == as_markdown()
