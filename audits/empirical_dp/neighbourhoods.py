"""A small sample of guessed links for pictures: one node, its true neighbours and its guessed ones."""

from __future__ import annotations

from typing import Any

import numpy as np

FEWEST, MOST = 3, 8
"""The links of a node that is drawn; more than ``MOST`` neighbours of a kind are not shown."""


def best(scores: np.ndarray, links: int) -> np.ndarray:
    """``[pairs]`` booleans: the ``links`` best pairs, ties broken by chance."""
    tie = np.random.default_rng(0).random(len(scores))
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[np.lexsort((tie, -scores))[:links]] = True
    return chosen


def around(row: np.ndarray, column: np.ndarray, scores: np.ndarray, linked: np.ndarray) -> dict[str, Any]:
    """A node's true ego-graph and its guessed one, where the best ``|E|`` pairs are the guessed links.

    The node is drawn at random among those with ``FEWEST`` to ``MOST`` true links, never by how well it was
    guessed. Its true neighbours and its guessed ones are shown, and all links among them.

    Args:
        row, column: ``[pairs]`` the two nodes of each pair that there is a score for.
        scores: ``[pairs]``, higher is likelier.
        linked: ``[pairs]`` booleans.

    Returns:
        ``centre``, ``nodes``, the ``true`` and the ``guess`` links as pairs of nodes, and how many neighbours
        were ``left_out``; empty where no pair is linked.
    """
    if not linked.any():
        return {}
    rng = np.random.default_rng(0)
    guessed = best(scores, int(linked.sum()))
    degree = np.bincount(np.concatenate([row[linked], column[linked]]))
    few = np.flatnonzero((degree >= FEWEST) & (degree <= MOST))
    centre = int(rng.choice(few)) if len(few) else int(degree.argmax())
    near_centre = (row == centre) | (column == centre)
    other = np.where(row == centre, column, row)
    true = rng.permutation(other[near_centre & linked])
    order = np.flatnonzero(near_centre & guessed)
    guess = other[order[np.argsort(-scores[order], kind="stable")]]
    nodes = np.unique(np.concatenate([[centre], true[:MOST], guess[:MOST]]))
    among = np.isin(row, nodes) & np.isin(column, nodes)

    def pairs(which: np.ndarray) -> list[list[int]]:
        listed: list[list[int]] = np.stack([row[which], column[which]], 1).tolist()
        return listed

    return {
        "centre": centre,
        "nodes": nodes.tolist(),
        "true": pairs(among & linked),
        "guess": pairs(among & guessed),
        "left_out": int(len(np.union1d(true, guess)) + 1 - len(nodes)),
    }
