"""``audit.json``: the cells, the runs behind them, and the verdict in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.conformance.rows import FAILED
from secure_fedgraph.audits.empirical_dp.empirical import BROKEN
from secure_fedgraph.audits.grid.cells import Audit
from secure_fedgraph.core.channel import Domain
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import versions
from secure_fedgraph.experiment.schema.score_verdict import (
    HARM,
    RESIDUAL,
    SINGLE_OWNERS,
    exact_of_too_few,
    is_lower_bound,
    whom,
)
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.report.grouping import at_least, exceeds

HIDDEN = {domain.value for domain in Domain if not domain.readable}


def audit_result(
    audit: Audit,
    experiment: Experiment,
    policies: list[str],
    seeds: list[int],
    seconds: float,
    command: str,
    more: Sequence[Experiment] = (),
) -> dict[str, Any]:
    """The ``secure-fedgraph/audit/1`` object.

    Args:
        more: the experiments of further algorithms.
    """
    result = {
        "schema": "secure-fedgraph/audit/1",
        "command": command,
        "config": experiment.model_dump(mode="json"),
        **({"configs": [one.model_dump(mode="json") for one in (experiment, *more)]} if more else {}),
        "policies": policies,
        "seed": seeds,
        "controls": None if audit.controls is None else list(audit.controls),
        "effort": audit.effort,
        "versions": versions(),
        "verdict": verdict(audit.cells, audit.not_run),
        "broken": broken(audit),
        "seconds": round(seconds, 3),
        "cells": audit.cells,
        "not_run": audit.not_run,
        "estimate": audit.estimate,
        "conformance": audit.conformance,
        "empirical": audit.empirical,
        "runs": audit.runs,
        "reconstructions": audit.reconstructions,
    }
    return result


def verdict(cells: list[dict[str, Any]], not_run: Sequence[dict[str, Any]] = ()) -> str:
    """One sentence a policy: what leaks about single owners, and what about all of them together.

    Args:
        not_run: cells that were left out; those that failed keep a policy from being called refused.
    """
    sentences = []
    failed = [cell for cell in not_run if cell["failed"]]
    several = len({cell.get("algorithm") for cell in (*cells, *failed)}) > 1
    lost = {(cell.get("algorithm"), cell["policy"]) for cell in failed}
    for algorithm, policy in dict.fromkeys((c.get("algorithm"), c["policy"]) for c in (*cells, *failed)):
        mine = [c for c in cells if (c.get("algorithm"), c["policy"]) == (algorithm, policy)]
        label = f"{algorithm} under policy {policy}" if several else policy
        if all(c["outcome"] == "refused" for c in mine):
            told = "no attack has a result" if (algorithm, policy) in lost else "refused before round 1"
            sentences.append(f"{label}: {told}.")
            continue
        lies = [c for c in mine if _about(c) == HARM]
        single = _leaking(mine, SINGLE_OWNERS)
        union = _leaking(mine, RESIDUAL)
        parts = _harm(lies)
        if single:
            parts.append(f"single owners are exposed to {', '.join(single)}")
        elif len(mine) > len(lies):
            parts.append("no attack that was tried reads a single owner")
        close = (c["attack"] for c in mine if _about(c) == SINGLE_OWNERS and _exact_of_too_few(c))
        unsure = [] if single else list(dict.fromkeys(close))
        if unsure:
            parts.append(f"exact about single owners, of too few to tell from a guess: {', '.join(unsure)}")
        if union:
            parts.append(f"all owners together are exposed to {', '.join(union)}")
        stopped = sum(is_lower_bound(c["score"], c.get("details", {}).get("searches_stopped")) for c in mine)
        if stopped:
            parts.append(f"where a search was stopped ({stopped} of {len(mine)} cells) this is a lower bound")
        sentences.append(f"{label}: {'; '.join(parts)}.")
    return " ".join(sentences)


def _harm(cells: list[dict[str, Any]]) -> list[str]:
    """The worst lie by each metric, of those that did harm."""
    scored = [c for c in cells if c["outcome"] == "score"]
    worst = {c["metric"]: c for c in sorted(scored, key=lambda c: c["score"]) if c["leaks"]}
    told = [
        f"{c['attack']}: {c['score']:.3f} {c['metric']}, "
        + (f"{c['baseline']:.3f} if nobody lies" if c["baseline"] else f"of {c['details']['honest']:.3f}")
        for c in worst.values()
    ]
    return told or ["no lie that was tried did harm"] * bool(scored)


def broken(audit: Audit) -> list[str]:
    """Claims that the audit saw fail, a sentence each.

    A server that read single owners where nothing that it got was readable; an attack that scored surely
    above what the claimed epsilon allows any attack; a check of conformance that a run failed; noise that
    shows a larger epsilon than was charged for it.
    """
    return [*_read_hidden(audit), *_above_ceiling(audit), *_not_as_declared(audit), *_refuted(audit)]


def _read_hidden(audit: Audit) -> list[str]:
    def place(row: dict[str, Any], seed: Any, variant: Any) -> tuple[Any, ...]:
        return row.get("algorithm"), row["policy"], variant, seed

    rows = {
        place(run, run["result"]["seed"], run["variant"]): [
            row for row in run["result"]["channels"] if row["domain"] in HIDDEN
        ]
        for run in audit.runs
    }

    def hidden(cell: dict[str, Any]) -> bool:
        """Whether nothing says that the server may read this: what sums give away may be declared."""
        kind, variant = ATTACKS.get(cell["attack"]), cell["settings"]["variant"]
        mine = [r for r in rows.get(place(cell, cell["seed"], variant), []) if r["name"] == cell["channel"]]
        declared = kind is not None and kind.reads_sums and any(r.get("excess") for r in mine)
        return bool(mine) and not declared

    return [
        f"{cell['attack']} read single owners from channel {cell['channel']!r} under policy "
        f"{cell['policy']}, where no upload should be readable by the server."
        for cell in audit.cells
        if _surely_leaks(cell) and cell["settings"]["aim"] == SINGLE_OWNERS
        if cell["adversary"] == SERVER and hidden(cell)
    ]


def _surely_leaks(cell: dict[str, Any]) -> bool:
    """A leak that chance makes once in ten thousand cells, where the metric has such a bound."""
    surely = cell.get("surely_at_least")
    return bool(cell["leaks"]) and (surely is None or surely > (cell.get("baseline") or 0.0))


def _exact_of_too_few(cell: dict[str, Any]) -> bool:
    return exact_of_too_few(cell.get("score"), bool(cell.get("leaks")), cell.get("baseline"))


def _least(cell: dict[str, Any]) -> float | None:
    return at_least(cell.get("low"), cell.get("surely_at_least"))


def _above_ceiling(audit: Audit) -> list[str]:
    return [
        f"{cell['attack']} by the {cell['adversary']} scored {cell['score']:.3f} "
        f"(surely at least {_least(cell):.3f}) under policy {cell['policy']}, and "
        f"epsilon = {cell['claim']['epsilon']:g} for one {cell['claim']['unit']} "
        f"allows any attack {cell['ceiling']:.3f}."
        for cell in audit.cells
        if exceeds(_least(cell), cell.get("ceiling"))
    ]


def _not_as_declared(audit: Audit) -> list[str]:
    rows: dict[tuple[str, str], list[str]] = {}
    for row in audit.conformance:
        if row["outcome"] == FAILED:
            rows.setdefault((row["policy"], row["check"]), row["findings"])
    return [
        f"A run under policy {policy} fails the check {check!r}: {findings[0]}."
        for (policy, check), findings in rows.items()
    ]


def _refuted(audit: Audit) -> list[str]:
    return [
        f"{row['noise']} under policy {row['policy']}: {row['of']} is charged epsilon {row['claim']:.3g} for "
        f"one {row['unit']} against the {row['reader']}, and {row['trials']} trials show at least "
        f"{row['lower']:.3g}."
        for row in audit.empirical
        if row["outcome"] == BROKEN
    ]


def _leaking(cells: list[dict[str, Any]], aim: str) -> list[str]:
    """The attacks that leak, with who ran them where that is not the server alone."""
    hits: dict[str, list[str]] = {}
    for cell in cells:
        if _about(cell) == aim and cell["leaks"]:
            who = hits.setdefault(cell["attack"], [])
            if cell["adversary"] not in who:
                who.append(cell["adversary"])
    return [name if who == ["server"] else f"{name} (by {' and '.join(who)})" for name, who in hits.items()]


def _about(cell: dict[str, Any]) -> str:
    return whom(cell["settings"]["aim"], cell.get("owners"))
