"""What FedEgo's variants share: a reduction that may be frozen, and mashes that are sent at first only."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.algorithms.fedego.settings import KeptMashesSettings
from secure_fedgraph.algorithms.fedego.state import EgoModel, Mashes, mashes_in, with_mashes
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.models.ego.model import REDUCTION
from secure_fedgraph.seams import ClientContext, RoundApi

ASKED = "released mashes"
"""An entry of a client's memory that never goes back: how often it has uploaded mashes."""


class KeptMashes(FedEgo):
    """FedEgo with two rules that keep small what a node moves; no algorithm by itself.

    A frozen reduction is random and public, so that a node's reduced features depend on nobody else. Mashes
    of the first rounds that are used again in the later ones cost nothing there.
    """

    Settings: ClassVar[type[KeptMashesSettings]] = KeptMashesSettings
    settings: KeptMashesSettings

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

    def train(self, client: ClientContext, model: EgoModel) -> None:
        """A frozen reduction is left out."""
        if self.settings.reduction == "frozen":
            for name, p in model.named_parameters():
                p.requires_grad_(not name.startswith(REDUCTION))
        super().train(client, model)

    def mash(self, client: ClientContext, model: EgoModel) -> Upload:
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
