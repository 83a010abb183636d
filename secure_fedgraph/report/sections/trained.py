"""What a page says about runs side by side: traffic, guarantees, who saw what, on which data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.part import JsonTable
from secure_fedgraph.experiment.schema.run import Claim, DataFacts, RoundReport
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.run import larger_units


@dataclass(frozen=True)
class Trained:
    """Runs that differ in nothing but the seed.

    Args:
        label: the name in tables and legends.
        results: one for each seed.
        histories: the rounds of each seed, as far as they are known.
    """

    label: str
    results: list[RunResult]
    histories: list[list[RoundReport]]


@dataclass(frozen=True)
class Guarantees:
    """Policies that guarantee the same."""

    labels: list[str]
    claims: Mapping[Unit, Claim]
    promises: list[text.Promise]


def traffic(runs: Sequence[Trained]) -> dict[str, object]:
    """Bytes and messages by policy and channel, carriers included: means over the seeds.

    Returns:
        ``groups`` of ``label``, ``rows``, ``up``, ``down`` and ``total``; and the ``most`` that one sent.
    """
    groups = [_traffic(run) for run in runs]
    return {"groups": groups, "most": max((group["total"] for group in groups), default=0) or 1}


def _traffic(run: Trained) -> dict[str, Any]:
    rows: list[dict[str, object]] = []
    for key, sizes in (("channels", ("bytes_up", "bytes_down")), ("carriers", ("bytes",))):
        for name in (one.name for one in getattr(run.results[0], key)):
            same = [one for result in run.results for one in getattr(result, key) if one.name == name]
            means = {size: text.mean(getattr(one, size) for one in same) for size in (*sizes, "messages")}
            rows.append({"name": name, "carrier": key == "carriers", **means})
    up, down = text.mean(r.bytes.up for r in run.results), text.mean(r.bytes.down for r in run.results)
    return {"label": run.label, "rows": rows, "up": up, "down": down, "total": (up or 0) + (down or 0)}


def privacy(runs: Sequence[Trained]) -> dict[str, object]:
    """Epsilon by policy, unit and reader, with delta, relation, accountant and what is not covered."""
    groups: list[Guarantees] = []
    for run in runs:
        claims = run.results[0].privacy
        same = next((group for group in groups if group.claims == claims), None)
        if same:
            same.labels.append(run.label)
        else:
            groups.append(Guarantees([run.label], claims, text.guarantee(claims)))
    relations = {claim.relation for group in groups for claim in group.claims.values()}
    return {
        "groups": groups,
        "uncovered": _merged(groups),
        "relations": sorted(f"{one}: {text.RELATIONS[one]}" for one in relations if one in text.RELATIONS),
        "headline": _headline(groups),
        "larger_units": _larger_units(runs),
        "readers": {reader: text.READERS[reader] for reader in Reader},
        "note": text.sentence(runs[0].results[0].evaluation.note if runs else ""),
        "several_seeds": any(len(run.results) > 1 for run in runs),
    }


def _larger_units(runs: Sequence[Trained]) -> list[str]:
    """Why other units' epsilons are larger than that of the unit that the noise is for."""
    told = text.grouped((why, run.label) for run in runs for why in larger_units(run.results[0]))
    return [f"Under {text.listed(labels)}: {why}" for why, labels in told.items()]


def partition(runs: Sequence[Trained]) -> list[tuple[int | list[int] | None, DataFacts]]:
    """Seed and data, one row for each seed: for the statistics of the FedSage paper's Table 1."""
    rows = [(one.seed, one.data) for run in runs for one in run.results]
    told = [row for row in rows if row[1].partition.model_fields_set]
    return [row for at, row in enumerate(told) if row not in told[:at]]


def facts(config: JsonTable, versions: Mapping[str, str]) -> dict[str, object]:
    """The whole configuration and the versions, for the page's end."""
    return {
        "versions": list(versions.items()),
        "own_version": versions.get("secure-fedgraph", ""),
        "json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def data_name(name: object) -> str:
    """A data set's readable name; empty where none is told."""
    return text.named(text.DATA, name) if name else ""


def owners(configs: Sequence[JsonTable]) -> str:
    """How many owners and how the data was split, for each algorithm where that differs.

    >>> owners([{"clients": 3, "partition": "louvain"}])
    '3 owners, split by louvain'
    """
    by_setup = text.grouped(
        (
            f"{config.get('clients', '?')} owners"
            + (f", split by {config['partition']}" if config.get("partition") else ""),
            text.named(text.ALGORITHMS, config.get("algorithm")),
        )
        for config in configs
    )
    if len(by_setup) < 2:
        return "".join(by_setup)
    return "; ".join(f"{text.listed(names)}: {setup}" for setup, names in by_setup.items())


def _merged(groups: Sequence[Guarantees]) -> list[str]:
    """The reasons for missing bounds, one sentence for all the policies that share it."""
    by_reason = text.grouped(
        (f"{text.named(text.UNITS, unit)}: {claim.reason}", label)
        for group in groups
        for unit, claim in group.claims.items()
        for label in group.labels
        if claim.reason
    )
    return [f"Under {text.listed(labels)}, {reason}." for reason, labels in by_reason.items()]


def _headline(groups: Sequence[Guarantees]) -> str:
    """The strongest honest thing to say about the strictest reader of each claim."""
    claims = [promise for group in groups for promise in group.promises]
    readers = text.listed(dict.fromkeys(promise.against for promise in claims)) or "anybody"
    if claims and all(promise.bounded for promise in claims):
        return f"Bounded against {readers}"
    if any(promise.bounded for promise in claims):
        return f"Bounded against {readers}, for some units"
    return f"No bound against {readers}"
