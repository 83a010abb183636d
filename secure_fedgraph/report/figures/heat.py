"""The leak heat map: attacks down, policies across, for each algorithm; the numbers are one click away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secure_fedgraph.experiment.schema.audit import Cell, NotRun
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.grouping import above, anchor, subject_of
from secure_fedgraph.report.outcomes import aim_in_words

SHORT = {SINGLE_OWNERS: "each owner"}


def heat_map(cells: Sequence[Cell], not_run: Sequence[NotRun], policies: Sequence[str]) -> dict[str, object]:
    """For each attack and aim the worst of its cells under each policy: all settings, adversaries and seeds.

    Returns:
        ``policies`` and ``groups``: for each algorithm its ``rows``, each with ``places``.
    """
    both: list[Cell | NotRun] = [*cells, *not_run]
    shown = [p for p in policies if any(c.policy == p for c in both)]
    groups: list[dict[str, object]] = []
    for algorithm in dict.fromkeys(c.algorithm for c in both):
        mine = [c for c in cells if c.algorithm == algorithm]
        not_made = [c for c in not_run if c.algorithm == algorithm]
        attacks = dict.fromkeys(c.attack for c in both if c.algorithm == algorithm)
        rows = [
            row
            for attack in attacks
            for row in _rows(
                [c for c in mine if c.attack == attack], [c for c in not_made if c.attack == attack], shown
            )
        ]
        groups.append({"algorithm": text.named(text.ALGORITHMS, algorithm), "rows": rows})
    return {"policies": shown, "groups": groups}


def _rows(
    cells: Sequence[Cell], not_made: Sequence[NotRun], policies: Sequence[str]
) -> list[dict[str, object]]:
    """One attack's, a row for each aim."""
    first = cells[0] if cells else not_made[0]
    return [
        {
            "attack": first.attack,
            "code": first.attack.split("-")[0].upper(),
            "subject": subject_of(first),
            "aim": _short(aim, [c for c in cells if _aim(c) == aim]),
            "href": anchor(first.algorithm, first.attack),
            "run": bool(cells),
            "places": [
                _place(p, aim, [c for c in cells if c.policy == p], any(c.policy == p for c in not_made))
                for p in policies
            ],
        }
        for aim in dict.fromkeys(_aim(c) for c in cells) or {SINGLE_OWNERS: None}
    ]


def _short(aim: str, cells: Iterable[Cell]) -> str:
    owners = {c.owners for c in cells if c.owners}
    return SHORT.get(aim, "each, from what is left" if owners == {1} else "all together")


def _aim(cell: Cell) -> str:
    return cell.settings.aim or SINGLE_OWNERS


def _place(policy: str, aim: str, cells: Sequence[Cell], missing: bool) -> dict[str, object]:
    """The worst of the cells of one aim; ``missing``: some of an attack's cells were not run."""
    mine = [c for c in cells if _aim(c) == aim]
    if not mine:  # nothing was sent, so nothing was left
        mine = [c for c in cells if c.outcome == "refused"]
    worst = max(mine, key=_badness, default=None)
    if worst is None:
        return {
            "policy": policy,
            "state": "absent",
            "text": "not run" if missing else text.MISSING,
            "heat": 0,
            "says": "",
        }
    score, base = worst.score, worst.baseline or 0.0
    state = "broken" if above(worst) else "leak" if worst.leaks else str(worst.outcome)
    state = "scored" if state == "score" else state
    says = f"{aim_in_words(aim, mine)}, under policy {policy}: {state}"
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


def _badness(cell: Cell) -> tuple[bool, bool, int, float]:
    rank = {"score": 2, "blind": 1}.get(cell.outcome, 0)
    return above(cell), cell.leaks, rank, (cell.score or 0.0) - (cell.baseline or 0.0)
