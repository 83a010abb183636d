"""What a silo spent, from its own ledgers: rows for a table, and a page for people."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.spending.ledger import HELD, OF_GRAPH_SETS, OF_ONE_GRAPH, Charge, read_ledger
from secure_fedgraph.deployment.federation_file import Federation, read_federation
from secure_fedgraph.deployment.silo_folder import RUN, SiloFolder
from secure_fedgraph.privacy.spent import number, spent


def spending_rows(home: SiloFolder, delta: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each run cost, and all together.

    Args:
        home: the silo's folder.
        delta: of the epsilons.

    Returns:
        A row for each run (file, run, uploads, epsilon by unit and reader), and the epsilons of all charges.

    Raises:
        BadInput: for a damaged ledger, or for ledgers under two neighbouring relations.
    """
    rows, everything = [], []
    federation = _federation(home)
    for digest, path in home.ledgers().items():
        charges = read_ledger(path)
        everything += charges
        rows.append(
            {
                "file": digest,
                "run": _run_in(path.parent / RUN),
                "uploads": len(charges),
                "epsilon": _epsilons(charges, delta, federation),
            }
        )
    return rows, _epsilons(everything, delta, federation)


def spending_page(home: SiloFolder, delta: float, page: Path) -> None:
    """Writes a page with a silo's spending: by run, by unit and reader, and upload by upload."""
    rows, total = spending_rows(home, delta)
    by_run = [
        [row["file"], row["run"], str(row["uploads"]), unit, *(str(value) for value in readers.values())]
        for row in [*rows, {"file": "all", "run": "", "uploads": "", "epsilon": total}]
        for unit, readers in row["epsilon"].items()
    ]
    uploads = [
        [charge.run, str(charge.round), charge.channel, charge.unit, _noise(charge)]
        for path in home.ledgers().values()
        for charge in read_ledger(path)
    ]
    heads = ["file", "run", "uploads", "one", *next(iter(total.values()), {})]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>What this silo spent</title>",
        ""
        ""
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
        "color:#1d2733}"
        "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;text-align:left;"
        "border-bottom:1px solid "
        "#d5dbe3;font-variant-numeric:tabular-nums}h1{font-size:1.6rem}h2{font-size:1.2rem}"
        "</style>",
        "<h1>What this silo spent</h1>",
        f"<p>From its own ledger, at delta {delta:g}. Infinite: something left without noise.</p>",
        "<h2>By run</h2>",
        _table(heads, by_run),
        "<h2>Upload by upload</h2>",
        _table(["run", "round", "channel", "one", "noise"], uploads),
    ]
    files.write(page, ["".join(parts).encode()], private=True)


def _noise(charge: Charge) -> str:
    readers = sorted({*charge.releases, *(f"steps for one {unit}" for unit in charge.steps)})
    return ", ".join(readers) or "none"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(one)}</td>' for one in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{html.escape(one)}</th>' for one in heads)}</tr>{cells}</table>"


def _epsilons(charges: list[Charge], delta: float, federation: Federation | None) -> dict[str, Any]:
    holders = 1 if federation is None else federation.data.holders
    units = OF_GRAPH_SETS if federation is not None and federation.data.kind == "graph" else OF_ONE_GRAPH
    figures: dict[str, Any] = {}
    for unit in units:
        row = spent(charges, delta, holders if unit in HELD else 1, (unit,))[unit]
        figures[unit] = {reader: number(value.epsilon) for reader, value in row.items()}
        if charges and federation is not None and federation.data.rows:
            figures[unit][Reader.SERVER] = number(math.inf)  # it scores, and reads rows without noise
    return figures


def _federation(home: SiloFolder) -> Federation | None:
    try:
        return read_federation(home.path / "federation.toml").federation
    except BadInput:
        return None


def _run_in(path: Path) -> str:
    try:
        return str(json.loads(files.read(path, most=2**16))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
