"""FedEgo as its authors released it: batches that give nodes away. For audits only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedego import clients
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.algorithms.fedego.server import Mashes, mashes_in, with_mashes
from secure_fedgraph.algorithms.fedego.settings import FedEgoReleasedSettings
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.ego_graphs import level_sizes
from secure_fedgraph.models.ego.model import REDUCTION, EgoSage
from secure_fedgraph.seams import ClientContext, RoundApi

ASKED = "released mashes"
"""An entry of a client's memory that never goes back: how often it has uploaded mashes."""
ORDER = "mash batches"
"""The purpose of the seeded order, under ``batching="seeded"``."""


class FedEgoReleased(FedEgo):
    """FedEgo as its authors' code runs it. **It gives nodes away and exists for audits only.**

    The same nodes are mashed together every round (``batching="released"``), or ones that follow from the
    run's seed (``"seeded"``); what is left over of a pool is a mash of its own, and where that is one node,
    its neighbourhood is sent in the clear. Each client's own reduction is evaluated, not the averaged one.
    Two rules keep small what a node moves: a frozen reduction is random and public, and mashes of the first
    rounds that are used again in the later ones cost nothing there.

    Guarantees: none. Under ``batching="secret"`` those of
    :class:`~secure_fedgraph.algorithms.fedego.algorithm.FedEgo`.
    """

    name = "fedego-released"
    summary = "FedEgo as its authors' code runs it: it gives nodes away and is for audits only"
    Settings = FedEgoReleasedSettings
    settings: FedEgoReleasedSettings

    @property
    def hands_reduction_out(self) -> bool:
        """Whether the averaged reduction is evaluated, as in the paper."""
        return super().hands_reduction_out and self.settings.profile == "paper"

    @property
    def averages(self) -> bool:
        """Whether the reduction is averaged: not where it is frozen."""
        return super().averages and self.settings.reduction == "trained"

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Mashes may be uploaded in the first rounds only."""
        wanted = self.settings.mash_rounds
        if wanted and channel.name in (self.EGOS.name, self.EGOS_ACROSS.name):
            return min(wanted, rounds)
        return super().uses(channel, rounds, clients)

    def mashes(self, round: RoundApi, state: State) -> tuple[Mashes, Collection[str]]:
        """The round's, or those of the first rounds."""
        if self.settings.mash_rounds and round.number > self.settings.mash_rounds:
            return mashes_in(state), round.cohort
        return super().mashes(round, state)

    def train_upper_layers(self, number: int, state: State, mashes: Mashes) -> State:
        """Keeps the mashes that later rounds use again."""
        if number <= self.settings.mash_rounds:
            state = with_mashes(state, mashes)
        return super().train_upper_layers(number, state, mashes)

    def train(self, client: ClientContext, model: EgoSage) -> None:
        """A frozen reduction is left out."""
        if self.settings.reduction == "frozen":
            for name, p in model.named_parameters():
                p.requires_grad_(not name.startswith(REDUCTION))
        super().train(client, model)

    def mash(self, client: ClientContext, model: EgoSage) -> Upload:
        """Counts: another upload than the promised ones would cost as the first.

        Raises:
            HostileMessage: for one ask too many.
        """
        asked, promised = client.memory.get(ASKED, 0), self.settings.mash_rounds
        if promised and asked >= promised:
            raise HostileMessage(
                f"{client.name} was asked for mashes again: they are released in {promised} round(s) only"
            )
        client.memory[ASKED] = asked + 1
        return super().mash(client, model)

    def mixture(self, client: ClientContext, model: EgoSage) -> Upload:
        """Mashes of batches that can be foreseen; a short one is divided by its own size."""
        s = self.settings
        if s.batching == "secret":
            return super().mixture(client, model)
        centres = self.centres(client)
        rows = clients.ego_graphs(client, centres, model.positions)
        if s.batching == "released":
            rows = shifted(rows, s.fanout)
        if not s.mixup:
            rows, centres = rows[:, :1], centres[:, :1]
        scale = (centres.shape[1] / (centres >= 0).sum(1)).view(-1, 1, 1)
        return Upload({key: value * scale for key, value in clients.mashes_of(client, model, rows).items()})

    def centres(self, client: ClientContext) -> Tensor:
        """``[mashes, n]``: the training nodes of each batch; -1 where one is short."""
        pool = client.graph.train_mask.nonzero().flatten()
        order = order_of(self.settings, client.secret_order, client.generator)
        places = numbered(len(pool), self.settings, order)
        return torch.where(places < 0, -1, pool[places.clamp(min=0)])


def order_of(
    settings: FedEgoReleasedSettings,
    secret_order: Callable[[int], Tensor],
    generator: Callable[[str], torch.Generator],
) -> Callable[[int], Tensor]:
    """What draws the order of a pool of so many nodes.

    Args:
        secret_order: the operating system's.
        generator: a seeded one of this client and round, by purpose.
    """
    if settings.batching == "secret":
        return secret_order
    if settings.batching == "released":
        return torch.arange
    seeded = generator(ORDER)
    return lambda size: torch.randperm(size, generator=seeded)


def numbered(size: int, settings: FedEgoReleasedSettings, order: Callable[[int], Tensor]) -> Tensor:
    """``[mashes, n]`` numbers of a pool of ``size``; -1 where a batch is short.

    What is left over of the pool is a batch of its own where each client's mashes are read and batches are
    not secret.
    """
    if settings.batching == "secret" or settings.mash == "across":
        return clients.numbered(size, settings, order)
    n = settings.batch
    padded = torch.full((-(-size // n) * n,), -1)
    padded[:size] = order(size)
    return padded.view(-1, n)


def shifted(rows: Tensor, fanout: Sequence[int]) -> Tensor:
    """Slots by running index over a batch, as released: a node without neighbours shifts all later ones'.

    Args:
        rows: ``[batches, n, positions]`` node indices; -1 in empty slots.

    >>> shifted(torch.tensor([[[0, -1], [1, 5]]]), (1,)).tolist()
    [[[0, 5], [1, -1]]]
    """
    parts = []
    for part in rows.split([size for size in level_sizes(fanout) if size <= rows.shape[2]], dim=2):
        flat = part.reshape(len(rows), -1)
        filled_first = (flat < 0).to(torch.int8).argsort(dim=1, stable=True)
        parts.append(flat.gather(1, filled_first).view(part.shape))
    return torch.cat(parts, dim=2)
