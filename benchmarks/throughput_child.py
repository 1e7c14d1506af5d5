"""One side of one model in a process of its own: compile, sample once a seed, and how many effective samples that gave.

``python -m benchmarks.throughput_child MODEL SIDE SEED ...`` prints a line of JSON a seed. The wait is the compilation, which begins when the process has imported all,
with making the model, pilot and variational inference, and is measured once, and the draws of a seed.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks import other_ways
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
            **_effective(trace.posterior, chosen, side, watched),
            "versions": used,
        }
        print(json.dumps(found), flush=True)


def _gradients(trace: Any) -> int:
    """Return how often the gradient was evaluated, warm-up included."""
    groups = (x for x in ("sample_stats", "warmup_sample_stats") if x in trace.children)
    return sum(int(trace[x]["n_steps"].sum()) for x in groups)


def _effective(posterior: Any, chosen: Case, side: str, watched: list[str]) -> dict[str, Any]:
    """Return the smallest effective sample sizes and largest R-hat of what both ways of writing a model have, and means with their errors."""
    import arviz as az

    draws = posterior.dataset if hasattr(posterior, "dataset") else posterior
    for name, effect in other_ways.EFFECTS.get(chosen.module, {}).items():
        if name not in draws:
            draws = draws.assign({name: effect(draws)})
    values = {x: draws[x].to_numpy() for x in watched if x in draws}
    flat = np.concatenate([x.reshape(*x.shape[:2], -1) for x in values.values()], axis=-1)
    names = [f"{x}[{i}]" for x, v in values.items() for i in range(v[0, 0].size)]
    is_moving = np.ptp(flat, axis=(0, 1)) > 0
    kept = [name for name, moves in zip(names, is_moving, strict=True) if moves]
    data = az.from_dict({"posterior": {"x": flat[..., is_moving]}})
    bulk, tail = (az.ess(data, method=x)["x"].to_numpy() for x in ("bulk", "tail"))
    return {
        "bulk": float(np.nanmin(bulk)),
        "tail": float(np.nanmin(tail)),
        "slowest": kept[int(np.nanargmin(np.minimum(bulk, tail)))],
        "rhat": float(np.nanmax(az.rhat(data)["x"])),
        "means": dict(zip(kept, flat[..., is_moving].mean((0, 1)).tolist(), strict=True)),
        "errors": dict(zip(kept, az.mcse(data, method="mean")["x"].values.tolist(), strict=True)),
    }


def _watched(chosen: Case) -> list[str]:
    """Return what both ways of writing a model have: names of free variables and deterministics of the other way."""
    model = other_way(chosen) or chosen.make()
    return [x.name for x in (*model.free_RVs, *model.deterministics)]


if __name__ == "__main__":
    main(*sys.argv[1:])
