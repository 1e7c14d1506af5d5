"""The lines of a random program: each function returns an expression and its shape, or None if no operand fits."""

from tests.fuzz.nodes import elementwise, indexing, products, reductions, shapes  # noqa: F401  they fill the table
from tests.fuzz.nodes.table import NODES

__all__ = ["NODES"]
