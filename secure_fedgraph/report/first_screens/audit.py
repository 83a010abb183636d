"""The first screen of an audit's page: what was read, what is left under the best policy, what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.experiment.schema.score_verdict import HARM, SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn
from secure_fedgraph.report.first_screens.key_figure import KeyFigure, in_words
from secure_fedgraph.report.first_screens.readers import ReaderTold, ReadUnder, each_reader, read_under
from secure_fedgraph.report.first_screens.reconstructions import Names, before_and_after
from secure_fedgraph.report.first_screens.run import beside, bound, seen_by_server, unbounded, worse_than
from secure_fedgraph.report.grouping import AS_CONFIGURED, aim_of, subject_of
from secure_fedgraph.report.measures import measure_of


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
    heroes: list[Drawn]
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
    if about is None:
        readers = each_reader(audit.cells, policies, "")
        return AuditOpening("No attack has a result: below stands why.", [], [], readers)
    return AuditOpening(
        _sentence(audit.cells, before, after),
        before_and_after(audit, before, after, names_of(audit)),
        _figures(audit, under, about),
        each_reader(audit.cells, policies, about.policy),
        _hint(about) if len(policies) == 1 else "",
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


def _sentence(cells: Sequence[Cell], before: ReadUnder | None, after: ReadUnder | None) -> str:
    if before is None:
        assert after is not None
        return f"{text.under(after.policy)}, {_who(cells, after)} {after.outcome(briefly=True)}."
    first = f"{text.under(before.policy)}, {_who(cells, before)} {before.outcome(briefly=True)}."
    if after is None:
        return first
    attacks = "the same attacks"
    if after.refused:  # an attack that never ran has not failed
        attacks = f"{after.tried} of these {after.tried + after.refused} attacks ran and"
    return f"{first} {text.under(after.policy)}, {attacks} {after.outcome(again=True, briefly=True)}."


def _who(cells: Sequence[Cell], under: ReadUnder) -> str:
    """Who read single owners under a policy; or, where nobody did, who steered the model, or who tried."""
    mine = [cell for cell in cells if cell.policy == under.policy]
    aim = HARM if under.state == "harmed" else SINGLE_OWNERS
    leaking = [cell for cell in mine if cell.leaks and aim_of(cell) == aim]
    names = dict.fromkeys(text.named(text.ADVERSARIES, cell.adversary) for cell in leaking or mine)
    return text.listed(names, "and" if leaking else "or")


def _hint(about: ReadUnder) -> str:
    other = "masked" if about.policy == "plaintext" else "plaintext"
    return f"Only one policy was audited: --policy {about.policy},{other} shows a second one beside it."


def _figures(audit: AuditResult, under: Sequence[ReadUnder], about: ReadUnder) -> list[KeyFigure]:
    runs: dict[str, list[RunResult]] = {}
    for run in audit.runs:
        if run.variant == AS_CONFIGURED:
            runs.setdefault(run.policy, []).append(run.result)
    mine = runs.get(about.policy, [])
    lies = [cell for cell in audit.cells if cell.policy == about.policy and aim_of(cell) == HARM]
    reads = [_reads(under, about, runs)] if about.tried or about.refused else []
    reads += [_lies(lies, about)] if lies else []
    return [*reads, *([_noise(mine, about), _accuracy(runs, about)] if mine else [])][:3]


def _lies(cells: Sequence[Cell], about: ReadUnder) -> KeyFigure:
    """How many lies do something to the others, and what each does."""
    scored = sorted((c for c in cells if c.score is not None), key=lambda c: -(c.score or 0.0))
    lines = [
        f"{subject_of(c)}: "
        + (f"{text.share(c.score)} {c.metric}" if c.leaks else c.verdict)
        + (f", {text.share(c.baseline)} without it" if c.leaks and c.baseline else "")
        for c in scored
    ]
    steer, title = sum(c.leaks for c in scored), f"Lies that steer the model, under policy {about.policy}"
    return KeyFigure(title, f"{steer} of {len(scored)}", "lies", "harmed" if steer else "nothing", lines)


def _reads(under: Sequence[ReadUnder], about: ReadUnder, runs: Mapping[str, list[RunResult]]) -> KeyFigure:
    """How many attacks read single owners, and how many uploads the server could read one by one."""
    lines = [f"Under policy {one.policy}: {one.leaking} of {one.tried}." for one in under if one is not about]
    if about.together:
        lines.append(f"{about.together} of {about.tried} read all owners together.")
    if about.refused:
        lines.append(f"{about.refused} more had nothing to attack: training was refused before round 1.")
    for policy in dict.fromkeys([about.policy, *(one.policy for one in under)]):
        seen = [one for result in runs.get(policy, []) if (one := seen_by_server(result)).uploads]
        if seen:
            read, sent = sum(one.singly for one in seen), sum(one.uploads or 0 for one in seen)
            noise = ", with noise in them" if all(one.noised for one in seen) else ""
            told = f"{text.count(read)} of {text.count(sent)}"
            lines.append(f"The server read {told} single uploads under policy {policy}{noise}.")
    state = about.state if about.state in ("nothing", "leaks", "together") else "plain"
    title = f"Attacks that read a single owner, under policy {about.policy}"
    return KeyFigure(title, f"{about.leaking} of {about.tried}", "attacks", state, lines)


def _noise(results: Sequence[RunResult], about: ReadUnder) -> KeyFigure:
    title = f"The bound that noise gives, under policy {about.policy}"
    bounds = [bound(result) for result in results]
    loose = [one for one, its in zip(results, bounds, strict=True) if its.epsilon is None]
    if loose:
        return KeyFigure(title, "no bound", "", "plain", [unbounded(loose[0], "what is sent")])
    worst = max(bounds, key=lambda one: one.epsilon or 0.0)
    return KeyFigure(
        title,
        f"ε = {text.epsilon(worst.epsilon)}",
        f"for {worst.unit}, against {worst.against}",
        "nothing",
        [in_words(worst.epsilon or 0.0, worst.unit, worst.delta), *worst.larger],
    )


def _accuracy(runs: Mapping[str, list[RunResult]], about: ReadUnder) -> KeyFigure:
    """The score under the policy, beside other policies, owners alone and the commonest class."""
    mine = runs[about.policy]
    by_algorithm: dict[str, list[RunResult]] = {}
    for result in mine:
        by_algorithm.setdefault(str(result.config.get("algorithm", "")), []).append(result)
    if len(by_algorithm) > 1:
        lines = [
            f"{_score(results)} {text.named(text.ALGORITHMS, name)}" for name, results in by_algorithm.items()
        ]
        return KeyFigure(f"Accuracy under policy {about.policy}", "", "", "plain", lines)
    measure = measure_of(mine[0])
    worse = worse_than(mine[0], measure)
    lines = [f"That is {worse}."] if worse else []
    lines += [f"{_score(results)} under policy {one}" for one, results in runs.items() if one != about.policy]
    lines += [f"{value} {name}" for value, name in beside(mine[0], measure)]
    title = f"{measure.title[:1].upper()}{measure.title[1:]}, under policy {about.policy}"
    return KeyFigure(title, _score(mine), "", "plain", lines)


def _score(results: Sequence[RunResult]) -> str:
    measure = measure_of(results[0])
    return measure.write(text.mean(one.accuracy.get(measure.key) for one in results))


def names_of(audit: AuditResult) -> Names:
    """Of features and classes, where the data have them."""
    facts = (run.result.data for run in audit.runs)
    return next((Names(one.feature_names, one.class_names) for one in facts
                 if one.feature_names or one.class_names), Names())  # fmt: skip
