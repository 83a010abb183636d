"""Carrying letters between the owners of an alignment: what the server does, and all that it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.alignment.letter import STEPS, Letter
from secure_fedgraph.deployment.alignment.result import Alignment
from secure_fedgraph.deployment.alignment.side import Side

Exchange = Callable[[Mapping[str, Sequence[Letter]]], Mapping[str, Sequence[Letter]]]
"""Hands each owner the letters to it, all at once, and brings what each writes. An owner that is handed none
for the first time starts; one that has nothing to write brings none."""


def relay(names: Sequence[str], exchange: Exchange) -> None:
    """Carries letters until nobody writes any more.

    Needs:
        - an exchange that asks every owner it is given, and raises where one fails: alignment needs all.

    Args:
        names: all owners.
        exchange: one round of messages; the first hands everybody nothing.

    Raises:
        HostileMessage: for a letter to nobody of the names, or under another's name, and for owners that do
            not stop to write.
    """
    waiting: dict[str, list[Letter]] = {name: [] for name in names}
    for _ in range(len(STEPS) + 1):
        written = exchange(waiting)
        waiting = {}
        for writer, letters in written.items():
            for letter in letters:
                if letter.sender != writer or letter.recipient not in names or letter.recipient == writer:
                    raise HostileMessage(f"{writer} wrote a letter that is not from it to another owner")
                waiting.setdefault(letter.recipient, []).append(letter)
        if not waiting:
            return
    raise HostileMessage("the owners write more letters than an alignment has steps")


def align_together(sides: Mapping[str, Side]) -> dict[str, Alignment]:
    """An alignment in one process, for tests and for trying it out.

    Args:
        sides: the hub and its members, by name.

    Raises:
        BadInput, HostileMessage: as the sides.
    """

    def exchange(letters: Mapping[str, Sequence[Letter]]) -> dict[str, list[Letter]]:
        return {name: _turn(sides[name], given) for name, given in letters.items()}

    relay(tuple(sides), exchange)
    found = {name: side.result for name, side in sides.items()}
    done = {name: result for name, result in found.items() if result is not None}
    if len(done) < len(found):
        raise BadInput(
            f"no alignment at {', '.join(sorted(set(found) - set(done)))}: give the hub and all members"
        )
    return done


def _turn(side: Side, letters: Sequence[Letter]) -> list[Letter]:
    return side.start() if not letters else [new for letter in letters for new in side.receive(letter)]
