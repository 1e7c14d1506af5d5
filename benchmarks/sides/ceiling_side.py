"""A kernel written by hand for one model, in explicit vector LLVM IR: an attainable time."""

from typing import TYPE_CHECKING

import pymc as pm

from benchmarks.ceilings import CEILINGS
from benchmarks.sides import Reference, Variant
from pymc_fastlogp.benchmarking.run import check_agreement

if TYPE_CHECKING:
    from benchmarks.suite import Case


def vector_ir(case: "Case", model: pm.Model, reference: Reference) -> Variant | None:
    """Build the kernel from the data of the case, where somebody has written one."""
    build = CEILINGS.get(case.name)
    if build is None:
        return None
    callback = build(case.stan_data())
    check_agreement(callback.evaluate, reference.evaluate_declared, reference.declared_points)
    return Variant("vector LLVM IR", callback.timer(reference.declared_points))
