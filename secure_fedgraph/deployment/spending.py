"""What a silo spent, from its own ledgers, as rows of a table."""

from __future__ import annotations

import math
from typing import Any

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.spending.ledger import HELD, OF_GRAPH_SETS, OF_ONE_GRAPH, Charge, read_ledger
from secure_fedgraph.deployment.federation_file import Federation, read_federation
from secure_fedgraph.deployment.silo_folder import SiloFolder
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
                "run": digest,
                "uploads": len(charges),
                "epsilon": _epsilons(charges, delta, federation),
            }
        )
    return rows, _epsilons(everything, delta, federation)


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
