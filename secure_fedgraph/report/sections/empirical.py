"""The measured epsilons on a page: claim, lower bound, power, and what the audit cannot see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from secure_fedgraph.report import text

ORDER = ("broken", "not audited", "too few trials", "holds")
STATES = {"broken": "leaks", "holds": "bound"}


def empirical(rows: Sequence[dict[str, Any]], several: bool) -> dict[str, Any] | None:
    """A row for each noise of each policy, of several seeds the one whose bound is nearest its claim.

    Returns:
        ``rows``, ``unseen`` (by kind of noise what its audit is blind to), ``reasons``, ``sentence``,
        ``broken`` and ``canaries``; None where no noise was charged.
    """
    if not rows:
        return None
    grouped: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        place = tuple(str(row.get(key)) for key in ("algorithm", "policy", "noise", "of", "reader"))
        grouped.setdefault(place, []).append(row)
    worst = [min(mine, key=_place) for mine in grouped.values()]
    broken = sum(row["outcome"] == "broken" for row in worst)
    held = sum(row["outcome"] == "holds" for row in worst)
    sentence = f"{len(worst)} noise{'s' * (len(worst) > 1)} under audit: "
    sentence += f"{broken} claim{'s' * (broken > 1)} refuted" if broken else "no claim is refuted"
    if held + broken < len(worst):
        sentence += f"; {len(worst) - held - broken} could not be judged"
    return {
        "rows": [_table_row(row, several) for row in worst],
        "unseen": list(dict.fromkeys((_kind(row), _confidence(row), str(row["unseen"])) for row in worst)),
        "reasons": list(dict.fromkeys(str(row["reason"]) for row in worst if row.get("reason"))),
        "sentence": sentence + ".",
        "broken": broken,
        "canaries": any(row["noise"] == "the whole run" for row in worst),
    }


def _place(row: dict[str, Any]) -> tuple[int, float]:
    claim, lower = text.real(row.get("claim")), text.real(row.get("lower"))
    return ORDER.index(row["outcome"]), (claim - lower if claim is not None and lower is not None else 0.0)


def _table_row(row: dict[str, Any], several: bool) -> dict[str, Any]:
    claim, lower = text.real(row.get("claim")), text.real(row.get("lower"))
    label = str(row.get("policy"))
    if several:
        label = f"{text.named(text.ALGORITHMS, row.get('algorithm'))}, {label}"
    return {
        "label": label,
        "noise": row["noise"],
        "of": row["of"],
        "unit": text.named(text.UNITS, row.get("unit")),
        "reader": text.named(text.READERS, row.get("reader")),
        "claim": text.epsilon(row.get("claim")),
        "lower": text.epsilon(row.get("lower")),
        "share": None if not claim or lower is None else round(min(100.0, 100 * lower / claim), 1),
        "power": text.epsilon(row.get("ceiling")),
        "trials": f"{row['trials']:,}" if "trials" in row else "–",
        "outcome": row["outcome"],
        "state": STATES.get(row["outcome"], "unbound"),
    }


def _confidence(row: dict[str, Any]) -> str:
    return f"{100 * float(row['confidence']):g} %" if "confidence" in row else ""


def _kind(row: dict[str, Any]) -> str:
    """A noise without the channel's name."""
    return "an upload" if row["of"] == "one upload" else str(row["noise"])
