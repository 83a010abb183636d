"""What averaging and APFLGate become on sets of graphs under a graph's budget: one exchange of moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedridge import at_home
from secure_fedgraph.algorithms.fedridge.algorithm import WEIGHTS, GraphFedRidge
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import ridge
from secure_fedgraph.seams import ClientContext, RoundApi


class MomentSettings(RidgeSettings):
    """As :class:`RidgeSettings`; second moments are sent, so that what is released scores a graph alone."""

    second_moments: Literal["sent"] = "sent"


class FedAvgMoments(GraphFedRidge):
    """The form of FedAvg and FedProx on graphs under a graph's budget: ridge regression by one exchange.

    As :class:`~secure_fedgraph.algorithms.fedridge.algorithm.GraphFedRidge`, whose second moments are sent
    whatever the noise. No network is trained: with about a thousand graphs noise leaves more of one sum of
    moments than of the steps of a GIN.

    Guarantees:
        - one graph is one record of one sum over all owners, of a length that the client enforces.

    Args:
        settings: :class:`MomentSettings`.
    """

    name = "fedavg-moments"
    summary = "the form of averaging on graphs under a graph's budget: one noised sum of moments"
    Settings: ClassVar[type[RidgeSettings]] = MomentSettings
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    target_norm: ClassVar[float] = 0.5
    beside: ClassVar[str] = ""
    """What its form does with what came back, for the sentence that says which form it is."""

    def under_budget(
        self, epsilon: float, delta: float, unit: str, schema: Schema, sizes: Mapping[str, int]
    ) -> Self:
        """Itself, said."""
        if unit != Unit.GRAPH:
            return self
        return self.in_form(
            Form(
                {"second_moments": "sent"},
                "owners send moments of what describes each graph once, as one sum under one noise, and the "
                f"shared model is ridge regression on these; no network is trained{self.beside}",
            )
        )


class ApflGateMoments(FedAvgMoments):
    """APFLGate's form under a graph's budget: a shared regression, and at home a personal one and a gate.

    The shared model is released under noise. Each owner fits a personal one to what it leaves over on the
    owner's own graphs, and chooses by these and by its validation graphs how much of the shared one to keep:
    nothing of both leaves the owner (the experiment's referee apart), so they cost nothing. There is one
    exchange, so no gradient is tracked.

    Guarantees:
        - one graph is one record of one sum over all owners; nothing else is sent to the server.

    Args:
        settings: :class:`MomentSettings`.

    References:
        APFLGate (poster); Deng et al., Adaptive Personalized Federated Learning, 2020.
    """

    name = "apflgate-moments"
    summary = "APFLGate's form under a graph's budget: a shared regression, a personal one, a gate at home"
    reference = "APFLGate (poster)"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    metric = "auc"
    data: ClassVar[str] = "bbbp"
    clients: ClassVar[Mapping[str, int]] = {"bbbp": 16}
    partitions: ClassVar[tuple[str, ...]] = ("dirichlet", "random", "file_order")
    beside: ClassVar[str] = "; each owner fits its personal model and its gate at home, which costs no budget"

    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The moments; the referee asks for personal models."""
        return (*super().in_use, self.PERSONAL)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """For its personal model the released one."""
        return (
            self._takes_released(schema) if channel == self.PERSONAL.name else super().takes(channel, schema)
        )

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee."""
        return Upload({WEIGHTS: personal_weights(self, client, given[WEIGHTS])})

    def predictions(
        self, state: State, round: RoundApi, inputs: Data, schema: Schema
    ) -> dict[str, torch.Tensor]:
        """Every owner's own."""
        models = round.gather(self.PERSONAL, self.released(state))
        return {owner: self.predict(model, inputs, schema) for owner, model in models.items()}

    def scores_at_home(self, client: ClientContext, params: State) -> Tensor:
        """Of the personal model."""
        own: dict[str, Any] = {WEIGHTS: personal_weights(self, client, params[WEIGHTS])}
        return self.predict(own, client.graph, client.schema)


def personal_weights(algorithm: FedAvgMoments, client: ClientContext, shared: Tensor) -> Tensor:
    """What an owner predicts with: :func:`~secure_fedgraph.algorithms.fedridge.at_home.personal`.

    Args:
        shared: weights that it was given, ``[width, classes]``.
    """
    graph, norm = client.graph, algorithm.settings.target_norm or algorithm.target_norm
    z, t = algorithm.records(graph, client.schema), ridge.targets(graph.y, client.schema.classes, norm)
    train, held = graph.train_mask, graph.val_mask
    return at_home.personal(shared, z[train], t[train], z[held], t[held])
