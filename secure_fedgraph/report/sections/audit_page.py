"""What the page of an audit says: the verdict, what leaks where, true against reconstructed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.experiment.schema.audit import AuditedRun, Conformance, Empirical, NotRun
from secure_fedgraph.experiment.schema.part import JsonTable
from secure_fedgraph.experiment.schema.run import DataFacts
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.audit import audit_opening, names_of
from secure_fedgraph.report.first_screens.readers import ReadUnder, read_under
from secure_fedgraph.report.grouping import AS_CONFIGURED, code_of
from secure_fedgraph.report.outcomes import leak_table
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.parts import Section, Story
from secure_fedgraph.report.sections.reconstructed import reconstructed
from secure_fedgraph.report.sections.trained import Trained

# The measured epsilons on a page: claim, lower bound, power, and what the audit cannot see.

MEASURES = ("broken", "not audited", "too few trials", "holds")


def empirical(rows: Sequence[Empirical], several: bool) -> dict[str, object] | None:
    """A row for each noise of each policy, of several seeds the one whose bound is nearest its claim.

    Returns:
        ``rows``, ``unseen`` (by kind of noise what its audit is blind to), ``reasons``, ``sentence``,
        ``broken``; None where no noise was charged.
    """
    if not rows:
        return None
    grouped: dict[tuple[str, ...], list[Empirical]] = {}
    for row in rows:
        place = (row.algorithm, row.policy, row.noise, row.of, row.reader)
        grouped.setdefault(place, []).append(row)
    worst = [min(mine, key=_place) for mine in grouped.values()]
    broken = sum(row.outcome == "broken" for row in worst)
    held = sum(row.outcome == "holds" for row in worst)
    sentence = f"{len(worst)} noise{'s' * (len(worst) > 1)} under audit: "
    sentence += f"{broken} claim{'s' * (broken > 1)} refuted" if broken else "no claim is refuted"
    if held + broken < len(worst):
        sentence += f"; {len(worst) - held - broken} could not be judged"
    return {
        "rows": [(_label(row, several), row) for row in worst],
        "unseen": list(dict.fromkeys((_kind(row), row.confidence, row.unseen) for row in worst)),
        "reasons": list(dict.fromkeys(row.reason for row in worst if row.reason)),
        "sentence": sentence + ".",
        "broken": broken,
    }


def _place(row: Empirical) -> tuple[int, float]:
    slack = 0.0 if row.claim is None or row.lower is None else row.claim - row.lower
    return MEASURES.index(row.outcome), slack


def _label(row: Empirical, several: bool) -> str:
    return f"{text.named(text.ALGORITHMS, row.algorithm)}, {row.policy}" if several else row.policy


def _kind(row: Empirical) -> str:
    """A noise without the channel's name."""
    return "an upload" if row.of == "one upload" else row.noise


# What a page says of conformance, and of what was not run.

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


def audit_story(audit: AuditResult) -> Story:
    """Everything that ``audit.html`` prints."""
    config, cells, not_run = audit.config, audit.cells, audit.not_run
    policies = list(dict.fromkeys([*audit.policies, *(c.policy for c in cells)]))
    algorithms = list(dict.fromkeys([*(c.algorithm for c in cells), *(c.algorithm for c in not_run)]))
    several = len(algorithms) > 1
    runs = _as_configured(audit.runs, policies, several)
    by_round = learning.accuracy(runs)
    if several and by_round:  # curves of several on one plot tell nothing
        by_round = replace(by_round, pictures=[])
    compared = [one for name in algorithms or [""] for one in _compared(audit, name, policies, several)]
    subjects = text.listed(text.named(text.ALGORITHMS, name) for name in algorithms)
    subject = subjects or text.named(text.ALGORITHMS, config.get("algorithm"))
    where = text.listed(dict.fromkeys(trained.data_name(c.get("data")) for c in audit.configs))
    data = runs[0].results[0].data if runs else DataFacts(data=str(config.get("data") or ""))
    opening = audit_opening(audit, policies)
    told: dict[str, object] = {
        "kind": "audit",
        "title": f"{subject} on {where or trained.data_name(data.data)}: what leaks",
        "command": audit.command,
        "owned": trained.owners(audit.configs or [config]),
        "source": DataFacts(data=where) if several else data,
        "seed": audit.seed,
        "seconds": audit.seconds,
        "rounds": None if several else (runs[0].results[0].config if runs else config).get("rounds"),
        "several": several,
        "opening": opening,
        "broken": audit.broken,
        "estimate": audit.estimate.sentence if audit.estimate else "",
        "verdicts": [one for name in algorithms for one in _verdicts(audit, name, policies, several)],
        "leaks": leak_table(cells, not_run, policies),
        "conformance": conformance_section(audit.conformance, several),
        "empirical": empirical(audit.empirical, several),
        "left_out": left_out(not_run),
        "compared": compared,
        "accuracy": by_round,
        "time_head": "time",
        "finals": learning.finals(runs),
        "traffic": trained.traffic(runs),
        "privacy": trained.privacy(runs),
        "runs": runs,
        "partition": trained.partition(runs),
        "facts": trained.facts(_settled(runs, audit), audit.versions),
    }
    pictures = [hero.picture for hero in opening.heroes]
    pictures += by_round.pictures if by_round else []
    return Story(told, pictures + [drawn.picture for section in compared for drawn in section.drawn])


def _verdicts(audit: AuditResult, name: str, policies: list[str], several: bool) -> list[ReadUnder]:
    """What was read of one algorithm, policy by policy."""
    failed = {one.policy for one in audit.not_run if one.algorithm == name and one.failed}
    under = read_under([cell for cell in audit.cells if cell.algorithm == name], policies, failed)
    title = text.named(text.ALGORITHMS, name)
    return [replace(one, policy=f"{title}, {one.policy}") if several else one for one in under]


def _compared(audit: AuditResult, name: str, policies: list[str], several: bool) -> list[Section]:
    """True against reconstructed, of one algorithm."""
    if not several:
        return reconstructed(audit.reconstructions, policies, names_of(audit))
    title = text.named(text.ALGORITHMS, name)
    guesses = [
        guess.model_copy(update={"policy": f"{title}, {guess.policy}"})
        for guess in audit.reconstructions
        if guess.algorithm == name
    ]
    return reconstructed(guesses, [f"{title}, {policy}" for policy in policies], names_of(audit))


def _settled(runs: list[Trained], audit: AuditResult) -> JsonTable:
    """The configuration with its defaults, and what was asked of the audit beside it."""
    whole = (runs[0].results[0].config or audit.config) if runs else audit.config
    asked: JsonTable = {}
    if audit.controls is not None:
        asked["controls"] = [*audit.controls]
    if audit.effort is not None:
        asked["effort"] = audit.effort
    return {**whole, "audit": asked} if asked else whole


def _as_configured(runs: Sequence[AuditedRun], policies: list[str], several: bool) -> list[Trained]:
    """The runs of each policy, the attacks' positive controls left out."""
    grouped: dict[tuple[str, str], list[RunResult]] = {} if several else {("", p): [] for p in policies}
    for run in runs:
        if run.variant == AS_CONFIGURED:
            name = text.named(text.ALGORITHMS, run.algorithm) if several else ""
            grouped.setdefault((name, run.policy), []).append(run.result)
    return [
        Trained(f"{name}, {policy}" if name else policy, results, [result.rounds for result in results])
        for (name, policy), results in grouped.items()
        if results
    ]
