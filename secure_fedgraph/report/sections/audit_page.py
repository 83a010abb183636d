"""What the page of an audit says: the verdict, what leaks where, true against reconstructed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.experiment.schema.audit import AuditedRun, Conformance, Empirical, NotRun, Reconstruction
from secure_fedgraph.experiment.schema.part import JsonTable
from secure_fedgraph.experiment.schema.run import DataFacts
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.reconstructions import Panel, Words, stolen
from secure_fedgraph.report.first_screens.audit import audit_opening, names_of
from secure_fedgraph.report.first_screens.readers import ReadUnder, read_under
from secure_fedgraph.report.first_screens.reconstructions import Names, panel_of
from secure_fedgraph.report.grouping import AS_CONFIGURED, code_of, subject_of
from secure_fedgraph.report.guess_kinds import NODES, SIZES
from secure_fedgraph.report.outcomes import leak_table
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.parts import Section, Story
from secure_fedgraph.report.sections.trained import Trained

# True against reconstructed, attack by attack: what an attack wrote down, drawn over what was there.

MOST_TARGETS = 3  # drawn; the numbers of all stand in audit.json


def reconstructed(
    guesses: Sequence[Reconstruction], policies: Sequence[str], names: Names | None = None
) -> list[Section]:
    """A section for each attack whose guesses can be drawn; the first seed is shown.

    Each policy, adversary and aim has a picture, as configured, or of the first control where that shows
    nothing. Policies under which the attack wrote down the same, as far as a picture shows it, share one.
    """
    sections = []
    for attack in dict.fromkeys(guess.attack for guess in guesses):
        mine = [guess for guess in guesses if guess.attack == attack and guess.targets]
        mine = [guess for guess in mine if guess.seed == mine[0].seed]
        mine.sort(key=lambda guess: policies.index(guess.policy) if guess.policy in policies else 99)
        if drawn := _drawn(mine, names or Names()):
            sections.append(Section(code_of(mine[0]), subject_of(mine[0]), mine[0].seed, drawn))
    return sections


def _drawn(guesses: Sequence[Reconstruction], names: Names) -> list[Drawn]:
    shown: dict[tuple[str, ...], tuple[Reconstruction, list[Panel]]] = {}
    for guess in sorted(guesses, key=lambda guess: guess.variant != AS_CONFIGURED):
        if panels := _panels(guess, names):
            shown.setdefault((guess.policy, guess.adversary, guess.aim), (guess, panels))
    alike: dict[str, tuple[Reconstruction, list[Panel], list[str]]] = {}
    for guess, panels in shown.values():
        rows = [(panel.said(), panel.rows()) for panel in panels]
        same = repr((guess.adversary, guess.aim, guess.variant, rows))
        alike.setdefault(same, (guess, panels, []))[2].append(guess.policy)
    return [_picture(*one) for one in alike.values()]


def _picture(guess: Reconstruction, panels: Sequence[Panel], policies: Sequence[str]) -> Drawn:
    who = text.named(text.ADVERSARIES, guess.adversary)
    left = "" if guess.aim == SINGLE_OWNERS else ", from what the defence leaves"
    control = "" if guess.variant == AS_CONFIGURED else f" ({guess.variant})"
    stopped = f"; {guess.stopped}" if guess.stopped else ""
    caption = f"{text.listed(policies)}: what {who} wrote down{left}{control}{stopped}"
    aim = "each" if guess.aim == SINGLE_OWNERS else "union"
    parts = [code_of(guess).lower(), policies[0], guess.adversary, aim]
    name = "-".join(re.sub(r"\W+", "-", part, flags=re.ASCII).strip("-") or "x" for part in parts)
    table = Table(["what", "true", "read"], [row for panel in panels for row in panel.rows()])
    return Drawn(stolen(name, caption, panels, who), caption, table)


def _panels(record: Reconstruction, names: Names) -> list[Panel]:
    """The drawings of a few targets; of nodes only those that were recovered in every word."""
    parts = [record]
    if record.kind not in SIZES:  # which are of all owners together
        parts = [record.model_copy(update={"targets": [one]}) for one in record.targets[:MOST_TARGETS]]
    panels = [panel for part in parts if (panel := panel_of(part, names)) is not None]
    if record.kind not in NODES:
        return panels
    words = [one for one in panels if isinstance(one, Words)]
    return [one for one in words if one.read is not None and np.array_equal(one.true, one.read)]


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
