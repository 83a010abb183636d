"""The audit's cells as a table, and the verdict on each policy in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.experiment.schema.score_verdict import (
    RESIDUAL,
    SINGLE_OWNERS,
    ScoreVerdict,
    exact_of_too_few,
    is_lower_bound,
    whom,
    without_notes,
    without_owners,
)
from secure_fedgraph.report import text as words
from secure_fedgraph.report.grouping import (
    AS_CONFIGURED,
    above,
    anchor,
    subject_of,
    title_of,
)

LIMITS = {"controls": "controls run: {}", "effort": "each search at most {}\u202fs"}
AIMS = {SINGLE_OWNERS: "about each owner", RESIDUAL: "about all owners together"}


ByPolicy = Mapping[str, Sequence[Cell]]
"""The cells of one row of the table: policy -> those of all seeds."""


@dataclass(frozen=True)
class Verdict:
    """What the attacks read under one policy.

    Args:
        policy: its name.
        state: "leaks", "together", "scored", "nothing" or "refused"; "scored" where nothing is cleared: too
            few terms, or too little time, to tell.
        short: the same in a few words.
        text: the same in full.
    """

    policy: str
    state: str
    short: str
    text: str


def verdicts(cells: Sequence[Cell], policies: Sequence[str], failed: Collection[str] = ()) -> list[Verdict]:
    """For each policy what the attacks read, worst first: single owners, all owners together, or nothing.

    Args:
        failed: policies with runs that failed or stopped midway; none of them is called refused. A policy
            without a result has no verdict.
    """
    rows = []
    for policy in policies:
        mine = [cell for cell in cells if cell.policy == policy]
        refused = all(cell.outcome == "refused" for cell in mine)
        if mine and not (refused and policy in failed):
            rows.append(_verdict(policy, mine))
    return rows


def _verdict(policy: str, cells: Sequence[Cell]) -> Verdict:
    if all(c.outcome == "refused" for c in cells):
        why = words.sentence(cells[0].reason)
        return Verdict(policy, "refused", "refused before round 1", f"Nothing was sent. {why}")
    single, union = _leaking(cells, SINGLE_OWNERS), _leaking(cells, RESIDUAL)
    stopped = _stopped(cells)
    stops = _remedies_by_adversary(cells) + stopped
    if single:
        text = f"An attack reads single owners: {single}.{stops}"
        return Verdict(policy, "leaks", "leaks about single owners", text)
    if union:
        text = f"No attack tried reads a single owner. All owners together still show: {union}.{stops}"
        return Verdict(policy, "together", "hides single owners, not their union", text)
    if unsure := [title_of(c) for c in cells if aim_of(c) == SINGLE_OWNERS and _exact_of_too_few(c)]:
        named = words.listed(dict.fromkeys(unsure))
        text = f"Right about single owners, of too few to tell from luck: {named}.{stopped}"
        return Verdict(policy, "scored", "exact, of too few to tell from luck", text)
    text = f"No attack tried reads anything beyond a trivial guess.{stopped}"
    if stopped:  # no all-clear: with more time it might have read something
        return Verdict(policy, "scored", "nothing was read before a search was stopped", text)
    return Verdict(policy, "nothing", "nothing was read", text)


def outcome_table(cells: Sequence[Cell], policies: Sequence[str]) -> dict[str, object]:
    """Attacks by setting and aim down, policies across; a place holds the cells of all seeds.

    Returns:
        ``policies`` and ``groups``: for each attack its ``rows``, each with ``places`` (None: not run).
    """
    shown = [p for p in policies if any(c.policy == p for c in cells)]
    groups: dict[tuple[str, str, str], dict[tuple[str, str], dict[str, list[Cell]]]] = {}
    for cell in cells:
        row = (cell.settings.variant or AS_CONFIGURED, cell.settings.aim or SINGLE_OWNERS)
        rows = groups.setdefault((cell.attack, cell.adversary, cell.channel), {})
        rows.setdefault(row, {}).setdefault(cell.policy, []).append(cell)
    told, attacks = [], set[str]()
    for (attack, adversary, channel), rows in groups.items():
        told.append(
            {
                "attack": attack,
                "id": "" if attack in attacks else anchor(cells[0].algorithm, attack),
                "subject": _title(rows.values()),
                "adversary": words.named(words.ADVERSARIES, adversary),
                "channel": channel,
                "stops": _remedies(rows.values()),
                "rows": _rows(rows, shown),
            }
        )
        attacks.add(attack)
    return {"policies": shown, "groups": told}


def _rows(rows: Mapping[tuple[str, str], ByPolicy], policies: Sequence[str]) -> list[dict[str, object]]:
    """One attack's, a row for each setting and aim."""
    return [
        {
            "setting": AS_CONFIGURED if variant == AS_CONFIGURED else f"control: {variant}",
            "changes": _changes(by_policy) if aim == SINGLE_OWNERS else "",
            "aim": aim_in_words(aim, [c for seeds in by_policy.values() for c in seeds]),
            "places": [
                _place(by_policy[p], p) if p in by_policy else _nothing_left(rows.values(), p)
                for p in policies
            ],
        }
        for (variant, aim), by_policy in rows.items()
    ]


def _leaking(cells: Sequence[Cell], aim: str) -> str:
    """The attacks that leak, with the best verdict; those that need their own settings say so."""
    plain: dict[str, str] = {}
    forced: dict[str, str] = {}
    adversaries: dict[str, dict[str, None]] = {}
    subjects: dict[str, str] = {}
    for cell in cells:
        if cell.leaks and aim_of(cell) == aim:
            usual = (cell.settings.variant or AS_CONFIGURED) == AS_CONFIGURED
            verdict, exact = without_notes(cell.verdict), ScoreVerdict.EXACT
            verdicts_of = plain if usual else forced
            verdicts_of[cell.attack] = exact if verdicts_of.get(cell.attack) == exact else verdict
            subjects[cell.attack] = subject_of(cell)
            adversaries.setdefault(cell.attack, {})[cell.adversary] = None
    parts = [
        _describe_leak(attack, subjects[attack], verdict, adversaries[attack])
        for attack, verdict in plain.items()
    ]
    rest = [
        _describe_leak(attack, subjects[attack], verdict, adversaries[attack])
        for attack, verdict in forced.items()
        if attack not in plain
    ]
    if rest:
        when = f"under the attack's best settings {'also ' if parts else ''}"
        parts.append(when + words.listed(rest))
    return "; ".join(parts)


def _exact_of_too_few(cell: Cell) -> bool:
    return exact_of_too_few(cell.score, cell.leaks, cell.baseline)


def aim_in_words(aim: str, cells: Iterable[Cell]) -> str:
    """Whom cells of one aim are about, in words: guesses at what is left may be about single owners."""
    owners = {c.owners for c in cells if c.owners}
    return (
        f"{AIMS[SINGLE_OWNERS]}, from what is left"
        if aim == RESIDUAL and owners == {1}
        else AIMS.get(aim, aim)
    )


def aim_of(cell: Cell) -> str:
    return whom(cell.settings.aim, cell.owners)


def _describe_leak(attack: str, subject: str, verdict: str, by: Iterable[str]) -> str:
    code = attack.split("-")[0].upper()
    who = list(by)
    if who != ["server"]:
        verdict += f", by {words.listed(words.named(words.ADVERSARIES, name) for name in who)}"
    return f"{subject} ({code}, {verdict})"


def _remedies_by_adversary(cells: Sequence[Cell]) -> str:
    """What would stop what leaks, by adversary, where the server is not the only one."""
    remedies: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.leaks and cell.stops:
            remedies.setdefault(cell.adversary, {})[cell.stops] = None
    if set(remedies) <= {"server"}:
        return ""
    parts = [
        f"{words.named(words.ADVERSARIES, who)}: {'; '.join(sentences)}"
        for who, sentences in remedies.items()
    ]
    return f" What would stop it, against {'; against '.join(parts)}."


def _stopped(cells: Sequence[Cell]) -> str:
    """That some scores are lower bounds, because a search was ended before it was through."""
    lower_bounds = [c for c in cells if is_lower_bound(c.score, c.details.get("searches_stopped"))]
    if not lower_bounds:
        return ""
    limits = sorted({c.details.get("stopped_after", 0.0) for c in lower_bounds})
    many = (
        "One score is a lower bound"
        if len(lower_bounds) == 1
        else f"{len(lower_bounds)} scores are lower bounds"
    )
    return f" {many}: a search was stopped after {words.listed((f'{s:g}' for s in limits), 'or')}\u202fs."


def _place(cells: Sequence[Cell], policy: str) -> dict[str, object]:
    """One place of the table: all seeds of one attack under one policy."""
    outcomes = {str(c.outcome) for c in cells}
    outcome = outcomes.pop() if len(outcomes) == 1 else "mixed"
    scored = [c for c in cells if c.score is not None]
    score = words.mean(c.score for c in scored)
    return {
        "policy": policy,
        "state": _state(cells, outcome),
        "outcome": outcome,
        "score": score,
        "low": _least(c.low for c in scored),
        "high": _most(c.high for c in scored),
        "baseline": words.mean(c.baseline for c in scored),
        "metric": scored[0].metric if scored else None,
        "verdicts": list(dict.fromkeys(without_owners(c.verdict) for c in cells)),
        "nodes": _nodes(scored),
        "reasons": list(dict.fromkeys(c.reason for c in cells if c.reason)),
        "bar": _bar(scored, score),
        "cells": cells,
    }


def _state(cells: Sequence[Cell], outcome: str) -> str:
    if any(above(c) for c in cells):
        return "broken"
    if any(c.leaks for c in cells):
        return "leak"
    return "scored" if outcome in ("score", "mixed") else outcome


def _nothing_left(rows: Iterable[ByPolicy], policy: str) -> dict[str, object] | None:
    """A refused run, which leaves nothing to attack; None where there was no run."""
    refused = [c for row in rows for c in row.get(policy, ()) if c.outcome == "refused"]
    return _place(refused[:1], policy) if refused else None


def _remedies(rows: Iterable[ByPolicy]) -> list[str]:
    """What would stop an attack in one adversary's hands, where it leaks at all."""
    return list(dict.fromkeys(c.stops for c in _cells(rows) if c.leaks and c.stops))


def _title(rows: Iterable[ByPolicy]) -> str:
    """What an attack learns, from the first of its cells that says it."""
    return next((c.title for c in _cells(rows) if c.title), "")


def _cells(rows: Iterable[ByPolicy]) -> list[Cell]:
    return [cell for by_policy in rows for same_policy in by_policy.values() for cell in same_policy]


def _nodes(cells: Sequence[Cell]) -> str | None:
    """How many distinct nodes recovered rows are: many rows may be few nodes."""

    def mean(key: str) -> float | None:
        return words.mean(c.details.get(key) for c in cells)

    if (graphs := mean("graphs_read")) is not None:
        part = words.percent(mean("share_of_graphs"))
        return f"{words.count(graphs)} different graphs, {part} of the owners'"
    if (nodes := mean("distinct_nodes")) is not None:
        return f"{words.count(nodes)} different nodes, {words.percent(mean('coverage'))} of the owners'"
    return None


def _bar(scored: Sequence[Cell], score: float | None) -> dict[str, float] | None:
    """Where score, interval and trivial guess lie on a line from 0 to 1, in percent."""
    if score is None:
        return None
    low, high = _least(c.low for c in scored), _most(c.high for c in scored)
    base = words.mean(c.baseline for c in scored)
    bar = {"at": _hundred(score)}
    if low is not None and high is not None:
        bar |= {"low": _hundred(low), "width": round(_hundred(high) - _hundred(low), 2)}
    if base is not None:
        bar["base"] = _hundred(base)
    ceiling = _least(c.ceiling for c in scored)
    if ceiling is not None and ceiling < 1:
        bar["ceiling"] = _hundred(ceiling)
    return bar


def _changes(by_policy: ByPolicy) -> str:
    settings = next(iter(by_policy.values()))[0].settings
    told = {key: value for key, value in settings.others().items() if value is not None}
    parts = [f"{key} = {words.plain(value)}" for key, value in told.items() if key not in LIMITS]
    if (settings.variant or AS_CONFIGURED) == AS_CONFIGURED:  # once for all rows of an attack
        parts += [phrase.format(words.plain(told[key])) for key, phrase in LIMITS.items() if key in told]
    return ", ".join(parts)


def _hundred(value: float) -> float:
    return round(100 * min(1.0, max(0.0, value)), 2)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
