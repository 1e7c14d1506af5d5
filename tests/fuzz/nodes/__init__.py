"""The lines that a random program is made of: each function returns an expression and its shape, or None where nothing fits."""

from tests.fuzz.nodes import elementwise, indexing, products, reductions, shapes  # noqa: F401  they fill the table
from tests.fuzz.nodes.table import NODES

__all__ = ["NODES"]
