"""Attacks: each reads a View and nothing else. Scores are made in ``audits``, where the truth is.

Every attack is in :data:`ATTACKS` by its id, and can be imported from here by the name of its class.
"""

from __future__ import annotations

import sys

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Judge, Knowledge
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.registry import Registry, check_subclass, classes_below


def _own() -> dict[str, type[Attack]]:
    """Ordered by id, A1 to I3."""
    return dict(sorted(classes_below(sys.modules[__name__], Attack, "id").items()))  # type: ignore[type-abstract]


def _accepted(name: str, candidate: object) -> type[Attack]:
    return checked(check_subclass(name, candidate, Attack, "id"))  # type: ignore[type-abstract]


def checked(kind: type[Attack]) -> type[Attack]:
    """An attack with all that a result says of it.

    Raises:
        BadInput: where a class attribute is missing.
    """
    for key in ("id", "family", "summary", "channel"):
        if not getattr(kind, key, ""):
            raise BadInput(f"{kind.__name__} has no {key}: set the class attribute")
    return kind


ATTACKS: Registry[type[Attack]] = Registry("attack", "secure_fedgraph.attacks", _own, _accepted)
"""Every attack by its id: each class in this folder with an ``id``, and those of other packages."""


def families() -> list[str]:
    """The families of all attacks.

    >>> "weights" in families()
    True
    """
    return sorted({kind.family for kind in ATTACKS.values()})


def __getattr__(name: str) -> type[Attack]:
    for kind in ATTACKS.own.values() if name[:1].isupper() else ():
        if kind.__name__ == name:
            return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["ATTACKS", "Attack", "Blind", "Control", "Guess", "Judge", "Knowledge", "families"]
