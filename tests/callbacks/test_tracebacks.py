"""Tracebacks of variables are disabled while a model is compiled, and enabled afterwards."""

import pymc as pm
import pytensor.tensor as pt
from pytensor.configdefaults import config

import pymc_fastlogp


def test_variables_have_no_traces_while_a_model_is_compiled(monkeypatch):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", "0")
    made = []

    def logp(value, mu):
        made.append(pt.exp(value - mu))
        return -made[-1]

    with pm.Model() as model:
        x = pm.Normal("x")
        pm.CustomDist("y", x, logp=logp, observed=[0.5, 1.0])
    with config.change_flags(traceback__limit=8):
        pymc_fastlogp.compile_pymc_model(model)
        assert [x.tag.trace for x in made] == [[]] * len(made)
        assert made
        assert config.traceback__limit == 8
        assert pt.exp(pt.scalar()).tag.trace
