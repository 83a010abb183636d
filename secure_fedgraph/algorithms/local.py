"""Local training without any exchange: the baseline of every federated algorithm."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.inputs import NOTHING, Expected
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.placing import DEVICES
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.parameters import load, parameters_of
from secure_fedgraph.seams import ClientContext, RoundApi


class Local(NodeClassifier):
    """Every client trains its own model on its own graph; nothing is shared.

    Nothing leaves a client during training. The experiment's referee examines the personal models over a
    channel of its own, outside the federation and outside the guarantee.
    """

    name = "local"
    tasks: ClassVar[tuple[str, ...]] = tuple(Task)
    summary = "every client on its own, same model and budget"
    reference = "baseline"

    kinds: ClassVar[tuple[str, ...]] = ("node", "graph")
    devices: ClassVar[tuple[str, ...]] = DEVICES
    TRAIN = Channel("train", Reveal.NOTHING)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    def init(self, schema: Schema, seed: int) -> State:
        """The server has no state."""
        return {}

    def round(self, round: RoundApi, state: State) -> State:
        """Tells everybody to go on."""
        round.scatter(self.as_used(self.TRAIN), {name: {} for name in round.cohort})
        return state

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Nothing."""
        return NOTHING

    def released(self, state: State) -> None:
        """No model is released."""
        return None

    @TRAIN.answer
    def train(self, client: ClientContext, given: State) -> None:
        """One round of training on the client's own model."""
        model = self._own(client)
        with self.seeded_sampling(client):
            fit(client, self.training_graph(client), model, self.settings, device=self.device)
        client.memory["model"] = parameters_of(model)

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee."""
        return Upload(self.own_model(client))

    def own_model(self, client: ClientContext) -> State:
        """The model so far."""
        return parameters_of(self._own(client))

    def _own(self, client: ClientContext) -> nn.Module:
        """The model so far; a fresh one where no round has asked this client yet."""
        model = self.start(client.schema, client.generator("initialisation").initial_seed())
        if "model" in client.memory:
            load(model, client.memory["model"])
        return model
