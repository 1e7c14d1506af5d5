"""The graph of logp and gradient that nutpie compiles for a model, and which rules made it. Nothing is compiled."""

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.text import as_text

if TYPE_CHECKING:
    import pymc as pm


class CompiledGraph(NamedTuple):
    """Graph that a backend compiles.

    Attributes
    ----------
    fgraph : FunctionGraph
        From the unconstrained point to logp and gradient, after all rewrites.
    fired : Counter
        How often each rule fired on the way, by its name; the rules for whole graphs that do not say so are left out.
    """

    fgraph: FunctionGraph
    fired: Counter[str]


def compiled_graph(model: "pm.Model") -> CompiledGraph:
    """Rewrite a model as ``nutpie.compile_pymc_model(model, freeze_model=True)`` does."""
    from nutpie.compile_pymc import _make_functions
    from pymc.model.transform.optimization import freeze_dims_and_data

    frozen = freeze_dims_and_data(model)
    with collected() as decisions:
        # PyTensor's linker leaves code generation to the first call, which there is none of.
        _, _, logp_dlogp, *_ = _make_functions(
            frozen,
            mode="NUMBA",
            compute_grad=True,
            join_expanded=True,
            pymc_initial_point_fn=lambda seed: {},
            var_names=(),
        )
    fired = Counter(decision.rule for decision in decisions if decision.fired)
    return CompiledGraph(logp_dlogp.maker.fgraph, fired)


def code_of(fgraph: FunctionGraph) -> str:
    """Return a text that is equal for graphs that compile to the same code, on the same data."""
    names: dict[Variable, str] = {x: f"input {i}" for i, x in enumerate(fgraph.inputs)}
    lines = []
    for number, node in enumerate(fgraph.toposort()):
        inputs = [names[x] if x in names else _of_constant(x) for x in node.inputs]
        names |= {x: f"{number}.{i}" for i, x in enumerate(node.outputs)}
        op = as_text(node.op.build_program()) if isinstance(node.op, FusedKernel) else repr(node.op)
        lines.append(f"{op} of {', '.join(inputs)}, types {[x.type for x in node.outputs]}")
    return "\n".join([*lines, f"returns {[names.get(x) for x in fgraph.outputs]}"])


def _of_constant(x: Variable) -> str:
    assert isinstance(x, Constant)
    if not hasattr(x.data, "tobytes"):
        return str(x.data)
    return sha256(x.data.tobytes()).hexdigest()
