"""The audit's cells as a table: attacks down, policies across, with every number one click away."""

from __future__ import annotations

from collections.abc import Sequence

from secure_fedgraph.experiment.schema.audit import Cell, NotRun
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS, without_owners
from secure_fedgraph.report import text
from secure_fedgraph.report.grouping import AS_CONFIGURED, above, aim_of, anchor, code_of, subject_of

HEADS = ("policy", "about", "setting", "by", "seed", "result", "score", "trivial guess", "more")
"""Of the numbers of one attack."""


def leak_table(
    cells: Sequence[Cell], not_run: Sequence[NotRun], policies: Sequence[str]
) -> dict[str, object]:
    """For each attack and aim the worst of its cells under each policy: all settings, adversaries and seeds.

    Returns:
        ``policies``, ``heads`` of the numbers, and ``groups``: for each algorithm its ``attacks``, each with
        ``rows`` and ``numbers``.
    """
    both: list[Cell | NotRun] = [*cells, *not_run]
    shown = [p for p in policies if any(c.policy == p for c in both)]
    places: dict[str, dict[str, tuple[list[Cell], list[NotRun]]]] = {}
    for one in both:
        mine, missing = places.setdefault(one.algorithm, {}).setdefault(one.attack, ([], []))
        mine.append(one) if isinstance(one, Cell) else missing.append(one)
    groups = [
        {
            "algorithm": text.named(text.ALGORITHMS, algorithm),
            "attacks": [_attack(mine, missing, shown) for mine, missing in attacks.values()],
        }
        for algorithm, attacks in places.items()
    ]
    return {"policies": shown, "heads": HEADS, "groups": groups}


def _attack(cells: list[Cell], missing: list[NotRun], policies: Sequence[str]) -> dict[str, object]:
    first = (cells or missing)[0]
    aims = dict.fromkeys(_aim(c) for c in cells) or {SINGLE_OWNERS: None}
    readers = dict.fromkeys((c.behaviour, c.adversary, c.channel) for c in cells)
    return {
        "attack": first.attack,
        "code": code_of(first),
        "subject": subject_of(first),
        "title": first.title,
        "id": anchor(first.algorithm, first.attack),
        "by": [(text.named(text.ADVERSARIES, who), how, what) for how, who, what in readers],
        "stops": list(dict.fromkeys(c.stops for c in cells if c.leaks and c.stops)),
        "rows": [
            {
                "aim": about(aim, [c for c in cells if _aim(c) == aim]),
                "places": [
                    _place(aim, [c for c in cells if c.policy == p], any(c.policy == p for c in missing))
                    for p in policies
                ],
            }
            for aim in aims
        ],
        "numbers": [_numbers(cell) for cell in cells],
    }


def about(aim: str, cells: Sequence[Cell]) -> str:
    """Whom cells of one aim are about, in words: guesses at what is left may be about single owners."""
    if aim != RESIDUAL:
        return aim
    single = {aim_of(cell) for cell in cells} == {SINGLE_OWNERS}
    return "each, from what is left" if single else "all together"


def _aim(cell: Cell) -> str:
    return cell.settings.aim or SINGLE_OWNERS


def _place(aim: str, cells: Sequence[Cell], missing: bool) -> dict[str, object]:
    """The worst of the cells of one aim; ``missing``: some of an attack's cells were not run."""
    mine = [c for c in cells if _aim(c) == aim]
    # a refused run sent nothing, so nothing was left
    worst = max(mine or [c for c in cells if c.outcome == "refused"], key=_badness, default=None)
    if worst is None:
        return {"state": "absent", "text": "not run" if missing else text.MISSING, "heat": 0}
    state = "broken" if above(worst) else "leak" if worst.leaks else worst.outcome
    score, base = worst.score, worst.baseline or 0.0
    strength = 0.0 if score is None or base >= 1 else max(0.0, (score - base) / (1 - base))
    return {
        "state": "scored" if state == "score" else state,
        "text": state if score is None else text.share(score),
        "verdict": without_owners(worst.verdict),
        "heat": round(14 + 36 * strength) if state in ("leak", "broken") else 0,
    }


def _badness(cell: Cell) -> tuple[bool, bool, int, float]:
    rank = {"score": 2, "blind": 1}.get(cell.outcome, 0)
    return above(cell), cell.leaks, rank, (cell.score or 0.0) - (cell.baseline or 0.0)


def _numbers(cell: Cell) -> list[str]:
    """A cell as a line of the numbers."""
    score, trivial = text.MISSING, text.MISSING
    if cell.score is not None:
        score = f"{text.share(cell.score)} ({text.share(cell.low)} to {text.share(cell.high)}) {cell.metric}"
        trivial = text.share(cell.baseline)
    more = [cell.reason] if cell.reason else []
    more += [f"guess {name} {text.share(value)}" for name, value in cell.baselines.items()]
    told = {**cell.details, **cell.settings.others()}
    more += [f"{key} = {text.plain(value)}" for key, value in told.items() if value is not None]
    if cell.ceiling is not None:
        more.append(f"ceiling of any attack {text.share(cell.ceiling)}{_claimed(cell)}")
    return [
        cell.policy,
        about(_aim(cell), [cell]),
        cell.settings.variant or AS_CONFIGURED,
        text.named(text.ADVERSARIES, cell.adversary),
        str(cell.seed),
        without_owners(cell.verdict) or cell.outcome,
        score,
        trivial,
        "; ".join(more),
    ]


def _claimed(cell: Cell) -> str:
    if cell.claim is None:
        return ""
    together = f", {cell.claim.units} of them together" if cell.claim.units > 1 else ""
    return (
        f" by ε = {text.epsilon(cell.claim.epsilon)} for {text.named(text.UNITS, cell.claim.unit)}{together}"
    )
