"""The ledger on a page: what each channel spent, what all of them come to, and what is left of a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from secure_fedgraph.protocol.guarantee import Reader
from secure_fedgraph.report import text
from secure_fedgraph.report.sections.trained import Trained


def ledger(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """By policy and channel the epsilon that the channel alone would cost against each reader.

    Returns:
        rows of ``label``, ``channels``, and ``budget`` (None where the run had none), of the first seed.
    """
    rows = []
    for run in runs:
        result = run.results[0]
        channels = [
            {
                "name": channel.get("name"),
                "unit": text.named(text.UNITS, channel.get("epsilon_unit") or channel.get("unit")),
                "readers": [(channel.get("epsilon_by_reader") or {}).get(reader) for reader in Reader],
            }
            for channel in result.get("channels") or []
            if channel.get("epsilon_by_reader")
        ]
        if channels:
            budget = _budget(result.get("budget"))
            rows.append({"label": run.label, "channels": channels, "budget": budget})
    return rows


def _budget(budget: Any) -> dict[str, Any] | None:
    if not isinstance(budget, dict) or text.real(budget.get("epsilon")) is None:
        return None
    asked, spent = float(budget["epsilon"]), text.real(budget.get("spent"))
    return {
        "asked": text.epsilon(asked),
        "spent": text.epsilon(budget.get("spent")),
        "left": None if spent is None else f"{max(asked - spent, 0.0):.3g}",
        "share": 100.0 if spent is None else round(min(100.0, 100 * spent / asked), 1),
        "unit": text.named(text.UNITS, budget.get("unit")),
        "against": text.named(text.READERS, budget.get("against")),
    }
