"""Where chains start: what PyMC makes of a model and its initial values, made when it is first needed."""

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pymc as pm


def jittered_in(model: "pm.Model", names: Sequence[str] | None) -> set | None:
    """Return variables of a model by their names, None for no choice."""
    return None if names is None else {model[name] for name in names}


class Start:
    """A model that is to be compiled.

    Parameters
    ----------
    model : pymc.Model
        As the user made it.
    options : mapping
        The arguments of ``nutpie.compile_pymc_model`` that say where chains start, with variables by name.
    freeze : bool
        Whether data and lengths of dimensions become constants.
    """

    def __init__(self, model: "pm.Model", options: Mapping[str, Any], *, freeze: bool):
        self._given, self._options, self._freeze = model, options, freeze
        self._lock = threading.Lock()

    @cached_property
    def model(self) -> "pm.Model":
        """The model, frozen if it is to be."""
        from pymc.model.transform.optimization import freeze_dims_and_data

        return freeze_dims_and_data(self._given) if self._freeze else self._given

    @cached_property
    def function(self) -> Any:
        """PyMC's function from a seed to initial values."""
        from pymc.initial_point import make_initial_point_fn

        strategy = self._options["default_initialization_strategy"]
        jittered = jittered_in(self.model, self._options["jitter_rvs"])
        if jittered is None and strategy == "support_point":
            jittered = set(self.model.free_RVs)
        return make_initial_point_fn(
            model=self.model,
            overrides=self._options["initial_points"],
            default_strategy=strategy,
            jitter_rvs=jittered,
            return_transformed=True,
        )

    def __call__(self, seed: Any = None) -> dict[str, Any]:
        """Return initial values by name; chains start in several threads, one at a time."""
        with self._lock:
            return self.function(seed)
