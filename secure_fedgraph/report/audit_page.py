"""What the page of an audit says: the verdict, the outcome table, true against reconstructed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from secure_fedgraph.report import learning, trained, words
from secure_fedgraph.report.outcomes import AS_CONFIGURED, outcome_table, verdicts
from secure_fedgraph.report.reach import reach
from secure_fedgraph.report.reconstructed import reconstructed
from secure_fedgraph.report.trained import Trained

NOUNS = {"server": "server", "client": "owner"}


def audit_story(audit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Everything that ``audit.html`` prints, from a ``secure-fedgraph/audit/1`` object."""
    config, cells = audit.get("config") or {}, audit.get("cells") or []
    policies = list(dict.fromkeys([*(audit.get("policies") or []), *(c.get("policy") for c in cells)]))
    runs = _as_configured(audit.get("runs") or [], policies)
    by_round = learning.accuracy(runs)
    data = trained.source(runs[0].results[0].get("data") or {} if runs else {"data": config.get("data")})
    algorithm = words.named(words.ALGORITHMS, config.get("algorithm"))
    compared = [*_reach(cells, policies), *reconstructed(audit.get("reconstructions") or [], policies)]
    adversaries: dict[str, dict[str, None]] = {}
    for c in cells:
        who = str(c.get("adversary", "server"))
        adversaries.setdefault(str(c.get("behaviour", "")), {})[NOUNS.get(who, who)] = None
    told = words.listed(
        (f"{how} {words.listed(who, 'or')}".strip() for how, who in adversaries.items()), "or"
    )
    return {
        "kind": "audit",
        "title": f"{algorithm} on {data['name']}: what leaks",
        "adversaries": told,
        "article": "an" if told[:1] in "aeio" or told.startswith("hon") else "a",
        "command": audit.get("command", ""),
        "config": config,
        "source": data,
        "seed": audit.get("seed"),
        "seconds": audit.get("seconds"),
        "rounds": runs[0].results[0].get("config", {}).get("rounds") if runs else config.get("rounds"),
        "verdicts": verdicts(cells, policies),
        "outcomes": outcome_table(cells, policies),
        "compared": compared,
        "accuracy": by_round,
        "time_head": "time",
        "finals": learning.finals(runs),
        "traffic": trained.traffic(runs),
        "privacy": trained.privacy(runs),
        "seen": trained.seen(runs),
        "partition": trained.partition(runs),
        "facts": trained.facts(_settled(runs, config, audit), audit.get("versions") or {}),
        "pictures": trained.pictures(by_round, *compared),
    }


def _reach(cells: list[dict[str, Any]], policies: list[str]) -> list[dict[str, Any]]:
    """The curves, with a word where a point is a lower bound because its search was stopped."""
    sections = reach(cells, policies)
    if any((c.get("details") or {}).get("searches_stopped") for c in cells):
        for section in sections:
            section["captions"] = [
                f"{c}; a lower bound where a search was stopped" for c in section["captions"]
            ]
    return sections


def _settled(runs: list[Trained], config: dict[str, Any], audit: dict[str, Any]) -> dict[str, Any]:
    """The configuration with its defaults, and what was asked of the audit beside it."""
    whole = (runs[0].results[0].get("config") or config) if runs else config
    asked = {key: audit[key] for key in ("controls", "effort") if audit.get(key) is not None}
    return {**whole, **({"audit": asked} if asked else {})}


def _as_configured(runs: Iterable[dict[str, Any]], policies: list[str]) -> list[Trained]:
    """The runs of each policy, the attacks' positive controls left out."""
    grouped: dict[str, list[dict[str, Any]]] = {policy: [] for policy in policies}
    for run in runs:
        if run.get("variant", AS_CONFIGURED) == AS_CONFIGURED and run.get("result"):
            grouped.setdefault(str(run.get("policy")), []).append(run["result"])
    return [
        Trained(policy, results, [r.get("rounds") or [] for r in results])
        for policy, results in grouped.items()
        if results
    ]
