"""Training NeighGen on one owner's impaired graph, and predicting with it on the whole."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.graph.impairing import Impaired
from secure_fedgraph.graph.mending import attach
from secure_fedgraph.models.finite import Adam, finite, take_step
from secure_fedgraph.models.neighgen.losses import FeatLossNorm, count_loss, feature_scale, matched_distances
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.parameters import glorot


@dataclass(frozen=True)
class JointLoss:
    """The three terms of Eq. 3, each a scalar tensor with its gradient."""

    count: Tensor
    feature: Tensor
    classifier: Tensor


def joint_loss(
    model: NeighGen,
    impaired: Impaired,
    generator: torch.Generator,
    feat_loss_norm: FeatLossNorm = "per_dim_mean",
) -> JointLoss:
    """All terms on the whole impaired graph, completed with what the model generates.

    The classifier's term is over the training nodes that remain; without any it is 0.

    Args:
        model: in training mode it drops out; parameters that need no gradient stay frozen.
        impaired: with ``train_mask`` in its graph.
        generator: of noise and dropout.
        feat_loss_norm: see :func:`~secure_fedgraph.models.neighgen.losses.feature_scale`.
    """
    graph, fgen = impaired.graph, model.fgen
    nodes = len(graph.x)
    z = model.embed(graph.x, graph.edge_index, generator)
    missing = model.missing(z)
    made = fgen.generate(z, model.counts(missing), generator)
    apart = matched_distances(made.rows, impaired.neighbours[made.anchor], impaired.hidden_x)
    scores = model.head(
        torch.cat([graph.x, made.rows]), attach(graph.edge_index, nodes, made.anchor), generator
    )[:nodes]
    known = graph.train_mask
    return JointLoss(
        count=count_loss(missing, impaired.counts),
        feature=apart.sum() * feature_scale(feat_loss_norm, nodes, fgen.candidates, fgen.features),
        classifier=F.cross_entropy(scores[known], graph.y[known], reduction="sum") / max(int(known.sum()), 1),
    )


def begin(model: NeighGen, impaired: Impaired, seed: int) -> None:
    """Seeded first weights, in place; the regression of counts starts at the mean count.

    From zero, twenty epochs often end below the half that rounds to a neighbour, and the completed graph is
    the old one.
    """
    glorot(model, seed)
    with torch.no_grad():
        model.dgen.bias.fill_(float(impaired.counts.float().mean()))


def train_locally(
    model: NeighGen,
    impaired: Impaired,
    epochs: int,
    generator: torch.Generator,
    learning_rate: float = 0.001,
    weight_decay: float = 1e-4,
    feat_loss_norm: FeatLossNorm = "per_dim_mean",
) -> list[float]:
    """Trains all of NeighGen in place, full batch, with Adam.

    Args:
        model: NeighGen.
        impaired: one owner's.
        epochs: steps.
        generator: of noise and dropout.
        learning_rate: of Adam.
        weight_decay: L2 penalty of Adam.
        feat_loss_norm: see :func:`joint_loss`.

    Returns:
        Per epoch the loss before its step.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = Adam(trained, lr=learning_rate, weight_decay=weight_decay, fused=True)
    model.train()
    history = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = joint_loss(model, impaired, generator, feat_loss_norm)
        total = loss.count + loss.feature + loss.classifier
        total.backward()
        take_step(optimizer)
        history.append(float(total.detach()))
    return history


@torch.no_grad()
def predict_neighbours(
    model: NeighGen, graph: Data, generator: torch.Generator, chunk: int = 512
) -> tuple[Tensor, Tensor]:
    """How many neighbours each node misses, and their features, without dropout.

    Args:
        model: NeighGen; its mode is restored.
        graph: an owner's original graph, ``n`` nodes.
        generator: of the noise.
        chunk: nodes generated for at a time.

    Returns:
        ``counts [n]`` and features ``[n, p, d]``, finite, zero beyond a node's count; ``p`` is the highest
        count.
    """
    was_training = model.training
    model.eval()
    try:
        z = model.embed(graph.x, graph.edge_index)
        counts = model.counts(model.missing(z))
        features = z.new_zeros(len(counts), int(counts.max()), model.fgen.features)
        for some in counts.nonzero().flatten().split(chunk):
            made = model.fgen.generate(z[some], counts[some], generator)
            features[some[made.anchor], made.slot] = finite(made.rows)
    finally:
        model.train(was_training)
    return counts, features
