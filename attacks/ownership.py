"""A7 and G6: which owner a training node belongs to, from each owner's updates or its own published model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from secure_fedgraph.attacks.attack import SERVER, Attack, Blind, Control, Guess, Knowledge, OfFirstUpdate
from secure_fedgraph.attacks.released import NO_MODEL, OnReleased
from secure_fedgraph.protocol import View

OWNERS_OF_NODES = "owners of nodes"
SHARED = 0.5
"""How much of what all nodes of a class share is taken off."""
EVIDENCE = "evidence of an upload about nodes"
OWN_ANSWERS = "answers of each owner's model about all training nodes"
NODES = (
    "the training nodes of all owners, with features, label and links, in no order that says whose they are",
)


@dataclass(frozen=True)
class Evidence:
    """The training nodes of all owners, and how well they fit to an upload.

    Args:
        labels: ``[nodes]``.
        of: what was broadcast, one owner's upload -> ``[nodes]``, larger where a node fits better.
    """

    labels: np.ndarray = field(repr=False)
    of: Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], np.ndarray] = field(repr=False)


class UpdateOwner(Attack):
    """A7: a training node belongs to the owner whose updates fit it best.

    After its own steps an owner's model is surer of the labels of the nodes that it trained on than another
    owner's. The evidence of a round is the log-probability of the node's label under the broadcast with one
    owner's update on top; the evidence of all rounds adds up, less what the owners' updates say in the mean,
    and less half of what it says about all nodes of the class.

    Ridge regression's uploads are moments. A node that is in a sum of ``z z^T`` is in its row space, and
    where an owner has fewer nodes than a record has numbers, others are not: the evidence is minus ``z^T (sum
    + ridge)^-1 z``.

    References:
        CC-MIA, Cross-Client Membership Inference in Federated Graph Learning, 2025 (arXiv 2507.19964).
    """

    id = "a7-node-owner"
    subject = "whose a training node is, from updates"
    family = "weights"
    summary = "whose each training node is, from single updates"
    adversaries = (SERVER,)
    channel = "update"
    also_reads = ("moments",)
    nothing_left = "a sum of all owners' updates is the same whoever of them holds a node"
    first_rounds = 5
    grants = NODES
    needs = (EVIDENCE,)
    controls = (Control("one epoch of Adam at 0.01", {"rounds": 1, "training.learning_rate": 0.01}),)
    depends_on = ("training.optimizer", "training.learning_rate", "training.epochs")
    stops = OfFirstUpdate.stops

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each owner ``[nodes]``: how much likelier than with another the node is with it."""
        evidence: Evidence | None = knowledge.facts[EVIDENCE]
        channel = self.channel_in_use(view)
        if evidence is None or channel not in view.public["channels"]:
            raise Blind(f"{self.id}: there are no updates of a classifier of nodes")
        uploads = self.single_uploads(view, channel)
        before = {seen.round: seen.values for seen in view.asked(channel)}
        totals: dict[str, np.ndarray] = {}
        for seen in uploads:
            (owner,) = seen.clients
            totals[owner] = totals.get(owner, 0) + evidence.of(before.get(seen.round, {}), seen.values)
        return _against_others(totals, evidence.labels, len(uploads))


@dataclass(frozen=True)
class OwnAnswers:
    """What each owner's own model answers about the training nodes of all.

    Args:
        sure: owner -> ``[nodes]`` log-probability of the node's label.
        right: owner -> ``[nodes]`` whether that label is its answer.
        labels: ``[nodes]``.
    """

    sure: Mapping[str, np.ndarray] = field(repr=False)
    right: Mapping[str, np.ndarray] = field(repr=False)
    labels: np.ndarray = field(repr=False)


class ModelOwner(OnReleased):
    """G6: the same from the owners' own models: a node belongs to the one whose model is surest of its label.

    A released model is the same for all owners, so it says whether a node was trained on (G3, G4), not whose
    it is.

    References:
        CC-MIA, Cross-Client Membership Inference in Federated Graph Learning, 2025 (arXiv 2507.19964).
    """

    id = "g6-node-owner"
    subject = "whose a training node is, from personal models"
    summary = "whose each training node is, from the owners' published models"
    grants = (
        *NODES,
        "each owner's own model, as it would publish it; for what is left, the labels it answers",
    )
    needs = (OWN_ANSWERS,)
    controls = (Control("trained to the end", {"rounds": 20, "training.learning_rate": 0.01}),)
    stops = "not publishing one owner's model; noise only where it ruins the model"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each owner ``[nodes]``: how much surer its model is of a node than the others'."""
        facts = self._facts(knowledge)
        return _against_others(facts.sure, facts.labels, 0)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """From services that tell labels only: whether each is right."""
        facts = self._facts(knowledge)
        return _against_others({o: one.astype(float) for o, one in facts.right.items()}, facts.labels, 0)

    def _facts(self, knowledge: Knowledge) -> OwnAnswers:
        facts: OwnAnswers | None = knowledge.facts[OWN_ANSWERS]
        if facts is None:
            raise Blind(f"{self.id}: {NO_MODEL}; a model of all owners is the same whoever holds a node")
        return facts


def _against_others(evidence: Mapping[str, np.ndarray], labels: np.ndarray, messages: int) -> Guess:
    """The evidence for each owner less the mean over owners, with half of what all nodes of a class share.

    An owner with many nodes of a class is surer of all of them, its own and others'. Taking all of that off
    would forget who has most of the class.
    """
    owners = list(evidence)
    scores = np.stack([evidence[owner] for owner in owners]).astype(np.float64)
    scores -= scores.mean(0)
    _, of = np.unique(labels, return_inverse=True)
    many = np.bincount(of)
    for row in scores:
        row -= SHARED * (np.bincount(of, weights=row) / many)[of]
    values = dict(zip(owners, scores, strict=True))
    return Guess.of_owners(OWNERS_OF_NODES, values, messages)
