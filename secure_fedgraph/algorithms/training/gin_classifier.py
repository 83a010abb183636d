"""Classes of whole graphs by a GIN: what FairGraphFL and its baselines share, and these baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, BatchSize, Settings, State
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, optimizer_of, restore
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.inputs import NOTHING, Expected, Whole, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import note_divergence, take_step
from secure_fedgraph.models.gin import Gin
from secure_fedgraph.models.parameters import difference, load, parameters_of, total
from secure_fedgraph.seams import ClientContext, RoundApi

Distance = Callable[[Tensor, Tensor], Tensor]
"""A further loss term: embeddings ``[b, hidden]`` and their rows among the training graphs ``[b]`` -> it."""
LARGEST_OF_GRAPHS = 1000.0
"""A GIN adds up whole graphs, whose gradients are larger: up to 237 in the first rounds on imdb-binary."""


class GinSettings(Settings):
    """How an agent trains its GIN.

    Args:
        learning_rate, optimizer, weight_decay: of the agent's optimiser; its moments stay with it.
        batch: graphs a step, or ``full``.
        epochs: passes over the training graphs a round.
        hidden, layers, dropout: of the GIN.
        largest_gradient: what the norm of a step's gradient is cut to; steps of honest runs stay below.
    """

    learning_rate: float = Field(0.001, gt=0, allow_inf_nan=False)
    optimizer: Literal["adam", "sgd"] = "adam"
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)
    batch: BatchSize = 128
    epochs: int = Field(1, ge=1)
    hidden: int = Field(64, ge=1)
    layers: int = Field(3, ge=1)
    dropout: float = Field(0.5, ge=0, lt=1)
    largest_gradient: float = Field(LARGEST_OF_GRAPHS, gt=0, allow_inf_nan=False)


class GinClassifier(Algorithm):
    """An algorithm whose agents hold sets of graphs and train a GIN."""

    rounds = 200
    data = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    Settings: ClassVar[type[Settings]] = GinSettings
    settings: GinSettings

    @property
    def hops(self) -> int:
        """One link a layer."""
        return self.settings.layers

    def model(self, schema: Schema) -> Gin:
        """A fresh GIN of the right shape."""
        s = self.settings
        return Gin(schema.features, schema.classes, s.hidden, s.layers, s.dropout, schema.atoms)

    def start(self, schema: Schema, seed: int) -> State:
        """Seeded first weights."""
        model = self.model(schema)
        model.initialise(seed)
        return parameters_of(model)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """For its scores: the model that is released."""
        if channel in {one.name for one in self.examiners()}:
            return self._takes_released(schema)
        return super().takes(channel, schema)

    def predict(self, params: State, graph: Data, schema: Schema) -> Tensor:
        """``[graphs, classes]`` scores."""
        model = self.model(schema)
        load(model, params)
        model.eval()
        with torch.no_grad():
            scores: Tensor = model(graph)
        return scores

    def batch_of(self, client: ClientContext, chosen: Tensor) -> Data:
        """Some of the agent's graphs, packed, as its model reads them.

        Args:
            chosen: ``[g]`` their numbers.
        """
        return select_graphs(client.graph, chosen)

    def own_model(self, client: ClientContext) -> State:
        """The agent's own model; a fresh one where no round has asked it yet."""
        if "model" in client.memory:
            return dict(client.memory["model"])
        return self.start(client.schema, client.generator("initialisation").initial_seed())

    def fit(self, client: ClientContext, params: State, distance: Distance | None = None) -> State:
        """A round of training, from some parameters on; the optimiser's moments stay in the agent's memory.

        Args:
            distance: a further loss term.

        Returns:
            The parameters after it.
        """
        s, graph, model = self.settings, client.graph, self.model(client.schema)
        load(model, params)
        training = graph.train_mask.nonzero().flatten()
        optimizer = optimizer_of(model, s)  # type: ignore[arg-type]
        restore(optimizer, client.memory.get("optimizer", {}))
        order, noise = client.generator("batches"), client.generator("dropout")
        size = len(training) if s.batch == "full" else s.batch
        model.train()
        sound = True
        for _ in range(s.epochs):
            for rows in torch.randperm(len(training), generator=order).split(size):
                batch = self.batch_of(client, training[rows])
                optimizer.zero_grad()
                embedded = model.embed(batch, noise)
                loss = F.cross_entropy(model.classify(embedded, noise), batch.y)
                if distance is not None:
                    loss = loss + distance(embedded, rows)
                loss.backward()
                sound &= bound_gradients(model.parameters(), s.largest_gradient)
                take_step(optimizer)
        note_divergence(client.name, sound)
        client.memory["optimizer"] = moments(optimizer)
        return parameters_of(model)


class GinFedAvg(GinClassifier):
    """FedAvg of a GIN over agents with sets of graphs, unweighted: FairGraphFL's baseline.

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
    """

    name = "gin-fedavg"
    summary = "federated averaging of a GIN that classifies graphs (FairGraphFL's baseline)"
    reference = "McMahan et al. 2017"
    UPDATE = Channel("update", Reveal.SUM, gives_model=True)

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights, which are public."""
        return self.start(schema, seed)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights."""
        if channel == self.UPDATE.name:
            return (like(self.init(schema, 0)),)
        return super().takes(channel, schema)

    def round(self, round: RoundApi, state: State) -> State:
        """Adds the mean update."""
        return total(state, round.reduce(self.UPDATE, given=state).mean)

    @UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains from the global weights and returns the difference."""
        return Upload(difference(self.fit(client, given), given))


class GinLocal(GinClassifier):
    """Every agent trains its own GIN on its own graphs: FairGraphFL's self-training.

    All start from the same seeded weights, as the federated agents do.
    """

    name = "gin-local"
    summary = "every agent on its own, the same GIN and budget (FairGraphFL's baseline)"
    reference = "baseline"
    TRAIN = Channel("train", Reveal.NOTHING)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    def init(self, schema: Schema, seed: int) -> State:
        """Nothing but the public seed."""
        return {"seed": torch.tensor(seed)}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed."""
        if channel == self.TRAIN.name:
            return ({"seed": Whole()},)
        if channel == self.PERSONAL.name:
            return NOTHING
        return super().takes(channel, schema)

    def round(self, round: RoundApi, state: State) -> State:
        """Tells everybody to go on."""
        round.scatter(self.TRAIN, {name: {"seed": int(state["seed"])} for name in round.cohort})
        return state

    def released(self, state: State) -> None:
        """No model is released."""
        return None

    @TRAIN.answer
    def train(self, client: ClientContext, given: State) -> None:
        """One round of training on the agent's own model."""
        first = client.memory.get("model") or self.start(client.schema, int(given["seed"]))
        client.memory["model"] = self.fit(client, first)

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee."""
        return Upload(self.own_model(client))
