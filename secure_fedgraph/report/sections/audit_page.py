"""What the page of an audit says: the verdict, what leaks where, true against reconstructed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.experiment.schema.audit import AuditedRun
from secure_fedgraph.experiment.schema.part import JsonTable
from secure_fedgraph.experiment.schema.run import DataFacts
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.audit import audit_opening, names_of
from secure_fedgraph.report.first_screens.readers import ReadUnder, read_under
from secure_fedgraph.report.grouping import AS_CONFIGURED
from secure_fedgraph.report.outcomes import leak_table
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.conformance import conformance_section, left_out
from secure_fedgraph.report.sections.empirical import empirical
from secure_fedgraph.report.sections.parts import Section, Story
from secure_fedgraph.report.sections.reconstructed import reconstructed
from secure_fedgraph.report.sections.trained import Trained


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
