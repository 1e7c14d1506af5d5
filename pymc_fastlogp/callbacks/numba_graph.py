"""A graph that is more than one kernel, as the function that PyTensor makes of it for Numba.

In that function kernels are called in turn with what is between them, such as an eigenvalue decomposition. It is the one that nutpie's
own callback calls, so results are equal bit for bit; what is saved is nutpie's code around it, which takes Numba longer to compile than most graphs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.type import DenseTensorType

POINT = ("float64", 1)


class NumbaGraph:
    """A call of a C function that Numba compiles.

    Parameters
    ----------
    jitted : Dispatcher
        What PyTensor's Numba linker made of the graph.
    inputs : sequence of (str, int)
        Data type and number of axes of each input; all are in C order.
    shapes : sequence of tuple of int
        Of the outputs, which the callback has memory for.

    Attributes
    ----------
    address : int
        Of the function, see :mod:`pymc_fastlogp._upstream.numba_c_function`; valid as long as this object.
    """

    kernel = None
    constants: Sequence[np.ndarray] = ()

    def __init__(
        self, jitted: Any, inputs: Sequence[tuple[str, int]], shapes: Sequence[tuple[int, ...]]
    ):
        # Numba is imported where it has a part.
        from pymc_fastlogp._upstream.numba_c_function import c_function

        self.inputs = inputs
        self._function = c_function(jitted, inputs, shapes)
        self.address = self._function.address


def inputs_of(variables: Sequence[Variable]) -> list[tuple[str, int]]:
    """Return data type and number of axes of the inputs of a graph.

    Raises
    ------
    TypeError
        If one is not a dense tensor, such as the state of a random generator or a sparse matrix.
    """
    for x in variables:
        if not isinstance(x.type, DenseTensorType):
            raise TypeError(
                f"the model reads {x.name or 'a variable'}, of {x.type}, which nutpie's samplers have no part in: "
                "make it a constant of the model, or use pm.sample(nuts_sampler='pymc')."
            )
    return [(x.type.dtype, x.type.ndim) for x in variables]


def shapes_of(n_dim: int, n_expanded: int | None) -> list[tuple[int, ...]]:
    """Return the shapes of the outputs: logp and gradient, or all values that are stored."""
    return [(), (n_dim,)] if n_expanded is None else [(n_expanded,)]
