"""What a page says about runs side by side: traffic, guarantees, who saw what, on which data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from secure_fedgraph.protocol.guarantee import Reader
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.svg import Picture


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


def traffic(runs: Sequence[Trained]) -> dict[str, Any]:
    """Bytes and messages by policy and channel, carriers included; totals as ratios to the first policy's."""
    groups: list[dict[str, Any]] = []
    for run in runs:
        rows: list[dict[str, Any]] = []
        for channel in run.results[0].get("channels") or []:
            same = [c for r in run.results for c in r.get("channels") or [] if c["name"] == channel["name"]]
            rows.append(
                {
                    "name": channel["name"],
                    "carrier": False,
                    "up": mean([c.get("bytes_up") for c in same]),
                    "down": mean([c.get("bytes_down") for c in same]),
                    "messages": mean([c.get("messages") for c in same]),
                }
            )
        for carrier in run.results[0].get("carriers") or []:
            same = [c for r in run.results for c in r.get("carriers") or [] if c["name"] == carrier["name"]]
            rows.append(
                {
                    "name": carrier["name"],
                    "carrier": True,
                    "both": mean([c.get("bytes") for c in same]),
                    "messages": mean([c.get("messages") for c in same]),
                }
            )
        totals = {k: mean([at(r, "bytes", k) for r in run.results]) for k in ("up", "down", "evaluation")}
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
    groups: list[dict[str, Any]] = []
    for run in runs:
        claims = run.results[0].get("privacy") or {}
        rows = [
            {
                "unit": text.named(text.UNITS, unit),
                "readers": [(claim.get("readers") or {}).get(reader) for reader in Reader],
                "delta": claim.get("delta"),
                "relation": claim.get("relation"),
                "meaning": text.RELATIONS.get(str(claim.get("relation")), ""),
                "accountant": claim.get("accountant"),
                "computational": bool(claim.get("computational")),
                "reason": claim.get("reason") or "",
            }
            for unit, claim in claims.items()
        ]
        promises = text.guarantee(claims)
        same = next((g for g in groups if g["rows"] == rows and g["promises"] == promises), None)
        if same:
            same["labels"].append(run.label)
        else:
            groups.append({"labels": [run.label], "rows": rows, "promises": promises})
    for group in groups:
        group["label"] = text.listed(group["labels"])
    note = (runs[0].results[0].get("evaluation") or {}).get("note", "") if runs else ""
    return {
        "groups": groups,
        "uncovered": _merged(groups),
        "relations": sorted(
            {f"{r['relation']}: {r['meaning']}" for g in groups for r in g["rows"] if r["meaning"]}
        ),
        "headline": _headline(groups),
        "readers": [text.READERS[r] for r in Reader],
        "note": text.sentence(note),
        "several_seeds": any(len(run.results) > 1 for run in runs),
    }


def seen(runs: Sequence[Trained]) -> list[dict[str, Any]]:
    """Who saw what: by policy and channel what it is meant to reveal, what is sent, what shows beyond."""
    return [
        {
            "label": run.label,
            "rows": [
                {
                    "name": c.get("name"),
                    "to": c.get("to"),
                    "reveal": text.named(text.REVEALS, c.get("reveal")),
                    "domain": c.get("domain"),
                    "wire": text.named(text.DOMAINS, c.get("domain")),
                    "readable": c.get("domain") in ("real", "ring"),
                    "excess": [text.sentence(e) for e in c.get("excess") or []],
                    "epsilon": c.get("epsilon"),
                    "about": text.named(text.UNITS, c.get("epsilon_unit") or c.get("unit")),
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
            split = facts.get("partition") or {}
            sizes = split.get("sizes") or []
            row = {
                "seed": result.get("seed"),
                "data": source(facts)["name"],
                "name": split.get("name"),
                "owners": split.get("owners") or len(sizes) or None,
                "nodes": split.get("nodes"),
                "links": split.get("links"),
                "missing": split.get("missing_links"),
                "sizes": sizes,
                "spread": text.spread(sizes),
                "of": "graphs" if "graphs" in split else "nodes",
                "many": len(sizes) > text.MOST_SIZES,
            }
            if split and row not in rows:
                rows.append(row)
    return rows


def facts(config: dict[str, Any], versions: dict[str, Any]) -> dict[str, Any]:
    """The whole configuration and the versions, for the page's end."""
    return {
        "config": _flat(config),
        "versions": list(versions.items()),
        "own_version": versions.get("secure-fedgraph", ""),
        "json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def source(data: dict[str, Any]) -> dict[str, Any]:
    """Where the data came from, and its content hash."""
    name = str(data.get("data") or "")
    return {
        "name": text.DATA.get(name, name),
        "source": data.get("source"),
        "digest": data.get("digest"),
        "nodes": data.get("nodes"),
        "features": data.get("features"),
        "classes": data.get("classes"),
    }


def owners(configs: Sequence[dict[str, Any]]) -> str:
    """How many owners and how the data was split, for each algorithm where that differs.

    >>> owners([{"clients": 3, "partition": "louvain"}])
    '3 owners, split by louvain'
    """
    by_setup: dict[str, list[str]] = {}
    for config in configs:
        split = f", split by {config['partition']}" if config.get("partition") else ""
        name = text.named(text.ALGORITHMS, config.get("algorithm"))
        by_setup.setdefault(f"{config.get('clients', '?')} owners{split}", []).append(name)
    if len(by_setup) < 2:
        return "".join(by_setup)
    return "; ".join(f"{text.listed(dict.fromkeys(names))}: {setup}" for setup, names in by_setup.items())


def pictures(*sections: dict[str, Any] | None) -> list[Picture]:
    """All pictures of some sections."""
    return [picture for section in sections if section for picture in section["pictures"]]


def _merged(groups: Sequence[dict[str, Any]]) -> list[str]:
    """The reasons for missing bounds, one sentence for all the policies that share it."""
    by_reason: dict[str, list[str]] = {}
    for group in groups:
        for row in group["rows"]:
            if row["reason"]:
                by_reason.setdefault(f"{row['unit']}: {row['reason']}", []).extend(group["labels"])
    return [f"Under {text.listed(labels)}, {reason}." for reason, labels in by_reason.items()]


def _headline(groups: Sequence[dict[str, Any]]) -> str:
    """The strongest honest thing to say about the strictest reader of each claim."""
    claims = [p for group in groups for p in group["promises"]]
    readers = text.listed(dict.fromkeys(p["against"] for p in claims)) or "anybody"
    if claims and all(p["bounded"] for p in claims):
        return f"Bounded against {readers}"
    if any(p["bounded"] for p in claims):
        return f"Bounded against {readers}, for some units"
    return f"No bound against {readers}"


def _flat(tree: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{above}{key}.")
        else:
            rows.append((f"{above}{key}", value if isinstance(value, str) else json.dumps(value)))
    return rows


def mean(values: Sequence[Any]) -> float | None:
    """The mean of what is a finite number; None where nothing is."""
    numbers = [v for v in map(text.real, values) if v is not None]
    return fmean(numbers) if numbers else None


def at(tree: dict[str, Any], *keys: str) -> Any:
    """A value deep in a result; None where a key on the way is missing."""
    value: Any = tree
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
