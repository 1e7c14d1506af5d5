"""Ways to sample a model that :mod:`benchmarks.throughput` compares: the compiled model, and nutpie's adaptation.

All ways but one are compiled by the plugin, so that only the geometry differs. Two ways need packages outside of the ``bench`` extra, and are left out without
these: nutpie's normalizing flow (``flowjax`` and ``equinox``) by the backend JAX, and VIP of pymc-extras, which needs PyMC 6.3 and thus an environment of
its own.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import pymc as pm

from benchmarks import other_ways
from benchmarks.suite import Case

CHAINS, TUNE, DRAWS = 4, 1000, 1000
# Where pymc-extras is near 0 or 1, it takes the non-centered or the centered form; the threshold is that of its example.
NEARLY = 0.1


class Side(NamedTuple):
    """A way to sample.

    Attributes
    ----------
    title : str
        Name in tables.
    compiled : callable
        From a model of the suite and a seed to a compiled model.
    options : mapping
        Arguments of ``nutpie.sample``.
    needs : str
        Required package.
    """

    title: str
    compiled: Callable[[Case, int], Any]
    options: Mapping[str, Any]
    needs: str = "nutpie"

    @property
    def is_installed(self) -> bool:
        """Return whether the required package is installed."""
        return find_spec(self.needs) is not None


def other_way(case_: Case) -> pm.Model | None:
    """Return the model written the other way by hand, None if there is none."""
    make = getattr(other_ways, case_.module, None)
    return None if make is None else make(**case_.kwargs)


def _written(chosen: Case, seed: int) -> Any:
    import pymc_fastlogp

    return pymc_fastlogp.compile_pymc_model(chosen.make())


def _other(chosen: Case, seed: int) -> Any:
    import pymc_fastlogp

    return pymc_fastlogp.compile_pymc_model(other_way(chosen))


def _reparametrized(chosen: Case, seed: int) -> Any:
    import pymc_fastlogp

    return pymc_fastlogp.compile_pymc_model(chosen.make(), reparametrize=True)


def _for_flow(chosen: Case, seed: int) -> Any:
    import nutpie

    compiled = nutpie.compile_pymc_model(chosen.make(), backend="jax", gradient_backend="jax")
    return compiled.with_transform_adapt()


def _vip(chosen: Case, seed: int) -> Any:
    """Return the model with each centered effect placed between both forms by variational inference."""
    from pymc_extras.model.transforms.autoreparam import vip_reparametrize

    import pymc_fastlogp

    models = [x for x in (chosen.make(), other_way(chosen)) if x is not None]
    model = max(models, key=lambda x: len(_centered(x)))
    if not _centered(model):
        raise ValueError(
            "VIP knows Normal effects that are written centered, of which there are none"
        )
    between, vip = vip_reparametrize(model, _centered(model))
    with between:
        vip.fit(random_seed=seed, progressbar=False)
    vip.truncate_all_lambda(NEARLY)
    return pymc_fastlogp.compile_pymc_model(between)


def _centered(model: pm.Model) -> list[str]:
    import pymc_fastlogp

    effects = pymc_fastlogp.explain(model).effects
    return [name for name, what in effects.items() if what.startswith("written centered")]


SIDES = {
    "written": Side("written", _written, {}),
    "other": Side("by hand", _other, {}),
    "low_rank": Side("low rank", _written, {"adaptation": "low_rank"}),
    "reparametrize": Side("reparametrize", _reparametrized, {}),
    "flow": Side("flow", _for_flow, {"adaptation": "flow"}, needs="flowjax"),
    "vip": Side("VIP", _vip, {}, needs="pymc_extras"),
}
# Sides whose packages are in the `bench` extra.
USUAL = ("written", "other", "low_rank", "reparametrize")
