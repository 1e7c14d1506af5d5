"""Subclass of nutpie's compiled model with our callbacks, and a function of logp for Python."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from nutpie.compile_pymc import CompiledPyMCModel

from pymc_fastlogp.callbacks.linear_map import moved, moved_start
from pymc_fastlogp.compilation.coords import coords_of_moved
from pymc_fastlogp.compilation.evaluated_model import Evaluable
from pymc_fastlogp.compilation.loading import initial_point_of, loaded
from pymc_fastlogp.compilation.model_source import Start
from pymc_fastlogp.model_cache.record import EXPAND, LOGP, Record
from pymc_fastlogp.reparametrization.linear_map import LinearMap

if TYPE_CHECKING:
    from pymc_fastlogp.compilation.build import Build


@dataclass(frozen=True)
class CompiledModel(CompiledPyMCModel, Evaluable):
    """A model for ``nutpie.sample``, whose log density Python can call too."""

    frozen_data: frozenset[str] = frozenset()

    def with_data(self, **updates: Any) -> "CompiledModel":
        """Return the model with other shared data, as nutpie does; frozen data can't be replaced.

        Raises
        ------
        ValueError
            If data were frozen when the model was compiled.
        """
        for name in updates:
            if name in self.frozen_data:
                raise ValueError(
                    f"{name} was frozen when the model was compiled: set it in the model and compile anew,"
                    " or compile with freeze_model=False."
                )
        return super().with_data(**updates)


@dataclass(frozen=True)
class MappedModel(CompiledModel):
    """A model whose point is ``w``, see :mod:`pymc_fastlogp.callbacks.linear_map`.

    Attributes
    ----------
    straight : CompiledModel
        The model whose point is ``x``.
    linear_map : LinearMap
        From one to the other. The user data have the addresses of its arrays.
    """

    straight: Any = None
    linear_map: Any = None

    def with_data(self, **updates: Any) -> "MappedModel":
        """Return the model with other shared data, as nutpie does."""
        new = mapped(self.straight.with_data(**updates), self.linear_map)
        return (
            new.with_transform_adapt(**adapted) if (adapted := self._transform_adapt_args) else new
        )


def mapped(model: CompiledModel, linear_map: LinearMap) -> MappedModel:
    """Return a model in other coordinates.

    Parameters
    ----------
    model : CompiledModel
        Whose point has room on the stack of a thread.
    linear_map : LinearMap
        From the new coordinates to those of the model.
    """
    new = moved(
        model.compiled_logp_func.address,
        model.compiled_expand_func.address,
        model.user_data.ctypes.data,
        linear_map,
        n_dim=model.n_dim,
    )
    same = {x.name: getattr(model, x.name) for x in fields(CompiledModel)}
    other: dict[str, Any] = {
        "compiled_logp_func": new.logp,
        "compiled_expand_func": new.expand,
        "initial_point_func": moved_start(model.initial_point_func, new.linear_map),
        "user_data": new.user_data,
        "_coords": coords_of_moved(model.coords or {}, linear_map),
    }
    return MappedModel(**same | other, straight=model, linear_map=new.linear_map)


def assembled(
    record: Record, frozen_data: frozenset[str], start: Start, build: "Build | None" = None
) -> CompiledModel:
    """Return what nutpie samples from.

    Parameters
    ----------
    record : Record
        The model.
    frozen_data : frozenset of str
        Names of the data that are constants of it.
    start : Start
        Where chains start, if the record does not say it.
    build : Build, optional
        What the record was made by, unless it comes from disk; shared data are its, unless the record has them.
    """
    shared = record.shared or (build.shared if build else {})
    compiled, data = loaded(record, shared, build.by_numba if build else {})
    names, _, shapes = record.shape_info
    return CompiledModel(
        compiled_logp_func=compiled[LOGP],
        compiled_expand_func=compiled[EXPAND],
        shared_data=shared,
        shared_var_keys=build.keys if build else record.keys_of(start.data or ()),
        user_data=data,
        initial_point_func=initial_point_of(record, start),
        dims=record.dims,
        n_expanded=record.n_expanded,
        shape_info=record.shape_info,
        reparameterized_names=record.reparameterized,
        logp_func=build.functions.logp if build else None,
        expand_func=build.functions.expand if build else None,
        _n_dim=record.n_dim,
        _shapes={name: tuple(shape) for name, shape in zip(names, shapes, strict=True)},
        _coords=record.coords,
        frozen_data=frozen_data,
    )
