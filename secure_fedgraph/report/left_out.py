"""Owners that a run went on without: a line for each, on the terminal and on its page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secure_fedgraph.experiment.schema.compare import Point
from secure_fedgraph.experiment.schema.run import LeftOut

MOST_OWNERS = 12
"""That have a line of their own."""
LONGEST = 300
"""Characters of a reason."""


def left_out(notes: Iterable[LeftOut]) -> list[str]:
    """Who was left out, in how many rounds, since which, and why the first time.

    Simulated drop-outs (``dropouts=``) are none of them: who is away did nothing wrong, and no result lists
    it.
    """
    by_owner: dict[tuple[int | None, str], list[tuple[int, str]]] = {}
    for note in notes:
        by_owner.setdefault((note.seed, note.client), []).append((note.round, note.reason))
    told = []
    for (seed, owner), when_and_why in list(by_owner.items())[:MOST_OWNERS]:
        rounds = {number for number, _ in when_and_why}
        first, why = min(when_and_why, key=lambda note: note[0])
        of_seed = "" if seed is None else f" of seed {seed}"
        if len(rounds) == 1:
            when = f"in round {first}{of_seed}"
        else:
            when = f"in {len(rounds)} rounds{of_seed}, first in round {first}"
        told.append(f"{owner} was left out {when}: {_shown(why)}.")
    more = len(by_owner) - len(told)
    if more:
        told.append(f"{more} more were left out: left_out in result.json lists them.")
    return told


def left_out_of(points: Sequence[Point]) -> list[str]:
    """The same of a comparison's runs, each line with its point's name."""
    return [f"{row.name}: {line}" for row in points for line in left_out(row.left_out)]


def _shown(why: str) -> str:
    """A reason, cut to a length, and without characters that steer a terminal."""
    kept = why if len(why) <= LONGEST else why[: LONGEST - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in kept).rstrip(".")
