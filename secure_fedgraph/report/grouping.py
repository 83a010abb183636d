"""Where a cell of an audit stands on the page, whether it refutes a claim, which guesses share a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from secure_fedgraph.experiment.schema.audit import Cell, NotRun, Reconstruction
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS

AS_CONFIGURED = "as configured"


@dataclass(frozen=True)
class Alike:
    """Policies under which an attack guessed the same.

    Args:
        policies: their names.
        record: the guess under the first of them.
        left_alike: whether the guess from what the defence leaves is the same as well.
    """

    policies: list[str]
    record: Reconstruction
    left_alike: bool = False


def anchor(algorithm: str, attack: str) -> str:
    """The id of an attack's rows in the outcome table.

    >>> anchor("fedsage+", "a1-vocabulary-support")
    'o-fedsage-2b-a1-vocabulary-support'
    """
    return "o-" + re.sub(r"[^A-Za-z0-9-]", lambda m: f"-{ord(m[0]):x}", f"{algorithm}-{attack}")


def title_of(cell: Cell) -> str:
    """What a cell's attack learns, in the audit's words; the attack's id where there are none."""
    return cell.title or cell.attack


def subject_of(told: Cell | NotRun | Reconstruction) -> str:
    """The same in a few words.

    >>> subject_of(NotRun(policy="masked", attack="d1-index-lists"))
    'index lists'
    >>> subject_of(NotRun(policy="masked", attack="d1-x", subject="links"))
    'links'
    """
    return told.subject or " ".join(told.attack.split("-")[1:]) or told.attack


def above(cell: Cell) -> bool:
    """Whether a score is surely above what a claimed epsilon allows."""
    return exceeds(at_least(cell.low, cell.surely_at_least), cell.ceiling)


def exceeds(least: float | None, ceiling: float | None) -> bool:
    """The same, of the two numbers."""
    return least is not None and ceiling is not None and least > ceiling


def at_least(low: float | None, surely_at_least: float | None) -> float | None:
    """The lower bound to compare with a ceiling; older files have only that of the 95 % interval.

    >>> at_least(0.8, 0.7), at_least(0.8, None)
    (0.7, 0.8)
    """
    return low if surely_at_least is None else surely_at_least


def alike(
    records: Sequence[Reconstruction], same: Callable[[Reconstruction, Reconstruction], bool]
) -> list[Alike]:
    """Policies under which one adversary, at one aim and in one setting, guessed the same.

    If the guess from what the defence leaves equals the guess about each owner, one of the two is kept.
    """
    groups: list[Alike] = []
    for record in records:
        place = (record.adversary, record.aim, record.variant)
        for group in groups:
            first = group.record
            if (first.adversary, first.aim, first.variant) == place and same(first, record):
                group.policies.append(record.policy)
                break
        else:
            groups.append(Alike([record.policy], record))
    return _without_twins(groups, same)


def _without_twins(
    groups: Sequence[Alike], same: Callable[[Reconstruction, Reconstruction], bool]
) -> list[Alike]:
    kept: list[Alike] = []
    for group in groups:
        record, place = group.record, (group.record.adversary, group.record.variant)
        for at, earlier in enumerate(kept):
            first = earlier.record
            beside_it = (first.adversary, first.variant) == place and first.aim == SINGLE_OWNERS
            if earlier.policies == group.policies and beside_it and same(first, record):
                kept[at] = replace(earlier, left_alike=True)
                break
        else:
            kept.append(group)
    return kept


def beside(group: Alike) -> str:
    """What a caption has to add: what the defence leaves, a control's settings, a search that was stopped."""
    record = group.record
    left = "" if record.aim == SINGLE_OWNERS else ", from what the defence leaves"
    left += ", and from what the defence leaves" if group.left_alike else ""
    control = f" ({record.variant})" if record.variant != AS_CONFIGURED else ""
    return left + control + (f"; {record.stopped}" if record.stopped else "")


def stem(code: str, policy: str, record: Reconstruction) -> str:
    """A picture's name, whatever the policy is called."""
    aim = "each" if record.aim == SINGLE_OWNERS else "union"
    control = [] if record.variant == AS_CONFIGURED else ["control"]
    return file_stem(code, policy, record.adversary, aim, *control)


def file_stem(*parts: str) -> str:
    """A name that can stand in a file system and in an id.

    >>> file_stem("d1", "my policy", "client", "each")
    'd1-my-policy-client-each'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9_]+", "-", part).strip("-") or "x" for part in parts)
