"""The schema of tables that a run used, kept in its folder: whoever takes the run up reads it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.graph.tables.schema import NAME, schema_text


def keep_schema(experiment: Experiment, folder: Path) -> None:
    """Writes ``schema.toml`` into a folder of results, where the run's data are tables.

    It is the given one, or the one that was made of what owners declare.
    """
    schema = experiment.used_schema
    if schema is not None:
        files.write(folder / NAME, [schema_text(schema).encode()], private=True, root=folder)


def in_folder(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A kept configuration whose schema is the folder's own: a folder alone has no other file opened."""
    return {**config, "tables": str(folder / NAME)} if config.get("tables") is not None else config
