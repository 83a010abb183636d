"""What the page of an audit says: the verdict, the outcome table, true against reconstructed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.experiment.schema.audit import AuditedRun, Cell
from secure_fedgraph.experiment.schema.part import JsonTable
from secure_fedgraph.experiment.schema.run import DataFacts
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.heat import heat_map
from secure_fedgraph.report.first_screens.audit import audit_opening, names_of
from secure_fedgraph.report.grouping import AS_CONFIGURED
from secure_fedgraph.report.outcomes import Verdict, outcome_table, verdicts
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.conformance import conformance_section, left_out
from secure_fedgraph.report.sections.empirical import empirical
from secure_fedgraph.report.sections.learning import Learning
from secure_fedgraph.report.sections.parts import Section, Story
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
"""What is said of the policies in one state, worst first."""


@dataclass(frozen=True)
class Chapter:
    """One algorithm.

    Args:
        name: in words.
        verdicts: on each policy.
        state: the worst of them.
        summary: a ``state`` and a ``text`` for each state that a policy is in.
        outcomes: the table of its cells.
        compared: true against reconstructed.
    """

    name: str
    verdicts: list[Verdict]
    state: str
    summary: list[dict[str, str]]
    outcomes: dict[str, object]
    compared: list[Section]


def audit_story(audit: AuditResult) -> Story:
    """Everything that ``audit.html`` prints."""
    config, cells, not_run = audit.config, audit.cells, audit.not_run
    policies = list(dict.fromkeys([*audit.policies, *(c.policy for c in cells)]))
    algorithms = list(dict.fromkeys([*(c.algorithm for c in cells), *(c.algorithm for c in not_run)]))
    several = len(algorithms) > 1
    runs = _as_configured(audit.runs, policies, several)
    learnings = _learnings(runs, several)
    chapters = [_chapter(name, audit, policies, several) for name in algorithms or [""]]
    compared = [section for chapter in chapters for section in chapter.compared]
    subjects = text.listed(text.named(text.ALGORITHMS, name) for name in algorithms)
    subject = subjects or text.named(text.ALGORITHMS, config.get("algorithm"))
    where = text.listed(dict.fromkeys(trained.data_name(c.get("data")) for c in audit.configs))
    data = runs[0].results[0].data if runs else DataFacts(data=str(config.get("data") or ""))
    adversary = _adversaries(cells)
    opening = audit_opening(audit, policies)
    told: dict[str, object] = {
        "kind": "audit",
        "title": f"{subject} on {where or trained.data_name(data.data)}: what leaks",
        "adversaries": adversary,
        "article": "an" if adversary[:1] in "aeio" or adversary.startswith("hon") else "a",
        "command": audit.command,
        "owned": trained.owners(audit.configs or [config]),
        "source": DataFacts(data=where) if several else data,
        "seed": audit.seed,
        "seconds": audit.seconds,
        "rounds": None if several else (runs[0].results[0].config if runs else config).get("rounds"),
        "several": several,
        "opening": opening,
        "ceilings": any(c.ceiling is not None and 0 < c.ceiling < 1 for c in cells),
        "broken": audit.broken,
        "estimate": audit.estimate.sentence if audit.estimate else "",
        "heat": heat_map(cells, not_run, policies),
        "chapters": chapters,
        "conformance": conformance_section(audit.conformance, several),
        "empirical": empirical(audit.empirical, several),
        "left_out": left_out(not_run),
        "compared": compared,
        "accuracy": learnings[0] if learnings else None,
        "learnings": learnings,
        "time_head": "time",
        "finals": learning.finals(runs),
        "traffic": trained.traffic(runs),
        "privacy": trained.privacy(runs),
        "runs": runs,
        "partition": trained.partition(runs),
        "facts": trained.facts(_settled(runs, audit), audit.versions),
    }
    pictures = [hero.drawn.picture for hero in opening.heroes]
    pictures += [picture for part in learnings for picture in part.pictures]
    return Story(told, pictures + [drawn.picture for section in compared for drawn in section.drawn])


def _adversaries(cells: Sequence[Cell]) -> str:
    """Who attacks, and how."""
    by_behaviour: dict[str, dict[str, None]] = {}
    for cell in cells:
        noun = NOUNS.get(cell.adversary, cell.adversary)
        by_behaviour.setdefault(cell.behaviour, {})[noun] = None
    return text.listed((f"{how} {text.listed(who, 'or')}".strip() for how, who in by_behaviour.items()), "or")


def _chapter(name: str, audit: AuditResult, policies: list[str], several: bool) -> Chapter:
    """One algorithm: the verdict on each policy, its outcomes, true against reconstructed."""
    cells = [cell for cell in audit.cells if cell.algorithm == name]
    guesses, title, labels = audit.reconstructions, text.named(text.ALGORITHMS, name), policies
    if several:
        guesses = [
            guess.model_copy(update={"policy": f"{title}, {guess.policy}"})
            for guess in guesses
            if guess.algorithm == name
        ]
        labels = [f"{title}, {policy}" for policy in policies]
    lost = [one for one in audit.not_run if one.algorithm == name]
    rows = verdicts(cells, policies, {one.policy for one in lost if one.failed})
    by_state: dict[str, list[str]] = {}
    for row in rows:
        by_state.setdefault(row.state, []).append(row.policy)
    judged = {row.policy for row in rows}
    if unseen := [policy for policy in dict.fromkeys(one.policy for one in lost) if policy not in judged]:
        by_state["absent"] = unseen
    summary = [
        {"state": state, "text": sentence.format(text.policies(by_state[state]))}
        for state, sentence in SUMMARY.items()
        if state in by_state
    ]
    return Chapter(
        name=title,
        verdicts=rows,
        state=summary[0]["state"] if summary else "absent",
        summary=summary,
        outcomes=outcome_table(cells, policies),
        compared=reconstructed(guesses, labels, names_of(audit)),
    )


def _learnings(runs: list[Trained], several: bool) -> list[Learning]:
    """Accuracy over rounds, a part for each algorithm: curves of several on one plot tell nothing."""
    if not several:
        whole = learning.accuracy(runs)
        return [whole] if whole else []
    algorithms = list(dict.fromkeys(run.label.split(", ")[0] for run in runs))
    parts = []
    for number, name in enumerate(algorithms):
        mine = [run for run in runs if run.label.split(", ")[0] == name]
        short = [replace(run, label=run.label.removeprefix(f"{name}, ")) for run in mine]
        if part := learning.accuracy(short, f"-{number}"):
            parts.append(replace(part, heading=name))
    return parts


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
