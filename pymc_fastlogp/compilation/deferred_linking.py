"""Functions whose graph is rewritten, and which PyTensor links only when they are called.

To link is to compile: for Numba, which is not even imported before, or for PyTensor's virtual machine, whose part in C takes half a second to compile where its cache is empty.
"""

from functools import cached_property
from typing import Any

from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode

from pymc_fastlogp.kernel.graph.held_constants import HoldConstants
from pymc_fastlogp.kernel.graph.linking import register_with_numba


class Rewritten:
    """A function that is not linked yet.

    Attributes
    ----------
    maker : FunctionMaker
        With the graph, as that of any function.
    """

    def __init__(self, maker: FunctionMaker):
        self.maker = maker

    def create(self) -> "Rewritten":
        """Return this, where PyTensor asks a maker for its function."""
        return self

    @cached_property
    def linked(self) -> Any:
        """PyTensor's function."""
        register_with_numba()
        HoldConstants().apply(self.maker.fgraph)
        return self.maker.create()

    @property
    def vm(self) -> Any:
        """Virtual machine that runs the function, linked at first use."""
        return self.linked.vm

    def get_shared(self) -> list[Any]:
        """Return the shared variables that it reads, as PyTensor's functions do."""
        return [x.variable for x in self.maker.inputs if x.implicit]

    def __call__(self, *arguments: Any) -> Any:
        """Link it if need be, and call it."""
        return self.linked(*arguments)


class _Unlinked(Mode):
    """A mode whose functions are :class:`Rewritten`."""

    is_linked_later = True

    @property
    def function_maker(self) -> Any:
        return lambda *arguments, **options: Rewritten(FunctionMaker(*arguments, **options))


def unlinked(mode: Mode, *, check_bounds: bool = True) -> Mode:
    """Return a mode with the rewrites that ``pymc.compile`` adds to it, whose functions are :class:`Rewritten`."""
    check = (
        "local_check_parameter_to_ninf_switch" if check_bounds else "local_remove_check_parameter"
    )
    query = mode.provided_optimizer.including("random_make_inplace", check)
    # It is Numba that cannot read large ones wherever they are.
    return _Unlinked(linker=mode.linker, optimizer=query.excluding("fastlogp_held_constants"))
