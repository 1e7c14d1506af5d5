"""Picture of the graph of a log density, plugin off and on, in the language of Graphviz."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from textwrap import shorten

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.explanation.terms import rewrite_terms
from pymc_fastlogp.kernel.lower import is_supported

HEAD = """digraph {
rankdir=BT; compound=true
node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica", fontsize=10]
edge [arrowsize=0.6, fontname="Helvetica", fontsize=8]"""
PARAMETER, DATA, IN_KERNEL = "#cfe2f3", "#eeeeee", "#d9ead3"
WIDEST = 40


@dataclass(frozen=True)
class Picture:
    """Picture of a log density before and after, drawn on first use: it takes one more rewriting, with the plugin off.

    Parameters
    ----------
    terms : sequence of TensorVariable
        Terms of the log density as PyMC writes them.
    on : FunctionGraph
        The terms, rewritten with the plugin on.
    names : sequence of str
        Name of the variable of each term.
    """

    terms: Sequence[TensorVariable]
    on: FunctionGraph
    names: Sequence[str]

    @cached_property
    def dot(self) -> str:
        """The picture in the language of Graphviz."""
        off, _ = rewrite_terms(self.terms, on=False)
        return dot_of(off, self.on, self.names)


def dot_of(off: FunctionGraph, on: FunctionGraph, names: Sequence[str]) -> str:
    """Return both graphs side by side.

    Parameters
    ----------
    off, on : FunctionGraph
        The log density before the gradient is taken. Nodes of ``on`` that kernels compute are green.
    names : sequence of str
        Name of the variable of each output.
    """
    sides = (("off", "plugin off", off), ("on", "plugin on; green: in kernels", on))
    lines = (line for side in sides for line in _cluster(*side, names))
    return "\n".join([HEAD, *lines, "}"])


def _cluster(side: str, title: str, fgraph: FunctionGraph, terms: Sequence[str]) -> Iterator[str]:
    yield f'subgraph cluster_{side} {{ label="{title}: {len(fgraph.apply_nodes)} nodes"; color=gray'
    places: dict[Variable, str] = {}
    for node in fgraph.toposort():
        fill = IN_KERNEL if side == "on" and is_supported(node) else "white"
        place = f"{side}{len(places)}"
        yield _box(place, _label_of(node), fill)
        for x in node.inputs:
            if _is_number(x):
                continue
            if x not in places:
                places[x] = f"{side}{len(places)}i"
                yield _leaf(places[x], x)
            yield f'{places[x]} -> {place} [label="{_shape(x)}"]'
        places |= dict.fromkeys(node.outputs, place)
    for i, (x, term) in enumerate(zip(fgraph.outputs, terms, strict=True)):
        yield f'{side}_logp{i} [label="logp of {escape(term)}", shape=plaintext, fillcolor=none]'
        if x in places:
            yield f"{places[x]} -> {side}_logp{i}"
    yield "}"


def _box(place: str, label: str, fill: str) -> str:
    return f'{place} [label="{escape(label)}", fillcolor="{fill}"]'


def _leaf(place: str, x: Variable) -> str:
    if isinstance(x, Constant | SharedVariable):
        return _box(place, x.name or "constant", DATA)
    return _box(place, x.name or str(x), PARAMETER)


def _label_of(node: Apply) -> str:
    """Return the name of the node's Op, and the numbers among the node's inputs."""
    numbers = [f"{x.data.item():.4g}" for x in node.inputs if _is_number(x)]
    name = shorten(str(node.op).replace("\\", ""), WIDEST, placeholder="...")
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _is_number(x: Variable) -> bool:
    """Return whether a variable is a constant with one entry, which stands in the label of the node."""
    return isinstance(x, Constant) and getattr(x.data, "size", 0) == 1


def _shape(x: Variable) -> str:
    return " x ".join("?" if n is None else str(n) for n in getattr(x.type, "shape", ()))
