"""`verify` on the models of the zoo and of the gallery: what users may write keeps its value and gradient."""

from collections.abc import Callable

import numpy as np
import pytensor
import pytest

import pymc_fastlogp
from pymc_fastlogp.verification import WorstEntry
from tests import canaries, zoo

pytestmark = pytest.mark.slow

MODELS = {name: make for name, make in canaries.MODELS.items() if not name.startswith("suite/")}

# Differences that a page in docs/rewrites states: of an entry, whether it is that one.
STATED: dict[str, Callable[[WorstEntry], bool]] = {
    # gaussian_rows: which of nan and -inf comes of several infinite parameters
    "zoo/horseshoe": lambda entry: np.isnan(entry.off) and entry.on == -np.inf,
    # cholesky_of_gram: upstream cannot factor L @ L.T where it is singular in double precision
    "zoo/packed_cholesky": lambda entry: np.isnan(entry.off) and np.isfinite(entry.on),
    # difference_of_cumsum: behind an entry that is not finite all differences are nan upstream
    "zoo/many_correlated_effects": lambda entry: np.isnan(entry.off) and np.isfinite(entry.on),
    "gallery/reference_lkj_cholesky_cov": lambda entry: (
        np.isnan(entry.off) and np.isfinite(entry.on)
    ),
    "gallery/imputation_with_lkj": lambda entry: np.isnan(entry.off) and np.isfinite(entry.on),
    "gallery/rethinking_chimpanzees": lambda entry: np.isnan(entry.off) and np.isfinite(entry.on),
}
# PyTensor merges two slices in int8, which overflows, also with the plugin off: docs/upstream.md.
REWRITES_FAIL = {"gallery/stochastic_volatility", "gallery/rolling_regression"}


@pytest.mark.parametrize("name", MODELS)
def test_agrees(name, monkeypatch):
    if name in REWRITES_FAIL:
        monkeypatch.setattr(pytensor.config, "on_opt_error", "ignore")
    outcome = pymc_fastlogp.verify(MODELS[name]())
    differing = [entry for entry in outcome.rows if not entry.passed]
    assert all(map(STATED.get(name, lambda entry: False), differing)), outcome


def test_agrees_with_shared_data():
    outcome = pymc_fastlogp.verify(zoo.make("mutable_data"), freeze_model=False)
    assert outcome, outcome
