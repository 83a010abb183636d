"""G7: an owner's links, from how far one node's features move the service's answer about another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import OUTSIDER, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.released.answers import LINKS
from secure_fedgraph.attacks.released.reading import NO_MODEL, OnReleased
from secure_fedgraph.protocol import View

SERVICE = "prediction service with features of the asker's choice"
MOST = 3000
"""Nodes of an owner that are asked about: a question each."""


@dataclass(frozen=True)
class Service:
    """A prediction service with a published model and one owner's links.

    Args:
        ask: ``[nodes, words]`` features -> ``[nodes, classes]`` log-probabilities of all nodes, by the
            owner's links.
        features: ``[nodes, words]`` as the asker has them.
    """

    ask: Callable[[np.ndarray], np.ndarray] = field(repr=False)
    features: np.ndarray = field(repr=False)


class LinkTeller(OnReleased):
    """G7: whoever may send features and get answers by an owner's links reads the links (LinkTeller).

    A node's answer depends on its neighbours' features, and where layers are two on their neighbours' too,
    but less. For each node the asker takes its features away and asks about all nodes; how far the
    probabilities of another node move is the influence of one on the other. The score of a pair is the
    smaller of both directions: a node with many links moves far ones too, and is hardly moved itself.

    **What is granted** is more than for G1: not only answers, but answers to features that the asker chooses,
    as often as the owner has nodes. That is the setting of the paper, where one party holds the features and
    the other the links, and buys predictions from it. A service that looks features up itself grants none of
    it.

    References:
        Wu et al., LinkTeller: Recovering Private Edges from Graph Neural Networks via Influence Analysis, S&P
        2022. Their perturbation is a small multiple of the features; taking them away also moves models that
        normalise a record's length.
    """

    id = "g7-link-teller"
    title = "an owner's links, by changing one node's features and asking about the others"
    subject = "links from influence on answers"
    summary = "an owner's links, from one node's influence on answers about others"
    cost = "one question about all of an owner's nodes for each node: half a minute on Cora"
    grants = (
        "a prediction service with the published model and an owner's links, which answers about all "
        "nodes for "
        "features that the asker sends, once for each node; for what is left, with labels only",
        "the features of that owner's nodes",
    )
    needs = (SERVICE,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops: ClassVar[Mapping[str, str]] = {
        OUTSIDER: "a service that takes no features or answers without links; labels alone leave less"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score for every pair of an owner's nodes ``[nodes * (nodes - 1) / 2]``."""
        return self._guess(knowledge, np.exp, 0.0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from a service that tells labels only: features are made thirty times as large instead."""
        return self._guess(knowledge, lambda logs: np.eye(logs.shape[1])[logs.argmax(1)], 30.0)

    def _guess(self, knowledge: Knowledge, told: Callable[[np.ndarray], np.ndarray], times: float) -> Guess:
        services: Mapping[str, Service] = knowledge.facts[SERVICE]
        if not services:
            raise Blind(f"{self.id}: {NO_MODEL}")
        values = {owner: _scores(one, told, times) for owner, one in services.items()}
        return Guess(LINKS, values, {owner: (owner,) for owner in values}, 0)


def _scores(service: Service, told: Callable[[np.ndarray], np.ndarray], times: float) -> np.ndarray:
    nodes = len(service.features)
    usual = told(service.ask(service.features))
    influence = np.zeros((nodes, nodes), dtype=np.float32)
    changed = service.features.copy()
    for node in np.linspace(0, nodes - 1, min(nodes, MOST)).astype(int):  # each is a question of its own
        changed[node] *= times
        influence[node] = np.abs(told(service.ask(changed)) - usual).sum(1)
        changed[node] = service.features[node]
    both = np.minimum(influence, influence.T) + 1e-3 * np.maximum(influence, influence.T)
    scores: np.ndarray = both[np.triu_indices(nodes, 1)]
    return scores
