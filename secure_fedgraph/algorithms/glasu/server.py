"""GLASU's server: what a run needs, what it may open, and what it makes sure of in each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.glasu import checks
from secure_fedgraph.algorithms.glasu.channels import BACKWARD, EXAMINE, HIDDEN, LINKS, SAMPLE, STEP
from secure_fedgraph.algorithms.glasu.expected_fields import MOST_SEED
from secure_fedgraph.algorithms.glasu.iteration import Iteration
from secure_fedgraph.algorithms.glasu.referee import RefereeInference
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.seams import RoundApi, Total


class VerticalServer(RefereeInference):
    """The server's mechanics that GLASU and its variants share."""

    all_need_labels: ClassVar[bool] = True
    """Whether every client trains on labels."""
    of_one_label_holder: ClassVar[str] = ""
    """The variant for labels at one client, where there is one."""

    # -- before a run -----------------------------------------------------------------------------

    @property
    def hidden_channel(self) -> Channel:
        """On which clients send their rows of an aggregated layer."""
        return self.bounded(HIDDEN)

    @property
    def gradient_channels(self) -> tuple[Channel, ...]:
        """On which gradients are sent."""
        return (self.bounded(BACKWARD),) if self.settings.backward == "server" else ()

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Without those that these settings never open."""
        links = (LINKS,) if self.divides_links else ()
        sampled = (SAMPLE,) if self.unites else ()
        return (*links, *sampled, self.hidden_channel, *self.gradient_channels, STEP, EXAMINE)

    def bounded(self, channel: Channel) -> Channel:
        """A channel of sums, with the bound of its rows, and whether sums of two clients are accepted."""
        if channel is HIDDEN:
            channel = replace(channel, largest=self.settings.bound, largest_is="training.bound")
        return replace(channel, accept_too_few=self.settings.accept_two_clients)

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """That all who train on labels have them, that somebody outside scores, and that there are others.

        Raises:
            BadInput: where it is not so, with the key and the mend.
        """
        if split.get("labels") == "one" and not self.pools and self.all_need_labels:
            variant = self.of_one_label_holder
            if split.get("name") == "silos":
                raise BadInput(
                    f"one owner alone has labels, and every client of {self.name} trains on them: give every "
                    f"owner's data the same y{f', or run {variant}' if variant else ''}"
                )
            raise BadInput(
                f"split.labels = 'one' gives one client the labels, and every client of {self.name} trains "
                f"on them: set split.labels=all{f', or run {variant}' if variant else ''}"
            )
        if evaluation == "in_band":
            raise BadInput(
                f"evaluation = 'in_band': a client of {self.name} has some columns of every node, and no "
                "model or tests of its own: set evaluation=referee"
            )
        if self.divides_links and not self.hands_links_out:
            raise BadInput(
                f"training.links = 'divided': clients of {self.name} exchange nothing, or use no links: "
                "leave it out"
            )
        if clients == 1 and self.hidden_channel in self.in_use:
            raise BadInput(
                f"clients = 1: {self.name} aggregates over clients that each hold some columns; give 3 or "
                "more, or run glasu-centralized"
            )

    def check_inputs(self, divided: Sequence[str]) -> None:
        """That clients divide the links where they hand them out, and nowhere else.

        Raises:
            BadInput: with the key and the mend.
        """
        if self.divides_links and not divided:
            raise BadInput(
                "training.links = 'divided': clients would hand each other their own links; randomise them, "
                "with --unit edge --epsilon E or links=E, or set training.links=own"
            )
        if divided and not self.divides_links:
            raise BadInput(
                "links are divided among the clients and training.links = 'own': set training.links=divided"
            )

    @property
    def hops(self) -> int:
        """How far from a training node training looks."""
        return self.settings.layers

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Once an aggregated layer and step."""
        return 1 if channel is LINKS else rounds * self.settings.steps * len(self.segments)

    def init(self, schema: Schema, seed: int) -> State:
        """A seed for batches: the server has no weights."""
        return {"seed": torch.tensor(seed % MOST_SEED)}

    def released(self, state: State) -> None:
        """No model is released: every client keeps its own layers."""
        return None

    # -- in a round -------------------------------------------------------------------------------

    def with_all_clients(self, round: RoundApi, state: State) -> State:
        """The state, with the number of clients in it.

        Raises:
            BadInput: for another number than in the first round.
        """
        before = state.get("clients")
        if before is not None and int(before) != len(round.cohort):
            raise BadInput(
                f"round {round.number} asks {len(round.cohort)} clients and the first asked {int(before)}: "
                "in a vertical split every client takes part in every round"
            )
        return {**state, "clients": torch.tensor(len(round.cohort))}

    def begin_iteration(self, round: RoundApi, state: State, step: int) -> Iteration:
        """A new one, with a batch of its own."""
        return Iteration(round.cohort, step, sub_seed(int(state["seed"]), f"batch/{round.number}/{step}"))

    def sum(self, round: RoundApi, channel: Channel, iteration: Iteration, segment: int) -> Total:
        """A sum of enough clients that none learns another's rows by subtracting its own.

        Raises:
            Refused: where too few are left.
        """
        channel = self.bounded(channel)
        total = round.reduce(channel, iteration.request(segment))
        too_few = len(total.contributors) < min(channel.min_clients, len(round.cohort))
        if too_few and not channel.accept_too_few:
            raise Refused(
                f"round {round.number}, channel {channel.name!r}: {len(total.contributors)} clients are "
                "left, and each of two would learn the other's rows: go on with 'resume' when more are back"
            )
        iteration.keep(total.contributors)
        return total

    def union(self, lists: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
        """The nodes of all clients' lists, each once, ascending."""
        nodes = [checks.listed(name, values) for name, values in lists.items()]
        united: Tensor = torch.unique(torch.cat(nodes)).to(torch.int32)
        return united
