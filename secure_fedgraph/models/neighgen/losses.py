"""NeighGen's losses: counts, features against own hidden neighbours, features against other owners."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.trees import MISSING, NeighbourTable

FeatLossNorm = Literal["paper_sum", "per_dim_mean"]
NORMS = ("paper_sum", "per_dim_mean")
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
    if norm not in NORMS:
        raise unknown_name("feat_loss_norm", norm, NORMS)
    return 1 / max(nodes, 1) / (candidates * features if norm == "per_dim_mean" else 1)


def feature_loss(
    generated: Tensor,
    counts: Tensor,
    neighbours: Tensor,
    pool: Tensor,
    feat_loss_norm: FeatLossNorm = "per_dim_mean",
) -> Tensor:
    """Each generated vector against the nearest true neighbour of its own node (Eq. 4).

    Two vectors of a node may take the same neighbour. A node without neighbours contributes nothing.

    Args:
        generated: ``[b, p, d]``.
        counts: ``[b]``; only the first ``counts[v]`` vectors of node ``v`` count.
        neighbours: ``[b, h]`` rows of ``pool``, padded with -1.
        pool: true features ``[m, d]``.
        feat_loss_norm: see :func:`feature_scale`.
    """
    rows, anchor = _asked(generated, counts)
    b, p, d = generated.shape
    return matched_distances(rows, neighbours[anchor], pool).sum() * feature_scale(feat_loss_norm, b, p, d)


def nearest_feature_loss(
    generated: Tensor,
    counts: Tensor,
    targets: Tensor,
    feat_loss_norm: FeatLossNorm = "per_dim_mean",
) -> Tensor:
    """Each generated vector against the nearest of all nodes of another owner (one term of Eq. 6).

    Args:
        generated: ``[b, p, d]``.
        counts: ``[b]``; a node with count 0 contributes nothing.
        targets: that owner's features ``[n_j, d]``.
        feat_loss_norm: see :func:`feature_scale`.
    """
    rows, _ = _asked(generated, counts)
    return nearest_distances(rows, targets).sum() * feature_scale(feat_loss_norm, *generated.shape)


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


def random_neighbourhoods(
    table: NeighbourTable, nodes: int, generator: torch.Generator, limit: int = 5
) -> Tensor:
    """Neighbourhoods of random nodes: what the released code compares generated vectors with.

    Args:
        table: the answering owner's links.
        nodes: how many random nodes, drawn with replacement.
        generator: of the nodes and of their neighbours.
        limit: most neighbours of each, drawn without replacement.

    Returns:
        ``[nodes, limit]`` of that owner's node numbers, -1 where a node has fewer neighbours.
    """
    drawn = torch.randint(table.num_nodes, (nodes,), generator=generator)
    degree = table.degree[drawn].unsqueeze(1)
    place = torch.arange(max(int(degree.max()) if nodes else 0, limit))
    keys = torch.rand(nodes, len(place), generator=generator).masked_fill_(place >= degree, 2.0)
    chosen = keys.argsort(1)[:, :limit]
    if not table.col.numel():
        return torch.full_like(chosen, MISSING)
    at = (table.rowptr[drawn].unsqueeze(1) + chosen).clamp(max=table.col.numel() - 1)
    return torch.where(chosen < degree, table.col[at], MISSING)


def _asked(generated: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    b, p, _ = generated.shape
    if counts.shape != (b,) or (b and not 0 <= int(counts.min()) <= int(counts.max()) <= p):
        raise BadInput(f"counts must be {b} numbers from 0 to {p}, one for each node")
    anchor, slot = (torch.arange(p) < counts.unsqueeze(1)).nonzero(as_tuple=True)
    return generated[anchor, slot], anchor
