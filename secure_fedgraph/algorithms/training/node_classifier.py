"""Classification of nodes or whole graphs: the model and its predictions, shared by whoever trains one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.training.graph_classifier import graph_network
from secure_fedgraph.algorithms.training.private_training import check_crowd, check_no_dropout, touched
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.channel import Channel, Recipient
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.inputs import Entry, Expected
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.placing import placed
from secure_fedgraph.graph.schema import OF_LINKS, Schema
from secure_fedgraph.models import user_models
from secure_fedgraph.models.ego.model import EgoSage
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.links.pair_net import PairNet
from secure_fedgraph.models.parameters import glorot, load, on_device
from secure_fedgraph.models.per_record import check_model
from secure_fedgraph.seams import ClientContext


class NodeClassifier(Algorithm):
    """An algorithm that trains one classifier: of nodes, or of whole graphs where the data are sets of them.

    Args:
        model: an instance, a class or a factory (``schema -> Module``) of any ``torch.nn.Module`` whose
            ``forward(x, edge_index)`` gives class scores; by default what the settings name. ``forward`` may
            take ``edge_weight``, ``edge_attr`` and ``batch`` too, by name. For whole graphs
            ``forward(packed, generator)`` serves as well, where the generator draws dropout. It keeps its
            own initialisation: an instance starts with the weights that it has, and is itself left alone.
        settings: :class:`~secure_fedgraph.algorithms.training.settings.TrainingSettings`.
    """

    partitions: ClassVar[tuple[str, ...]] = (
        "louvain",
        "louvain_compiled",
        "random",
        "label_skew",
        "file_order",
        "dirichlet",
    )
    Settings: ClassVar[type[TrainingSettings]] = TrainingSettings
    settings: TrainingSettings

    own_models: ClassVar[bool] = True
    """Whether it trains a model that a user gives."""
    needs_neighbours: ClassVar[str] = ""
    """Why it cannot be trained on nodes alone (``fanout`` of 0); empty where it can."""
    learns_links: bool = False
    """Whether its items are links."""

    def __init__(self, model: user_models.Given | None = None, **settings: Any) -> None:
        super().__init__(**(settings if model is None else _with_a_width_a_layer(self.Settings, settings)))
        self._forms: dict[Schema, dict[str, Entry]] = {}
        if model is not None and not self.own_models:
            raise BadInput(f"model: {self.name} works on the layers of its own model and takes no other")
        if model is not None and self.settings.head != "glorot":
            raise BadInput(
                f"head = {self.settings.head!r} is of the built-in networks: a model of your own starts as "
                "you initialise it"
            )
        self._make = None if model is None else user_models.own_copy(model)
        if self.settings.trains_alone:
            self._check_alone()

    def made_with(self) -> dict[str, Any]:
        """The model, or its maker, where one was given."""
        return {} if self._make is None else {"model": self._make}

    def _check_alone(self) -> None:
        """Checks that nodes can be trained on alone."""
        why, other = self.needs_neighbours, "use fedsage with training.network=sage"
        if not why and self.settings.network == "ego":
            why = "the ego network reads sampled neighbours by their positions"
        if not why and self._make is not None:
            why = "a model of your own, a GraphSage too, is trained on neighbourhoods, and not on nodes alone"
            other = f"leave model out and give training.hidden = {[64] * len(self.settings.fanout)}"
        if why:
            raise BadInput(
                f"training.fanout = {list(self.settings.fanout)}: {why}; give 1 or more for every layer, or "
                f"{other}"
            )

    def for_data(self, schema: Schema) -> Algorithm:
        """As the base has it; where links are learned, what is trained on depends on links."""
        if schema.task not in OF_LINKS:
            return super().for_data(schema)
        made = copy.copy(self)
        made.learns_links = True
        return made

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The channels; none reads a link where nodes are trained on alone."""
        used = super().in_use
        if not self.settings.trains_alone or self.learns_links:
            return used
        return tuple(one if one.to == Recipient.REFEREE else replace(one, links=False) for one in used)

    def as_used(self, channel: Channel) -> Channel:
        """A channel of this class as these settings declare it."""
        return next((one for one in self.in_use if one.name == channel.name), channel)

    @property
    def hops(self) -> int:
        """Sampling depth: a node at most this far from a training node can be touched."""
        return 0 if self.settings.trains_alone else len(self.settings.fanout)

    def occurrences(self, unit: str) -> int:
        """One graph is one record; a node's removal changes the trees that it is in, and what it leaves."""
        return touched(self.settings, unit)

    def check_touched(self, graph: Data, unit: str) -> None:
        """How many neighbours of one node have more links than places."""
        if unit == "node":
            check_crowd(graph, self.settings)

    def check_records(self, schema: Schema, unit: str) -> None:
        """The fan-outs, and the model that the settings or the caller make."""
        super().check_records(schema, unit)
        whole = schema.kind == GraphSetDataset.kind
        if whole:
            check_no_dropout(self.settings)
        check_model(self.model(schema), whole)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """For its scores: the model that is released."""
        if channel in {one.name for one in self.examiners()}:
            return self._takes_released(schema)
        return super().takes(channel, schema)

    def check(self, schema: Schema) -> None:
        """The kind of data, and that a model of the user's own fits them.

        Raises:
            BadInput: as :func:`~secure_fedgraph.models.user_models.check_fits`, or for one that reads what
                generated links do not have.
        """
        super().check(schema)
        if self.settings.trains_alone and schema.kind == GraphSetDataset.kind:
            raise BadInput(
                f"training.fanout = {list(self.settings.fanout)}: a whole graph is trained on with its "
                "links; leave fanout out"
            )
        if self._make is None:
            return
        if schema.task in OF_LINKS:
            nodes = Schema(schema.ends, self.settings.hidden[-1])
            width = user_models.width_of(user_models.build(self._make, nodes, 0), nodes)
            user_models.check_fits(self._make, replace(nodes, classes=width), self.device)
            return
        user_models.check_fits(self._make, schema, self.device)
        model, fanout = self.model(schema), list(self.settings.fanout)
        if isinstance(model, GraphSage) and model.hops != len(fanout):
            raise BadInput(
                f"training.fanout = {fanout}, and model {type(model).__name__} is of depth {model.hops}: "
                f"give training.fanout one number a layer, such as {', '.join(['5'] * model.hops)}"
            )
        read = self.reads(schema)
        if read and type(self).training_graph is not NodeClassifier.training_graph:
            raise BadInput(
                f"model reads {' and '.join(read)}, and the links that {self.name} generates have none: use "
                "fedavg, or data without"
            )

    def reads(self, schema: Schema) -> tuple[str, ...]:
        """Which of the data's edge fields the model takes."""
        if self._make is None:
            return ()
        return tuple(key for key in user_models.reads(self.model(schema)) if key in schema.edge_fields)

    def model(self, schema: Schema) -> nn.Module:
        """A fresh model of the right shape."""
        if schema.task in OF_LINKS and not self.settings.trains_alone:
            return self._of_pairs(schema, 0)
        if self._make is not None:
            return user_models.build(self._make, schema, 0)
        settings = self.settings
        if schema.kind == GraphSetDataset.kind:
            return graph_network(schema, settings)
        if settings.network not in ("sage", "ego"):
            raise BadInput(
                f"network = {settings.network!r} classifies whole graphs, not nodes: use sage or ego"
            )
        if settings.network == "ego":
            return EgoSage(
                schema.features, schema.classes, settings.hidden[0], settings.fanout, dropout=settings.dropout
            )
        return GraphSage(schema.features, schema.classes, settings.hidden)

    def _of_pairs(self, schema: Schema, seed: int) -> PairNet:
        """A network that encodes nodes, and scores pairs of them: the caller's encoder, or a GraphSAGE."""
        hidden = self.settings.hidden
        if self._make is not None:
            nodes = Schema(schema.ends, hidden[-1])
            encoder = user_models.build(self._make, nodes, seed)
            return PairNet(encoder, user_models.width_of(encoder, nodes), schema, inner_product=True)
        if self.settings.network != "sage":
            raise BadInput(
                f"network = {self.settings.network!r}: where links are learned, nodes are encoded by sage or "
                "a model of your own"
            )
        return PairNet(GraphSage(schema.ends, hidden[-1], hidden), hidden[-1], schema)

    def reach(self, schema: Schema) -> int | None:
        """The layers of the built-in networks of nodes; None of others."""
        averages = schema.kind != GraphSetDataset.kind and isinstance(self.model(schema), GraphSage | EgoSage)
        as_here = type(self).predict is NodeClassifier.predict
        return len(self.settings.fanout) if averages and as_here else None

    def start(self, schema: Schema, seed: int) -> nn.Module:
        """A model with seeded first weights.

        A user's own keeps the weights that its author gives it; the built-in networks start by their own rule
        or else Glorot, the head as the settings say.
        """
        if self._make is not None and schema.task in OF_LINKS:
            pairs = self._of_pairs(schema, seed)
            for name, part in pairs.named_children():
                if name != "encoder":
                    glorot(part, seed)
            return pairs
        if self._make is not None:
            return user_models.build(self._make, schema, seed)
        model = self.model(schema)
        initialise = getattr(model, "initialise", None)
        if callable(initialise):
            initialise(seed)
        else:
            glorot(model, seed)
        head = getattr(model, "head", None)
        if self.settings.head == "zeros" and isinstance(head, nn.Module):
            with torch.no_grad():
                for p in head.parameters():
                    p.zero_()
        return model

    def training_graph(self, client: ClientContext) -> Data:
        """What a client trains on: its own graph."""
        return client.graph

    @contextmanager
    def seeded_sampling(self, client: ClientContext) -> Iterator[None]:
        """Around the training of a user's own model, whose layers draw from torch's generator: seeded."""
        if self._make is None:
            yield
            return
        with user_models.seeded(client.generator("model").initial_seed(), self.device):
            yield

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Class scores from whole neighbourhoods.

        What was trained on nodes alone, each its own only neighbour, reads a node among its neighbours.
        """
        graph = placed(graph, self.device)
        if self.settings.trains_alone:
            graph = _among_neighbours(graph)
        model = self.model(schema)
        load(model, params)
        model.eval()
        with torch.no_grad(), on_device(model, self.device):
            return user_models.scores_of(model, graph).detach().cpu()  # some record gradients in any case


def _with_a_width_a_layer(kind: type[TrainingSettings], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings beside a model of a user's own: ``hidden``, which says nothing of it, fits ``fanout``."""
    fanout, widths = settings.get("fanout"), kind.model_fields["hidden"].default
    if "hidden" in settings or not isinstance(fanout, tuple | list) or len(fanout) == len(widths):
        return {**settings}
    return {**settings, "hidden": (widths[-1],) * len(fanout)}


def _among_neighbours(graph: Data) -> Data:
    """The same graph where every node is a neighbour of its own too."""
    nodes = torch.arange(int(graph.num_nodes or 0), device=graph.edge_index.device)
    made = copy.copy(graph)
    made.edge_index = torch.cat([graph.edge_index, torch.stack([nodes, nodes])], dim=1)
    return made
