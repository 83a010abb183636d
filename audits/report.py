"""``audit.json``: the cells, the runs behind them, and the verdict in a sentence."""

from __future__ import annotations

from typing import Any

from audits.grid import EACH, LEFT, Audit
from secure_fedgraph.config import Experiment
from secure_fedgraph.protocol.channel import Domain
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.results import versions

HIDDEN = {domain.value for domain in Domain if not domain.readable}


def audit_result(
    found: Audit, experiment: Experiment, policies: list[str], seeds: list[int], seconds: float, command: str
) -> dict[str, Any]:
    """The ``secure-fedgraph/audit/1`` object."""
    return {
        "schema": "secure-fedgraph/audit/1",
        "command": command,
        "config": experiment.model_dump(mode="json"),
        "policies": policies,
        "seed": seeds,
        "controls": None if found.controls is None else list(found.controls),
        "effort": found.effort,
        "versions": versions(),
        "verdict": verdict(found.cells),
        "broken": broken(found),
        "seconds": round(seconds, 3),
        "cells": found.cells,
        "runs": found.runs,
        "reconstructions": found.reconstructions,
    }


def verdict(cells: list[dict[str, Any]]) -> str:
    """One sentence a policy: what leaks about single owners, and what about all of them together."""
    sentences = []
    for policy in dict.fromkeys(cell["policy"] for cell in cells):
        mine = [c for c in cells if c["policy"] == policy]
        if all(c["outcome"] == "refused" for c in mine):
            sentences.append(f"{policy}: refused before round 1.")
            continue
        single = _leaking(mine, EACH)
        union = _leaking(mine, LEFT)
        parts = [
            f"single owners are exposed to {', '.join(single)}"
            if single
            else "no attack that was tried reads a single owner"
        ]
        if union:
            parts.append(f"all owners together are exposed to {', '.join(union)}")
        stopped = sum(bool(c.get("details", {}).get("searches_stopped")) and c["score"] < 1 for c in mine)
        if stopped:
            parts.append(f"where a search was stopped ({stopped} of {len(mine)} cells) this is a lower bound")
        sentences.append(f"{policy}: {'; '.join(parts)}.")
    return " ".join(sentences)


def broken(found: Audit) -> list[str]:
    """Claims that the audit saw fail, a sentence each: a server that read single owners where nothing that
    it got was readable. Further claims (a budget's ceiling on every attack) come with budgets.
    """
    hidden = {
        (run["policy"], run["variant"], run["result"]["seed"]): {
            row["name"] for row in run["result"]["channels"] if row["domain"] in HIDDEN
        }
        for run in found.runs
    }
    return [
        f"{cell['attack']} read single owners from channel {cell['channel']!r} under {cell['policy']}, "
        "where no upload should be readable by the server."
        for cell in found.cells
        if cell["leaks"]
        and cell["settings"]["aim"] == EACH
        and cell["adversary"] == SERVER
        and cell["channel"] in hidden.get((cell["policy"], cell["settings"]["variant"], cell["seed"]), set())
    ]


def _leaking(cells: list[dict[str, Any]], aim: str) -> list[str]:
    """The attacks that leak, with who ran them where that is not the server alone."""
    hits: dict[str, list[str]] = {}
    for cell in cells:
        if cell["settings"]["aim"] == aim and cell["leaks"]:
            who = hits.setdefault(cell["attack"], [])
            if cell["adversary"] not in who:
                who.append(cell["adversary"])
    return [f"{name}{_by(who)}" for name, who in hits.items()]


def _by(who: list[str]) -> str:
    return "" if who == ["server"] else f" (by {' and '.join(who)})"
