"""The audit's cells as a table, and the verdict on each policy in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import Any

from secure_fedgraph.report import text as words
from secure_fedgraph.report.grouping import (
    AS_CONFIGURED,
    EACH,
    above,
    anchor,
    exact_of_too_few,
    subject_of,
    title_of,
)

LEFT = "what the defence leaves"
LIMITS = {"controls": "controls run: {}", "effort": "each search at most {}\u202fs"}
AIMS = {EACH: "about each owner", LEFT: "about all owners together"}


def verdicts(
    cells: Sequence[dict[str, Any]], policies: Sequence[str], failed: Collection[str] = ()
) -> list[dict[str, Any]]:
    """For each policy what the attacks read, worst first: single owners, all owners together, or nothing.

    Args:
        failed: policies with runs that failed or stopped midway; none of them is called refused.

    Returns:
        rows with ``policy``, ``state`` ("leaks", "together", "scored", "nothing", "refused"), ``short`` and
        ``text``; "scored" where nothing is cleared: too few terms, or too little time, to tell. A policy
        without a result has no row.
    """
    rows = []
    for policy in policies:
        mine = [c for c in cells if c.get("policy") == policy]
        if not mine:
            continue
        if all(c.get("outcome") == "refused" for c in mine):
            if policy in failed:
                continue
            reason = words.sentence(str(mine[0].get("reason") or ""))
            rows.append(_verdict(policy, "refused", "refused before round 1", f"Nothing was sent. {reason}"))
            continue
        single, union = _leaking(mine, EACH), _leaking(mine, LEFT)
        stops = _remedies_by_adversary(mine) + _stopped(mine)
        if single:
            text = f"An attack reads single owners: {single}.{stops}"
            rows.append(_verdict(policy, "leaks", "leaks about single owners", text))
        elif union:
            text = f"No attack tried reads a single owner. All owners together still show: {union}.{stops}"
            rows.append(_verdict(policy, "together", "hides single owners, not their union", text))
        elif unsure := [title_of(c) for c in mine if aim_of(c) == EACH and exact_of_too_few(c)]:
            named = words.listed(dict.fromkeys(unsure))
            text = f"Right about single owners, of too few to tell from luck: {named}.{_stopped(mine)}"
            rows.append(_verdict(policy, "scored", "exact, of too few to tell from luck", text))
        else:
            text = f"No attack tried reads anything beyond a trivial guess.{_stopped(mine)}"
            if _stopped(mine):  # no all-clear: with more time it might have read something
                rows.append(_verdict(policy, "scored", "nothing was read before a search was stopped", text))
            else:
                rows.append(_verdict(policy, "nothing", "nothing was read", text))
    return rows


def outcome_table(cells: Sequence[dict[str, Any]], policies: Sequence[str]) -> dict[str, Any]:
    """Attacks by setting and aim down, policies across; a place holds the cells of all seeds.

    Returns:
        ``policies`` and ``groups``: for each attack its ``rows``, each with ``places`` (None: not run).
    """
    shown = [p for p in policies if any(c.get("policy") == p for c in cells)]
    algorithm = str(cells[0].get("algorithm", "")) if cells else ""
    groups: dict[tuple[str, str, str], dict[tuple[str, str], dict[str, list[dict[str, Any]]]]] = {}
    for cell in cells:
        attack = (str(cell.get("attack")), str(cell.get("adversary", "")), str(cell.get("channel", "")))
        row = (_setting(cell, "variant") or AS_CONFIGURED, _setting(cell, "aim") or EACH)
        groups.setdefault(attack, {}).setdefault(row, {}).setdefault(str(cell.get("policy")), []).append(cell)
    return {
        "policies": shown,
        "groups": [
            {
                "attack": attack,
                "id": "" if attack in [a for a, *_ in list(groups)[:number]] else anchor(algorithm, attack),
                "subject": _title(rows.values()),
                "adversary": words.named(words.ADVERSARIES, adversary),
                "channel": channel,
                "stops": _remedies(rows.values()),
                "rows": [
                    {
                        "setting": AS_CONFIGURED if variant == AS_CONFIGURED else f"control: {variant}",
                        "changes": _changes(by_policy) if aim == EACH else "",
                        "aim": aim_in_words(aim, [c for seeds in by_policy.values() for c in seeds]),
                        "places": [
                            _place(by_policy[p], p) if p in by_policy else _nothing_left(rows.values(), p)
                            for p in shown
                        ],
                    }
                    for (variant, aim), by_policy in rows.items()
                ],
            }
            for number, ((attack, adversary, channel), rows) in enumerate(groups.items())
        ],
    }


def _verdict(policy: str, state: str, short: str, text: str) -> dict[str, Any]:
    return {"policy": policy, "state": state, "short": short, "text": text}


def _leaking(cells: Sequence[dict[str, Any]], aim: str) -> str:
    """The attacks that leak, with the best verdict; those that need their own settings say so."""
    plain: dict[str, str] = {}
    forced: dict[str, str] = {}
    adversaries: dict[str, dict[str, None]] = {}
    subjects: dict[str, str] = {}
    for cell in cells:
        if cell.get("leaks") and aim_of(cell) == aim:
            usual = (_setting(cell, "variant") or AS_CONFIGURED) == AS_CONFIGURED
            verdict = str(cell.get("verdict", "")).split(", about")[0].split(";")[0]
            attack = str(cell.get("attack"))
            verdicts_of = plain if usual else forced
            verdicts_of[attack] = "exact" if verdicts_of.get(attack) == "exact" else verdict
            subjects[attack] = subject_of(cell)
            adversaries.setdefault(attack, {})[str(cell.get("adversary", "server"))] = None
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


def aim_in_words(aim: str, cells: Iterable[dict[str, Any]]) -> str:
    """Whom cells of one aim are about, in words: guesses at what is left may be about single owners."""
    owners = {c["owners"] for c in cells if c.get("owners")}
    return f"{AIMS[EACH]}, from what is left" if aim == LEFT and owners == {1} else AIMS.get(aim, aim)


def aim_of(cell: dict[str, Any]) -> str:
    """Whether a cell is about single owners, or several together: what a defence leaves may be either."""
    return EACH if cell.get("owners") == 1 else str(_setting(cell, "aim") or EACH)


def _describe_leak(attack: str, subject: str, verdict: str, by: Iterable[str]) -> str:
    code = attack.split("-")[0].upper()
    who = list(by)
    if who != ["server"]:
        verdict += f", by {words.listed(words.named(words.ADVERSARIES, name) for name in who)}"
    return f"{subject} ({code}, {verdict})"


def _remedies_by_adversary(cells: Sequence[dict[str, Any]]) -> str:
    """What would stop what leaks, by adversary, where the server is not the only one."""
    remedies: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.get("leaks") and cell.get("stops"):
            remedies.setdefault(str(cell.get("adversary")), {})[str(cell["stops"])] = None
    if set(remedies) <= {"server"}:
        return ""
    parts = [
        f"{words.named(words.ADVERSARIES, who)}: {'; '.join(sentences)}"
        for who, sentences in remedies.items()
    ]
    return f" What would stop it, against {'; against '.join(parts)}."


def _stopped(cells: Sequence[dict[str, Any]]) -> str:
    """That some scores are lower bounds, because a search was ended before it was through."""
    lower_bounds = [
        c for c in cells if (c.get("details") or {}).get("searches_stopped") and c.get("score") != 1
    ]
    if not lower_bounds:
        return ""
    limits = sorted({words.real(c["details"].get("stopped_after")) or 0.0 for c in lower_bounds})
    many = (
        "One score is a lower bound"
        if len(lower_bounds) == 1
        else f"{len(lower_bounds)} scores are lower bounds"
    )
    return f" {many}: a search was stopped after {words.listed((f'{s:g}' for s in limits), 'or')}\u202fs."


def _place(cells: Sequence[dict[str, Any]], policy: str) -> dict[str, Any]:
    """One place of the table: all seeds of one attack under one policy."""
    outcomes = {str(c.get("outcome")) for c in cells}
    outcome = outcomes.pop() if len(outcomes) == 1 else "mixed"
    scored = [c for c in cells if words.real(c.get("score")) is not None]
    leaks = any(bool(c.get("leaks")) for c in cells)
    score = _mean(scored, "score")
    return {
        "policy": policy,
        "state": _state(cells, outcome, leaks),
        "outcome": outcome,
        "score": score,
        "low": _least([c.get("low") for c in scored]),
        "high": _most([c.get("high") for c in scored]),
        "baseline": _mean(scored, "baseline"),
        "metric": scored[0].get("metric") if scored else None,
        "verdicts": list(dict.fromkeys(str(c.get("verdict", "")).split(", about")[0] for c in cells)),
        "nodes": _nodes(scored),
        "reasons": list(dict.fromkeys(str(c["reason"]) for c in cells if c.get("reason"))),
        "bar": _bar(scored, score),
        "seeds": [_numbers(c) for c in cells],
    }


def _state(cells: Sequence[dict[str, Any]], outcome: str, leaks: bool) -> str:
    if any(above(c) for c in cells):
        return "broken"
    return "leak" if leaks else "scored" if outcome in ("score", "mixed") else outcome


def _nothing_left(rows: Iterable[dict[str, list[dict[str, Any]]]], policy: str) -> dict[str, Any] | None:
    """A refused run, which leaves nothing to attack; None where there was no run."""
    refused = [c for row in rows for c in row.get(policy, ()) if c.get("outcome") == "refused"]
    return _place(refused[:1], policy) if refused else None


def _remedies(rows: Iterable[dict[str, list[dict[str, Any]]]]) -> list[str]:
    """What would stop an attack in one adversary's hands, where it leaks at all."""
    cells = [c for by_policy in rows for same_policy in by_policy.values() for c in same_policy]
    return list(dict.fromkeys(str(c["stops"]) for c in cells if c.get("leaks") and c.get("stops")))


def _title(rows: Iterable[dict[str, list[dict[str, Any]]]]) -> str:
    """What an attack learns, from the first of its cells that says it."""
    cells = (c for by_policy in rows for same_policy in by_policy.values() for c in same_policy)
    return next((str(c["title"]) for c in cells if c.get("title")), "")


def _nodes(cells: Sequence[dict[str, Any]]) -> str | None:
    """How many distinct nodes recovered rows are: many rows may be few nodes."""
    details = [c.get("details") or {} for c in cells]
    nodes, share = _mean(details, "distinct_nodes"), _mean(details, "coverage")
    graphs, part = _mean(details, "graphs_read"), _mean(details, "share_of_graphs")
    if graphs is not None:
        return f"{words.count(graphs)} different graphs, {words.percent(part)} of the owners'"
    if nodes is None:
        return None
    return f"{words.count(nodes)} different nodes, {words.percent(share)} of the owners'"


def _numbers(cell: dict[str, Any]) -> dict[str, Any]:
    """One cell in full, for whoever opens it."""
    details = [(k.replace("_", " "), _plain(v)) for k, v in (cell.get("details") or {}).items()]
    return {
        "seed": cell.get("seed"),
        "score": cell.get("score"),
        "low": cell.get("low"),
        "high": cell.get("high"),
        "baselines": list((cell.get("baselines") or {}).items()),
        "details": details,
        "messages": cell.get("messages"),
        "seconds": cell.get("seconds"),
        "ceiling": cell.get("ceiling"),
        "claim": _claimed(cell.get("claim")),
    }


def _claimed(claim: Any) -> str:
    """The claim behind a ceiling, in words."""
    if not isinstance(claim, dict):
        return ""
    units = int(words.real(claim.get("units")) or 1)
    whose = f"{units} of them together" if units > 1 else "each of them"
    subject = words.named(words.UNITS, claim.get("unit"))
    return f"ε = {words.epsilon(claim.get('epsilon'))} for {subject}, {whose}"


def _bar(scored: Sequence[dict[str, Any]], score: float | None) -> dict[str, float] | None:
    """Where score, interval and trivial guess lie on a line from 0 to 1, in percent."""
    if score is None:
        return None
    low, high = _least([c.get("low") for c in scored]), _most([c.get("high") for c in scored])
    base = _mean(scored, "baseline")
    bar = {"at": _hundred(score)}
    if low is not None and high is not None:
        bar |= {"low": _hundred(low), "width": round(_hundred(high) - _hundred(low), 2)}
    if base is not None:
        bar["base"] = _hundred(base)
    ceiling = _least([c.get("ceiling") for c in scored])
    if ceiling is not None and ceiling < 1:
        bar["ceiling"] = _hundred(ceiling)
    return bar


def _changes(by_policy: dict[str, list[dict[str, Any]]]) -> str:
    settings = next(iter(by_policy.values()))[0].get("settings") or {}
    changed = {k: v for k, v in settings.items() if k not in ("aim", "variant", *LIMITS) and v is not None}
    parts = [f"{k} = {_plain(v)}" for k, v in changed.items()]
    if (settings.get("variant") or AS_CONFIGURED) == AS_CONFIGURED:  # once for all rows of an attack
        parts += [LIMITS[k].format(_plain(settings[k])) for k in LIMITS if settings.get(k) is not None]
    return ", ".join(parts)


def _setting(cell: dict[str, Any], key: str) -> str:
    return str((cell.get("settings") or {}).get(key) or "")


def _plain(value: Any) -> str:
    number = words.real(value)
    if number is None:
        return words.MISSING if value is None else str(value)
    if number == round(number):
        return f"{number:,.0f}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def _hundred(value: float) -> float:
    return round(100 * min(1.0, max(0.0, value)), 2)


def _mean(cells: Sequence[dict[str, Any]], key: str) -> float | None:
    numbers = [v for v in (words.real(c.get(key)) for c in cells) if v is not None]
    return fmean(numbers) if numbers else None


def _least(values: Sequence[Any]) -> float | None:
    return min((v for v in map(words.real, values) if v is not None), default=None)


def _most(values: Sequence[Any]) -> float | None:
    return max((v for v in map(words.real, values) if v is not None), default=None)
