"""What a page says about runs side by side: traffic, guarantees, who saw what, on which data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.part import Delta, Epsilon, JsonTable
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
class Source:
    """Which data, where they came from, and their content hash."""

    name: str
    source: str = ""
    digest: str = ""
    nodes: int | None = None
    features: int | None = None
    classes: int | None = None


@dataclass(frozen=True)
class Sent:
    """What one channel carried, or one carrier, which is not told by direction; means over the seeds."""

    name: str
    carrier: bool
    messages: float | None
    up: float | None = None
    down: float | None = None
    both: float | None = None

    def told(self, most: float) -> dict[str, object]:
        """For a template; widths are percentages of the most that a policy sent."""
        sizes = {"up": self.up, "down": self.down, "both": self.both}
        widths = {f"{key}_width": round(100 * (size or 0) / most, 2) for key, size in sizes.items()}
        return {"name": self.name, "carrier": self.carrier, "messages": self.messages, **sizes, **widths}


@dataclass(frozen=True)
class Traffic:
    """What the runs under one policy sent, means over the seeds."""

    label: str
    rows: list[Sent]
    up: float | None
    down: float | None

    @property
    def total(self) -> float:
        return (self.up or 0) + (self.down or 0)

    def told(self, most: float, first: float) -> dict[str, object]:
        """For a template; ``first`` is the total of the policy that the others are compared with."""
        return {
            "label": self.label,
            "rows": [row.told(most) for row in self.rows],
            "up": self.up,
            "down": self.down,
            "ratio": self.total / first if first else None,
        }


@dataclass(frozen=True)
class Bound:
    """The epsilon of one unit against each reader, and how it was reckoned."""

    unit: str
    readers: list[Epsilon | None]
    delta: Delta
    relation: str
    meaning: str
    accountant: str
    computational: bool
    reason: str


@dataclass(frozen=True)
class Guarantees:
    """Policies that guarantee the same."""

    labels: list[str]
    rows: list[Bound]
    promises: list[text.Promise]

    @property
    def label(self) -> str:
        return text.listed(self.labels)


def traffic(runs: Sequence[Trained]) -> dict[str, object]:
    """Bytes and messages by policy and channel, carriers included; totals as ratios to the first policy's."""
    groups = [_traffic(run) for run in runs]
    most = max((group.total for group in groups), default=0) or 1
    first = groups[0].total if groups else 0
    return {
        "groups": [group.told(most, first) for group in groups],
        "first": groups[0].label if groups else "",
    }


def _traffic(run: Trained) -> Traffic:
    rows = []
    for name in (channel.name for channel in run.results[0].channels):
        same = [c for r in run.results for c in r.channels if c.name == name]
        up, down = mean(c.bytes_up for c in same), mean(c.bytes_down for c in same)
        rows.append(Sent(name, False, mean(c.messages for c in same), up, down))
    for name in (carrier.name for carrier in run.results[0].carriers):
        keys = [c for r in run.results for c in r.carriers if c.name == name]
        rows.append(Sent(name, True, mean(c.messages for c in keys), both=mean(c.bytes for c in keys)))
    up, down = mean(r.bytes.up for r in run.results), mean(r.bytes.down for r in run.results)
    return Traffic(run.label, rows, up, down)


def privacy(runs: Sequence[Trained]) -> dict[str, object]:
    """Epsilon by policy, unit and reader, with delta, relation, accountant and what is not covered."""
    groups: list[Guarantees] = []
    for run in runs:
        claims = run.results[0].privacy
        rows = [_bound(unit, claim) for unit, claim in claims.items()]
        promises = text.guarantee(claims)
        same = next((g for g in groups if g.rows == rows and g.promises == promises), None)
        if same:
            same.labels.append(run.label)
        else:
            groups.append(Guarantees([run.label], rows, promises))
    return {
        "groups": groups,
        "uncovered": _merged(groups),
        "relations": sorted({f"{r.relation}: {r.meaning}" for g in groups for r in g.rows if r.meaning}),
        "headline": _headline(groups),
        "larger_units": _larger_units(runs),
        "readers": [text.READERS[r] for r in Reader],
        "note": text.sentence(runs[0].results[0].evaluation.note if runs else ""),
        "several_seeds": any(len(run.results) > 1 for run in runs),
    }


def _larger_units(runs: Sequence[Trained]) -> list[str]:
    """Why other units' epsilons are larger than that of the unit that the noise is for."""
    told: dict[str, list[str]] = {}
    for run in runs:
        for why in larger_units(run.results[0]):
            told.setdefault(why, []).append(run.label)
    return [f"Under {text.listed(labels)}: {why}" for why, labels in told.items()]


def _bound(unit: Unit, claim: Claim) -> Bound:
    return Bound(
        unit=text.named(text.UNITS, unit),
        readers=[claim.readers.get(reader) for reader in Reader],
        delta=claim.delta,
        relation=claim.relation,
        meaning=text.RELATIONS.get(claim.relation, ""),
        accountant=claim.accountant,
        computational=claim.computational,
        reason=claim.reason,
    )


def seen(runs: Sequence[Trained]) -> list[dict[str, object]]:
    """Who saw what: by policy and channel what it is meant to reveal, what is sent, what shows beyond."""
    return [
        {
            "label": run.label,
            "rows": [
                {
                    "name": c.name,
                    "to": c.to,
                    "reveal": text.named(text.REVEALS, c.reveal),
                    "domain": c.domain,
                    "wire": text.named(text.DOMAINS, c.domain),
                    "excess": [text.sentence(e) for e in c.excess],
                    "epsilon": c.epsilon,
                    "about": text.named(text.UNITS, c.epsilon_unit or c.unit),
                }
                for c in run.results[0].channels
            ],
        }
        for run in runs
    ]


def partition(runs: Sequence[Trained]) -> list[dict[str, object]]:
    """The statistics of the FedSage paper's Table 1, one row for each seed."""
    rows: list[dict[str, object]] = []
    for run in runs:
        for result in run.results:
            row = _split(result)
            if result.data.partition.model_fields_set and row not in rows:
                rows.append(row)
    return rows


def _split(result: RunResult) -> dict[str, object]:
    split = result.data.partition
    return {
        "seed": result.seed,
        "data": source(result.data).name,
        "name": split.name,
        "owners": split.owners or len(split.sizes) or None,
        "nodes": split.nodes,
        "links": split.links,
        "missing": split.missing_links,
        "sizes": split.sizes,
        "spread": text.spread(split.sizes),
        "of": "nodes" if split.graphs is None else "graphs",
        "many": len(split.sizes) > text.MOST_SIZES,
    }


def facts(config: JsonTable, versions: Mapping[str, str]) -> dict[str, object]:
    """The whole configuration and the versions, for the page's end."""
    return {
        "config": _flat(config),
        "versions": list(versions.items()),
        "own_version": versions.get("secure-fedgraph", ""),
        "json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def source(data: DataFacts) -> Source:
    """Where the data came from, and its content hash."""
    name = data_name(data.data)
    return Source(name, data.source, data.digest, data.nodes, data.features, data.classes)


def data_name(name: object) -> str:
    """A data set's readable name; empty where none is told."""
    return text.named(text.DATA, name) if name else ""


def owners(configs: Sequence[JsonTable]) -> str:
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


def _merged(groups: Sequence[Guarantees]) -> list[str]:
    """The reasons for missing bounds, one sentence for all the policies that share it."""
    by_reason: dict[str, list[str]] = {}
    for group in groups:
        for row in group.rows:
            if row.reason:
                by_reason.setdefault(f"{row.unit}: {row.reason}", []).extend(group.labels)
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


def _flat(tree: JsonTable, above: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{above}{key}.")
        else:
            rows.append((f"{above}{key}", value if isinstance(value, str) else json.dumps(value)))
    return rows


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is there; None where nothing is."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None
