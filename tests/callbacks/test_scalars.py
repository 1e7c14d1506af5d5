"""Scalar functions of upstream in callbacks that link these functions alone."""

import numpy as np
import pymc as pm

from tests.conftest import PYTHON


def hurdle() -> pm.Model:
    with pm.Model() as model:
        mu = pm.Exponential("mu", 1)
        pm.HurdlePoisson("y", psi=0.4, mu=mu, observed=[0, 3, 1, 2])
    return model


def test_a_callback_finds_the_functions_that_its_kernel_calls(run_script):
    """A process of its own: what another test has linked stays callable."""
    done = run_script(
        """
        import numpy as np
        import pymc_fastlogp
        from tests.callbacks.test_scalars import hurdle

        print(pymc_fastlogp.compile_pymc_model(hurdle()).logp_dlogp(np.array([0.1]))[0])
        """
    )
    assert done.returncode == 0, done.stderr
    expected = hurdle().compile_logp(mode=PYTHON)({"mu_log__": 0.1})
    np.testing.assert_allclose(float(done.stdout), expected, rtol=1e-12)
