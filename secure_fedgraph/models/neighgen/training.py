"""Training NeighGen on one owner's impaired graph, and predicting with it on the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.mending import Impaired, attach, check_share, impair, mend
from secure_fedgraph.graph.sample.trees import MISSING
from secure_fedgraph.models.finite import Adam, all_finite, finite, take_step
from secure_fedgraph.models.neighgen.mixture import PrototypeMixture
from secure_fedgraph.models.neighgen.model import FeatureGenerator, NeighGen
from secure_fedgraph.models.parameters import glorot

# NeighGen's losses: counts, features against own hidden neighbours, features against other owners.

FeatLossNorm = Literal["paper_sum", "per_dim_mean"]
_SCRATCH = 1 << 24
"""Floats that a search for nearest rows may hold at a time (64 MiB)."""


def count_loss(predicted: Tensor, true: Tensor) -> Tensor:
    """Mean smooth L1 between the predicted and the true number of hidden neighbours, both ``[n]``."""
    return F.smooth_l1_loss(predicted, true.to(predicted.dtype))


def feature_scale(norm: FeatLossNorm, nodes: int, candidates: int, features: int) -> float:
    """What a sum of squared distances is multiplied by.

    ``paper_sum`` divides by the number of nodes, as Eq. 4 does. ``per_dim_mean`` is the mean over all
    nodes, candidate slots and feature columns, as the released code takes it: ``candidates * features``
    times smaller.

    >>> feature_scale("paper_sum", 4, 5, 10), feature_scale("per_dim_mean", 4, 5, 10)
    (0.25, 0.005)
    """
    return 1 / max(nodes, 1) / (candidates * features if norm == "per_dim_mean" else 1)


def matched_distances(rows: Tensor, choice: Tensor, pool: Tensor) -> Tensor:
    """Squared distance from each row to the nearest of its own few rows of ``pool``; 0 where it has none.

    Args:
        rows: ``[t, d]``.
        choice: ``[t, h]`` rows of ``pool``, padded with -1.
        pool: ``[m, d]``.

    Returns:
        ``[t]``, with the gradient of the distance to the row chosen.
    """
    some = (choice != MISSING).any(1).nonzero().flatten()
    rows, choice = rows.index_select(0, some), choice[some]
    with torch.no_grad():
        row, column = (choice != MISSING).nonzero(as_tuple=True)
        size = max(_SCRATCH // max(rows.shape[1], 1), 1)
        apart = [
            (rows[r] - pool[choice[r, c]]).square_().sum(1)
            for r, c in zip(row.split(size), column.split(size), strict=True)
        ]
        distances = rows.new_full(choice.shape, float("inf"))
        distances[row, column] = torch.cat(apart)
        nearest = choice.gather(1, distances.argmin(1, keepdim=True)).squeeze(1) if len(some) else row
    return (rows - pool[nearest]).square().sum(1)


def nearest_distances(rows: Tensor, pool: Tensor) -> Tensor:
    """Squared distance from each row ``[t, d]`` to the nearest row of ``pool [m, d]``, ``[t]``.

    The search is one matrix product; then the distance to the nearest row is computed exactly.

    Raises:
        BadInput: for an empty pool, or another width.
    """
    if pool.dim() != 2 or not len(pool) or pool.shape[1] != rows.shape[1]:
        raise BadInput(
            f"targets have shape {tuple(pool.shape)}: give one or more rows of {rows.shape[1]} features"
        )
    with torch.no_grad():
        lengths = pool.square().sum(1)
        # |x|^2 is the same for all of a row's candidates
        chunks = [
            torch.addmm(lengths, part, pool.T, alpha=-2).argmin(1)
            for part in rows.split(max(_SCRATCH // len(pool), 1))
        ]
        nearest = torch.cat(chunks)
    return (rows - pool[nearest]).square().sum(1)


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
        feat_loss_norm: see :func:`~secure_fedgraph.models.neighgen.training.feature_scale`.
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


def generator_gradient(
    fgen: FeatureGenerator,
    z: Tensor,
    counts: Tensor,
    targets: Tensor,
    scale: float,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Gradient of ``scale * sum of squared distances to the nearest target`` at a peer's parameters.

    Args:
        fgen: over the peer's parameters, in training mode; they are not changed.
        z: embeddings ``[b, latent]``.
        counts: integers ``[b]``; nodes with 0 contribute nothing.
        targets: the answering owner's own features ``[n_j, features]``.
        scale: e.g. ``alpha * feature_scale(...)``.
        generator: the answering owner's own, of noise and dropout.

    Returns:
        Name -> gradient, for every parameter. Entries that overflow on large parameters are 0 without an
        error: which entries these are depends on the targets.

    References:
        Zhang et al., NeurIPS 2021, Eq. 6 and section 4.2.
    """
    made = fgen.generate(z, counts, generator)
    names, values = zip(*fgen.named_parameters(), strict=True)
    if not len(made.rows):
        return {name: torch.zeros_like(p) for name, p in zip(names, values, strict=True)}
    loss = scale * nearest_distances(made.rows, targets).sum()
    return all_finite(dict(zip(names, torch.autograd.grad(loss, values), strict=True)))


SHARE, EPOCHS, RATE, CANDIDATES = 0.15, 40, 0.01, 5
"""Of nodes that are hidden; of training, as where prototypes are released; neighbours that a node can get."""
MOST_VALUES = 2**28
"""Values of the neighbours that an owner's nodes can get (1 GiB)."""


def check(graph: Data, name: str) -> None:
    """That an owner's graph can be mended.

    Raises:
        BadInput: where hiding :data:`SHARE` hides no node, or neighbours are more than :data:`MOST_VALUES`.
    """
    nodes, width = graph.x.shape
    check_share(nodes, SHARE)
    if nodes * width * CANDIDATES > MOST_VALUES:
        raise BadInput(
            f"training.mend = at_home: neighbours for {name}'s {nodes} nodes of {width} features take more "
            "than 1 GiB; set training.mend=none"
        )


def mended(graph: Data, classes: int, generator: torch.Generator) -> Data:
    """An owner's graph with the neighbours that its own generator says are missing.

    The generator is NeighGen, which learns from hidden nodes of the owner's own as in the paper. What it
    generates are mixtures of the means of the owner's training nodes by class.

    Guarantees:
        - reads the owner's graph alone, and of labels those of training nodes.

    Args:
        graph: the owner's own, with ``x``, ``edge_index``, ``y`` and ``train_mask``; it is not changed.
        classes: how many there are.
        generator: of first weights, hidden nodes and dropout.

    Returns:
        :func:`~secure_fedgraph.graph.mending.mend`'s: generated nodes come after the owner's.

    References:
        Zhang et al., NeurIPS 2021, section 4.1, without the other owners' term (Eq. 6).
    """
    shown = Data(**{key: graph[key] for key in ("x", "edge_index", "y", "train_mask")})
    x = shown.x if shown.x.layout == torch.strided else shown.x.to_dense()
    shown.x = torch.nan_to_num(x.float())
    fgen = PrototypeMixture(128, _means(shown), CANDIDATES)
    model = NeighGen(shown.x.shape[1], classes, candidates=CANDIDATES, fgen=fgen)
    impaired = impair(shown, SHARE, generator.initial_seed() % 2**32)
    begin(model, impaired, generator.initial_seed())
    train_locally(model, impaired, EPOCHS, generator, RATE)
    return mend(shown, *predict_neighbours(model, shown, generator))


def _means(graph: Data) -> Tensor:
    """The mean of the training nodes of each class that has any, ``[k, features]``; of all nodes without."""
    if not graph.train_mask.any():
        own: Tensor = graph.x.mean(0, keepdim=True)
        return own
    _, labels = graph.y[graph.train_mask].unique(return_inverse=True)
    held = torch.nn.functional.one_hot(labels).T.to(graph.x.dtype)
    means: Tensor = held @ graph.x[graph.train_mask] / held.sum(1, keepdim=True)
    return means
