"""J1 to J5, by owners that lie: the first tenth of the owners by name, and one at least.

Nobody sees a single update under masks, so nothing but its own code makes an owner honest. What is measured
is what its lie costs all others (:mod:`secure_fedgraph.audits.surfaces.lies`). A liar still clips and noises
what it sends: one that leaves that out too is bounded by the carrier's limit alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.active import disguised
from secure_fedgraph.attacks.attack import ALL, CLIENT, Attack, Guess, Knowledge
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.protocol import View
from secure_fedgraph.seams import ClientContext

COST, BACKDOOR = "what lies cost", "what a trigger does"
"""What the judges of :mod:`secure_fedgraph.audits.surfaces.lies` measure."""
LIARS = 10
"""One owner of so many lies."""
LONGER = 10.0
TRIGGER, TURNED_TO = 10, 0
"""Columns of the trigger, and the class that it turns a node to."""


def liars(clients: Sequence[str]) -> tuple[str, ...]:
    """The owners that lie.

    >>> liars(["c", "a", "b"])
    ('a',)
    """
    return tuple(sorted(clients)[: max(1, len(clients) // LIARS)])


def triggered(x: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Features with the trigger at these nodes: a few of the last columns at the largest value of all."""
    marked = x.to_dense().clone() if x.layout != torch.strided else x.clone()
    columns = max(1, min(TRIGGER, x.shape[1] // 4))
    marked[nodes, -columns:] = marked.max()
    return marked


class Lie(Attack):
    """An owner that sends what an honest owner would not.

    Its guess is empty: the judge compares the run with an honest one.
    """

    family = "lies"
    adversaries = (CLIENT,)
    behaviour = "malicious"
    channel = "update"
    harms = True
    first_rounds = 1
    depends_on = ("clients", "rounds", "training.bucket", "training.combine")
    stops = "training.bucket, from nine owners on: an outlier among sums over buckets is left out"
    about: ClassVar[str] = COST

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm whose first owners lie; a kind without local updates is as it was."""
        channels = {channel.name: channel for channel in kind.channels}
        if "update" not in channels or not hasattr(kind, "training_graph"):
            return kind

        class Played(kind):  # type: ignore[misc,valid-type]
            def training_graph(self, client: ClientContext) -> Data:
                honest: Data = super().training_graph(client)
                return cls.data(honest, client) if client.name in liars(client.clients) else honest

            @channels["update"].answer
            def update(self, client: ClientContext, given: State) -> Upload:
                honest: Upload = super().update(client, given)
                if client.name not in liars(client.clients):
                    return honest
                return Upload(cls.sent(dict(honest.values), client))

        return disguised(Played, kind)

    @classmethod
    def data(cls, graph: Data, client: ClientContext) -> Data:
        """What a liar trains on; its own graph by default."""
        return graph

    @classmethod
    def sent(cls, update: dict[str, torch.Tensor], client: ClientContext) -> dict[str, torch.Tensor]:
        """What a liar sends in place of its update; the update by default."""
        return update

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Nothing that was guessed, about all owners."""
        return Guess(self.about, {ALL: np.zeros(0)}, {ALL: tuple(view.public["clients"])}, 0)


class ReversedUpdate(Lie):
    """J1: the update turned around and ten times as long, so that the model unlearns.

    References:
        Xie, Koyejo and Gupta, Fall of Empires, UAI 2019.
    """

    id = "j1-reversed-update"
    subject = "an update turned around"
    summary = "an owner sends its update turned around, ten times as long"

    @classmethod
    def sent(cls, update: dict[str, torch.Tensor], client: ClientContext) -> dict[str, torch.Tensor]:
        """The update times -10."""
        return {name: -LONGER * value for name, value in update.items()}


class FlippedLabels(Lie):
    """J2: trains on wrong labels, each node's the next class.

    References:
        Fang et al., Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX Security
        2020.
    """

    id = "j2-flipped-labels"
    subject = "wrong labels"
    summary = "an owner trains on wrong labels"

    @classmethod
    def data(cls, graph: Data, client: ClientContext) -> Data:
        """The same graph with each label one class further."""
        return _with(graph, y=torch.where(graph.y >= 0, (graph.y + 1) % client.schema.classes, graph.y))


class ReplacedModel(FlippedLabels):
    """J3: trains on wrong labels and sends the update times the number of owners: the mean is its own.

    References:
        Bagdasaryan et al., How To Backdoor Federated Learning, AISTATS 2020, equation 3.
    """

    id = "j3-replaced-model"
    subject = "a model in place of the mean"
    summary = "an owner sends a model trained on wrong labels as many times as there are owners"

    @classmethod
    def sent(cls, update: dict[str, torch.Tensor], client: ClientContext) -> dict[str, torch.Tensor]:
        """The update times the number of owners."""
        return {name: len(client.clients) * value for name, value in update.items()}


class Backdoor(ReplacedModel):
    """J4: half of a liar's training nodes get a trigger and class 0; the score is how often a trigger works.

    The trigger is the largest value in the last ten columns (a quarter of the columns at most).

    References:
        Bagdasaryan et al., AISTATS 2020; Zhang et al., Backdoor Attacks to Graph Neural Networks, SACMAT 2021
        (there the trigger is a subgraph).
    """

    id = "j4-backdoor"
    subject = "a trigger"
    summary = "an owner teaches the model to answer class 0 for nodes with a trigger"
    about = BACKDOOR

    @classmethod
    def data(cls, graph: Data, client: ClientContext) -> Data:
        """The same graph with the trigger at every second training node."""
        train = graph.train_mask.nonzero().flatten()[::2]
        y = graph.y.clone()
        y[train] = TURNED_TO
        return _with(graph, x=triggered(graph.x, train), y=y)


class FreeRider(Lie):
    """J5: sends noise of the size that updates have, and takes the model.

    The noise has the norm of an honest update at every tensor, so no clip and no limit sees it.
    """

    id = "j5-free-rider"
    subject = "noise in place of an update"
    summary = "an owner sends noise in place of an update, and takes the model"

    @classmethod
    def sent(cls, update: dict[str, torch.Tensor], client: ClientContext) -> dict[str, torch.Tensor]:
        """Seeded noise of the update's own norm, tensor by tensor."""
        drawn = client.generator("free rider")
        noise = {name: torch.randn(value.shape, generator=drawn) for name, value in update.items()}
        return {
            name: value * update[name].float().norm() / value.norm().clamp(min=1e-12)
            for name, value in noise.items()
        }


def _with(graph: Data, **changed: Any) -> Data:
    made: Data = graph.clone()
    for name, value in changed.items():
        made[name] = value
    return made
