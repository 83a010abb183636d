"""G1 and G2: links and features, from what a released model answers about an owner's nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import OUTSIDER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.regression import fitted
from secure_fedgraph.attacks.released.reading import NO_MODEL, OnReleased
from secure_fedgraph.protocol import View

LINKS, WORDS = "links from answers", "words from embeddings"
ANSWERS, EMBEDDED = "answers of the released model", "embeddings of the released model"


@dataclass(frozen=True)
class Answers:
    """What a prediction service with the released model says about one owner's nodes.

    Args:
        with_links: ``[nodes, classes]`` log-probabilities, answered with the owner's links.
        without_links: the same, of every node by itself.
    """

    with_links: np.ndarray = field(repr=False)
    without_links: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Embedded:
    """Nodes as the released model embeds them: what its last layer reads, and what it answers.

    Args:
        embeddings: ``[nodes, width]``.
        answers: ``[nodes, classes]`` log-probabilities.
        words: ``[nodes, words]`` the features, of shadow nodes only.
    """

    embeddings: np.ndarray = field(repr=False)
    answers: np.ndarray = field(repr=False)
    words: np.ndarray | None = field(default=None, repr=False)


class LinkStealing(OnReleased):
    """G1: linked nodes get alike answers.

    The model averages neighbours, so two linked nodes' log-probabilities are near each other: the score of a
    pair is minus the squared distance. The model averages when it answers, so noise in training does not stop
    the attack. A service that answers without links still shows that linked nodes have similar features; who
    has the features knows that without a model.

    References:
        He et al., Stealing Links from Graph Neural Networks, USENIX Security 2021 (attack 0).
    """

    id = "g1-link-stealing"
    title = "an owner's links, from the released model's answers about its nodes"
    subject = "links from a released model's answers"
    summary = "an owner's links, from alike answers about two nodes"
    cost = "one matrix of distances an owner"
    grants = (
        "the answers of a prediction service with the released model about all of an owner's nodes, given "
        "with the owner's links; for what is left, of each node by itself",
    )
    needs = (ANSWERS,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops: ClassVar[Mapping[str, str]] = {
        OUTSIDER: "answers without links; noise only where it ruins the model"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score for every pair of an owner's nodes ``[nodes * (nodes - 1) / 2]``."""
        return _pairs({owner: one.with_links for owner, one in _answers(self, knowledge).items()})

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from a service that answers about every node by itself."""
        return _pairs({owner: one.without_links for owner, one in _answers(self, knowledge).items()})


class EmbeddingInversion(OnReleased):
    """G2: a decoder that was trained on a shadow graph reads words out of embeddings.

    The outsider has the released model and nodes of the same kind, embeds them, and fits a linear decoder
    that recovers the words. A network of two layers did no better on Cora and worse on small shadow graphs.

    References:
        Zhang et al., Inference Attacks Against Graph Neural Networks, USENIX Security 2022; Song and
        Raghunathan, Information Leakage in Embedding Models, CCS 2020.
    """

    id = "g2-embedding-inversion"
    title = "words of an owner's nodes, from embeddings by the released model"
    subject = "words from embeddings by a released model"
    summary = "words of an owner's nodes, from their published embeddings"
    cost = "one singular value decomposition of the shadow nodes' embeddings"
    grants = (
        "the embeddings of an owner's training nodes, as they would be published; for what is left, the "
        "released model's answers about them",
        "a shadow graph: the nodes of the owners' own graphs that nobody trained on, with the links between "
        "them; none of them is a node whose words are asked for",
    )
    needs = (EMBEDDED,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops: ClassVar[Mapping[str, str]] = {
        OUTSIDER: "nothing built; answers in place of embeddings leave less"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """``[training nodes, words]`` of each owner: how likely each word is."""
        return self._decoded(knowledge, lambda one: one.embeddings)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from the answers alone."""
        return self._decoded(knowledge, lambda one: one.answers)

    def _decoded(self, knowledge: Knowledge, part: Callable[[Embedded], np.ndarray]) -> Guess:
        facts: Mapping[str, Embedded] = knowledge.facts[EMBEDDED]
        shadow = facts.get("")
        if shadow is None or shadow.words is None:
            raise Blind(f"{self.id}: {NO_MODEL}, or its last layer is not apart, or there is no shadow graph")
        decode = fitted(np.asarray(part(shadow), dtype=np.float64), shadow.words.astype(np.float64))
        values = {owner: np.clip(decode(part(one)), 0, 1) for owner, one in facts.items() if owner}
        return Guess(WORDS, values, {owner: (owner,) for owner in values}, 0)


def _answers(attack: Attack, knowledge: Knowledge) -> Mapping[str, Answers]:
    answers: Mapping[str, Answers] = knowledge.facts[ANSWERS]
    if not answers:
        raise Blind(f"{attack.id}: {NO_MODEL}")
    return answers


def _pairs(answers: Mapping[str, np.ndarray]) -> Guess:
    values = {}
    for owner, log_probabilities in answers.items():
        # log-probabilities up to a constant are scores, whose differences are what the last layer read
        scores = log_probabilities - log_probabilities.mean(1, keepdims=True)
        lengths = np.square(scores).sum(1)
        apart = lengths[:, None] + lengths[None] - 2 * scores @ scores.T
        values[owner] = -apart[np.triu_indices(len(scores), 1)]
    return Guess(LINKS, values, {owner: (owner,) for owner in values}, 0)
