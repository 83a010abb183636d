"""The words in which a guarantee is stated: whose data, against whom, between which neighbours.

They are text as well: JSON, a ledger's lines and flags hold the same words. This module imports nothing.
"""

from __future__ import annotations

from enum import StrEnum


class _Word(StrEnum):
    """An error quotes a word as a user writes it."""

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


class Reader(_Word):
    """Against whom a guarantee holds. The ledger counts what each of them can read."""

    SERVER = "server"
    """The server: it reads whatever is sent to it."""
    PEERS = "peers"
    """The other clients: they read what the server sends them, and what clients send each other."""
    OUTSIDER = "outsider"
    """Whoever has the released model alone."""


class Relation(_Word):
    """Which two data sets are neighbours: what a guarantee says cannot be told apart."""

    ZERO_OUT = "zero-out"
    """One unit's contribution is there, or is zero."""
    ADD_REMOVE = "add-remove"
    """One unit is there, or is not."""
    REPLACE = "replace"
    """One unit is there, or another in its place."""
