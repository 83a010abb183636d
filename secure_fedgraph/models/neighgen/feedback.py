"""What an owner computes for another owner's generator: gradients against its own nodes.

They leak: raw features of the answering owner's nodes can be solved for (attacks C1 and C2). Nothing here
protects; channels do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.models.finite import all_finite
from secure_fedgraph.models.neighgen.losses import nearest_distances
from secure_fedgraph.models.neighgen.model import FeatureGenerator


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
