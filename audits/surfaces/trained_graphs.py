"""Whole graphs from updates: what attackers are granted of atoms, and the judge of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.weights.graph_structure import KINDS, TRAINED_GRAPHS
from secure_fedgraph.audits import scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.graph.kinds import GraphSetDataset

DRAWS = 200
"""Graphs of other owners that the trivial guess is measured with."""


@dataclass(frozen=True)
class Labelled:
    """A graph whose nodes have features."""

    features: np.ndarray
    links: np.ndarray

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A node's features as one word."""
        return tuple(row.tobytes().hex() for row in np.rint(self.features).astype(np.int16))

    @cached_property
    def around(self) -> list[list[int]]:
        """The neighbours of each node."""
        listed: list[list[int]] = [[] for _ in self.names]
        for one, other in self.links.T.tolist():
            listed[one].append(other)
            listed[other].append(one)
        return listed

    @cached_property
    def places(self) -> Counter[tuple[str, tuple[str, ...]]]:
        """How often each node with its neighbours occurs."""
        return Counter(
            (name, tuple(sorted(self.names[other] for other in others)))
            for name, others in zip(self.names, self.around, strict=True)
        )

    def same(self, other: Labelled) -> bool:
        """Whether one is the other with its nodes in another order."""
        if self.places != other.places or self.links.shape != other.links.shape:
            return False
        return bool(
            nx.is_isomorphic(self._graph(), other._graph(), node_match=lambda a, b: a["name"] == b["name"])
        )

    def placed(self, other: Labelled) -> float:
        """The share of nodes that have the same neighbours in the other, of the larger graph."""
        both = sum((self.places & other.places).values())
        return both / max(len(self.names), len(other.names))

    def _graph(self) -> nx.Graph:
        graph = nx.Graph()
        graph.add_nodes_from((i, {"name": name}) for i, name in enumerate(self.names))
        graph.add_edges_from(self.links.T.tolist())
        return graph


def kinds(finished: FinishedRun) -> np.ndarray:
    """``[kinds, columns + 1]``: what atoms of the data set look like, and how many neighbours each has.

    Empty where the data are no sets of graphs.
    """
    if finished.federation.schema.kind != GraphSetDataset.kind:
        return np.zeros((0, finished.federation.schema.features + 1))
    rows = []
    for graph in finished.federation.owners.values():
        degrees = np.bincount(graph.edge_index[0].numpy(), minlength=len(graph.x))
        rows.append(np.column_stack([graph.x.numpy(), degrees]))
    return np.unique(np.concatenate(rows).astype(np.float64), axis=0)


def training_graphs(finished: FinishedRun) -> dict[str, list[Labelled]]:
    """Owner -> its training graphs."""
    held = {}
    for owner, graph in finished.federation.owners.items():
        features, of = graph.x.numpy(), graph.graph.numpy()
        source, target = graph.edge_index.numpy()
        once = source < target
        source, target = source[once], target[once]
        starts = np.searchsorted(of, np.arange(len(graph.y) + 1))
        order = np.argsort(of[source], kind="stable")
        ends = np.searchsorted(of[source][order], np.arange(len(graph.y) + 1))
        links = np.stack([source, target])[:, order]
        held[owner] = [
            Labelled(features[starts[i] : starts[i + 1]], links[:, ends[i] : ends[i + 1]] - starts[i])
            for i in graph.train_mask.nonzero().flatten().tolist()
        ]
    return held


def graphs(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of the graphs asked for that are one of the owners' training graphs in every atom and link.

    A graph that was not recovered counts as wrong. The details have the share of nodes that are placed: that
    have the same features and the same neighbours as a node of the nearest training graph.

    Trivial: a graph of another owner, which whoever has graphs of this kind could name.
    """
    held = training_graphs(finished)
    right: list[bool] = []
    placed: list[float] = []
    for target, owners in guess.targets.items():
        own = [graph for owner in owners for graph in held[owner]]
        for one in guess.values[target]:
            graph = None if one is None else Labelled(one.atoms, one.links)
            right.append(graph is not None and any(graph.same(other) for other in own))
            placed.append(0.0 if graph is None else max(graph.placed(other) for other in own))
    exact, near = _trivial(guess, held)
    of = len(right)
    details = {
        "graphs": float(of),
        "nodes": float(max(sum(len(held[o]) for o in owners) for owners in guess.targets.values())),
        "nodes_placed": float(np.mean(placed)) if of else 0.0,
        "nodes_placed_by_another_owners_graph": near,
    }
    baselines, kind = {"another owner's graph": exact}, scoring.ScoreKind.ROWS
    return Judgement(scoring.independent("graphs exact", sum(right), of, baselines, details, kind))


def _trivial(guess: Guess, held: Mapping[str, Sequence[Labelled]]) -> tuple[float, float]:
    """How often another owner's graph is one of the owner's, and the share of nodes that it places."""
    rng = np.random.default_rng(0)
    exact, near = [], []
    for owners in guess.targets.values():
        own = [graph for owner in owners for graph in held[owner]]
        others = [graph for owner in held if owner not in owners or len(owners) > 1 for graph in held[owner]]
        for number in rng.integers(0, len(others), DRAWS // len(guess.targets)) if others else ():
            rest = [graph for graph in own if graph is not others[number]]
            exact.append(any(others[number].same(graph) for graph in rest))
            near.append(max((others[number].placed(graph) for graph in rest), default=0.0))
    return (float(np.mean(exact)), float(np.mean(near))) if exact else (0.0, 0.0)


JUDGES: Mapping[str, Judge] = {TRAINED_GRAPHS: graphs}
MAKERS: Mapping[str, Maker] = {KINDS: kinds}
