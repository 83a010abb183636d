"""Where a cell of an audit stands on the page, whether it refutes a claim, which guesses share a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from secure_fedgraph.report import text

AS_CONFIGURED = "as configured"
EACH = "each owner"
Record = Mapping[str, Any]


def anchor(algorithm: str, attack: str) -> str:
    """The id of an attack's rows in the outcome table.

    >>> anchor("fedsage+", "a1-vocabulary-support")
    'o-fedsage-2b-a1-vocabulary-support'
    """
    return "o-" + re.sub(r"[^A-Za-z0-9-]", lambda m: f"-{ord(m[0]):x}", f"{algorithm}-{attack}")


def title_of(cell: Record) -> str:
    """What a cell's attack learns, in the audit's words; the attack's id where there are none."""
    return str(cell.get("title") or cell.get("attack"))


def subject_of(cell: Record) -> str:
    """The same in a few words.

    >>> subject_of({"attack": "d1-index-lists"}), subject_of({"attack": "d1-x", "subject": "links"})
    ('index lists', 'links')
    """
    attack = str(cell.get("attack"))
    return str(cell.get("subject") or " ".join(attack.split("-")[1:]) or attack)


def above(cell: Record) -> bool:
    """Whether a score is surely above what a claimed epsilon allows."""
    least, ceiling = at_least(cell), text.real(cell.get("ceiling"))
    return least is not None and ceiling is not None and least > ceiling


def at_least(cell: Record) -> float | None:
    """The lower bound to compare with a ceiling; older files have only that of the 95 % interval.

    >>> at_least({"low": 0.8, "surely_at_least": 0.7}), at_least({"low": 0.8})
    (0.7, 0.8)
    """
    least = text.real(cell.get("surely_at_least"))
    return text.real(cell.get("low")) if least is None else least


def exact_of_too_few(cell: Record) -> bool:
    """Whether a guess is entirely right, but of so few terms that the interval includes luck.

    >>> exact_of_too_few({"score": 1.0, "leaks": False, "baseline": 0.6})
    True
    """
    trivial = text.real(cell.get("baseline")) or 0.0
    return cell.get("score") == 1 and not cell.get("leaks") and trivial < 1


def by_place(guesses: Sequence[Record], fit: Callable[[Record], bool]) -> list[Record]:
    """One guess a policy, adversary and aim: as configured, or else of the first control that fits."""
    kept: dict[tuple[str, ...], Record] = {}
    for record in sorted(guesses, key=lambda r: r.get("variant", AS_CONFIGURED) != AS_CONFIGURED):
        place = tuple(str(record.get(key, "")) for key in ("policy", "adversary", "aim"))
        if place not in kept and fit(record):
            kept[place] = record
    return list(kept.values())


def alike(
    records: Sequence[Record], same: Callable[[Record, Record], bool]
) -> list[tuple[list[str], Record]]:
    """Policies under which one adversary, at one aim and in one setting, guessed the same.

    If the guess from what the defence leaves equals the guess about each owner, one of the two is kept.
    """
    groups: list[tuple[list[str], Record]] = []
    for record in records:
        for policies, first in groups:
            place = all(first.get(key) == record.get(key) for key in ("adversary", "aim", "variant"))
            if place and same(first, record):
                policies.append(str(record.get("policy")))
                break
        else:
            groups.append(([str(record.get("policy"))], record))
    return _without_twins(groups, same)


def _without_twins(
    groups: list[tuple[list[str], Record]], same: Callable[[Record, Record], bool]
) -> list[tuple[list[str], Record]]:
    kept: list[tuple[list[str], Record]] = []
    for policies, record in groups:
        for at, (others, first) in enumerate(kept):
            place = all(first.get(key) == record.get(key) for key in ("adversary", "variant"))
            if others == policies and place and first.get("aim") == EACH and same(first, record):
                kept[at] = others, {**first, "left_alike": True}
                break
        else:
            kept.append((policies, record))
    return kept


def beside(record: Record) -> str:
    """What a caption has to add: what the defence leaves, a control's settings, a search that was stopped."""
    variant, stopped = record.get("variant", AS_CONFIGURED), record.get("stopped")
    left = "" if record.get("aim") == EACH else ", from what the defence leaves"
    left += ", and from what the defence leaves" if record.get("left_alike") else ""
    control = f" ({variant})" if variant != AS_CONFIGURED else ""
    return left + control + (f"; {stopped}" if stopped else "")


def stem(code: str, policy: str, record: Record) -> str:
    """A picture's name, fit for a file system and an id, whatever the policy is called.

    >>> stem("d1", "my policy", {"adversary": "client", "aim": "each owner"})
    'd1-my-policy-client-each'
    """
    adversary, aim = str(record.get("adversary", "server")), "each" if record.get("aim") == EACH else "union"
    return "-".join(
        re.sub(r"[^A-Za-z0-9_]+", "-", p).strip("-") or "x" for p in (code, policy, adversary, aim)
    )
