"""FedSage, FedAvg and FedGCN under a node's budget: steps under one noise, and class sums before them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedridge.algorithm import TRAINED, FedRidge
from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd
from secure_fedgraph.algorithms.fedsgd.heads.graph_sage import GraphSageHead, OwnModelHead
from secure_fedgraph.algorithms.fedsgd.heads.head import Head
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import NodePerceptron
from secure_fedgraph.algorithms.fedsgd.settings import GcnStepSettings, SageStepSettings, SgdSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected
from secure_fedgraph.core.upload import ContributionMoments
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import personal
from secure_fedgraph.models.neighgen import training as at_home
from secure_fedgraph.models.user_models import Given, own_copy
from secure_fedgraph.seams import ClientContext, RoundApi

SUMS = "sums."
"""Before the names of what class sums say, beside the network's weights."""
DROWNED = 0.5
"""From how much noise over signal on, of all steps together, class sums are sent first."""
MANY_OWNERS, FEWER, FEWER_ROUNDS = 50, {"rate": 0.2, "learning_rate": 1.2}, 50
"""From how many owners on there are fewer steps, with these settings, and how many."""


class FedSageSteps(FedSgd):
    """FedSage's network by steps that all owners take together: the form of FedSage under a node's budget.

    As :class:`~secure_fedgraph.algorithms.fedsgd.algorithm.FedSgd`, for GraphSAGE. A node is trained on as
    its own only neighbour, so it is one record, and a step is one sum over all owners under one noise. With
    ``sums=sent`` owners send class sums before the first step, as
    :class:`~secure_fedgraph.algorithms.fedridge.algorithm.FedRidge` with ``second_moments=own`` does, and
    predictions add up the logarithms of what both say.

    Guarantees:
        - one node is one record of each step, and of the class sums: the client enforces its gradient's
          length, its coins, and the length of its part of the sums;
        - nothing that is sent depends on a link.

    Args:
        model: a network of the user's own in place of FedSage's, as
            :class:`~secure_fedgraph.algorithms.fedavg.FedAvg` takes it. The guarantees need code that keeps
            nothing of one record for another.
        settings: :class:`~secure_fedgraph.algorithms.fedsgd.settings.SageStepSettings`.

    References:
        Zhang et al., NeurIPS 2021 (the network); Yang, Wu, Yan, Graph Neural Networks are Inherently Good
        Generalizers, ICLR 2023 (trained without links); Abadi et al., CCS 2016.
    """

    name = "fedsage-steps"
    network: ClassVar[str] = "sage"
    """The network, as the settings of what it stands for call it."""
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES, Task.NUMBER, Task.LABELS)
    summary = "FedSage's form under a node's budget: GraphSAGE by steps under one shared noise"
    reference = "Zhang et al. 2021; Yang et al. 2023"
    data: ClassVar[str] = "cora"
    partitions: ClassVar[tuple[str, ...]] = (
        *("louvain", "louvain_compiled", "random", "label_skew", "file_order", "dirichlet"),
    )
    Settings: ClassVar[type[SgdSettings]] = SageStepSettings
    settings: SageStepSettings
    rounds = 100
    without_links: ClassVar[Mapping[str, Any] | None] = {"steps": 0, "inference": "spread", "sums": "none"}
    of_graphs = None

    CLASS_SUMS = Channel("class_sums", Reveal.SUM)

    def __init__(self, model: Given | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._make = None if model is None else own_copy(model)

    def made_with(self) -> dict[str, Any]:
        """The model, or its maker, where one was given."""
        return {} if self._make is None else {"model": self._make}

    def check(self, schema: Schema) -> None:
        """The kind of data, and that a model of the user's own serves.

        Raises:
            BadInput: as :meth:`OwnModelHead.check`.
        """
        super().check(schema)
        if self._make is not None:
            OwnModelHead(self._make).check(schema)
        if self.settings.mend != "none" and schema.task != Task.CLASSES:
            raise BadInput(
                f"training.mend = {self.settings.mend}: personal models are of classes, and task = "
                f"{schema.task}; set training.mend=none"
            )

    def check_own(self, graph: Data, name: str) -> None:
        """As of FedSGD, and that the graph can be mended where it is to be."""
        super().check_own(graph, name)
        if self.settings.mend != "none":
            at_home.check(graph, name)

    @property
    def head(self) -> Head:
        """FedSage's network, or the user's own."""
        return GraphSageHead(self.settings) if self._make is None else OwnModelHead(self._make)

    @property
    def _sends_sums(self) -> bool:
        return self.settings.sums == "sent"

    @property
    def _ridge(self) -> FedRidge:
        """What makes, adds up and reads the class sums."""
        made = FedRidge(second_moments="own", target_norm=1.0, records=self.settings.records)
        made.kept = self.kept
        return made

    @property
    def _class_sums(self) -> Channel:
        (moments,) = self._ridge.in_use
        return replace(moments, name=self.CLASS_SUMS.name)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The steps; and the class sums, where they are sent."""
        return (*super().in_use, *((self._class_sums,) if self._sends_sums else ()))

    @property
    def budget_shares(self) -> Mapping[str, float]:
        """What class sums weigh in a budget beside the steps."""
        return {self.CLASS_SUMS.name: self.settings.share} if self._sends_sums else {}

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Class sums once; a step a round."""
        return 1 if channel.name == self.CLASS_SUMS.name else super().uses(channel, rounds, clients)

    def under_budget(
        self, epsilon: float, delta: float, unit: str, schema: Schema, sizes: Mapping[str, int]
    ) -> Self:
        """With class sums where noise would drown the steps; by features, classes, records and budget.

        Many owners take fewer and longer steps of more records, under the same noise: masks of a step cost
        the most there.

        The noise on the sum of ``T`` steps at rate ``q`` is about ``q sqrt(2 T ln(1.25 / delta)) / epsilon``
        clips on each of ``w`` weights, each time, and a class adds ``q n / C`` of them at most in one
        direction: over all steps the noise is ``sqrt(2 w ln(1.25 / delta)) C / (epsilon n)`` times as long.
        """
        records = TRAINED * sizes.get(Unit.NODE, 0)
        if self.settings.sums != "auto" or unit != Unit.NODE or not records:
            return self
        weights = sum(value.numel() for value in self.head.init(schema, 0).values())
        over = math.sqrt(2 * weights * math.log(1.25 / delta)) * schema.classes / (epsilon * records)
        steps = (
            "each step is one sum over all owners, under one noise, of the clipped gradients of nodes that "
            "are their own only neighbours; links are read where predictions are made"
        )
        many = sizes.get(Unit.CLIENT, 0) >= MANY_OWNERS and not self.by_hand.keys() & FEWER.keys()
        form: dict[str, Any] = {"sums": "none", **(FEWER if many else {})}
        if over > DROWNED and schema.task == Task.CLASSES:
            alone = over * math.sqrt(1 + self.settings.share)  # of the budget's part that is left for steps
            form |= {"sums": "sent", "trust": round(1 / (1 + alone) ** 3, 4)}
            steps = (
                f"{steps}; noise on the steps would be {over:.1f} times as long as what they have in common, "
                "so owners send class sums first, which most of the budget goes to"
            )
        made = self.in_form(Form(form, steps))
        if many:
            made.rounds = FEWER_ROUNDS  # type: ignore[misc]
        return made

    def init(self, schema: Schema, seed: int) -> State:
        """The network's first weights, and no class sums."""
        begun = super().init(schema, seed)
        if not self._sends_sums:
            return begun
        return {**begun, **_named(self._ridge.init(schema, seed))}

    def trained(self, state: Mapping[str, torch.Tensor]) -> State:
        """The network's weights."""
        return super().trained({name: value for name, value in state.items() if not name.startswith(SUMS)})

    def released(self, state: State) -> State:
        """The mean of the network's weights over steps; and the class sums with their noise's deviation."""
        found = super().released(state)
        return {**found, **_named(self._ridge.released(_of_sums(state)))} if self._sends_sums else found

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As FedSGD's; nothing for class sums."""
        return NOTHING if channel == self.CLASS_SUMS.name else super().takes(channel, schema)

    def round(self, round: RoundApi, state: State) -> State:
        """One step; before the first, the class sums."""
        sums = {name: value for name, value in state.items() if name.startswith(SUMS)}
        if self._sends_sums and not float(sums[f"{SUMS}owners"]):
            opened = round.reduce(self._class_sums)
            sums = _named(self._ridge.with_sums(opened, _of_sums(state)))
        return {**super().round(round, state), **sums}

    @CLASS_SUMS.answer
    def class_sums(self, client: ClientContext, given: Mapping[str, Any]) -> ContributionMoments:
        """The training nodes' features and classes, of which the client's door makes sums by class."""
        return self._ridge.moments(client, given)

    def by_item(self, params: State, schema: Schema) -> State:
        """With weights along the class sums, which read no other row."""
        if not self._sends_sums:
            return params
        return {**self.trained(params), **_named(self._ridge.by_item(_of_sums(params), schema))}

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """The network's scores, with the links that the reader has; and those of the class sums."""
        scores = self.head.predict(self.trained(params), graph, schema)
        sums = _of_sums(params)
        if not sums:
            return scores
        return self._ridge.predict(sums, graph, schema) + self.settings.trust * scores.log_softmax(dim=1)

    def scores_to_combine(self, client: ClientContext, params: State) -> torch.Tensor:
        """As the base has it; with ``mend=at_home`` on the mended graph, where validation nodes say so."""
        scores = super().scores_to_combine(client, params)
        if self.settings.mend == "none":
            return scores
        classes = client.schema.classes
        graph = at_home.mended(client.graph, classes, client.generator("mending"))
        mended = self.predict(params, graph, client.schema).detach()[: len(scores)]
        return personal.likelier(client.graph, scores, mended, classes)


class FedGcnSteps(FedSageSteps):
    """FedGCN's network in the same form: on a node alone, two graph convolutions are a perceptron.

    No sums of neighbours are exchanged, and shares of classes travel over the links of whoever predicts.

    References:
        Yao et al., NeurIPS 2023 (the network); Gasteiger et al., Predict then Propagate, ICLR 2019.
    """

    name = "fedgcn-steps"
    network = "gcn"
    summary = "FedGCN's form under a node's budget: a GCN by steps under one shared noise"
    reference = "Yao et al. 2023; Yang et al. 2023"
    Settings: ClassVar[type[SgdSettings]] = GcnStepSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    @property
    def head(self) -> Head:
        """FedGCN's network on single nodes."""
        shared = self.settings.model_dump(include=SgdSettings.model_fields.keys() - {"hidden"})
        return NodePerceptron(SgdSettings(hidden=self.settings.hidden[0], **shared))


def _named(state: Mapping[str, torch.Tensor]) -> State:
    return {SUMS + name: value for name, value in state.items()}


def _of_sums(state: Mapping[str, torch.Tensor]) -> State:
    return {name.removeprefix(SUMS): value for name, value in state.items() if name.startswith(SUMS)}
