"""What a page says of conformance, and of what was not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from secure_fedgraph.report import text

ORDER = ("failed", "leak", "passed", "nothing to check")
SHOWN = {"failed": "fails", "leak": "leak", "passed": "passed", "nothing to check": "–"}


def conformance_section(rows: Sequence[dict[str, Any]], several: bool) -> dict[str, Any] | None:
    """Runs down by algorithm and policy, checks across; the worst of the seeds and settings of each.

    Returns:
        ``checks`` with what each says, ``rows`` with ``places``, ``findings`` and a sentence; None where
        nothing was checked.
    """
    if not rows:
        return None

    def column(row: dict[str, Any]) -> str:
        policy = str(row.get("policy"))
        return f"{text.named(text.ALGORITHMS, row.get('algorithm'))}, {policy}" if several else policy

    heads = list(dict.fromkeys(map(column, rows)))
    checks = dict.fromkeys((str(r["check"]), str(r.get("says", ""))) for r in rows)
    table, findings = [], []
    for head in heads:
        places = []
        for check, _ in checks:
            mine = [r for r in rows if column(r) == head and r["check"] == check]
            worst = min((str(r["outcome"]) for r in mine), key=ORDER.index, default="nothing to check")
            places.append({"state": worst.split(" ")[0], "text": SHOWN.get(worst, worst)})
            problems = list(dict.fromkeys(f for r in mine for f in r.get("findings") or []))
            unchecked = list(dict.fromkeys(str(r["reason"]) for r in mine if r.get("reason")))
            if unchecked:
                where = f"{head}: {check} was not checked"
                findings.append({"where": where, "leak": False, "lines": unchecked})
            if problems:
                findings.append({"where": f"{head}: {check}", "leak": worst == "leak", "lines": problems})
        table.append({"label": head, "places": places})
    failed = sum(r["outcome"] == "failed" for r in rows)
    leaks = sum(r["outcome"] == "leak" for r in rows)
    runs = len({(r.get("algorithm"), r.get("policy"), r.get("seed"), r.get("variant")) for r in rows})
    sentence = f"{len(checks)} checks of {runs} run{'s' * (runs > 1)}: "
    sentence += "none fails" if not failed else f"{failed} fail"
    if leaks:
        sentence += (
            f"; {leaks} time{'s' * (leaks > 1)} a client's data stood in a message that nothing protects"
        )
    return {
        "checks": list(checks),
        "rows": table,
        "findings": findings,
        "sentence": sentence + ".",
        "failed": failed,
    }


def left_out(rows: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """What was not run, one row for what shares a setting and a reason."""
    by_place: dict[tuple[str, ...], dict[str, dict[str, None]]] = {}
    for row in rows:
        place = tuple(str(row.get(key, "")) for key in ("algorithm", "variant", "seed", "reason"))
        cells = by_place.setdefault(place, {"policies": {}, "codes": {}})
        cells["policies"][str(row.get("policy", ""))] = None
        cells["codes"][str(row.get("attack", "")).split("-")[0].upper()] = None
    return [
        [
            text.named(text.ALGORITHMS, algorithm),
            ", ".join(cells["policies"]),
            variant,
            seed,
            ", ".join(cells["codes"]),
            reason,
        ]
        for (algorithm, variant, seed, reason), cells in by_place.items()
    ]
