"""Local training of many small owners at once: the same steps in products of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training.optimizers import bounded
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.graph.sample.trees import MISSING
from secure_fedgraph.models.finite import finite_moments, is_finite, note_divergence
from secure_fedgraph.models.gnn import GraphSage, ManySages
from secure_fedgraph.models.targets import Loss
from secure_fedgraph.seams import ClientContext

LARGEST = 2**12
"""Nodes of an owner who is trained with others: the products of larger ones are no faster together."""
VALUES = 2**26
"""Features that are multiplied at once, over all owners."""
FILLED = 0.7
"""The least size of an owner, as a share of the largest that it is multiplied with."""
_BETAS, _EPSILON = (0.9, 0.999), 1e-8
"""Adam's."""


@dataclass(frozen=True)
class OwnTraining:
    """What one owner trains with.

    Args:
        client, graph, model, settings: as of :func:`secure_fedgraph.algorithms.training.local_training.fit`.
        loss: of an item.
        batches: of its training nodes, in order.
        trees: training nodes -> their sampled trees.
    """

    client: ClientContext
    graph: Data
    model: GraphSage
    settings: TrainingSettings
    loss: Loss
    batches: Callable[[], Iterator[Tensor]]
    trees: Callable[[Tensor], Sequence[Tensor]]


def train_together(owners: Sequence[OwnTraining]) -> None:
    """Trains every owner's model on its own nodes, as :func:`~.local_training.fit` does one by one.

    Guarantees:
        - an owner's model and moments depend on its own data alone: each owner has a row of its own, and no
          operation adds two rows or compares them;
        - the same batches, neighbours and steps as one by one; results differ by rounding;
        - nothing is changed before all of it is computed.

    Args:
        owners: of one shape of model and the same settings.
    """
    steps = [[(one.trees(batch), one.graph.y[batch]) for batch in one.batches()] for one in owners]
    order, found = list[int](), list[_Trained]()
    for some in _alike([len(one.graph.x) for one in owners], VALUES // owners[0].graph.x.shape[1]):
        some.sort(key=lambda i: -len(steps[i]))  # who has done its own steps drops out at the end
        found += _trained([owners[i] for i in some], [steps[i] for i in some])
        order += some
    for i, trained in zip(order, found, strict=True):
        trained.hand_over(owners[i])


def _alike(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Owners of like size, whose nodes together are at most so many once all are filled up to the largest."""
    some = list[int]()
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if some and (sizes[i] < FILLED * sizes[some[0]] or (len(some) + 1) * sizes[some[0]] > most):
            yield some
            some = []
        some.append(i)
    yield some


@dataclass(frozen=True)
class _Trained:
    """One owner's weights and moments, ``[all]`` each, and its steps."""

    weights: Tensor
    moments: tuple[Tensor, ...]
    steps: int
    sound: bool
    finite: bool

    def hand_over(self, to: OwnTraining) -> None:
        at, kept, steps = 0, {}, torch.tensor(float(self.steps))
        with torch.no_grad():
            for i, parameter in enumerate(to.model.parameters()):
                end = at + parameter.numel()
                parameter.copy_(self.weights[at:end].view_as(parameter))
                if self.moments:
                    slots = zip(("exp_avg", "exp_avg_sq"), self.moments, strict=True)
                    own = {name: slot[at:end].view_as(parameter) for name, slot in slots}
                    own["step"] = steps
                    kept[str(i)] = own if self.finite else finite_moments(own)
                at = end
        note_divergence(to.client.name, self.sound)
        to.client.memory["optimizer"] = kept


Steps = list[tuple[Sequence[Tensor], Tensor]]
"""Batches: trees, and the answers of their roots."""


def _trained(owners: Sequence[OwnTraining], steps: Sequence[Steps]) -> list[_Trained]:
    settings, adam = owners[0].settings, owners[0].settings.optimizer == "adam"
    networks = ManySages(owners[0].model, [one.graph.x for one in owners])
    weights = torch.stack([_flat(list(one.model.parameters())) for one in owners])
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    counts = torch.zeros(len(owners), 1)
    for i, one in enumerate(owners if adam else ()):
        if kept := one.client.memory.get("optimizer", {}):
            slots = [kept[str(n)] for n in range(len(kept))]
            first[i], second[i] = (
                _flat([slot[name] for slot in slots]) for name in ("exp_avg", "exp_avg_sq")
            )
            counts[i] = float(slots[0]["step"])
    sound = [True] * len(owners)
    for step in range(max(map(len, steps))):
        active = sum(step < len(own) for own in steps)
        now = weights[:active].detach().requires_grad_()
        _losses(networks, now, [own[step] for own in steps[:active]], owners[0].loss).sum().backward()
        slopes = now.grad
        assert slopes is not None
        with torch.no_grad():
            lengths = torch.linalg.vector_norm(slopes, dim=1)
            for i in (~(lengths <= settings.largest_gradient)).nonzero().flatten().tolist():
                sound[i] &= bounded(networks.parts(slopes[i]), settings.largest_gradient)
            if settings.weight_decay:
                slopes.add_(weights[:active], alpha=settings.weight_decay)
            if adam:
                counts[:active] += 1
                m, v, t = first[:active], second[:active], counts[:active]
                m.lerp_(slopes, 1 - _BETAS[0])
                v.mul_(_BETAS[1]).addcmul_(slopes, slopes, value=1 - _BETAS[1])
                rate = settings.learning_rate / (1 - _BETAS[0] ** t)
                spread = (v.sqrt() / (1 - _BETAS[1] ** t).sqrt()).add_(_EPSILON)
                weights[:active] -= rate * (m / spread)
            else:
                weights[:active] -= settings.learning_rate * slopes
            if not is_finite(weights[:active]):
                weights[:active].nan_to_num_()
    finite = is_finite(first) and is_finite(second)
    return [
        _Trained(weights[i], (m.clone(), v.clone()) if adam else (), int(counts[i]), sound[i], finite)
        for i, (m, v) in enumerate(zip(first, second, strict=True))
    ]


def _losses(networks: ManySages, weights: Tensor, given: Steps, loss: Loss) -> Tensor:
    """Each owner's mean loss of its batch, ``[owners]``; shorter batches are filled up with missing nodes."""
    longest = max(len(y) for _, y in given)
    trees = []
    for level in range(len(given[0][0])):
        shape = given[0][0][level].shape[1:]
        padded = torch.full((len(given), longest, *shape), MISSING)
        for row, (tree, _) in zip(padded, given, strict=True):
            row[: len(tree[level])] = tree[level]
        trees.append(padded)
    scores, there = networks.scores(weights, trees), trees[0] >= 0
    y = torch.cat([one for _, one in given])
    each = torch.zeros(there.shape).masked_scatter(there, loss(scores[there], y))
    return each.sum(1) / there.sum(1).clamp(min=1)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([one.detach().reshape(-1) for one in tensors])
