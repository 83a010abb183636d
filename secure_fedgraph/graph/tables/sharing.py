"""Ids that two owners have: the same person is two records then, and every budget has to say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping

NAMED = 3
"""So many shared ids are named."""


def shared_ids(ids: Mapping[str, Collection[str]], holders: int = 1) -> str:
    """What there is to say about ids that more owners have than may hold the same node; empty for nothing.

    Args:
        ids: each owner's, by its name.
        holders: how many owners may hold the same node.

    >>> print(shared_ids({"a": ["x", "y"], "b": ["y", "z"], "c": ["y"]}))
    1 id is at several owners ('y'; 3 of them hold it), and each counts as another node: if they name the
    same, set holders to 3 (--set holders=3), and a budget for one node counts all 3
    >>> shared_ids({"a": ["x"], "b": ["y"]}), shared_ids({"a": ["x"], "b": ["x"]}, holders=2)
    ('', '')
    """
    counts: dict[str, int] = {}
    for own in ids.values():
        for one in set(own):
            counts[one] = counts.get(one, 0) + 1
    most = max(counts.values(), default=1)
    if most <= max(holders, 1):
        return ""
    shared = sorted(one for one, count in counts.items() if count > 1)
    named = ", ".join(repr(one[:40]) for one in shared[:NAMED]) + (", …" if len(shared) > NAMED else "")
    are, them = ("id is", "hold it") if len(shared) == 1 else ("ids are", "hold one")
    return (
        f"{len(shared):,} {are} at several owners ({named}; {'' if len(shared) == 1 else 'up to '}{most} of "
        f"them {them}), and each counts as another node: if they name the same, set holders to {most} "
        f"(--set holders={most}), and a budget for one node counts all {most}"
    )
