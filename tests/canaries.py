"""Table of the rules that fire on each model, with the Ops outside of kernels: ``canaries.txt``.

``python -m tests.canaries`` writes it anew, ``python -m tests.canaries suite/radon ...`` a few blocks of it. The diff shows
what a change of the plugin, or of an upstream release, turned on and off.
"""

import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pymc as pm
import pytensor
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from benchmarks import gallery
from benchmarks.compiled_graph import compiled_graph
from benchmarks.suite import SUITE, case
from pymc_fastlogp import reparametrize
from pymc_fastlogp.analysis.index_facts import FAR
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.reparametrization.model_with_sites import find_effects, with_sites
from pymc_fastlogp.rewrites.rows.order import scatter_order
from tests import zoo
from tests.reparametrization import models as sited

SITED = (
    sited.centered,
    sited.pair,
    sited.crossed_by_three,
    sited.correlated,
    sited.correlated_centered,
    sited.zero_sum,
)

# Models of the suite whose correlated effects `reparametrize=True` samples centered.
CENTERED = ("lkj_slopes", "lkj_slopes_100k")


def with_shared_sites(make: Callable[[], pm.Model]) -> pm.Model:
    """Return a model whose effects have sites that are shared data, as `sample(reparametrize=True)` compiles it."""
    model = freeze_dims_and_data(make())
    return with_sites(model, find_effects(model).blocks, is_shared=True).model


TABLE = Path(__file__).with_suffix(".txt")

MODELS: dict[str, Callable[[], pm.Model]] = (
    {f"suite/{case.name}": case.make for case in SUITE}
    | {f"zoo/{name}": lambda name=name: zoo.make(name) for name in zoo.MODELS}
    | {f"sited/{make.__name__}": lambda make=make: with_shared_sites(make) for make in SITED}
    | {f"sited/{name}": lambda name=name: reparametrize(case(name).make()) for name in CENTERED}
    | {f"gallery/{name}": lambda name=name: gallery.make(name) for name in gallery.MODELS}
)

NONE = "none"

# In walks of more than 127 steps PyTensor's own local_subtensor_merge_slice overflows int8, plugin or not.
UPSTREAM_FAILS = {"gallery/rolling_regression", "gallery/stochastic_volatility"}

HEADER = """\
# Rules that fire, and how often, while nutpie makes logp and gradient of a model with frozen data; how many kernels
# these become; which Ops stay outside. Written by `python -m tests.canaries`, with {versions}.
"""


def block(name: str) -> str:
    """Return what the table says of a model, as of now."""
    on_error = "ignore" if name in UPSTREAM_FAILS else "raise"
    # The order of rows depends on the width of vectors: the table has the order for 512 bits.
    wide = mock.patch.object(scatter_order, "n_lanes", return_value=FAR)
    with pytensor.config.change_flags(on_opt_error=on_error), wide:
        fgraph, fired = compiled_graph(MODELS[name]())
    ops = [node.op for node in fgraph.apply_nodes]
    outside = Counter(_name(op) for op in ops if not isinstance(op, FusedKernel))
    rules = Counter({rule.removeprefix("fastlogp_"): n for rule, n in fired.items()})
    return "\n".join(
        [
            name,
            f"  rules: {_listed(rules) or NONE}",
            f"  kernels: {len(ops) - outside.total()}",
            f"  outside: {_listed(outside) or NONE}",
        ]
    )


def _name(op: Op) -> str:
    """Return the name of an Op without its parameters."""
    kind = type(op).__name__
    match op:
        case Elemwise():
            return f"{kind}({type(op.scalar_op).__name__})"
        case Blockwise():
            return f"{kind}({type(op.core_op).__name__})"
    return kind


def _listed(counts: Counter[str]) -> str:
    listed = [f"{name} x {n}" if n > 1 else name for name, n in sorted(counts.items())]
    return ", ".join(listed)


def rules_of(text: str) -> set[str]:
    """Return the rules that a block names."""
    _, rules, *_ = text.splitlines()
    listed = rules.removeprefix("  rules: ").split(", ")
    return {rule.partition(" x ")[0] for rule in listed if rule != NONE}


def read() -> dict[str, str]:
    """Return the blocks of the table by the name of the model."""
    _, *blocks = TABLE.read_text().split("\n\n")
    return {text.partition("\n")[0]: text.rstrip("\n") for text in blocks}


def write(blocks: dict[str, str]) -> None:
    """Write the table, models in order."""
    packages = ("pymc", "pytensor", "nutpie")
    header = HEADER.format(versions=", ".join(f"{name} {version(name)}" for name in packages))
    TABLE.write_text("\n".join([header, *(f"{blocks[name]}\n" for name in MODELS)]))


def main(names: list[str]) -> None:
    """Write what is so today of the named models, or of all."""
    blocks = read() if names else {}
    for name in names or MODELS:
        blocks[name] = block(name)
        print(blocks[name], flush=True)
    write(blocks)


if __name__ == "__main__":
    main(sys.argv[1:])
