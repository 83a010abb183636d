"""Attacks that change what is sent: a client or a server that plays against the protocol's honest parties."""

from __future__ import annotations

from secure_fedgraph.algorithm import Algorithm


def disguised(played: type[Algorithm], kind: type[Algorithm]) -> type[Algorithm]:
    """A variant of an algorithm under its name, whose owners take what an honest party may ask of them."""
    played.takes = kind.takes  # type: ignore[method-assign]
    played.honest = kind  # type: ignore[attr-defined]  # for judges that compare with it
    played.__qualname__ = played.__name__ = f"Played{kind.__name__}"
    return played
