"""Where variables were made is not noted while a model is compiled, and is again after it."""

import pymc as pm
import pytensor.tensor as pt
from pytensor.configdefaults import config

import pymc_fastlogp
from pymc_fastlogp.callbacks import kept


def test_variables_have_no_traces_while_a_model_is_compiled(monkeypatch):
    made = []
    monkeypatch.setattr(kept, "compiled", lambda *_, **__: made.append(pt.exp(pt.scalar())))
    with pm.Model() as model:
        pm.Normal("x")
    pymc_fastlogp.compile_pymc_model(model)
    assert made[0].tag.trace == []
    assert config.traceback__limit > 0
    assert pt.exp(pt.scalar()).tag.trace != []
