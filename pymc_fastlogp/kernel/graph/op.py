"""``FusedKernel``: one node for a region of a graph, compiled to one function of vector instructions.

The Op is an ``OpFromGraph``. ``perform``, gradients, static shapes and all backends but Numba use its inner graph. For Numba
(:mod:`pymc_fastlogp.kernel.numba.dispatch`) the inner graph goes through the kernel compiler, whose stages are called here, in this order:

1. ``lower`` (:mod:`~pymc_fastlogp.kernel.lower`) turns the inner graph into a program of the loop IR, with one loop for each node.
2. ``optimize`` (:mod:`~pymc_fastlogp.kernel.passes`) fuses and simplifies the loops.
3. ``kernels.load`` (:mod:`~pymc_fastlogp.kernel.native`) loads the machine code of the program. If the code is not cached,
   ``emit`` (:mod:`~pymc_fastlogp.kernel.emit`) writes LLVM IR, which LLVM compiles.

Stages 1 and 2 run when the region is selected (:meth:`FusedKernel.build_program`), since lowering can fail. Stage 3 runs when the
node is linked (:meth:`FusedKernel.compile`).
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
from pymc_fastlogp.kernel.graph.linking import register_with_numba
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native import kernels
from pymc_fastlogp.kernel.native.kernels import Kernel
from pymc_fastlogp.kernel.native.machine_code import name_of
from pymc_fastlogp.kernel.passes import optimize

# Without a backend, and without rewrites: these would insert kernels into the inner graph.
PYTHON = Mode("py", None)


class FusedKernel(FinalizedOpFromGraph):
    """Op that computes the outputs of an inner graph together, in one kernel.

    No output is a view of an input, and no input is overwritten.

    Parameters
    ----------
    fgraph : FrozenFunctionGraph
        The inner graph. All variables are tensors, and no node works in place.
    facts : tuple of IndexFacts or None
        For each input, facts that hold for all its elements, or None. The compiled code relies on these facts and does
        not check them.
    is_provisional : bool
        Whether the Op is :meth:`renewed` later in the rewriting of its graph. Not part of equality, copies and pickles.

    Raises
    ------
    ValueError
        If the number of facts differs from the number of inputs.
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
        """The inner graph; None if the Op was :meth:`renewed` and the inner graph is freed."""
        return self._fgraph()

    @fgraph.setter
    def fgraph(self, fgraph: FrozenFunctionGraph) -> None:
        """Own the inner graph."""
        self._fgraph: Callable[[], Any] = lambda: fgraph
        self._hash = hash((type(self), fgraph))

    def __hash__(self) -> int:
        """Return the hash of the inner graph, even after that was freed: the Op is a key in caches of PyTensor."""
        return self._hash

    def renewed(self) -> "FusedKernel":
        """Return an equal Op that owns the inner graph, of which this Op keeps only a weak reference.

        PyTensor caches the rewriters of each Op that it has rewritten, so such an Op is never freed. Only an Op that no other graph contains
        may be renewed.
        """
        new = FusedKernel(self.fgraph, self.facts)
        new._program = self._program
        self._fgraph, self._program = ref(self.fgraph), lambda: None
        return new

    def build_program(self) -> Program:
        """Lower the inner graph to loops and optimize these; the program is cached while in use.

        Raises
        ------
        UnsupportedError
            If the loop IR cannot express the inner graph.
        """
        program = self._program()
        if program is None:
            program = optimize(lower(self.fgraph, self.facts))
            self._program = lambda: program
        return program

    def compile(self) -> Kernel:
        """Return the program with its machine code, loaded for inputs in C order."""
        return self._hand_over(kernels.load(self.build_program()))

    def uncompiled(self) -> Kernel:
        """Return the program with the name of its machine code, without compiling it."""
        program = self.build_program()
        return self._hand_over(Kernel(program, name_of(program)))

    def _hand_over(self, kernel: Kernel) -> Kernel:
        """Let the kernel own the program, of which this Op keeps only a weak reference: Ops can outlive their graphs."""
        self._program = ref(kernel.program)
        return kernel

    def in_python(self, *arrays: Any) -> Any:
        """Compute the outputs node by node in Python; return an array, or a tuple of several arrays."""
        graph = self.fgraph.unfreeze()
        outputs = graph.outputs if len(graph.outputs) > 1 else graph.outputs[0]
        computed = function(graph.inputs, outputs, mode=PYTHON, on_unused_input="ignore")(*arrays)
        return tuple(computed) if len(graph.outputs) > 1 else computed

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the parameters of the Op; the program is rebuilt on demand."""
        return {"fgraph": self.fgraph, "facts": self.facts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle, and register with Numba: the graph may be linked without running our rewrites."""
        register_with_numba()
        self.__init__(**state)  # type: ignore[misc]

    def __str__(self) -> str:
        return f"FusedKernel{{{len(self.fgraph.apply_nodes)} nodes}}"


@op_debug_information.register(FusedKernel)
def _program_text(op: FusedKernel, node: Apply) -> dict[Apply, dict[Variable, str]]:
    """Print the program with the node in ``dprint(print_op_info=True)``."""
    text = as_text(op.build_program())
    return {node: {node.outputs[0]: text}}
