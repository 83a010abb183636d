"""What FedSage+ and LocSage+ share: an owner's generator, its pre-training, and its completed graph."""

from __future__ import annotations

import logging
from typing import ClassVar

from torch_geometric.data import Data

from secure_fedgraph.algorithms.fedsageplus.settings import GeneratorSettings
from secure_fedgraph.algorithms.training.private_training import MADE
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.mending import Impaired, check_share, impair, mend
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.neighgen.training import begin, predict_neighbours, train_locally
from secure_fedgraph.models.parameters import Parameters, made_over, parameters_of
from secure_fedgraph.seams import ClientContext

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
