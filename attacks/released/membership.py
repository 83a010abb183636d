"""G3 and G4: whether a node was trained on, from what a published model and shadow models answer about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import OUTSIDER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.released.reading import NO_MODEL, OnReleased
from secure_fedgraph.protocol import View

MEMBERS = "nodes trained on"
CANDIDATES = "candidates and shadow models"
LEAST = 1e-12
"""A smaller probability counts as this one."""
FLATTEST = 0.05
"""Confidences of a published model that differ by less than this share of the shadows' are no flatter."""
GRANTED = (
    "candidates with features, label and links, half of whom coins put into the audited model's training; "
    "where models are personal, whose candidates they are, and that owner's model",
    "shadow models trained on halves of the same candidates",
)


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
    title = "whether a node was trained on, from the released model"
    subject = "membership in a released model's training"
    summary = "whether a node was trained on, by RMIA with shadow models"
    cost = "one more run, with half of the nodes, and eight shadow models: a minute on Cora"
    grants = GRANTED
    needs = (CANDIDATES,)
    controls = (Control("trained to the end", {"rounds": 20, "training.learning_rate": 0.01}),)
    stops: ClassVar[Mapping[str, str]] = {
        OUTSIDER: "noise in training: local_dp, distributed_dp, or steps.noise"
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The log ratio of every candidate ``[nodes]``."""
        values = {}
        for owner, one in _candidates(self, knowledge).items():
            inside = np.where(one.inside, one.shadows, 0).sum(0) / one.inside.sum(0)
            outside = np.where(one.inside, 0, one.shadows).sum(0) / (~one.inside).sum(0)
            usual = (inside + outside) / 2
            values[owner] = np.log(np.maximum(one.target, LEAST)) - np.log(np.maximum(usual, LEAST))
        return Guess(MEMBERS, values, {owner: (owner,) for owner in values}, 0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """For a service that returns labels only: whether it is right, less how often shadow models are."""
        values = {}
        for owner, one in _candidates(self, knowledge).items():
            easy = np.where(one.inside, 0, one.shadows).sum(0) / (~one.inside).sum(0)
            values[owner] = one.right.astype(float) * (2 - easy)
        return Guess(MEMBERS, values, {owner: (owner,) for owner in values}, 0)


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
    title = "whether a node was trained on, by the likelihoods of its confidence with and without it"
    subject = "membership by likelihood ratios"
    summary = "the same by LiRA with graph-aware shadow models"
    cost = "as g3-node-membership's, whose shadow models it shares"
    grants = GRANTED
    needs = (CANDIDATES,)
    controls = (Control("trained to the end", {"rounds": 20, "training.learning_rate": 0.01}),)
    stops: ClassVar[Mapping[str, str]] = NodeMembership.stops

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The log ratio of every candidate ``[nodes]``, by both questions."""
        return self._guess(knowledge, links=True)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """For a service that answers about each node without its links."""
        return self._guess(knowledge, links=False)

    def _guess(self, knowledge: Knowledge, *, links: bool) -> Guess:
        values = {}
        for owner, one in _candidates(self, knowledge).items():
            asked = [(one.target, one.shadows)] if links else []
            asked.append((one.alone, one.shadows_alone))
            target = np.stack([_confidence(mine) for mine, _ in asked], axis=-1)
            shadows = np.stack([_confidence(theirs) for _, theirs in asked], axis=-1)
            values[owner] = likelihood_ratio(target, shadows, one.inside)
        return Guess(MEMBERS, values, {owner: (owner,) for owner in values}, 0)


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
    scores: np.ndarray = (off * np.linalg.solve(covariance, gap.T).T).sum(1)
    return scores


def _confidence(probability: np.ndarray) -> np.ndarray:
    p = np.clip(probability, LEAST, 1 - LEAST)
    confidence: np.ndarray = np.log(p) - np.log1p(-p)
    return confidence


def _candidates(attack: Attack, knowledge: Knowledge) -> Mapping[str, Candidates]:
    candidates: Mapping[str, Candidates] = knowledge.facts[CANDIDATES]
    if not candidates:
        raise Blind(f"{attack.id}: {NO_MODEL}, or the run keeps no configuration to train shadow models with")
    return candidates
