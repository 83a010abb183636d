"""G1 to G4 and G7: links, words and members, from what published models answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.attacks.attack import OUTSIDER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.linear import fitted
from secure_fedgraph.protocol import View

LINKS, WORDS, MEMBERS = "links from answers", "words from embeddings", "nodes trained on"
ANSWERS, EMBEDDED = "answers of the released model", "embeddings of the released model"
SERVICE = "prediction service with features of the asker's choice"
CANDIDATES = "candidates and shadow models"
MOST = 3000
"""Nodes of an owner that are asked about: a question each."""
LEAST = 1e-12
"""A smaller probability counts as this one."""
FLATTEST = 0.05
"""Confidences of a published model that differ by less than this share of the shadows' are no flatter."""
NO_MODEL = (
    "no model that classifies nodes was released, and no owner has one of its own that it could publish "
    "(the folder of a finished run keeps none)"
)
GRANTED = (
    "candidates with features, label and links, half of whom coins put into the audited model's training; "
    "where models are personal, whose candidates they are, and that owner's model",
    "shadow models trained on halves of the same candidates",
)


class OnReleased(Attack):
    """An attack by somebody who has what a run published, and reads no message.

    ``channel`` and ``also_reads`` name the channels that a model comes from: an algorithm that has none of
    them is not attacked.
    """

    family = "released"
    adversaries = (OUTSIDER,)
    channel = "update"
    also_reads = ("moments", "class_sums", "personal_model")
    first_rounds = 0
    depends_on = ("rounds", "training.learning_rate", "training.epochs")

    def granted(self, knowledge: Knowledge) -> Any:
        """The fact that it needs, or Blind where there is no model that it could be made of."""
        (name,) = self.needs
        if not knowledge.facts[name]:
            raise Blind(f"{self.id}: {NO_MODEL}")
        return knowledge.facts[name]


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
    subject = "links from a released model's answers"
    summary = "an owner's links, from alike answers about two nodes"
    grants = (
        "the answers of a prediction service with the released model about all of an owner's nodes, given "
        "with the owner's links; for what is left, of each node by itself",
    )
    needs = (ANSWERS,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops = "answers without links; noise only where it ruins the model"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score for every pair of an owner's nodes ``[nodes * (nodes - 1) / 2]``."""
        return _pairs({owner: one.with_links for owner, one in self.granted(knowledge).items()})

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from a service that answers about every node by itself."""
        return _pairs({owner: one.without_links for owner, one in self.granted(knowledge).items()})


class EmbeddingInversion(OnReleased):
    """G2: a decoder that was trained on a shadow graph reads words out of embeddings.

    The outsider has the released model and nodes of the same kind, embeds them, and fits a linear decoder
    that recovers the words. A network of two layers did no better on Cora and worse on small shadow graphs.

    References:
        Zhang et al., Inference Attacks Against Graph Neural Networks, USENIX Security 2022; Song and
        Raghunathan, Information Leakage in Embedding Models, CCS 2020.
    """

    id = "g2-embedding-inversion"
    subject = "words from embeddings by a released model"
    summary = "words of an owner's nodes, from their published embeddings"
    grants = (
        "the embeddings of an owner's training nodes, as they would be published; for what is left, the "
        "released model's answers about them",
        "a shadow graph: the nodes of the owners' own graphs that nobody trained on, with the links between "
        "them; none of them is a node whose words are asked for",
    )
    needs = (EMBEDDED,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops = "nothing built; answers in place of embeddings leave less"

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
        return Guess.of_owners(WORDS, values, 0)


def _pairs(answers: Mapping[str, np.ndarray]) -> Guess:
    values = {}
    for owner, log_probabilities in answers.items():
        # log-probabilities up to a constant are scores, whose differences are what the last layer read
        scores = log_probabilities - log_probabilities.mean(1, keepdims=True)
        lengths = np.square(scores).sum(1)
        apart = lengths[:, None] + lengths[None] - 2 * scores @ scores.T
        values[owner] = -apart[np.triu_indices(len(scores), 1)]
    return Guess.of_owners(LINKS, values, 0)


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
    subject = "links from influence on answers"
    summary = "an owner's links, from one node's influence on answers about others"
    grants = (
        "a prediction service with the published model and an owner's links, which answers about all "
        "nodes for "
        "features that the asker sends, once for each node; for what is left, with labels only",
        "the features of that owner's nodes",
    )
    needs = (SERVICE,)
    controls = (Control("released after 20 rounds", {"rounds": 20}),)
    stops = "a service that takes no features or answers without links; labels alone leave less"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A score for every pair of an owner's nodes ``[nodes * (nodes - 1) / 2]``."""
        return self._guess(knowledge, np.exp, 0.0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from a service that tells labels only: features are made thirty times as large instead."""
        return self._guess(knowledge, lambda logs: np.eye(logs.shape[1])[logs.argmax(1)], 30.0)

    def _guess(self, knowledge: Knowledge, told: Callable[[np.ndarray], np.ndarray], times: float) -> Guess:
        services = self.granted(knowledge).items()
        values = {owner: _scores(one, told, times) for owner, one in services}
        return Guess.of_owners(LINKS, values, 0)


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
    return both[np.triu_indices(nodes, 1)]


@dataclass(frozen=True)
class Candidates:
    """What the published model and the shadow models say about one owner's candidates.

    A probability is of a node's own label. "Alone" is the answer about the node without its links.

    Args:
        target: ``[nodes]`` the published model's probability.
        right: ``[nodes]`` whether that label is its answer.
        shadows: ``[models, nodes]`` the shadow models' probabilities.
        inside: ``[models, nodes]`` which nodes a shadow model was trained on; each node is in half of them.
        alone: ``[nodes]`` as ``target``, alone.
        shadows_alone: ``[models, nodes]`` as ``shadows``, alone.
    """

    target: np.ndarray = field(repr=False)
    right: np.ndarray = field(repr=False)
    shadows: np.ndarray = field(repr=False)
    inside: np.ndarray = field(repr=False)
    alone: np.ndarray = field(repr=False)
    shadows_alone: np.ndarray = field(repr=False)


class NodeMembership(OnReleased):
    """G3: whether a node, with the links at it, was among those trained on (RMIA).

    The score is the likelihood ratio ``p(y | x, model) / p(y | x)``, whose denominator is the mean over
    shadow models of which half had the node. RMIA also compares the ratio with those of a population. That is
    monotone in the ratio, so it sets a threshold but does not change the order, and is left out.

    Candidates are exchangeable: a coin put each in or out, with its links, before the audited model was
    trained. Training and test nodes of one graph would not do: test nodes stay in the graph as neighbours, so
    only the use of their labels differs.

    References:
        Zarifzadeh, Liu, Shokri, Low-Cost High-Power Membership Inference Attacks, ICML 2024; Carlini et al.,
        Membership Inference Attacks From First Principles, S&P 2022.
    """

    id = "g3-node-membership"
    subject = "membership in a released model's training"
    summary = "whether a node was trained on, by RMIA with shadow models"
    grants = GRANTED
    needs = (CANDIDATES,)
    controls = (Control("trained to the end", {"rounds": 20, "training.learning_rate": 0.01}),)
    stops = "noise in training: local_dp, distributed_dp, or steps.noise"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The log ratio of every candidate ``[nodes]``."""
        values = {}
        for owner, one in self.granted(knowledge).items():
            inside = np.where(one.inside, one.shadows, 0).sum(0) / one.inside.sum(0)
            outside = np.where(one.inside, 0, one.shadows).sum(0) / (~one.inside).sum(0)
            usual = (inside + outside) / 2
            values[owner] = np.log(np.maximum(one.target, LEAST)) - np.log(np.maximum(usual, LEAST))
        return Guess.of_owners(MEMBERS, values, 0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """For a service that returns labels only: whether it is right, less how often shadow models are."""
        values = {}
        for owner, one in self.granted(knowledge).items():
            easy = np.where(one.inside, 0, one.shadows).sum(0) / (~one.inside).sum(0)
            values[owner] = one.right.astype(float) * (2 - easy)
        return Guess.of_owners(MEMBERS, values, 0)


class NodeLikelihoodRatio(OnReleased):
    """G4: the same question by LiRA, with shadow models and questions that know the graph.

    A model's confidence in a node's label, ``log(p / (1 - p))``, is near a Gaussian over models that had the
    node, and near another over models that had not: a shadow model that had not the node had not its links
    either. The score is the ratio of the two densities at the published model's confidence. Each node is
    asked about twice, in its neighbourhood and without its links, and the two confidences are one Gaussian
    vector: what a node's own features give away is not diluted by its neighbours in the second.

    Few shadow models give each node's two means; the covariance is all nodes' together, as Carlini et al.
    have it for few models. The published model was not trained as the shadows were, so its confidences are
    first brought to the shadows' level and spread, by a line through all candidates, of whom half are in.
    Without that line the score is worse than RMIA's on Cora.

    References:
        Carlini et al., Membership Inference Attacks From First Principles, S&P 2022; He et al., Node-Level
        Membership Inference Attacks Against Graph Neural Networks, 2021 (asking with and without links).
    """

    id = "g4-node-likelihood-ratio"
    subject = "membership by likelihood ratios"
    summary = "the same by LiRA with graph-aware shadow models"
    grants = GRANTED
    needs = (CANDIDATES,)
    controls = (Control("trained to the end", {"rounds": 20, "training.learning_rate": 0.01}),)
    stops = NodeMembership.stops

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The log ratio of every candidate ``[nodes]``, by both questions."""
        return self._guess(knowledge, links=True)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """For a service that answers about each node without its links."""
        return self._guess(knowledge, links=False)

    def _guess(self, knowledge: Knowledge, *, links: bool) -> Guess:
        values = {}
        for owner, one in self.granted(knowledge).items():
            asked = [(one.target, one.shadows)] if links else []
            asked.append((one.alone, one.shadows_alone))
            target = np.stack([_confidence(mine) for mine, _ in asked], axis=-1)
            shadows = np.stack([_confidence(theirs) for _, theirs in asked], axis=-1)
            values[owner] = likelihood_ratio(target, shadows, one.inside)
        return Guess.of_owners(MEMBERS, values, 0)


def likelihood_ratio(target: np.ndarray, shadows: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The log of the density with a node over that without it, ``[nodes]``, of Gaussians with one covariance.

    The difference of a node's two means is taken half from the node and half from all nodes.

    Args:
        target: ``[nodes, questions]`` confidences of the published model.
        shadows: ``[models, nodes, questions]`` of the shadow models.
        inside: ``[models, nodes]`` which nodes each had.

    >>> shadows = np.array([[[2.0], [3.0]], [[1.0], [2.0]], [[0.0], [1.0]], [[-1.0], [0.0]]])
    >>> inside = np.array([[True, True], [True, True], [False, False], [False, False]])
    >>> likelihood_ratio(np.array([[0.5], [1.5]]), shadows, inside).round(3).tolist()
    [0.0, 0.0]
    """
    held = inside[..., None]
    with_it = np.where(held, shadows, 0).sum(0) / held.sum(0)
    without = np.where(held, 0, shadows).sum(0) / (~held).sum(0)
    apart = (shadows - np.where(held, with_it, without)).reshape(-1, shadows.shape[-1])
    lost = 2 * shadows.shape[1]  # two means a node
    covariance = apart.T @ apart / max(len(apart) - lost, 1) + 1e-6 * np.eye(apart.shape[1])
    middle, gap = (with_it + without) / 2, with_it - without
    gap = (gap + gap.mean(0)) / 2
    spread = middle - middle.mean(0)
    slope = (spread * (target - target.mean(0))).sum(0) / np.maximum(np.square(spread).sum(0), LEAST)
    slope = np.maximum(slope, FLATTEST)
    off = (target - target.mean(0)) / slope - spread
    return np.asarray((off * np.linalg.solve(covariance, gap.T).T).sum(1))


def _confidence(probability: np.ndarray) -> np.ndarray:
    p = np.clip(probability, LEAST, 1 - LEAST)
    return np.asarray(np.log(p) - np.log1p(-p))
