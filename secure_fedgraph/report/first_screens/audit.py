"""The first screen of an audit's page: what was read, what is left under the best policy, what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.attack_scores import Attacked, attack_scores
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.first_screens.key_figure import KeyFigure, in_words
from secure_fedgraph.report.first_screens.readers import (
    ReaderTold,
    ReadUnder,
    each_reader,
    read_under,
)
from secure_fedgraph.report.first_screens.run import beside, bound, seen_by_server, unbounded, worse_than
from secure_fedgraph.report.first_screens.thefts import Hero, Names, before_and_after
from secure_fedgraph.report.grouping import AS_CONFIGURED, subject_of
from secure_fedgraph.report.measures import measure_of
from secure_fedgraph.report.outcomes import aim_of

BY_STATE = {"nothing": "nothing", "leaks": "leaks", "together": "together"}
"""The card's look for each state of a policy; others are plain."""


@dataclass(frozen=True)
class AuditOpening:
    """What the template prints first.

    Args:
        sentence: the whole audit in one.
        heroes: what was stolen beside the truth, before and after.
        figures: three of them.
        readers: a sentence each.
        hint: what to audit besides, where only one policy was.
    """

    sentence: str
    heroes: list[Hero]
    figures: list[KeyFigure]
    readers: list[ReaderTold]
    hint: str = ""


def audit_opening(audit: AuditResult, policies: Sequence[str]) -> AuditOpening:
    """The first screen.

    Args:
        policies: of the audit, in order.
    """
    under = read_under(audit.cells, policies)
    before, after = _beside_each_other(under)
    about = after or before
    heroes = before_and_after(audit, before, after, names_of(audit))
    if about is not None and (before is None or not heroes):
        heroes = [*_scores(audit.cells, about), *heroes]
    return AuditOpening(
        _sentence(audit.cells, before, after),
        heroes,
        [] if about is None else _figures(audit, under, about),
        each_reader(audit.cells, policies, about.policy if about else ""),
        "" if about is None else _hint(about, len(policies)),
    )


def _beside_each_other(under: Sequence[ReadUnder]) -> tuple[ReadUnder | None, ReadUnder | None]:
    """The policy under which most was read of single owners, and the one under which least was.

    Of policies that are as good, the last counts: policies stand from open to closed, as typed.
    """
    ran = [one for one in under if one.state != "refused"] or list(under)
    if not ran:
        return None, None
    after = min(reversed(ran), key=lambda one: one.badness)
    worst = max(ran, key=lambda one: (one.badness, one.policy == "plaintext"))
    if worst.state != "leaks":
        return None, after
    return worst, after if after is not worst else None


def _who(cells: Sequence[Cell], under: ReadUnder) -> str:
    """Who read single owners under a policy; or, where nobody did, who tried."""
    mine = [cell for cell in cells if cell.policy == under.policy]
    leaking = [cell for cell in mine if cell.leaks and aim_of(cell) == SINGLE_OWNERS]
    names = dict.fromkeys(text.named(text.ADVERSARIES, cell.adversary) for cell in leaking or mine)
    return text.listed(names, "and" if leaking else "or")


def _sentence(cells: Sequence[Cell], before: ReadUnder | None, after: ReadUnder | None) -> str:
    if before is None and after is None:
        return "No attack has a result: below stands why."
    if before is None:
        assert after is not None
        if after.state == "refused":
            refused = "training was refused before round 1: there was nothing to attack."
            return f"{text.under(after.policy)}, {refused}"
        return f"{text.under(after.policy)}, {_who(cells, after)} {after.outcome(briefly=True)}."
    first = f"{text.under(before.policy)}, {_who(cells, before)} {before.outcome(briefly=True)}."
    if after is None:
        return first
    attacks = "the same attacks"
    if after.refused:  # an attack that never ran has not failed
        attacks = f"{after.tried} of these {after.tried + after.refused} attacks ran and"
    return f"{first} {text.under(after.policy)}, {attacks} {after.outcome(again=True, briefly=True)}."


def _hint(about: ReadUnder, policies: int) -> str:
    if policies > 1:
        return ""
    other = "masked" if about.policy == "plaintext" else "plaintext"
    return f"Only one policy was audited: --policy {about.policy},{other} shows a second one beside it."


def _figures(audit: AuditResult, under: Sequence[ReadUnder], about: ReadUnder) -> list[KeyFigure]:
    runs: dict[str, list[RunResult]] = {}
    for run in audit.runs:
        if run.variant == AS_CONFIGURED:
            runs.setdefault(run.policy, []).append(run.result)
    return [
        _reads(under, about, runs),
        _noise(runs.get(about.policy, []), about),
        _accuracy(runs, about),
    ]


def _reads(under: Sequence[ReadUnder], about: ReadUnder, runs: Mapping[str, list[RunResult]]) -> KeyFigure:
    """How many attacks read single owners, and how many uploads the server could read one by one."""
    sums = bool(about.together and not about.leaking)
    lines = [f"{about.leaking} of {about.tried} read a single owner."] if sums else []
    if about.together and not sums:
        lines.append(f"{about.together} of {about.tried} read all owners together.")
    if about.refused:
        lines.append(f"{about.refused} more had nothing to attack: training was refused before round 1.")
    lines += [
        f"Under policy {one.policy}: {one.leaking} of {one.tried}{' read a single owner' if sums else ''}."
        for one in under
        if one is not about and one.state != "refused"
    ]
    for policy in dict.fromkeys([about.policy, *(one.policy for one in under)]):
        seen = [one for result in runs.get(policy, []) if (one := seen_by_server(result)).uploads]
        if seen:
            read, sent = sum(one.singly for one in seen), sum(one.uploads or 0 for one in seen)
            noise = ", with noise in them" if all(one.noised for one in seen) else ""
            told = f"{text.count(read)} of {text.count(sent)}"
            lines.append(f"The server read {told} single uploads under policy {policy}{noise}.")
    whom = "all owners together" if sums else "a single owner"
    return KeyFigure(
        f"Attacks that read {whom}, under policy {about.policy}",
        f"{about.together if sums else about.leaking} of {about.tried}",
        "attacks",
        BY_STATE.get(about.state, "plain"),
        lines,
    )


def _noise(results: Sequence[RunResult], about: ReadUnder) -> KeyFigure:
    title = f"The bound that noise gives, under policy {about.policy}"
    bounds = [bound(result) for result in results]
    if not results:
        return KeyFigure(title, "", "", "plain", ["No run of it finished."])
    epsilons = [one.epsilon for one in bounds if one.epsilon is not None]
    if len(epsilons) < len(bounds):
        what = "what sums show" if about.state == "together" else "what is sent"
        loose = [one for one, its in zip(results, bounds, strict=True) if its.epsilon is None]
        return KeyFigure(title, "no bound", "", "plain", [unbounded(loose[0], what)])
    worst = next(one for one in bounds if one.epsilon == max(epsilons))
    return KeyFigure(
        title,
        f"ε = {text.epsilon(worst.epsilon)}",
        f"for {worst.unit}, against {worst.against}",
        "nothing",
        [in_words(max(epsilons), worst.unit, worst.delta), *worst.larger],
    )


def _accuracy(runs: Mapping[str, list[RunResult]], about: ReadUnder) -> KeyFigure:
    """The score under the policy, beside other policies, owners alone and the commonest class."""
    mine = runs.get(about.policy, [])
    title = f"Accuracy under policy {about.policy}"
    if not mine:
        return KeyFigure(title, "", "", "plain", ["No run of it finished."])
    by_algorithm: dict[str, list[RunResult]] = {}
    for result in mine:
        by_algorithm.setdefault(str(result.config.get("algorithm", "")), []).append(result)
    if len(by_algorithm) > 1:
        lines = [
            f"{_score(results)} {text.named(text.ALGORITHMS, name)}" for name, results in by_algorithm.items()
        ]
        return KeyFigure(title, "", "", "plain", lines)
    measure = measure_of(mine[0])
    others = [
        f"{_score(results)} under policy {policy}"
        for policy, results in runs.items()
        if policy != about.policy and measure_of(results[0]) == measure
    ]
    others += [f"{value} {name}" for value, name in beside(mine[0], measure)]
    if worse := worse_than(mine[0], measure):
        others.insert(0, f"That is {worse}.")
    title = f"{measure.title[:1].upper()}{measure.title[1:]}, under policy {about.policy}"
    return KeyFigure(title, _score(mine), "", "plain", others)


def _score(results: Sequence[RunResult]) -> str:
    measure = measure_of(results[0])
    scores = [score for one in results if (score := one.accuracy.get(measure.key)) is not None]
    return measure.write(sum(scores) / len(scores) if scores else None)


def _scores(cells: Sequence[Cell], about: ReadUnder) -> list[Hero]:
    """Where no attack read a single owner: each attack's score beside the best trivial guess."""
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.policy == about.policy and cell.outcome != "refused" and aim_of(cell) == SINGLE_OWNERS:
            rows.setdefault(subject_of(cell), []).append(cell)
    if not rows:
        return []
    attacked = [_attacked(subject, same) for subject, same in rows.items()]
    # all owners together have a picture of their own
    state = "nothing" if about.state == "together" else about.state
    told = "single owners are read" if state == "leaks" else "no attack reads a single owner"
    caption = f"{text.under(about.policy)}: {told}"
    table = Table(
        ["attack on single owners", "score", "best trivial guess"],
        [[one.subject, text.share(one.score), text.share(one.trivial)] for one in attacked],
    )
    return [Hero(Drawn(attack_scores("attack-scores", caption, attacked), caption, table), state)]


def _attacked(subject: str, cells: Sequence[Cell]) -> Attacked:
    scored = [cell for cell in cells if cell.score is not None]
    worst = max(scored, key=lambda cell: (cell.leaks, cell.score or 0.0), default=None)
    if worst is None:
        return Attacked(subject, None, None, False)
    return Attacked(subject, worst.score, worst.baseline, worst.leaks)


def names_of(audit: AuditResult) -> Names:
    """Of features and classes, where the data have them."""
    for run in audit.runs:
        facts = run.result.data
        if facts.feature_names or facts.class_names:
            return Names(facts.feature_names, facts.class_names)
    return Names()
