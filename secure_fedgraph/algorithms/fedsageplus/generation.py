"""What FedSage+ and LocSage+ share: an owner's generator, its pre-training, and its completed graph."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedsageplus.settings import GeneratorSettings
from secure_fedgraph.algorithms.training.private_training import MADE
from secure_fedgraph.core.channel import UnitContributionMoments
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.upload import ContributionMoments, moments_of
from secure_fedgraph.graph.mending import Impaired, check_share, impair, mend
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.neighgen.mixture import class_records, prototypes_of
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.neighgen.training import begin, predict_neighbours, train_locally
from secure_fedgraph.models.parameters import Parameters, made_over, parameters_of
from secure_fedgraph.seams import ClientContext, Total

_LOG = logging.getLogger("secure_fedgraph.training")
CANDIDATES = 5
RATE, DECAY = 0.001, 1e-4
"""Adam's rate and weight decay for generators, as in the released code."""


class Generates:
    """An owner that generates neighbours for its nodes."""

    needs_neighbours: ClassVar[str] = "generated neighbours are what it is about"
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Generators train on the CPU."""
    settings: GeneratorSettings

    def neighgen(self, schema: Schema) -> NeighGen:
        """A fresh generator of the right shape."""
        s = self.settings
        return NeighGen(
            schema.features,
            schema.classes,
            encoder=s.encoder,
            candidates=CANDIDATES,
            hidden=s.generator_hidden,
        )

    def generator_of(self, client: ClientContext) -> NeighGen:
        """A fresh generator for one owner."""
        return self.neighgen(client.schema)

    @property
    def at_home(self) -> tuple[int, float]:
        """Epochs of stage A, and their learning rate."""
        return self.settings.generator_epochs, RATE

    def pretrain(self, client: ClientContext) -> None:
        """Stage A: the generator learns from the owner's own hidden nodes."""
        epochs, rate = self.at_home
        model = self.generator_of(client)
        impaired = self.impaired(client)
        begin(model, impaired, client.generator("neighgen").initial_seed())
        train_locally(
            model,
            impaired,
            epochs,
            client.generator("pretraining"),
            learning_rate=rate,
            weight_decay=DECAY,
            feat_loss_norm=self.settings.feat_loss_norm,
        )
        client.memory["neighgen"] = parameters_of(model)

    def occurrences(self, unit: str) -> int:
        """None: no record of training on a completed graph is one node."""
        raise BadInput(MADE)

    def check_own(self, graph: Data, name: str) -> None:
        """That hiding the share leaves some nodes, and hides some."""
        check_share(int(graph.num_nodes or 0), self.settings.hidden_share)

    def impaired(self, client: ClientContext) -> Impaired:
        """The owner's graph with a share of its nodes hidden: the same ones in every round."""
        seed = client.memory.setdefault("impair_seed", client.generator("impairing").initial_seed() % 2**32)
        return impair(client.graph, self.settings.hidden_share, seed)

    def own_generator(self, client: ClientContext, to_train: bool = False) -> NeighGen:
        """The generator so far; pre-trained now, where no round has asked this owner to yet.

        Args:
            to_train: make it over copies of what the client's memory holds, and not over that itself.
        """
        if "neighgen" not in client.memory:
            self.pretrain(client)
        kept: Parameters = client.memory["neighgen"]
        if to_train:
            kept = {name: value.clone() for name, value in kept.items()}
        return made_over(lambda: self.generator_of(client), kept).eval()

    def completed(self, client: ClientContext) -> Data:
        """The owner's original graph with generated neighbours, made once, before the classifier."""
        if "completed" not in client.memory:
            model = self.own_generator(client)
            counts, features = predict_neighbours(model, client.graph, client.generator("mending"))
            if not counts.any():
                _LOG.warning(
                    "%s: its generator predicts no missing neighbour, so its graph stays as it is: "
                    "training.generator_epochs=%d may be too few",
                    client.name,
                    self.settings.generator_epochs,
                )
            graph = mend(client.graph, counts, features)
            keys = ("x", "y", "edge_index", "train_mask")
            client.memory["completed"] = {key: graph[key] for key in keys}
        return Data(**client.memory["completed"])


PREFIX = "prototypes."
ROWS, COUNTS = PREFIX + "rows", PREFIX + "counts"
"""What the server releases: mean directions ``[classes, features]``, and counts ``[classes]``."""
KEPT = "prototypes"
"""The memory entry with the rows of the classes that are known."""
DONE = "released "
"""Before a channel's name: the memory entry of what is answered once. A failed answer does not undo it."""
LEAST_NOISE = 0.25
"""Times what one node moves: the least noise on a sum that counts as some."""


def contribution(settings: GeneratorSettings) -> UnitContributionMoments:
    """What one record moves of the sums."""
    return UnitContributionMoments(targets=1.0, records=settings.records, second=False)


def check_noise(noise: float, settings: GeneratorSettings) -> None:
    """That noise hides something, since under any noise no class is left out for being small.

    Args:
        noise: standard deviation on each value of the sum of all owners' uploads.

    Raises:
        BadInput: for less than :data:`LEAST_NOISE` times what one node moves.
    """
    times = noise * settings.records
    if 0 < times < LEAST_NOISE:
        raise BadInput(
            f"feature_sums: its noise is {times:.2g} times what one node moves, which hides no node, and "
            f"with noise small classes are sent too. Raise it to {LEAST_NOISE} or more (--unit node "
            "--epsilon, or protection.multiplier.feature_sums), or take a policy without noise on it, such "
            "as masked, which leaves small classes out"
        )


def once(client: ClientContext, channel: str) -> None:
    """Sums are released once, in round 1, and prototypes are given once after it.

    Raises:
        HostileMessage: for a second ask, and in any other round.
    """
    if client.round != 1 or DONE + channel in client.memory:
        raise HostileMessage(
            f"{client.name} was asked on {channel!r} in round {client.round}, and answers on it once, in "
            "round 1"
        )
    client.memory[DONE + channel] = 1


def records_of(client: ClientContext, settings: GeneratorSettings, noised: bool) -> ContributionMoments:
    """An owner's records.

    Args:
        noised: whether noise covers what one record moves. Without it a class of fewer than ``anonymity``
            training nodes is left out; with it nothing is, since whether a class is left out would depend on
            all its nodes together.
    """
    graph, classes = client.graph, client.schema.classes
    nodes = graph.train_mask.nonzero().flatten()
    labels = graph.y[nodes]
    if not noised:
        enough = torch.bincount(labels, minlength=classes) >= settings.anonymity
        nodes, labels = nodes[enough[labels]], labels[enough[labels]]
    return ContributionMoments(class_records(graph.x[nodes]), F.one_hot(labels, classes).float())


def nothing_known(schema: Schema) -> State:
    """Before the release."""
    return {ROWS: torch.zeros(schema.classes, schema.features), COUNTS: torch.zeros(schema.classes)}


def released(opened: Total, settings: GeneratorSettings) -> State:
    """The prototypes of an opened sum; a class whose count is below ``anonymity`` has none.

    The counts and rows are computed from the opened sum and the public deviation of its noise alone.
    """
    of = contribution(settings)
    _, sums = moments_of(opened.total, of)
    rows, counts = prototypes_of(sums.T, opened.deviation * of.records)
    # what comes off a grid lies a little beside the whole number
    known = counts > settings.anonymity - 0.5
    return {
        ROWS: torch.where(known[:, None], rows, 0.0).float(),
        COUNTS: torch.where(known, counts, 0.0).float(),
    }


def keep(client: ClientContext, given: Mapping[str, Any]) -> None:
    """Keeps the prototypes of the classes that are known.

    Means of directions are no longer than 1. Longer rows are shortened to it, whoever made them so: noise, or
    a server that lies.
    """
    rows = given[ROWS][given[COUNTS] > 0].double()
    client.memory[KEPT] = (rows / rows.norm(dim=1, keepdim=True).clamp(min=1)).float()


def at_home(client: ClientContext) -> Tensor:
    """The prototypes at the length of the owner's own features, ``[k, features]``.

    An owner that was not given any, or for which no class is known, takes the mean of its own nodes.
    """
    x = client.graph.x
    rows: Tensor = client.memory.get(KEPT, x[:0])
    made: Tensor = rows * x.norm(dim=1).mean() if len(rows) else x.mean(0, keepdim=True)
    return made
