"""Every entry point of PyMC and nutpie that compiles a logp reaches the rules."""

import numpy as np
import nutpie
import pymc as pm
import pytest
from pymc.sampling.jax import get_jaxified_logp

import pymc_fastlogp
from tests.lifted import LIFT

SHORT = {
    "draws": 20,
    "tune": 20,
    "chains": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
    "random_seed": 1,
}
POINT = {"a": np.array([-1.0, 0.5])}

# -log density of two standard normals, plus the potential at POINT: three entries are exp(0).
NEGATIVE_LOGP = np.log(2 * np.pi) + (POINT["a"] ** 2).sum() / 2 + 3 + np.exp(POINT["a"]).sum()


def sample_with_nutpie(model: pm.Model) -> None:
    pm.sample(model=model, nuts_sampler="nutpie", **SHORT)


def sample_with_nutpie_and_compile_kwargs(model: pm.Model) -> None:
    kwargs = pymc_fastlogp.compile_kwargs()
    pm.sample(model=model, nuts_sampler="nutpie", compile_kwargs=kwargs, **SHORT)


def sample_with_pymc(model: pm.Model) -> None:
    pm.sample(model=model, nuts_sampler="pymc", cores=1, **SHORT)


def compile_with_nutpie(model: pm.Model) -> None:
    nutpie.compile_pymc_model(model, **pymc_fastlogp.compile_kwargs())


def compile_with_nutpie_for_jax(model: pm.Model) -> None:
    nutpie.compile_pymc_model(model, backend="jax")


def compile_with_nutpie_for_jax_gradient(model: pm.Model) -> None:
    nutpie.compile_pymc_model(model, backend="jax", gradient_backend="jax")


def logp_dlogp_function(model: pm.Model) -> None:
    logp_and_grad = model.logp_dlogp_function(ravel_inputs=True)
    logp_and_grad.set_extra_values({})
    logp, grad = logp_and_grad(POINT["a"])
    np.testing.assert_allclose(logp, -NEGATIVE_LOGP, rtol=1e-14)
    np.testing.assert_allclose(grad, -POINT["a"] - np.exp(POINT["a"]), rtol=1e-14)


def find_map(model: pm.Model) -> None:
    found = pm.find_MAP(model=model, progressbar=False)
    a = found["a"]
    # Where -a**2 / 2 - exp(a) is flat, as exactly as the optimizer stops.
    np.testing.assert_allclose(a + np.exp(a), 0, atol=1e-4)


def fit(model: pm.Model) -> None:
    pm.fit(5, model=model, progressbar=False)


def jax_samplers(model: pm.Model) -> None:
    negative_logp = get_jaxified_logp(model)
    np.testing.assert_allclose(negative_logp([POINT["a"]]), -NEGATIVE_LOGP, rtol=1e-14)


@pytest.mark.parametrize(
    "way",
    [
        sample_with_nutpie,
        sample_with_nutpie_and_compile_kwargs,
        sample_with_pymc,
        compile_with_nutpie,
        compile_with_nutpie_for_jax,
        compile_with_nutpie_for_jax_gradient,
        logp_dlogp_function,
        find_map,
        fit,
        jax_samplers,
    ],
    ids=lambda way: way.__name__,
)
def test_entry_point_reaches_the_rules(way, lifted_model, firings):
    way(lifted_model)
    assert firings[LIFT] > 0
