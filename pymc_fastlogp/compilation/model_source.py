"""Source of the initial points of chains: PyMC's initial-point function, made at first use."""

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytensor.compile.mode import FAST_COMPILE
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.compilation.deferred_linking import unlinked
from pymc_fastlogp.models.compile_lock import one_at_a_time
from pymc_fastlogp.models.freeze import frozen_copy

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
    data : sequence of SharedVariable, optional
        The shared data to which a record of the model refers by number.
    shapes : mapping of str to tuple of int, optional
        Of value variables, free variables and deterministics by name, where they are known already.
    """

    def __init__(
        self,
        model: "pm.Model",
        options: Mapping[str, Any],
        *,
        freeze: bool,
        data: Sequence[SharedVariable] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ):
        self.data, self.shapes = data, shapes
        self._given, self._options, self._freeze = model, options, freeze
        self._lock = threading.Lock()

    @cached_property
    def model(self) -> "pm.Model":
        """The model, frozen if it is to be."""
        return frozen_copy(self._given) if self._freeze else self._given

    def hold_data(self) -> None:
        """Freeze the model now, as a compilation does: its data may change before the first chain starts."""
        _ = self.model

    @property
    def _jittered(self) -> set | None:
        """The variables whose start is jittered, None for PyMC's choice, which is none."""
        jittered = jittered_in(self.model, self._options["jitter_rvs"])
        if jittered is None and self._strategy == "support_point":
            return set(self.model.free_RVs)
        return jittered

    @property
    def _strategy(self) -> str:
        return self._options["default_initialization_strategy"]

    @cached_property
    def function(self) -> Any:
        """PyMC's function from a seed to initial values; it may be a thread of the sampler that compiles it."""
        from pymc.initial_point import make_initial_point_fn

        with one_at_a_time():
            return make_initial_point_fn(
                model=self.model,
                overrides=self._options["initial_points"],
                default_strategy=self._strategy,
                jitter_rvs=self._jittered,
                return_transformed=True,
            )

    @cached_property
    def graph(self) -> FunctionGraph:
        """The graph of that function: the initial values, and then the next states of generators. Shared variables in it have their values of the time."""
        import pytensor
        from pymc.initial_point import convert_str_to_rv_dict, make_initial_point_expression
        from pymc.pytensorf import collect_default_updates, replace_rng_nodes

        model = self.model
        overrides = convert_str_to_rv_dict(model, self._options["initial_points"] or {})
        expressions = make_initial_point_expression(
            free_rvs=model.free_RVs,
            rvs_to_transforms=model.rvs_to_transforms,
            initval_strategies={**model.rvs_to_initial_values, **overrides},
            jitter_rvs=self._jittered,
            default_strategy=self._strategy,
            return_transformed=True,
        )
        values = replace_rng_nodes(expressions)
        states = collect_default_updates(inputs=[], outputs=values)
        function = pytensor.function([], values, updates=states, mode=unlinked(FAST_COMPILE))
        return function.maker.fgraph

    def __call__(self, seed: Any = None) -> dict[str, Any]:
        """Return initial values by name; chains start in several threads, one at a time."""
        with self._lock:
            return self.function(seed)
