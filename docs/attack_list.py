"""Prints every attack of the catalogue: who mounts it, what it reads, what it learns and what stops it.

    python docs/attack_list.py

``docs/attacks/all.md`` holds what this prints, between two comments; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator

from secure_fedgraph.attacks import ATTACKS, Attack

HEADS = ("attack", "who", "reads", "learns", "what stops it")


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each attack of this package, by catalogue code."""
    for kind in ATTACKS.own.values():
        who = ", ".join(kind.adversaries)
        deviates = "" if kind.behaviour == "honest-but-curious" else f" ({kind.behaviour})"
        channels = ", ".join(f"`{name}`" for name in kind.reads())
        yield f"`{kind.id}`", who + deviates, channels, kind.summary, _stops(kind)


def table() -> str:
    """The rows in Markdown."""
    lines = [HEADS, ("---",) * len(HEADS), *rows()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _stops(kind: type[Attack]) -> str:
    """What stops an attack, each sentence once, with whom it stops where readers differ."""
    if len(set(kind.stops.values())) <= 1:
        return next(iter(kind.stops.values()), "-")
    return "; ".join(f"*{who}:* {what}" for who, what in kind.stops.items())


if __name__ == "__main__":
    print(table())
