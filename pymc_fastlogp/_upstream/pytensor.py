"""What is private in PyTensor: the entries of a rewrite database."""

from pytensor.graph.rewriting.db import RewriteDatabase


def forget_empty_entry(database: RewriteDatabase, name: str) -> None:
    """Delete the empty entry that a query which excluded a name left, with which the name cannot be registered."""
    if not database.__db__[name]:
        del database.__db__[name]
