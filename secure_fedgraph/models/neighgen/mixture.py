"""Neighbours as mixtures of released prototypes: trained at home, or read off a node's own features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.models.neighgen.model import Generated
from secure_fedgraph.models.parameters import blank_linear

SHARPNESS = 20.0
"""Of the weights by cosines: those of a node with its own class's mean and others' lie about 0.1 apart."""
COUNT = 0.25
"""What a record holds beside its features, for the count of a class. Together they have length 1."""


class PrototypeMixture(nn.Module):
    """fGen against prototypes: each candidate neighbour of a node is a weighted mean of them.

    **Guarantees:** what is generated lies in the prototypes' convex hull; nothing is drawn.

    Args:
        latent: width of the embedding ``z``.
        prototypes: ``[k, features]``, at least one.
        candidates: vectors a node.

    >>> mixture = PrototypeMixture(4, torch.eye(3), candidates=2)
    >>> made = mixture.generate(torch.ones(5, 4), torch.ones(5).long())
    >>> made.rows.shape, bool(torch.allclose(made.rows.sum(1), torch.ones(5)))
    (torch.Size([5, 3]), True)
    """

    def __init__(self, latent: int, prototypes: Tensor, candidates: int = 5) -> None:
        super().__init__()
        if prototypes.dim() != 2 or not len(prototypes):
            raise BadInput(f"prototypes have shape {tuple(prototypes.shape)}: give one row or more")
        self.latent, self.candidates, self.features = latent, candidates, prototypes.shape[1]
        self.weigh = blank_linear(latent, candidates * len(prototypes))
        self.register_buffer("prototypes", prototypes, persistent=False)
        self.prototypes: Tensor

    def forward(self, z: Tensor) -> Tensor:
        """All candidates of all nodes ``[b, candidates, features]``, of embeddings ``[b, latent]``."""
        logits: Tensor = self.weigh(z).view(len(z), self.candidates, len(self.prototypes))
        return logits.softmax(-1) @ self.prototypes

    def generate(self, z: Tensor, counts: Tensor, generator: torch.Generator | None = None) -> Generated:
        """The first ``counts[v]`` candidates of every node ``v``, and no other.

        Args:
            z: embeddings ``[b, latent]``.
            counts: integers ``[b]`` from 0 to ``candidates``.
            generator: not used: nothing is drawn.
        """
        some = counts.nonzero().flatten()
        logits = self.weigh(z[some]).view(len(some), self.candidates, len(self.prototypes))
        anchor, slot = (torch.arange(self.candidates) < counts[some, None]).nonzero(as_tuple=True)
        rows = logits[anchor, slot].softmax(-1) @ self.prototypes
        return Generated(rows, some[anchor], slot)


def class_records(x: Tensor) -> Tensor:
    """A node's features as a record of length 1 with a constant beside them, ``[n, features + 1]``.

    Summed by class, records give a direction and a count. A node without features keeps the constant.
    """
    directions = F.normalize(x.float(), dim=1) * (1 - COUNT**2) ** 0.5
    return torch.cat([directions, directions.new_full((len(x), 1), COUNT)], dim=1)


def prototypes_of(sums: Tensor, deviation: float) -> tuple[Tensor, Tensor]:
    """Mean directions and counts of classes from sums of :func:`class_records`.

    Args:
        sums: ``[classes, features + 1]``, float64.
        deviation: of the noise on each value; public.

    Returns:
        ``[classes, features]``, shrunk where there is noise, and ``[classes]`` counts, at least 0.
    """
    counts = (sums[:, -1] / COUNT).clamp(min=0)
    features = shrunk(sums[:, :-1], deviation) / (1 - COUNT**2) ** 0.5
    return features / counts.clamp(min=1)[:, None], counts


def shrunk(rows: Tensor, deviation: float) -> Tensor:
    """Rows with Gaussian noise of a known deviation, each soft-thresholded where Stein's estimate is least.

    It reads the noised rows alone, so it costs no privacy.

    Args:
        rows: ``[n, d]``.
        deviation: of the noise on each value; without any the rows are returned.

    References:
        Donoho and Johnstone, Adapting to Unknown Smoothness via Wavelet Shrinkage, 1995 (SureShrink).

    >>> shrunk(torch.tensor([[10.0, 0.1, -0.2, 0.1]]), 1.0).round().abs().tolist()
    [[10.0, 0.0, 0.0, 0.0]]
    """
    if not deviation:
        return rows
    size = rows.shape[1]
    ordered = rows.abs().sort(dim=1).values
    below = torch.arange(1, size + 1, dtype=rows.dtype)
    squares = ordered.square()
    risk = size * deviation**2 - 2 * deviation**2 * below + squares.cumsum(1) + (size - below) * squares
    threshold = ordered.gather(1, risk.argmin(1, keepdim=True))
    return rows.sign() * (rows.abs() - threshold).clamp(min=0)
