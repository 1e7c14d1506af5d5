"""One side of one model in a process of its own: compile, sample, and how many effective samples that gave.

``python -m benchmarks.throughput_child MODEL SIDE SEED`` prints a line of JSON. The wait begins when the model is there and ends with the draws;
imports are no part of it, a pilot is.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks import other_ways
from benchmarks.suite import Case, case

CHAINS, TUNE, DRAWS = 4, 1000, 1000


def other_way(case_: Case) -> Any:
    """Return the model written the other way by hand, None where there is none."""
    make = getattr(other_ways, case_.module, None)
    return None if make is None else make(**case_.kwargs)


def main(name: str, side: str, seed: str) -> None:
    """Measure one side."""
    import nutpie

    import pymc_fastlogp

    chosen = case(name)
    model = other_way(chosen) if side == "other" else chosen.make()
    begin, begin_of_work = time.perf_counter(), time.process_time()
    if side == "parametrise":
        compiled = pymc_fastlogp.compile_pymc_model(model, parametrise=True)
    else:
        compiled = pymc_fastlogp.compile_pymc_model(model)
    ready = time.perf_counter()
    trace = nutpie.sample(
        compiled, draws=DRAWS, tune=TUNE, chains=CHAINS, cores=1, seed=int(seed), progress_bar=False
    )
    done = time.perf_counter()
    work = time.process_time() - begin_of_work
    gradients = int(trace.sample_stats["n_steps"].sum())
    if "warmup_sample_stats" in trace.children:
        gradients += int(trace.warmup_sample_stats["n_steps"].sum())
    print(
        json.dumps(
            {
                "compilation": ready - begin,
                "draws": done - ready,
                "processor": work,
                "gradients": gradients,
                "divergences": int(trace.sample_stats["diverging"].sum()),
                **_effective(trace.posterior, chosen, side),
            }
        )
    )


def _effective(posterior: Any, chosen: Case, side: str) -> dict[str, Any]:
    """Return the smallest effective sample sizes and largest R-hat of what both ways of writing a model have."""
    import arviz as az

    draws = posterior.dataset if hasattr(posterior, "dataset") else posterior
    if side != "other":
        for name, effect in other_ways.EFFECTS.get(chosen.module, {}).items():
            draws = draws.assign({name: effect(draws)})
    watched = [x for x in _watched(chosen) if x in draws]
    values = [draws[x].to_numpy().reshape(*draws[x].shape[:2], -1) for x in watched]
    flat = np.concatenate(values, axis=-1)
    moving = flat[..., np.ptp(flat, axis=(0, 1)) > 0]
    data = az.from_dict({"posterior": {"x": moving}})
    worst = {"bulk": np.inf, "tail": np.inf}
    for kind in worst:
        worst[kind] = float(np.nanmin(az.ess(data, method=kind)["x"]))
    flat_moving = [f"{w}" for w, v in zip(watched, values, strict=True) for _ in range(v.shape[-1])]
    kept = [n for n, k in zip(flat_moving, np.ptp(flat, axis=(0, 1)) > 0, strict=True) if k]
    slowest = kept[int(np.nanargmin(az.ess(data, method="bulk")["x"]))]
    mean, sd = moving.mean((0, 1)), moving.std((0, 1))
    return {
        **worst,
        "slowest": slowest,
        "rhat": float(np.nanmax(az.rhat(data)["x"])),
        "means": dict(zip(_numbered(kept), map(float, mean), strict=True)),
        "deviations": dict(zip(_numbered(kept), map(float, sd), strict=True)),
    }


def _numbered(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    numbered = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        numbered.append(f"{name}[{seen[name]}]")
    return numbered


def _watched(chosen: Case) -> list[str]:
    """Return what both ways of writing a model have: names of free variables and deterministics of the other way."""
    model = other_way(chosen) or chosen.make()
    return [x.name for x in (*model.free_RVs, *model.deterministics)]


if __name__ == "__main__":
    main(*sys.argv[1:])
