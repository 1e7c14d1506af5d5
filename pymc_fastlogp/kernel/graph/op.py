"""``FusedKernel``: one node for a region of a graph, which a backend may compile to one function.

It is an ``OpFromGraph``: its inner graph says what it computes, and ``perform``, gradients, shapes,
inlining and every backend but Numba's come from there. Numba compiles it to vector code, see
:mod:`pymc_fastlogp.kernel.numba.dispatch`.
"""

from collections.abc import Callable
from typing import Any
from weakref import ref

from pytensor.compile.builders import FinalizedOpFromGraph
from pytensor.compile.maker import function
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.printing import op_debug_information

from pymc_fastlogp.analysis.index_facts import IndexFacts
from pymc_fastlogp.kernel.graph.linking import tell_numba
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native import kernels
from pymc_fastlogp.kernel.native.kernels import Kernel
from pymc_fastlogp.kernel.native.machine_code import name_of

# No backend and no rewrites: those would make kernels again.
PYTHON = Mode("py", None)


class FusedKernel(FinalizedOpFromGraph):
    """The outputs of an inner graph, computed together.

    No output is a view of an input, and no input is written to.

    Parameters
    ----------
    fgraph : FrozenFunctionGraph
        The inner graph, of tensors only. Nothing in it works in place.
    facts : tuple of IndexFacts or None
        For each input, what holds for all its elements; None where nothing is known. Whoever
        makes the node answers for it: the compiled code does not check.
    is_provisional : bool
        Whether the Op is to be :meth:`renewed` when its graph is rewritten. Not part of equality, copies and pickles.

    Raises
    ------
    ValueError
        If there are not as many facts as inputs.
    """

    __props__ = ("fgraph", "facts")

    def __init__(
        self,
        fgraph: FrozenFunctionGraph,
        facts: tuple[IndexFacts | None, ...],
        is_provisional: bool = False,
    ):
        if len(facts) != len(fgraph.inputs):
            raise ValueError(f"{len(facts)} facts for {len(fgraph.inputs)} inputs; give one each")
        super().__init__(list(fgraph.inputs), list(fgraph.outputs), fgraph=fgraph)
        self.facts = facts
        self.is_provisional = is_provisional
        self._program: Callable[[], Program | None] = lambda: None

    @property
    def fgraph(self) -> FrozenFunctionGraph:
        """The inner graph; None once the Op was :meth:`renewed` and the inner graph is freed."""
        return self._fgraph()

    @fgraph.setter
    def fgraph(self, fgraph: FrozenFunctionGraph) -> None:
        self._fgraph: Callable[[], Any] = lambda: fgraph
        self._hash = hash((type(self), fgraph))

    def __hash__(self) -> int:
        """Return the hash of the inner graph, also after that is freed: caches of PyTensor have the Op as a key."""
        return self._hash

    def renewed(self) -> "FusedKernel":
        """Return an equal Op, which takes the inner graph over: this one refers to it weakly from now on.

        PyTensor caches the rewriters of each Op that it has rewritten, and so keeps the Op for the process. An Op that other
        graphs may have is not to be renewed.
        """
        new = FusedKernel(self.fgraph, self.facts)
        new._program = self._program
        self._fgraph, self._program = ref(self.fgraph), lambda: None
        return new

    @property
    def program(self) -> Program:
        """The loops that compute the inner graph; made once, unless they were compiled and freed since."""
        program = self._program()
        if program is None:
            program = lower(self.fgraph, self.facts)
            self._program = lambda: program
        return program

    def compiled(self) -> Kernel:
        """Return the machine code of the program, which keeps the program from now on."""
        return self._keeping(kernels.load(self.program))

    def named(self) -> Kernel:
        """Return the program and the name of its machine code, which need not be there; what is returned keeps the program."""
        return self._keeping(Kernel(self.program, name_of(self.program)))

    def _keeping(self, kernel: Kernel) -> Kernel:
        self._program = ref(kernel.program)
        return kernel

    def in_python(self, *arrays: Any) -> Any:
        """Compute the outputs node by node in Python: an array, or a tuple of several."""
        graph = self.fgraph.unfreeze()
        outputs = graph.outputs if len(graph.outputs) > 1 else graph.outputs[0]
        computed = function(graph.inputs, outputs, mode=PYTHON, on_unused_input="ignore")(*arrays)
        return tuple(computed) if len(graph.outputs) > 1 else computed

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what the Op is made of; the rest is made again when it is asked for."""
        return {"fgraph": self.fgraph, "facts": self.facts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; what holds it may be linked without another look at the graph."""
        tell_numba()
        self.__init__(**state)  # type: ignore[misc]

    def __str__(self) -> str:
        return f"FusedKernel{{{len(self.fgraph.apply_nodes)} nodes}}"


@op_debug_information.register(FusedKernel)
def _loops_in_words(op: FusedKernel, node: Apply) -> dict[Apply, dict[Variable, str]]:
    """Show the loops beside the node."""
    text = as_text(op.program)
    return {node: {node.outputs[0]: text}}
