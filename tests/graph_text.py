"""The graphs that nutpie compiles for the suite, as text; run as a program, one process a side.

    python graph_text.py SIDE DATA OUT.json [NAME ...]

SIDE is ``absent`` (``pymc_fastlogp`` is never imported), ``off`` or ``on``; DATA is ``frozen``
(constants of the graph) or ``shared``. No Numba function is compiled: PyTensor's linker leaves
that to the first call.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pymc as pm
import pytensor
from nutpie.compile_pymc import _make_functions
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph

from benchmarks.suite import SUITE, case


def graph_texts(model: pm.Model) -> dict[str, str]:
    """Return nutpie's optimized graphs of `model`: logp with gradient, and the trace variables."""
    _, _, logp_dlogp, expand, *_ = _make_functions(
        model,
        mode="NUMBA",
        compute_grad=True,
        join_expanded=True,
        pymc_initial_point_fn=lambda seed: {},  # only wrapped, not called
    )
    return {"logp_dlogp": text(logp_dlogp.maker.fgraph), "expand": text(expand.maker.fgraph)}


def text(fgraph: FunctionGraph) -> str:
    """Return a text that is equal for equal graphs: Ops, types, wiring, inner graphs, constants."""
    graph = pytensor.dprint(
        fgraph,
        file="str",
        print_type=True,
        print_op_info=True,
        print_destroy_map=True,
        print_view_map=True,
    )
    return "\n".join([graph, "Constants:", *constants(fgraph)])


def constants(fgraph: FunctionGraph) -> Iterator[str]:
    """Yield a digest of every constant, since `dprint` abbreviates large ones."""
    for number, node in enumerate(fgraph.toposort()):
        for place, variable in enumerate(node.inputs):
            if isinstance(variable, Constant):
                yield f"{number}.{place} {digest(variable)}"
        if isinstance(node.op, HasInnerGraph):
            yield from constants(node.op.fgraph)


def digest(constant: Constant) -> str:
    """Return a hash of the data of an array, the text of anything else (a slice, None)."""
    if not hasattr(constant.data, "tobytes"):
        return str(constant.data)
    return hashlib.sha256(constant.data.tobytes()).hexdigest()


def side(name: str) -> AbstractContextManager[None]:
    """Return the context in which the graphs of a side are compiled."""
    if name == "absent":
        return nullcontext()
    import pymc_fastlogp

    return pymc_fastlogp.disabled() if name == "off" else nullcontext()


def main(side_name: str, data: str, out: str, *names: str) -> None:
    """Write ``{model: {function: text}}`` for the named models, or for all."""
    texts = {}
    with side(side_name):
        for chosen in [case(name) for name in names] or SUITE:
            model = chosen.make()
            texts[chosen.name] = graph_texts(
                freeze_dims_and_data(model) if data == "frozen" else model
            )
    assert ("pymc_fastlogp" in sys.modules) == (side_name != "absent")
    Path(out).write_text(json.dumps(texts))


if __name__ == "__main__":
    main(*sys.argv[1:])
