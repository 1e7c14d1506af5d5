"""Scalar functions of upstream in callbacks that link these functions alone."""


def test_a_callback_finds_the_functions_that_its_kernel_calls(run_script):
    """A process of its own: what another test has linked stays callable."""
    done = run_script(
        """
        import numpy as np
        import pymc as pm
        import pymc_fastlogp

        with pm.Model() as model:
            mu = pm.Exponential("mu", 1)
            pm.HurdlePoisson("y", psi=0.4, mu=mu, observed=[0, 3, 1, 2])
        logp, _ = pymc_fastlogp.compile_pymc_model(model).logp_dlogp(np.array([0.1]))
        np.testing.assert_allclose(logp, model.compile_logp()({"mu_log__": 0.1}), rtol=1e-12)
        """
    )
    assert done.returncode == 0, done.stderr
