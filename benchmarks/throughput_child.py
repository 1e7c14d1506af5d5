"""One side of one model in a process of its own: compile, sample once a seed, and how many effective samples that gave.

``python -m benchmarks.throughput_child MODEL SIDE SEED ...`` prints a line of JSON a seed. The wait is the compilation, which begins when the process has imported all,
with making the model, pilot and variational inference, and is measured once, and the draws of a seed.
"""

import json
import sys
import time
from typing import Any

from benchmarks import other_ways
from benchmarks.effective import effective
from benchmarks.machine import versions
from benchmarks.suite import Case
from benchmarks.throughput_models import model_named
from benchmarks.throughput_sides import CHAINS, DRAWS, SIDES, TUNE, other_way

USED = ("pymc", "pytensor", "nutpie", "jax", "commit")


def main(name: str, side: str, *seeds: str) -> None:
    """Measure one side."""
    import nutpie

    import pymc_fastlogp  # noqa: F401

    chosen = model_named(name)
    watched = _watched(chosen)
    begin = time.perf_counter()
    compiled = SIDES[side].compiled(chosen, int(seeds[0]))
    compilation = time.perf_counter() - begin
    used = {x: number for x, number in versions().items() if x in USED}
    for seed in map(int, seeds):
        begin = time.perf_counter()
        trace = nutpie.sample(
            compiled,
            draws=DRAWS,
            tune=TUNE,
            chains=CHAINS,
            cores=1,
            seed=seed,
            progress_bar=False,
            **SIDES[side].options,
        )
        draws = time.perf_counter() - begin
        found = {
            "model": name,
            "side": side,
            "seed": seed,
            "compilation": compilation,
            "draws": draws,
            "gradients": _gradients(trace),
            "divergences": int(trace.sample_stats["diverging"].sum()),
            **effective(_values(trace.posterior, chosen, watched)),
            "versions": used,
        }
        print(json.dumps(found), flush=True)


def _gradients(trace: Any) -> int:
    """Return how often the gradient was evaluated, warm-up included."""
    groups = (x for x in ("sample_stats", "warmup_sample_stats") if x in trace.children)
    return sum(int(trace[x]["n_steps"].sum()) for x in groups)


def _values(posterior: Any, chosen: Case, watched: list[str]) -> dict[str, Any]:
    """Return the draws of the variables that both ways of writing a model have."""
    draws = posterior.dataset if hasattr(posterior, "dataset") else posterior
    for name, effect in other_ways.EFFECTS.get(chosen.module, {}).items():
        if name not in draws:
            draws = draws.assign({name: effect(draws)})
    return {x: draws[x].to_numpy() for x in watched if x in draws}


def _watched(chosen: Case) -> list[str]:
    """Return the names of free variables and deterministics of the other way of writing a model."""
    model = other_way(chosen) or chosen.make()
    return [x.name for x in (*model.free_RVs, *model.deterministics)]


if __name__ == "__main__":
    main(*sys.argv[1:])
