"""The leak heat map: attacks down, policies across, for each algorithm; the numbers are one click away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from secure_fedgraph.report import text
from secure_fedgraph.report.grouping import EACH, above, anchor, subject_of
from secure_fedgraph.report.outcomes import aim_in_words

SHORT = {EACH: "each owner"}


def heat_map(
    cells: Sequence[dict[str, Any]], not_run: Sequence[dict[str, Any]], policies: Sequence[str]
) -> dict[str, Any]:
    """For each attack and aim the worst of its cells under each policy: all settings, adversaries and seeds.

    Returns:
        ``policies`` and ``groups``: for each algorithm its ``rows``, each with ``places``.
    """
    both = [*cells, *not_run]
    shown = [p for p in policies if any(c.get("policy") == p for c in both)]
    groups = []
    for algorithm in dict.fromkeys(str(c.get("algorithm", "")) for c in both):
        mine = [c for c in cells if str(c.get("algorithm", "")) == algorithm]
        not_made = [c for c in not_run if str(c.get("algorithm", "")) == algorithm]
        rows = []
        for attack in dict.fromkeys(str(c.get("attack")) for c in (*mine, *not_made)):
            aims = dict.fromkeys(_aim(c) for c in mine if c.get("attack") == attack)
            for aim in aims or {EACH: None}:
                of_attack = [c for c in mine if c.get("attack") == attack]
                places = [
                    _place(p, aim, [c for c in of_attack if c.get("policy") == p], attack, not_made)
                    for p in shown
                ]
                rows.append(
                    {
                        "attack": attack,
                        "code": attack.split("-")[0].upper(),
                        "subject": subject_of(
                            next(c for c in (*mine, *not_made) if c.get("attack") == attack)
                        ),
                        "aim": _short(aim, [c for c in of_attack if _aim(c) == aim]),
                        "href": anchor(algorithm, attack),
                        "run": bool(of_attack),
                        "places": places,
                    }
                )
        groups.append({"algorithm": text.named(text.ALGORITHMS, algorithm), "rows": rows})
    return {"policies": shown, "groups": groups}


def _short(aim: str, cells: Iterable[dict[str, Any]]) -> str:
    owners = {c["owners"] for c in cells if c.get("owners")}
    return SHORT.get(aim, "each, from what is left" if owners == {1} else "all together")


def _aim(cell: dict[str, Any]) -> str:
    return str((cell.get("settings") or {}).get("aim") or EACH)


def _place(
    policy: str, aim: str, cells: Sequence[dict[str, Any]], attack: str, left: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    mine = [c for c in cells if _aim(c) == aim]
    if not mine and any(c.get("outcome") == "refused" for c in cells):
        mine = [c for c in cells if c.get("outcome") == "refused"]  # nothing was sent, so nothing was left
    missing = any(c.get("attack") == attack and c.get("policy") == policy for c in left)
    worst = max(mine, key=_badness, default=None)
    if worst is None:
        return {
            "policy": policy,
            "state": "absent",
            "text": "not run" if missing else "–",
            "heat": 0,
            "says": "",
        }
    score, base = text.real(worst.get("score")), text.real(worst.get("baseline")) or 0.0
    state = "broken" if above(worst) else "leak" if worst.get("leaks") else str(worst.get("outcome"))
    state = "scored" if state == "score" else state
    says = f"{aim_in_words(aim, mine)}, under {policy}: {state}"
    if score is not None:
        says += f", {text.share(score)} where a trivial guess reaches {text.share(base)}"
    strength = 0.0 if score is None or base >= 1 else max(0.0, (score - base) / (1 - base))
    return {
        "policy": policy,
        "state": state,
        "text": text.share(score) if score is not None else state,
        "heat": round(14 + 36 * strength) if state in ("leak", "broken") else 0,
        "says": says + (" (some of its runs were not made)" if missing else ""),
    }


def _badness(cell: dict[str, Any]) -> tuple[Any, ...]:
    score, base = text.real(cell.get("score")), text.real(cell.get("baseline")) or 0.0
    rank = {"score": 2, "blind": 1}.get(str(cell.get("outcome")), 0)
    return above(cell), bool(cell.get("leaks")), rank, (score or 0.0) - base
