"""The connection of a DuckDB relation, a private attribute since DuckDB 2, and its rows in memory, by a method that DuckDB has renamed."""

from typing import Any


def connection_of(relation: Any) -> Any:
    """Return the connection by which a relation of a user runs, None for a release of DuckDB that hides it."""
    connection = getattr(relation, "_con", None)
    return connection if hasattr(connection, "interrupt") else None


def in_memory(relation: Any) -> Any:
    """Return the rows of a relation as a PyArrow table."""
    if hasattr(relation, "to_arrow_table"):
        return relation.to_arrow_table()
    return relation.fetch_arrow_table()
