"""What a page says about runs, one or several side by side: accuracy, traffic, guarantees, who saw what."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from secure_fedgraph.report import plots, words
from secure_fedgraph.report.svg import Picture

READERS = ("server", "peers", "outsider")


@dataclass(frozen=True)
class Trained:
    """Runs that differ in nothing but the seed.

    Args:
        label: the name in tables and legends.
        results: one ``secure-fedgraph/run/1`` object for each seed.
        histories: the rounds of each seed, as far as they are known.
    """

    label: str
    results: list[dict[str, Any]]
    histories: list[list[dict[str, Any]]]


def accuracy(runs: Sequence[Trained]) -> dict[str, Any] | None:
    """Accuracy and validation loss over the rounds: pictures, the numbers, and how far apart the policies are."""
    seen = [run for run in runs if any(run.histories)]
    if not seen:
        return None
    measures: tuple[tuple[str, str, bool, Callable[[dict[str, Any]], Any]], ...] = (
        ("accuracy", "accuracy on all owners' test nodes", True, lambda r: _at(r, "accuracy", "global")),
        ("loss", "loss on the validation nodes", False, lambda r: r.get("loss")),
    )
    pictures = []
    for key, title, as_percent, read in measures:
        curves = [{"label": run.label, "lines": _lines(run, read)} for run in seen]
        ends = [f"{c['label']} ends at {_end(c['lines'], as_percent)}" for c in curves]
        alt = f"Line plot of {title} over the rounds: {words.listed(ends)}."
        pictures.append(plots.over_rounds(f"{key}-by-round", title, curves, as_percent, alt))
    return {
        "pictures": pictures,
        "table": _by_round(seen),
        "apart": _apart(seen),
    }


def finals(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """The last round's accuracy of each policy, with the best rounds beside it, never mixed."""
    rows = []
    for run in runs:
        found = [r.get("accuracy") or {} for r in run.results]
        rows.append(
            {
                "label": run.label,
                "global": _mean([a.get("global") for a in found]),
                "local": _mean([a.get("local") for a in found]),
                "validation": _mean([_at(a, "best_by_validation", "global") for a in found]),
                "test": _mean([_at(a, "best_on_test", "global") for a in found]),
                "seconds": _mean([r.get("seconds") for r in run.results]),
                "seeds": len(found),
            }
        )
    return rows


def traffic(runs: Sequence[Trained]) -> dict[str, Any]:
    """Bytes and messages by policy and channel, carriers included, and the totals as ratios to the first policy."""
    groups = []
    for run in runs:
        rows = []
        for channel in run.results[0].get("channels") or []:
            same = [c for r in run.results for c in r.get("channels") or [] if c["name"] == channel["name"]]
            rows.append(
                {
                    "name": channel["name"],
                    "carrier": False,
                    "up": _mean([c.get("bytes_up") for c in same]),
                    "down": _mean([c.get("bytes_down") for c in same]),
                    "messages": _mean([c.get("messages") for c in same]),
                }
            )
        for carrier in run.results[0].get("carriers") or []:
            same = [c for r in run.results for c in r.get("carriers") or [] if c["name"] == carrier["name"]]
            rows.append(
                {
                    "name": carrier["name"],
                    "carrier": True,
                    "both": _mean([c.get("bytes") for c in same]),
                    "messages": _mean([c.get("messages") for c in same]),
                }
            )
        totals = {k: _mean([_at(r, "bytes", k) for r in run.results]) for k in ("up", "down", "evaluation")}
        total = sum(v or 0 for k, v in totals.items() if k != "evaluation")
        groups.append({"label": run.label, "rows": rows, "total": total, **totals})
    most = max((g["total"] for g in groups), default=0) or 1
    for group in groups:
        for row in group["rows"]:
            for key in ("up", "down", "both"):
                row[f"{key}_width"] = round(100 * (row.get(key) or 0) / most, 2)
        group["ratio"] = group["total"] / groups[0]["total"] if groups[0]["total"] else None
    return {"groups": groups, "first": groups[0]["label"] if groups else ""}


def privacy(runs: Sequence[Trained]) -> dict[str, Any]:
    """Epsilon by policy, unit and reader, with delta, relation, accountant and what is not covered."""
    groups = []
    for run in runs:
        claims = run.results[0].get("privacy") or {}
        rows = [
            {
                "unit": words.named(words.UNITS, unit),
                "readers": [(claim.get("readers") or {}).get(reader) for reader in READERS],
                "delta": claim.get("delta"),
                "relation": claim.get("relation"),
                "meaning": words.RELATIONS.get(str(claim.get("relation")), ""),
                "accountant": claim.get("accountant"),
                "computational": bool(claim.get("computational")),
                "reason": claim.get("reason") or "",
            }
            for unit, claim in claims.items()
        ]
        groups.append({"label": run.label, "rows": rows, "promises": words.guarantee(claims)})
    note = (runs[0].results[0].get("evaluation") or {}).get("note", "") if runs else ""
    return {
        "groups": groups,
        "readers": [words.READERS[r] for r in READERS],
        "note": words.sentence(note),
        "several_seeds": any(len(run.results) > 1 for run in runs),
    }


def seen(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """Who saw what: for each policy and channel what the reader may learn, what is on the wire, what else shows."""
    return [
        {
            "label": run.label,
            "rows": [
                {
                    "name": c.get("name"),
                    "to": c.get("to"),
                    "reveal": words.named(words.REVEALS, c.get("reveal")),
                    "domain": c.get("domain"),
                    "wire": words.named(words.DOMAINS, c.get("domain")),
                    "readable": c.get("domain") in ("real", "ring"),
                    "excess": [words.sentence(e) for e in c.get("excess") or []],
                }
                for c in run.results[0].get("channels") or []
            ],
        }
        for run in runs
    ]


def partition(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """The statistics of the FedSage paper's Table 1, one row for each seed."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        for result in run.results:
            facts = result.get("data") or {}
            cut = facts.get("partition") or {}
            row = {
                "seed": result.get("seed"),
                "name": cut.get("name"),
                "owners": cut.get("owners"),
                "nodes": cut.get("nodes"),
                "links": cut.get("links"),
                "missing": cut.get("missing_links"),
                "sizes": cut.get("sizes") or [],
            }
            if cut and row not in rows:
                rows.append(row)
    return rows


def facts(config: dict[str, Any], versions: dict[str, Any]) -> dict[str, Any]:
    """The whole configuration and the versions, for the page's end."""
    return {
        "config": _flat(config),
        "versions": list(versions.items()),
        "json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def source(data: dict[str, Any]) -> dict[str, Any]:
    """Where the data came from, and its content hash."""
    name = str(data.get("data") or "")
    return {
        "name": words.DATA.get(name, name),
        "source": data.get("source"),
        "digest": data.get("digest"),
        "nodes": data.get("nodes"),
        "features": data.get("features"),
        "classes": data.get("classes"),
    }


def pictures(*sections: dict[str, Any] | None) -> list[Picture]:
    """All pictures of some sections."""
    return [picture for section in sections if section for picture in section["pictures"]]


def _flat(tree: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{above}{key}.")
        else:
            rows.append((f"{above}{key}", value if isinstance(value, str) else json.dumps(value)))
    return rows


def _lines(run: Trained, read: Callable[[dict[str, Any]], Any]) -> list[tuple[list[float], list[float]]]:
    lines = []
    for history in run.histories:
        values = [words.real(read(row)) for row in history]
        lines.append(
            (
                [float(row.get("round", i + 1)) for i, row in enumerate(history)],
                [math.nan if v is None else v for v in values],
            )
        )
    return [line for line in lines if line[0]]


def _end(lines: list[tuple[list[float], list[float]]], as_percent: bool) -> str:
    value = fmean([values[-1] for _, values in lines])
    return words.percent(value) if as_percent else f"{value:.3f}"


def _by_round(runs: Sequence[Trained]) -> dict[str, Any]:
    columns = [
        {
            "label": run.label + (f", seed {result.get('seed')}" if len(run.histories) > 1 else ""),
            "rows": {row.get("round"): row for row in history},
        }
        for run in runs
        for result, history in zip(run.results, run.histories, strict=False)
    ]
    numbers = sorted({n for c in columns for n in c["rows"] if n is not None})
    return {
        "columns": [c["label"] for c in columns],
        "rows": [
            {
                "round": n,
                "cells": [
                    {
                        "accuracy": _at(c["rows"].get(n) or {}, "accuracy", "global"),
                        "loss": _loss((c["rows"].get(n) or {}).get("loss")),
                    }
                    for c in columns
                ],
            }
            for n in numbers
        ],
    }


def _loss(value: Any) -> str:
    number = words.real(value)
    return words.MISSING if number is None else f"{number:.4f}"


def _apart(runs: Sequence[Trained]) -> list[str]:
    """How far each policy is from the first, at the round where they differ most."""
    sentences = []
    reference = runs[0]
    for run in runs[1:]:
        gaps = [
            (abs(a - b), row.get("round"))
            for one, other in zip(reference.histories, run.histories, strict=False)
            for before, row in zip(one, other, strict=False)
            if (a := words.real(_at(before, "accuracy", "global"))) is not None
            and (b := words.real(_at(row, "accuracy", "global"))) is not None
        ]
        if not gaps:
            continue
        gap, when = max(gaps)
        if gap < 5e-5:
            sentences.append(f"{run.label} gives the accuracy of {reference.label} in every round.")
        else:
            sentences.append(
                f"{run.label} is at most {100 * gap:.2f} points from {reference.label} (round {when})."
            )
    return sentences


def _mean(values: Sequence[Any]) -> float | None:
    found = [v for v in map(words.real, values) if v is not None]
    return fmean(found) if found else None


def _at(tree: dict[str, Any], *keys: str) -> Any:
    value: Any = tree
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
