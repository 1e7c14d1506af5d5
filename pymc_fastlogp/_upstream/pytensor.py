"""What is private in PyTensor: its proof that an index holds no position twice, and the entries of a rewrite database."""

from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.tensor.rewriting.subtensor import _advanced_indices_jointly_unique

advanced_indices_jointly_unique = _advanced_indices_jointly_unique


def forget_empty_entry(database: RewriteDatabase, name: str) -> None:
    """Delete the empty entry that a query which excluded a name left, with which the name cannot be registered."""
    if not database.__db__[name]:
        del database.__db__[name]
