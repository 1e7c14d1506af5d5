"""Elementwise expressions of columns: what a log density reads of a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.tables.columns import Column, column_of, columns_in

SYMBOLS = {
    ps.Add: "+",
    ps.Sub: "-",
    ps.Mul: "*",
    ps.TrueDiv: "/",
    ps.IntDiv: "//",
    ps.Mod: "%",
    ps.Pow: "**",
    ps.LT: "<",
    ps.LE: "<=",
    ps.GT: ">",
    ps.GE: ">=",
    ps.EQ: "==",
    ps.NEQ: "!=",
    ps.AND: "&",
    ps.OR: "|",
}


@dataclass(frozen=True)
class Expression:
    """Elementwise expression of columns.

    Attributes
    ----------
    text : str
        The expression in full. Equal texts are equal expressions.
    columns : tuple of Column
        The columns that the expression reads.
    dtype : str
        Dtype of the values.
    function : callable, optional
        Function of the values of the columns; None for a column itself.
    """

    text: str
    columns: tuple[Column, ...]
    dtype: str
    function: Callable[..., np.ndarray] | None = field(default=None, compare=False, repr=False)

    def values(self, columns: Mapping[Column, np.ndarray]) -> np.ndarray:
        """Return the values of the expression in some rows."""
        of_columns = [columns[x] for x in self.columns]
        return of_columns[0] if self.function is None else np.asarray(self.function(*of_columns))


def is_finite(x: np.ndarray) -> bool:
    """Return whether all values are numbers."""
    return x.dtype.kind != "f" or bool(np.isfinite(x).all())


def expression_of_column(column: Column, dtype: str) -> Expression:
    """Return a column as an expression."""
    text = f"codes({column.name})" if column.is_coded else column.name
    return Expression(text, (column,), dtype)


def expressions_in(outputs: Iterable[Variable]) -> dict[Variable, Expression]:
    """Return the largest elementwise expressions of placeholders and numbers in graphs.

    A placeholder of which a graph reads the length alone is no expression.
    """
    outputs = [*outputs]
    nodes = io_toposort([], outputs)
    texts: dict[Variable, str] = {}
    for node in nodes:
        texts |= {x: expression_of_column(c, "").text for x in node.inputs if (c := column_of(x))}
        text = _text(node, texts)
        if text is not None:
            texts[node.outputs[0]] = text
    texts |= {x: expression_of_column(c, "").text for x in outputs if (c := column_of(x))}
    read = (
        x
        for node in nodes
        if not (node.outputs[0] in texts or isinstance(node.op, Shape | Shape_i))
        for x in node.inputs
    )
    return {x: _expression(x, texts[x]) for x in [*read, *outputs] if x in texts}


def _text(node: Apply, texts: Mapping[Variable, str]) -> str | None:
    """Return the text of an elementwise expression of vectors with a text and of numbers."""
    if not isinstance(node.op, Elemwise) or len(node.outputs) > 1 or node.outputs[0].type.ndim != 1:
        return None
    if not any(x in texts for x in node.inputs):
        return None
    of_inputs = []
    for x in node.inputs:
        number = None if x in texts else fill_value(x)
        if x not in texts and (number is None or x.type.shape != (1,)):
            return None
        of_inputs.append(texts[x] if number is None else repr(number.item()))
    op = node.op.scalar_op
    symbol = SYMBOLS.get(type(op))
    if symbol is not None:
        return f"({f' {symbol} '.join(of_inputs)})"
    return f"{op}({', '.join(map(_bare, of_inputs))})"


def _bare(text: str) -> str:
    """Return a text without the parentheses around a sum, a product or another operation with a symbol."""
    return text[1:-1] if text.startswith("(") else text


def _expression(x: Variable, text: str) -> Expression:
    from pytensor import function
    from pytensor.compile.mode import Mode
    from pytensor.graph.replace import clone_replace

    columns = columns_in([x])
    if x in columns:
        return Expression(text, (columns[x],), x.type.dtype)
    inputs = {placeholder: placeholder.type() for placeholder in columns}
    # Once per batch of many rows, so that Python is fast enough, and nothing is compiled.
    compiled = function([*inputs.values()], clone_replace(x, inputs), mode=Mode("py", None))
    return Expression(_bare(text), (*columns.values(),), x.type.dtype, compiled)
