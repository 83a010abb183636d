"""What the page of a run says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from secure_fedgraph import files
from secure_fedgraph.errors import BadInput
from secure_fedgraph.report import text
from secure_fedgraph.report.measures import measure_of, others
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.ledger import ledger
from secure_fedgraph.report.sections.owners import each_owner
from secure_fedgraph.report.sections.trained import Trained


def run_story(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Everything that ``run.html`` prints, from a ``secure-fedgraph/run/1`` object.

    Args:
        folder: where the run lies: the rounds of every seed stand in its ``seed-N/result.json``.
    """
    config = result.get("config") or {}
    policy = str(config.get("policy", ""))
    seeds = result.get("seeds") or []
    shown = Trained(policy, [result], _histories(result, folder))
    each = Trained(policy, [{**result, **seed} for seed in seeds] or [result], [])
    score = result.get("accuracy") or {}
    by_round = learning.accuracy(
        [Trained(policy, each.results, shown.histories) if len(shown.histories) > 1 else shown]
    )
    algorithm = text.named(text.ALGORITHMS, config.get("algorithm"))
    data = trained.source(result.get("data") or {})
    return {
        "kind": "run",
        "title": f"{algorithm} on {data['name']} under {policy}",
        "command": result.get("command", ""),
        "owned": trained.owners([config]),
        "source": data,
        "seed": result.get("seed"),
        "seconds": result.get("seconds"),
        "federated": result.get("federated", True),
        "form": {"settings": result.get("form") or {}, "why": result.get("form_why", "")},
        "measure": measure_of(result),
        "score": score,
        "others": others(result),
        "std": score.get("std") or {},
        "seeds": [{"seed": s.get("seed"), "accuracy": s.get("accuracy") or {}} for s in seeds],
        "rounds": config.get("rounds"),
        "accuracy": by_round,
        "learnings": [by_round] if by_round else [],
        "time_head": "time, all seeds" if seeds else "time",
        "finals": learning.finals([shown]),
        "owners": each_owner(Trained(policy, each.results, shown.histories)),
        "only_seed": seeds[0].get("seed") if seeds and len(shown.histories) == 1 else None,
        "budget": _budget(result.get("budget"), result.get("plan") or []),
        "traffic": trained.traffic([shown]),
        "privacy": trained.privacy([shown]),
        "released": [one.split(":")[0] for one in result.get("released_exactly") or []],
        "ledger": ledger([shown]),
        "seen": trained.seen([shown]),
        "partition": trained.partition([each]),
        "facts": trained.facts(config, result.get("versions") or {}),
        "pictures": trained.pictures(by_round),
    }


def _budget(budget: dict[str, Any] | None, plan: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What was asked for, how it is split and what is left; None where the run had no budget."""
    if not budget:
        return None
    asked, spent = float(budget["epsilon"]), budget["spent"]
    left = None if spent == "inf" else max(asked - float(spent), 0.0)
    unit, against = text.named(text.UNITS, budget["unit"]), text.named(text.READERS, budget["against"])
    return {
        "asked": f"ε = {asked:g} at δ = {text.scientific(budget['delta'])} for {unit}, against {against}",
        "spent": f"{spent}" + ("" if left is None else f", {left:.4g} left"),
        "planned": bool(budget.get("planned")),
        "rows": [
            [
                row.get("channel", ""),
                text.named(text.UNITS, row.get("unit")),
                "–" if (noise := text.real(row.get("multiplier"))) is None else f"{noise:.4g}",
                row.get("uses", ""),
                text.epsilon(row.get("epsilon")),
            ]
            for row in plan
        ],
    }


def _histories(result: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """The rounds of every seed where each seed's own result lies beside; else those of the first."""
    histories = []
    for seed in result.get("seeds") or []:
        number = seed.get("seed")
        if type(number) is not int:
            raise BadInput(
                f"{folder / 'result.json'}: seeds names seed {str(number)[:40]!r}, which is no number: put a "
                "copy back"
            )
        path = folder / f"seed-{number}" / "result.json"
        try:
            histories.append(json.loads(files.read(path, root=folder))["rounds"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return [result.get("rounds") or []]
    return histories or [result.get("rounds") or []]
