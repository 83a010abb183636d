"""The words in which a guarantee is stated: whose data, against whom, between which neighbours.

They are text as well: JSON, a ledger's lines and flags hold the same words. This module imports no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class _Word(StrEnum):
    """A word that an error quotes as a user writes it."""

    def __repr__(self) -> str:
        return repr(self.value)


class Unit(_Word):
    """Whose data a guarantee is about: what clipping bounds and the ledger counts.

    >>> Unit.NODE == "node", f"one {Unit.NODE}"
    (True, 'one node')
    """

    CLIENT = "client"
    """All data of one owner."""
    GRAPH = "graph"
    """One graph of a set, with its nodes and edges."""
    NODE = "node"
    """One node, with its features, its label and its edges."""
    EDGE = "edge"
    """One edge between two nodes."""
    LABEL = "label"
    """One node's label alone."""
    FEATURE = "feature"
    """One node's features alone."""


LARGER: Mapping[str, tuple[Unit, ...]] = {
    Unit.GRAPH: (Unit.CLIENT,),
    Unit.NODE: (Unit.CLIENT, Unit.GRAPH),
    Unit.EDGE: (Unit.CLIENT, Unit.GRAPH),
    Unit.LABEL: (Unit.CLIENT, Unit.GRAPH, Unit.NODE),
    Unit.FEATURE: (Unit.CLIENT, Unit.GRAPH, Unit.NODE),
}
"""Unit -> the larger units whose data hold all of its data."""


class Reader(_Word):
    """Against whom a guarantee holds. The ledger counts what each of them can read."""

    SERVER = "server"
    """The server: it reads whatever is sent to it."""
    PEERS = "peers"
    """The other clients: they read what the server sends them, and what clients send each other."""
    OUTSIDER = "outsider"
    """Who has the released model only."""


class Relation(_Word):
    """Which two data sets are neighbours: a guarantee bounds how well a reader can distinguish these."""

    ZERO_OUT = "zero-out"
    """One unit's contribution is present, or is zero."""
    ADD_REMOVE = "add-remove"
    """One unit is present, or is absent."""
    REPLACE = "replace"
    """One unit is present, or another in its place."""
