"""Input of a compilation: the model, frozen at first use, and the initial points of its chains.

PyMC compiles the initial-point function for PyTensor's virtual machine without C, which calls ``perform`` of one node after the other.
:class:`InitialPoint` does the same on the same rewritten graph without compiling, so the points are bit-identical. Graphs that
:mod:`pymc_fastlogp.compilation.interpreter` cannot evaluate are left to PyMC's function.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.type import DenseTensorType

from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.models.array_rows import with_distinct_rows
from pymc_fastlogp.models.compile_lock import compile_lock
from pymc_fastlogp.models.freeze import frozen_copy

if TYPE_CHECKING:
    import pymc as pm


def jittered_variables(model: "pm.Model", names: Sequence[str] | None) -> set | None:
    """Return variables of a model by name, None if ``names`` is None."""
    return None if names is None else {model[name] for name in names}


class Shapes(NamedTuple):
    """Shapes that depend on the data of a model.

    Attributes
    ----------
    stored : dict of str to tuple of int
        Shapes of value variables, free variables and deterministics by name.
    dims : dict of str to int
        Lengths of dimensions.
    data : tuple of tuple of int, optional
        Shapes of the data, if the compiled model is for data of these shapes alone.
    """

    stored: dict[str, tuple[int, ...]]
    dims: dict[str, int]
    data: tuple[tuple[int, ...], ...] | None = None

    @property
    def compiled(self) -> dict[str, tuple[int, ...]]:
        """The shapes that the compiled model depends on, by name."""
        of_data = {f"data {i}": shape for i, shape in enumerate(self.data or ())}
        return self.stored | of_data


class ModelSource:
    """Model to compile.

    Parameters
    ----------
    model : pymc.Model
        The user's model.
    options : mapping
        Arguments of ``nutpie.compile_pymc_model`` about initial points, with variables by name.
    freeze : bool
        Whether data and dimension lengths become constants.
    data : sequence of SharedVariable, optional
        Shared data to which a record of the model refers by position.
    shapes : Shapes, optional
        Shapes of the stored variables and, if the model is compiled for these alone, of the data.
    """

    def __init__(
        self,
        model: "pm.Model",
        options: Mapping[str, Any],
        *,
        freeze: bool,
        data: Sequence[SharedVariable] | None = None,
        shapes: Shapes | None = None,
    ):
        self.data, self.shapes = data, shapes
        self._given, self._options, self._is_frozen = model, options, freeze
        self._lock = threading.Lock()

    @cached_property
    def model(self) -> "pm.Model":
        """The model, frozen if requested."""
        return (
            frozen_copy(with_distinct_rows(self._given).model) if self._is_frozen else self._given
        )

    @property
    def fixed_data(self) -> dict[SharedVariable, tuple[int, ...]]:
        """Shapes of the arrays whose values are known before the first evaluation."""
        if self.data is None or self.shapes is None or self.shapes.data is None:
            return {}
        pairs = zip(self.data, self.shapes.data, strict=True)
        return {x: shape for x, shape in pairs if shape and isinstance(x.type, DenseTensorType)}

    def freeze(self) -> None:
        """Freeze the model now, before its data can change."""
        _ = self.model

    @property
    def initial_values(self) -> Mapping[Any, Any]:
        """Initial values by name that the user chose."""
        return self._options["initial_points"] or {}

    @property
    def strategy(self) -> str:
        """Default strategy of the initial values, such as ``"support_point"``."""
        return self._options["default_initialization_strategy"]

    @property
    def jittered(self) -> set | None:
        """Variables whose initial values are jittered; None stands for PyMC's default, no variables."""
        jittered = jittered_variables(self.model, self._options["jitter_rvs"])
        if jittered is None and self.strategy == "support_point":
            return set(self.model.free_RVs)
        return jittered

    @cached_property
    def function(self) -> Any:
        """PyMC's function from a seed to initial values by name; a thread of the sampler may be the first to compile the function."""
        from pymc.initial_point import make_initial_point_fn

        with compile_lock():
            return make_initial_point_fn(
                model=self.model,
                overrides=self._options["initial_points"],
                default_strategy=self.strategy,
                jitter_rvs=self.jittered,
                return_transformed=True,
            )

    def __call__(self, seed: Any = None) -> dict[str, Any]:
        """Return initial values by name; threads of several chains are serialized."""
        with self._lock:
            return self.function(seed)


class InitialPoint:
    """Function from a seed to an unconstrained point, evaluated without compiling.

    Parameters
    ----------
    content : bytes
        Serialized graph of the initial values, in the order of the value variables, followed by the next states of generators.
    shapes : sequence of tuple of int
        Shapes of the value variables.
    data : sequence of SharedVariable
        Shared data to which the graph refers by position. Their current values are used.
    """

    def __init__(
        self,
        content: bytes,
        shapes: Sequence[tuple[int, ...]],
        data: Sequence[SharedVariable] = (),
    ):
        self._graph = interpreter.load(content, interpreter.constants_of(data))
        self._shapes = shapes
        # In the order in which PyMC seeds generators.
        self._rngs = find_rng_nodes(list(self._graph.outputs))
        self._lock = threading.Lock()

    def __call__(self, seed: Any = None) -> np.ndarray:
        """Return the point, shape ``(n_dim,)``."""
        with self._lock:
            reseed_rngs(self._rngs, seed)
            values = [np.asarray(x) for x in self._graph()[: len(self._shapes)]]
        for value, shape in zip(values, self._shapes, strict=True):
            if value.shape != tuple(shape):
                raise ValueError(f"an initial value has shape {value.shape}: give one of {shape}.")
        return np.concatenate([value.ravel().astype(np.float64) for value in values])
