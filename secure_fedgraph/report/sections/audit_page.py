"""What the page of an audit says: the verdict, the outcome table, true against reconstructed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from secure_fedgraph.report import text
from secure_fedgraph.report.figures.heat import heat_map
from secure_fedgraph.report.grouping import AS_CONFIGURED
from secure_fedgraph.report.outcomes import outcome_table, verdicts
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.conformance import conformance_section, left_out
from secure_fedgraph.report.sections.empirical import empirical
from secure_fedgraph.report.sections.leak_curves import leak_curves
from secure_fedgraph.report.sections.ledger import ledger
from secure_fedgraph.report.sections.reconstructed import reconstructed
from secure_fedgraph.report.sections.trained import Trained

NOUNS = {"client": "owner", "last client": "owner", "coalition": "coalition of owners"}
SUMMARY = {
    "leaks": "Leaks about single owners under {}.",
    "together": "Hides single owners, not their union, under {}.",
    "scored": "Nothing was read for certain, with too few terms or too little time to tell, under {}.",
    "nothing": "Nothing was read under {}.",
    "refused": "Refused before round 1 under {}.",
    "absent": "Not run under {}.",
}


def audit_story(audit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Everything that ``audit.html`` prints, from a ``secure-fedgraph/audit/1`` object."""
    config, cells = audit.get("config") or {}, audit.get("cells") or []
    not_run = audit.get("not_run") or []
    policies = list(dict.fromkeys([*(audit.get("policies") or []), *(c.get("policy") for c in cells)]))
    algorithms = list(dict.fromkeys(str(c.get("algorithm", "")) for c in (*cells, *not_run)))
    several = len(algorithms) > 1
    runs = _as_configured(audit.get("runs") or [], policies, several)
    learnings = [part for part in _learnings(runs, several) if part]
    data = trained.source(runs[0].results[0].get("data") or {} if runs else {"data": config.get("data")})
    chapters = [_chapter(name, audit, policies, several) for name in algorithms or [""]]
    compared = [section for chapter in chapters for section in chapter["compared"]]
    adversaries: dict[str, dict[str, None]] = {}
    for c in cells:
        who = str(c.get("adversary", "server"))
        adversaries.setdefault(str(c.get("behaviour", "")), {})[NOUNS.get(who, who)] = None
    adversary = text.listed(
        (f"{how} {text.listed(who, 'or')}".strip() for how, who in adversaries.items()), "or"
    )
    subjects = text.listed(text.named(text.ALGORITHMS, name) for name in algorithms)
    where = text.listed(dict.fromkeys(trained.source(c)["name"] for c in audit.get("configs") or []))
    return {
        "kind": "audit",
        "title": f"{subjects or text.named(text.ALGORITHMS, config.get('algorithm'))} on "
        f"{where or data['name']}: what leaks",
        "adversaries": adversary,
        "article": "an" if adversary[:1] in "aeio" or adversary.startswith("hon") else "a",
        "command": audit.get("command", ""),
        "owned": trained.owners(audit.get("configs") or [config]),
        "source": {**trained.source({}), "name": where} if several else data,
        "seed": audit.get("seed"),
        "seconds": audit.get("seconds"),
        "rounds": None
        if several
        else runs[0].results[0].get("config", {}).get("rounds")
        if runs
        else config.get("rounds"),
        "several": several,
        "ceilings": any((text.real(c.get("ceiling")) or 1.0) < 1 for c in cells),
        "broken": audit.get("broken") or [],
        "estimate": (audit.get("estimate") or {}).get("sentence", ""),
        "heat": heat_map(cells, not_run, policies),
        "chapters": chapters,
        "conformance": conformance_section(audit.get("conformance") or [], several),
        "empirical": empirical(audit.get("empirical") or [], several),
        "left_out": left_out(not_run),
        "compared": compared,
        "accuracy": learnings[0] if learnings else None,
        "learnings": learnings,
        "time_head": "time",
        "finals": learning.finals(runs),
        "traffic": trained.traffic(runs),
        "privacy": trained.privacy(runs),
        "ledger": ledger(runs),
        "seen": trained.seen(runs),
        "partition": trained.partition(runs),
        "facts": trained.facts(_settled(runs, config, audit), audit.get("versions") or {}),
        "pictures": trained.pictures(*learnings, *compared),
    }


def _chapter(name: str, audit: dict[str, Any], policies: list[str], several: bool) -> dict[str, Any]:
    """One algorithm: the verdict on each policy, its outcomes, true against reconstructed."""
    cells = [c for c in audit.get("cells") or [] if str(c.get("algorithm", "")) == name]
    guesses = [r for r in audit.get("reconstructions") or [] if not several or r.get("algorithm") == name]
    title, labels = text.named(text.ALGORITHMS, name), policies
    if several:
        guesses = [{**r, "policy": f"{title}, {r.get('policy')}"} for r in guesses]
        labels = [f"{title}, {policy}" for policy in policies]
    lost = [c for c in audit.get("not_run") or [] if str(c.get("algorithm", "")) == name]
    verdict_rows = verdicts(cells, policies, {str(c.get("policy")) for c in lost if c.get("failed")})
    by_state: dict[str, list[str]] = {}
    for row in verdict_rows:
        by_state.setdefault(row["state"], []).append(row["policy"])
    left = (c.get("policy") for c in lost)
    unseen = [p for p in dict.fromkeys(left) if all(p != row["policy"] for row in verdict_rows)]
    by_state |= {"absent": [str(policy) for policy in unseen]} if unseen else {}
    states = ("leaks", "together", "scored", "nothing", "refused", "absent")
    return {
        "name": title,
        "verdicts": verdict_rows,
        "state": next((state for state in states if state in by_state), "absent"),
        "summary": [
            {"state": state, "text": SUMMARY[state].format(text.listed(by_state[state]))}
            for state in states
            if state in by_state
        ],
        "outcomes": outcome_table(cells, policies),
        "compared": [*_curves_with_limits(cells, policies), *reconstructed(guesses, labels)],
    }


def _learnings(runs: list[Trained], several: bool) -> list[dict[str, Any] | None]:
    """Accuracy over rounds, a part for each algorithm: curves of several on one plot tell nothing."""
    if not several:
        return [learning.accuracy(runs)]
    algorithms = list(dict.fromkeys(run.label.split(", ")[0] for run in runs))
    parts: list[dict[str, Any] | None] = []
    for number, name in enumerate(algorithms):
        mine = [run for run in runs if run.label.split(", ")[0] == name]
        short = [Trained(r.label.removeprefix(f"{name}, "), r.results, r.histories) for r in mine]
        part = learning.accuracy(short, f"-{number}")
        parts.append({**part, "heading": name} if part else None)
    return parts


def _curves_with_limits(cells: list[dict[str, Any]], policies: list[str]) -> list[dict[str, Any]]:
    """The curves, with a word where a point is a lower bound because its search was stopped."""
    sections = leak_curves(cells, policies)
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


def _as_configured(runs: Iterable[dict[str, Any]], policies: list[str], several: bool) -> list[Trained]:
    """The runs of each policy, the attacks' positive controls left out."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {} if several else {("", p): [] for p in policies}
    for run in runs:
        if run.get("variant", AS_CONFIGURED) == AS_CONFIGURED and run.get("result"):
            name = text.named(text.ALGORITHMS, run.get("algorithm")) if several else ""
            grouped.setdefault((name, str(run.get("policy"))), []).append(run["result"])
    return [
        Trained(f"{name}, {policy}" if name else policy, results, [r.get("rounds") or [] for r in results])
        for (name, policy), results in grouped.items()
        if results
    ]
