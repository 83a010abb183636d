"""The papers' tables, and what ours come to beside them: one command a table."""

from __future__ import annotations

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.experiment.reproduce import apflgate, fairgraphfl, fedego, fedsage, glasu
from secure_fedgraph.experiment.reproduce.tables import Case, Cell, PaperTable

__all__ = ["TABLES", "Case", "Cell", "PaperTable", "table_named"]

TABLES: dict[str, PaperTable] = {
    table.name: table for module in (fedego, fedsage, glasu, apflgate, fairgraphfl) for table in module.TABLES
}
"""Name -> table. A new paper is one new module with ``TABLES``."""


def table_named(name: str) -> PaperTable:
    """A table by its name.

    Raises:
        BadInput: for an unknown one, with the nearest.
    """
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]
