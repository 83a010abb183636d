"""Local training without any exchange: the baseline of every federated algorithm."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.parameters import load, parameters_of
from secure_fedgraph.protocol import Channel, Reveal, Upload
from secure_fedgraph.protocol.given import NOTHING, Expected


class Local(NodeClassifier):
    """Every client trains its own model on its own graph; nothing is shared.

    Nothing leaves a client during training. The experiment's referee examines the personal models over a
    channel of its own, outside the federation and outside the guarantee.
    """

    name = "local"
    summary = "every client on its own, same model and budget"
    reference = "baseline"

    kinds: ClassVar[tuple[str, ...]] = ("node", "graph")
    TRAIN = Channel("train", Reveal.NOTHING)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    def init(self, schema: Schema, seed: int) -> State:
        """The server has no state."""
        return {}

    def round(self, fed: Any, state: State) -> State:
        """Tells everybody to go on."""
        fed.scatter(self.TRAIN, {name: {} for name in fed.cohort})
        return state

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Nothing."""
        return NOTHING

    def released(self, state: State) -> None:
        """No model is released."""
        return None

    @TRAIN.answer
    def train(self, me: Any, given: State) -> None:
        """One round of training on the client's own model."""
        model = self._own(me)
        with self.drawing(me):
            fit(me, self.training_graph(me), model, self.settings)
        me.memory["model"] = parameters_of(model)

    @PERSONAL.answer
    def personal_model(self, me: Any, given: State) -> Upload:
        """The personal model, for the referee."""
        return Upload(self.own_model(me))

    def own_model(self, me: Any) -> State:
        """The model so far."""
        return parameters_of(self._own(me))

    def _own(self, me: Any) -> nn.Module:
        """The model so far; a fresh one where no round has asked this client yet."""
        model = self.start(me.schema, me.generator("initialisation").initial_seed())
        if "model" in me.memory:
            load(model, me.memory["model"])
        return model
