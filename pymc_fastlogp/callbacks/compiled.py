"""What nutpie samples from: its own class, with callbacks of ours, and a function for Python."""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from llvmlite import ir
from nutpie.compile_pymc import CompiledPyMCModel
from numpy.typing import NDArray

from pymc_fastlogp.callbacks.emit import BAD_GRADIENT, BAD_LOGP, SYMBOL
from pymc_fastlogp.kernel.native import machine_code, object_files
from pymc_fastlogp.kernel.native.target import optimised, target_machine

LOGP_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_void_p] * 4)
HAS_VALUES = {0, BAD_GRADIENT, BAD_LOGP}


class DirectCallback:
    """The machine code of a callback, and all that it calls and reads.

    Attributes
    ----------
    address : int
        Of the function, valid as long as this object.
    """

    def __init__(self, module: ir.Module, owner: Any):
        self._code = machine_code.Code(machine_code.engine(_object_code(module)), SYMBOL)
        self._owner = owner
        self.address = self._code.address


def _object_code(module: ir.Module) -> bytes:
    key = f"{machine_code.compiler()}\n{module}"
    name = f"{object_files.PREFIX}{sha256(key.encode()).hexdigest()}"

    def compiled() -> bytes:
        machine = target_machine()
        return machine.emit_object(optimised(module, machine))

    return object_files.read_or_make(name, compiled)


@dataclass(frozen=True)
class CompiledModel(CompiledPyMCModel):
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

    def logp_dlogp(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return logp and its gradient at an unconstrained point.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            The point, as float64. ``initial_point_func(seed)`` gives one.

        Returns
        -------
        logp : float
            Perhaps infinite or nan.
        gradient : ndarray, shape (n_dim,)
            A new array.

        Raises
        ------
        ValueError
            If the point has another shape, or a check of the model fails there, as for an index out of range.
        """
        x = np.ascontiguousarray(x, dtype=np.float64)
        if x.shape != (self.n_dim,):
            raise ValueError(f"the point has shape {x.shape}: give one of shape ({self.n_dim},).")
        gradient, logp = np.empty(self.n_dim), ctypes.c_double()
        status = self._logp_function(
            self.n_dim,
            x.ctypes.data,
            gradient.ctypes.data,
            ctypes.addressof(logp),
            self.user_data.ctypes.data,
        )
        if status not in HAS_VALUES:
            raise ValueError(f"the model cannot be evaluated at this point (status {status}).")
        return logp.value, gradient

    @cached_property
    def _logp_function(self) -> Any:
        return LOGP_TYPE(self.compiled_logp_func.address)
