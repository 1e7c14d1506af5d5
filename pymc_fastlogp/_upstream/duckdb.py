"""The connection of a DuckDB relation, a private attribute since DuckDB 2."""

from typing import Any


def connection_of(relation: Any) -> Any:
    """Return the connection by which a relation of a user runs, None for a release of DuckDB that hides it."""
    connection = getattr(relation, "_con", None)
    return connection if hasattr(connection, "interrupt") else None
