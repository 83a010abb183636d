"""GLASU with labels at one client: Algorithms 5 to 7 of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.glasu import channels, checks
from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.algorithms.glasu.vertical import Iteration
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import ClientContext, RoundApi

GRADIENT = Channel("gradient", Reveal.EACH, Unit.NODE, to="peer")
"""The label holder's gradient at the last aggregate."""


class GlasuOneLabelHolder(Glasu):
    """GLASU in which the first client alone holds labels.

    After each joint inference it sends the others the gradient at the last aggregate, and all make their
    updates with it (``backward="local"``, the default here). With ``backward="server"`` the server sums
    gradients as in GLASU, and those of the others are zero.

    What it does not hide: the gradient gives the other clients the labels of the batch.

    References:
        Zhang et al., GLASU, TMLR 2024 (arXiv 2303.09531): Algorithms 5 to 7.
    """

    name = "glasu-one-label-holder"
    summary = "GLASU with labels at one client, which sends the others its gradient"
    all_need_labels = False
    _local: ClassVar = {"backward": "local", "local_steps": 1, "learning_rate": 0.5}
    forms = (replace(Glasu.forms[0], settings={**Glasu.forms[0].settings, **_local}), Glasu.forms[1])

    class Settings(GlasuSettings):
        """GLASU's, with local gradients unless it is said."""

        @classmethod
        def local_by_default(cls, values: Mapping[str, Any]) -> bool:
            """Always."""
            return True

    settings: Settings

    def label_holders(self, cohort: tuple[str, ...]) -> tuple[str, ...]:
        """The first client."""
        return cohort[:1]

    @property
    def gradient_channels(self) -> tuple[Channel, ...]:
        """The label holder's gradient, unless gradients go through the server."""
        return super().gradient_channels or (GRADIENT,)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As GLASU; the gradient is asked for with the last aggregate."""
        if channel == GRADIENT.name:
            return ({**channels.task(self.settings), **channels.MEAN},)
        return super().takes(channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """A row a node."""
        return channels.ROWS if channel == GRADIENT.name else super().shows(channel, schema)

    def update(self, round: RoundApi, iteration: Iteration) -> None:
        """Algorithm 5: the label holder's gradient goes to the others; without it there is no step."""
        if self.settings.backward == "local":
            holders = self.label_holders(round.cohort)
            if not {*holders} <= {*iteration.present}:
                return
            round.share(GRADIENT, iteration.request(), senders=holders, readers=iteration.present)
        super().update(round, iteration)

    @GRADIENT.answer
    def gradient(self, client: ClientContext, given: State) -> Upload:
        """Algorithm 6: the gradient of the label holder's loss at the last aggregate."""
        running = self.iteration(client, given)
        self.take_aggregate(client, running, self.top, given)
        top = running.aggregates[self.top].detach().clone().requires_grad_()
        if not running.holds_labels:
            raise HostileMessage("the gradient is asked of a client that holds no labels")
        return Upload({"rows": torch.autograd.grad(running.loss(top), top)[0]})

    @GRADIENT.read
    def take_gradient(self, client: ClientContext, uploads: dict[str, dict[str, Tensor]]) -> None:
        """Keeps the label holder's gradient for the updates (Algorithm 7)."""
        running = self.running(client)
        if len(uploads) != 1 or running.holds_labels:
            raise HostileMessage("one gradient is taken, from the label holder, by those who hold no labels")
        (values,) = uploads.values()
        rows = len(running.sets[running.ends[self.top]])
        running.gradient = checks.rows(values["rows"], rows, self.settings.hidden)
