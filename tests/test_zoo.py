"""`verify` passes on the models of the zoo."""

from collections.abc import Callable

import numpy as np
import pytest

import pymc_fastlogp
from pymc_fastlogp.verification import WorstEntry
from tests import zoo

pytestmark = pytest.mark.slow

# Differences that the docstring of a rule states: whether an entry is one of them.
STATED: dict[str, Callable[[WorstEntry], bool]] = {
    # gaussian_rows: which of nan and -inf comes of several infinite parameters
    "horseshoe": lambda entry: np.isnan(entry.off) and entry.on == -np.inf,
    # cholesky_of_gram: upstream cannot factor L @ L.T where it is singular in double precision
    "packed_cholesky": lambda entry: np.isnan(entry.off) and np.isfinite(entry.on),
    # split_join: infinity less infinity where upstream does not see that a rate is an exponential
    "joined_blocks": lambda entry: np.isnan(entry.off) and entry.on == -np.inf,
    # difference_of_cumsum: behind an entry that is not finite all differences are nan upstream
    "many_correlated_effects": lambda entry: np.isnan(entry.off) and np.isfinite(entry.on),
}


@pytest.mark.parametrize("name", zoo.MODELS)
def test_agrees(name):
    outcome = pymc_fastlogp.verify(zoo.make(name))
    differing = [entry for entry in outcome.rows if not entry.passed]
    assert all(map(STATED.get(name, lambda entry: False), differing)), outcome


def test_agrees_with_shared_data():
    outcome = pymc_fastlogp.verify(zoo.make("mutable_data"), freeze_model=False)
    assert outcome, outcome
