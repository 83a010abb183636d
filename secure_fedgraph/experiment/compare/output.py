"""What a comparison writes: ``compare.json``, and its rows as tables for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
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


def flat(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows for tables of other programs: one number a column."""
    for row in rows:
        plain = {k: v for k, v in row.items() if not isinstance(v, dict | list)}
        plain["epsilon"] = float(plain["epsilon"])
        if "spent" in plain:
            plain["spent"] = float(plain["spent"])
        for key in ("accuracy", "std", "leak"):
            plain |= {f"{key}_{name}": value for name, value in (row.get(key) or {}).items()}
        without = (row.get("without_graph") or {}).get("accuracy") or {}
        plain |= {f"without_graph_{name}": value for name, value in without.items()}
        plain |= {f"epsilon_{unit}": float(value) for unit, value in (row.get("units") or {}).items()}
        for name, leak in (row.get("leaks") or {}).items():
            plain |= {f"guess_{name}": leak["baseline"], f"leaks_{name}": leak["leaks"]}
        yield plain


def write_tables(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """``compare.csv`` and ``compare.parquet``."""
    import pandas

    table_rows = list(flat(rows))
    columns = list(dict.fromkeys(key for row in table_rows for key in row))
    csv_text = io.StringIO(newline="")
    writer = csv.DictWriter(csv_text, columns)
    writer.writeheader()
    writer.writerows(table_rows)
    files.write(out / "compare.csv", [csv_text.getvalue().encode()], private=False)
    table = pandas.DataFrame(table_rows, columns=columns)
    mixed = [head for head in columns if table[head].map(type).nunique() > 1 and table[head].dtype == object]
    table[mixed] = table[mixed].astype(str)
    files.write(out / "compare.parquet", [table.to_parquet(None, index=False)], private=False)
