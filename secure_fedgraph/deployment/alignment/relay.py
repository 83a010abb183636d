"""Carrying letters between the owners of an alignment: what the server does, and all that it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.alignment.result import Alignment
from secure_fedgraph.deployment.alignment.side import Side
from secure_fedgraph.deployment.alignment.terms import STEPS, Letter

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
    """An alignment of the hub and all members in one process, to try it out; raises what the sides raise."""

    def exchange(letters: Mapping[str, Sequence[Letter]]) -> dict[str, list[Letter]]:
        return {
            name: [new for one in given for new in sides[name].receive(one)] if given else sides[name].start()
            for name, given in letters.items()
        }

    relay(tuple(sides), exchange)
    return {name: side.result for name, side in sides.items() if side.result is not None}
