"""Log densities written by hand in vector LLVM IR: attainable times.

Each ``build`` takes the data of the Stan program and returns a callback of nutpie's type for
the whole model on the unconstrained scale. The kernels do all the work of every row: none
looks at the data beforehand to skip rows that repeat.
"""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.ceilings import irt_2pl, mrp, poisson
from pymc_fastlogp.benchmarking.native import LogpCallback

CEILINGS: Mapping[str, Callable[[dict[str, Any]], LogpCallback]] = {
    "irt_2pl": irt_2pl.build,
    "mrp_10k": mrp.build,
    "mrp_200k": mrp.build,
    "poisson": poisson.build,
}
