"""What a comparison writes: ``compare.json``, and its rows as tables for other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.experiment.compare.summary import by_one_metric, pareto
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import versions


def compare_result(
    base: Experiment,
    rows: list[dict[str, Any]],
    seeds: Sequence[int],
    seconds: float,
    command: str,
    attacks: Sequence[str] = (),
) -> dict[str, Any]:
    """The ``secure-fedgraph/compare/1`` object."""
    rows = by_one_metric(rows)
    return {
        "schema": "secure-fedgraph/compare/1",
        "command": command,
        "config": base.model_dump(mode="json"),
        "versions": versions(),
        "seeds": list(seeds),
        "attacks": list(attacks),
        "points": rows,
        "pareto": pareto(rows),
        "seconds": round(seconds, 1),
    }


def write_table(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """``compare.csv``: a row a point, one number a column."""
    import pandas

    table = pandas.json_normalize(list(rows), sep="_")
    lists = [head for head in table if table[head].map(lambda one: isinstance(one, list)).any()]
    text = table.drop(columns=lists).to_csv(index=False)
    files.write(out / "compare.csv", [text.encode()], private=False)
