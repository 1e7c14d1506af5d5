"""Scalar Ops of ours leave nothing behind that another process would unpickle, and so import the plugin."""

import pickle
import pickletools

import pytensor.scalar as ps
import pytest

from pymc_fastlogp.ops import GammaDifference, PsiDifference, SpelledOut
from pymc_fastlogp.rewrites.loggamma.binet import Binet, BinetSlope, Rising, RisingSlope

OPS = [Binet(), BinetSlope(), Rising(), RisingSlope()]
OPS += [GammaDifference("float64"), PsiDifference("float64")]


def names_in(op: ps.ScalarOp) -> set[str]:
    return {x for _, x, _ in pickletools.genops(pickle.dumps(op)) if isinstance(x, str)}


@pytest.mark.parametrize("op", OPS, ids=str)
def test_what_contains_them_is_not_kept_as_c(op):
    assert isinstance(op, SpelledOut)
    inputs = [ps.float64() for _ in op.inputs_type]
    around = ps.Composite(inputs, [ps.exp(op(*inputs))])
    assert any(name.startswith("pymc_fastlogp") for name in names_in(around))
    assert around.c_code_cache_version() == ()


def test_upstreams_are_kept():
    """Without this the test above could be one that never fails."""
    x = ps.float64()
    assert ps.Composite([x], [ps.exp(x)]).c_code_cache_version()
