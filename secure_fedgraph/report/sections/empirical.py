"""The measured epsilons on a page: claim, lower bound, power, and what the audit cannot see."""

from __future__ import annotations

from collections.abc import Sequence

from secure_fedgraph.experiment.schema.audit import Empirical
from secure_fedgraph.report import text

ORDER = ("broken", "not audited", "too few trials", "holds")


def empirical(rows: Sequence[Empirical], several: bool) -> dict[str, object] | None:
    """A row for each noise of each policy, of several seeds the one whose bound is nearest its claim.

    Returns:
        ``rows``, ``unseen`` (by kind of noise what its audit is blind to), ``reasons``, ``sentence``,
        ``broken``; None where no noise was charged.
    """
    if not rows:
        return None
    grouped: dict[tuple[str, ...], list[Empirical]] = {}
    for row in rows:
        place = (row.algorithm, row.policy, row.noise, row.of, row.reader)
        grouped.setdefault(place, []).append(row)
    worst = [min(mine, key=_place) for mine in grouped.values()]
    broken = sum(row.outcome == "broken" for row in worst)
    held = sum(row.outcome == "holds" for row in worst)
    sentence = f"{len(worst)} noise{'s' * (len(worst) > 1)} under audit: "
    sentence += f"{broken} claim{'s' * (broken > 1)} refuted" if broken else "no claim is refuted"
    if held + broken < len(worst):
        sentence += f"; {len(worst) - held - broken} could not be judged"
    return {
        "rows": [(_label(row, several), row) for row in worst],
        "unseen": list(dict.fromkeys((_kind(row), row.confidence, row.unseen) for row in worst)),
        "reasons": list(dict.fromkeys(row.reason for row in worst if row.reason)),
        "sentence": sentence + ".",
        "broken": broken,
    }


def _place(row: Empirical) -> tuple[int, float]:
    slack = 0.0 if row.claim is None or row.lower is None else row.claim - row.lower
    return ORDER.index(row.outcome), slack


def _label(row: Empirical, several: bool) -> str:
    return f"{text.named(text.ALGORITHMS, row.algorithm)}, {row.policy}" if several else row.policy


def _kind(row: Empirical) -> str:
    """A noise without the channel's name."""
    return "an upload" if row.of == "one upload" else row.noise
