"""What a page says of conformance, and of what was not run."""

from __future__ import annotations

from collections.abc import Sequence

from secure_fedgraph.experiment.schema.audit import Conformance, NotRun
from secure_fedgraph.report import text
from secure_fedgraph.report.grouping import code_of

ORDER = ("failed", "leak", "passed", "nothing to check")
SHOWN = {"failed": "fails", "leak": "leak", "passed": "passed", "nothing to check": "–"}


def conformance_section(rows: Sequence[Conformance], several: bool) -> dict[str, object] | None:
    """Runs down by algorithm and policy, checks across; the worst of the seeds and settings of each.

    Returns:
        ``checks`` with what each says, ``rows`` with ``places``, ``findings`` and a sentence; None where
        nothing was checked.
    """
    if not rows:
        return None
    by_head: dict[str, list[Conformance]] = {}
    for row in rows:
        name = text.named(text.ALGORITHMS, row.algorithm)
        by_head.setdefault(f"{name}, {row.policy}" if several else row.policy, []).append(row)
    checks = list(dict.fromkeys((row.check, row.says) for row in rows))
    table: list[dict[str, object]] = []
    findings: list[dict[str, object]] = []
    for head, of_head in by_head.items():
        places = []
        for check, _ in checks:
            mine = [row for row in of_head if row.check == check]
            worst = min((row.outcome for row in mine), key=ORDER.index, default="nothing to check")
            places.append({"state": worst.split(" ")[0], "text": SHOWN.get(worst, worst)})
            findings += _findings(f"{head}: {check}", mine, worst == "leak")
        table.append({"label": head, "places": places})
    return {"checks": checks, "rows": table, "findings": findings, "sentence": _sentence(rows, len(checks))}


def _findings(where: str, rows: Sequence[Conformance], leak: bool) -> list[dict[str, object]]:
    """Why a check was not made, and what it found."""
    unchecked = list(dict.fromkeys(row.reason for row in rows if row.reason))
    problems = list(dict.fromkeys(finding for row in rows for finding in row.findings))
    found: list[dict[str, object]] = []
    if unchecked:
        found.append({"where": f"{where} was not checked", "leak": False, "lines": unchecked})
    if problems:
        found.append({"where": where, "leak": leak, "lines": problems})
    return found


def _sentence(rows: Sequence[Conformance], checks: int) -> str:
    failed = sum(row.outcome == "failed" for row in rows)
    leaks = sum(row.outcome == "leak" for row in rows)
    runs = len({(row.algorithm, row.policy, row.seed, row.variant) for row in rows})
    sentence = f"{checks} checks of {runs} run{'s' * (runs > 1)}: "
    sentence += "none fails" if not failed else f"{failed} fail"
    if leaks:
        sentence += (
            f"; {leaks} time{'s' * (leaks > 1)} a client's data stood in a message that nothing protects"
        )
    return sentence + "."


def left_out(rows: Sequence[NotRun]) -> list[list[str]]:
    """What was not run, one row for what shares a setting and a reason."""
    groups: dict[tuple[str, str, str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for row in rows:
        shared = (text.named(text.ALGORITHMS, row.algorithm), row.variant, str(row.seed), row.reason)
        policies, codes = groups.setdefault(shared, ({}, {}))
        policies[row.policy] = codes[code_of(row)] = None
    return [
        [algorithm, ", ".join(policies), variant, seed, ", ".join(codes), reason]
        for (algorithm, variant, seed, reason), (policies, codes) in groups.items()
    ]
