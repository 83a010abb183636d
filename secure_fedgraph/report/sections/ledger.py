"""The ledger on a page: what each channel spent, what all of them come to, and what is left of a budget."""

from __future__ import annotations

from collections.abc import Sequence

from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.experiment.schema.run import BudgetReport
from secure_fedgraph.report import text
from secure_fedgraph.report.sections.trained import Trained


def ledger(runs: Sequence[Trained]) -> list[dict[str, object]]:
    """By policy and channel the epsilon that the channel alone would cost against each reader.

    Returns:
        rows of ``label``, ``channels``, and ``budget`` (None where the run had none), of the first seed.
    """
    rows: list[dict[str, object]] = []
    for run in runs:
        result = run.results[0]
        channels = [
            {
                "name": channel.name,
                "unit": text.named(text.UNITS, channel.epsilon_unit or channel.unit),
                "readers": [channel.epsilon_by_reader.get(reader) for reader in Reader],
            }
            for channel in result.channels
            if channel.epsilon_by_reader
        ]
        if channels:
            budget = _budget(result.budget) if result.budget else None
            rows.append({"label": run.label, "channels": channels, "budget": budget})
    return rows


def _budget(budget: BudgetReport) -> dict[str, object]:
    asked, spent = budget.epsilon, text.real(budget.spent)
    return {
        "asked": text.epsilon(asked),
        "spent": text.epsilon(budget.spent),
        "left": None if spent is None else f"{max(asked - spent, 0.0):.3g}",
        "share": 100.0 if spent is None else round(min(100.0, 100 * spent / asked), 1),
        "unit": text.named(text.UNITS, budget.unit),
        "against": text.named(text.READERS, budget.against),
    }
