"""NeighGen: how many neighbours a node misses, and what their features may be."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.models.parameters import blank_linear


@dataclass(frozen=True)
class Generated:
    """Generated vectors, only of the slots that were asked for.

    Args:
        rows: ``[t, features]``.
        anchor: ``[t]``, the row of ``z`` that each vector is a neighbour of.
        slot: ``[t]``, which of the anchor's candidates it is, from 0.
    """

    rows: Tensor
    anchor: Tensor
    slot: Tensor

    def padded(self, nodes: int, candidates: int) -> Tensor:
        """``[nodes, candidates, features]``, zero where nothing was generated."""
        out = self.rows.new_zeros(nodes * candidates, self.rows.shape[1])
        where = self.anchor * candidates + self.slot
        return out.index_copy(0, where, self.rows).view(nodes, candidates, -1)


class FeatureGenerator(nn.Module):
    """fGen: candidate neighbours of a node from its embedding and Gaussian noise.

    **Guarantees:** all randomness comes from the ``torch.Generator`` that is passed; outputs lie in [-1, 1].

    Dropout before the outer layer has one mask for each node: the node's candidates share it.

    Args:
        latent: width of the embedding ``z``.
        features: width of a node's features.
        candidates: vectors a node.
        hidden: widths of the inner layers.
        dropout: share of the last inner layer that is dropped in training mode.

    References:
        Zhang et al., NeurIPS 2021, section 4.1; the widths are those of the released code.

    >>> fgen = FeatureGenerator(4, 3, candidates=2, hidden=(8, 16))
    >>> z, random = torch.ones(5, 4), torch.Generator().manual_seed(0)
    >>> fgen(z, fgen.noise(5, random), random).shape
    torch.Size([5, 2, 3])
    """

    def __init__(
        self,
        latent: int = 128,
        features: int = 1433,
        candidates: int = 5,
        hidden: tuple[int, ...] = (256, 2048),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if min(latent, features, candidates, len(hidden), *hidden) < 1:
            raise BadInput(f"widths {latent}, {hidden}, {candidates} x {features}: each must be 1 or more")
        if not 0 <= dropout < 1:
            raise BadInput(f"dropout is {dropout}: give a share from 0 to below 1")
        self.latent, self.features, self.candidates, self.dropout = latent, features, candidates, dropout
        widths = [latent, *hidden]
        self.inner = nn.ModuleList(blank_linear(a, b) for a, b in pairwise(widths))
        self.outer = blank_linear(widths[-1], candidates * features)

    def noise(self, nodes: int, generator: torch.Generator) -> Tensor:
        """``[nodes, latent]`` of N(0, I)."""
        return torch.randn(nodes, self.latent, generator=generator)

    def forward(self, z: Tensor, noise: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """All candidates of all nodes.

        Args:
            z: embeddings ``[b, latent]``.
            noise: added to ``z``, see :meth:`noise`.
            generator: of the dropout mask; only training mode needs it.

        Returns:
            ``[b, candidates, features]``.
        """
        out: Tensor = torch.tanh(self.outer(self._inside(z + noise, generator)))
        return out.view(len(z), self.candidates, self.features)

    def generate(self, z: Tensor, counts: Tensor, generator: torch.Generator) -> Generated:
        """The first ``counts[v]`` candidates of every node ``v``, and no other.

        The same vectors as :meth:`forward` on the rows with a count above 0, with noise and then dropout
        drawn from ``generator``; other candidates are not computed.

        Args:
            z: embeddings ``[b, latent]``.
            counts: integers ``[b]`` from 0 to ``candidates``.
            generator: of noise and dropout.
        """
        some = counts.nonzero().flatten()
        counts = counts[some]
        h = self._inside(z[some] + self.noise(len(some), generator), generator)
        asked = [(counts > slot).nonzero().flatten() for slot in range(self.candidates)]
        width = self.features
        slots = zip(self.outer.weight.split(width), self.outer.bias.split(width), asked, strict=True)
        rows = torch.cat([F.linear(_rows(h, wanted), w, b) for w, b, wanted in slots])
        return Generated(
            rows=torch.tanh(rows),
            anchor=some[torch.cat(asked)],
            slot=torch.cat([torch.full_like(wanted, slot) for slot, wanted in enumerate(asked)]),
        )

    def _inside(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        for layer in self.inner:
            h = F.relu(layer(h))
        return dropped(h, self.dropout, generator) if self.training else h


class Gcn(nn.Module):
    """Two graph convolutions, row-normalised with self-loops: ``D^-1 (A + I) X W + b``.

    ReLU and dropout between the two; aggregation follows the edges, no adjacency matrix is made.

    Args:
        inputs: width of ``x``.
        hidden: width between the layers.
        outputs: width of the result.
        dropout: share of the hidden layer that is dropped in training mode.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.first, self.second, self.dropout = (
            blank_linear(inputs, hidden),
            blank_linear(hidden, outputs),
            dropout,
        )

    def forward(self, x: Tensor, edge_index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """``[nodes, outputs]``; ``generator`` draws the dropout mask of training mode."""
        source, target = edge_index
        degree = 1 + torch.bincount(target, minlength=len(x)).unsqueeze(1)

        def convolve(layer: nn.Linear, x: Tensor) -> Tensor:
            h = F.linear(x, layer.weight)
            summed = h.index_add(0, target, h.index_select(0, source))
            return summed / degree + layer.bias

        h = F.relu(convolve(self.first, x))
        return convolve(self.second, dropped(h, self.dropout, generator) if self.training else h)


class NeighGen(nn.Module):
    """Encoder, dGen, fGen, and the classifier head of the joint loss.

    Args:
        features: width of a node's features.
        classes: of the head.
        encoder: hidden and output width of the encoder; the output is fGen's ``latent``.
        head: hidden width of the head.
        candidates: most neighbours a node is given.
        hidden: inner widths of fGen.
        dropout: of all three parts.
        fgen: another generator of features in fGen's place, of the encoder's output width.

    References:
        Zhang et al., NeurIPS 2021, section 4.1; the released code's encoder is this GCN, not a GraphSAGE.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        encoder: tuple[int, int] = (32, 128),
        head: int = 32,
        candidates: int = 5,
        hidden: tuple[int, ...] = (256, 2048),
        dropout: float = 0.5,
        fgen: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = Gcn(features, *encoder, dropout=dropout)
        self.dgen = blank_linear(encoder[1], 1)
        self.fgen: Any = fgen or FeatureGenerator(encoder[1], features, candidates, hidden, dropout)
        self.head = Gcn(features, head, classes, dropout)

    def embed(self, x: Tensor, edge_index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Embeddings ``z [nodes, latent]``, not negative."""
        return F.relu(self.encoder(x, edge_index, generator))

    def missing(self, z: Tensor) -> Tensor:
        """How many neighbours each node misses, ``[nodes]``, a number from 0 up."""
        return F.relu(self.dgen(z)).squeeze(1)

    def counts(self, missing: Tensor) -> Tensor:
        """Rounded and clipped to ``[0, candidates]``, as integers; the paper's appendix D.1."""
        # NaN becomes 0: cast to an integer, it could be any number
        return missing.detach().nan_to_num(nan=0.0).round().clamp(0, self.fgen.candidates).long()


def dropped(x: Tensor, share: float, generator: torch.Generator | None) -> Tensor:
    """Dropout whose mask comes from ``generator``.

    Raises:
        BadInput: where a mask is to be drawn without a generator.
    """
    if share == 0:
        return x
    if generator is None:
        raise BadInput("dropout in training mode draws from a torch.Generator: pass one, or call eval()")
    keep = torch.empty_like(x, requires_grad=False).bernoulli_(1 - share, generator=generator)
    return x * keep.div_(1 - share)


def _rows(h: Tensor, rows: Tensor) -> Tensor:
    return h if len(rows) == len(h) else h[rows]  # ascending and distinct, so the full number means all
