"""The papers' tables, and what ours come to beside them: one command a table, one TOML file a paper."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.experiment.reproduce.tables import Case, Cell, PaperTable

__all__ = ["TABLES", "Case", "Cell", "PaperTable", "table_named"]

PAPERS = ("fedego", "fedsage", "glasu", "apflgate", "fairgraphfl")


def _tables_of(paper: str) -> Iterator[PaperTable]:
    """The tables of a paper's file, which says itself what its keys are."""
    held = tomllib.loads(Path(__file__).with_name(f"{paper}.toml").read_text(encoding="utf-8"))
    common, like = held.get("common", {}), held.get("like", {})
    cases: dict[str | None, Case | None] = {None: None}
    for name, config in held["cases"].items():
        minutes, training = config.pop("minutes"), config.pop("training", {})
        training = {**like.get(config.pop("like", ""), {}), **training}
        cases[name] = Case(name, {**common, **config, "training": training}, minutes)

    def cell(row: dict[str, Any]) -> Cell:
        run = {key: cases[row.get(key)] for key in ("case", "alone")}
        return Cell(**{"paper": None, **row, **run})

    for table in held["tables"]:
        about = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        yield PaperTable(**{**about, "paper": held["paper"], "cells": tuple(map(cell, table["cells"]))})


TABLES: dict[str, PaperTable] = {table.name: table for paper in PAPERS for table in _tables_of(paper)}
"""Name -> table. A new paper is one new file beside this module, and its name in ``PAPERS``."""


def table_named(name: str) -> PaperTable:
    """A table by its name.

    Raises:
        BadInput: for an unknown one, with the nearest.
    """
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]
