"""FedAvg and FedProx: clients train, the server averages their updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.fedridge.forms import FedAvgMoments
from secure_fedgraph.algorithms.fedsgd.graph_sage import FedSageSteps
from secure_fedgraph.algorithms.training import adaptive_clip
from secure_fedgraph.algorithms.training.buckets import COMBINED, FEWEST, BucketedSettings, buckets
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.algorithms.training.private_training import Penalty
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.algorithms.training.weighting import AveragingSettings, weighed, weighted_mean
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.placing import DEVICES, copied_to
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.parameters import difference, load, parameters_of, total
from secure_fedgraph.seams import ClientContext, RoundApi, Total


class FedAvg(NodeClassifier):
    """Federated averaging of a graph neural network, unweighted unless ``weighted=True``.

    Each round every client trains from the global weights and uploads its update; the server adds the mean
    update. Persistent buffers (a BatchNorm's running mean and variance) are part of the same upload and are
    averaged alike, so whatever clips, noises or hides the update does so with them; whole numbers such as
    ``num_batches_tracked`` become the rounded mean, and travel over 1,024
    (``models.parameters.COUNT_SCALE``). Buffers with ``persistent=False`` are never sent, and are in every
    round what the constructor makes of them. Under noisy steps buffers and parameters that are not trained
    stay as they are. Optimiser moments stay with the client. The server needs the sum only, so masks bind;
    weights are in the same sum, and so is who was within the clip, where that follows the clients
    (:class:`~secure_fedgraph.algorithms.training.weighting.AveragingSettings`).

    References:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
    """

    name = "fedavg"
    tasks: ClassVar[tuple[str, ...]] = tuple(Task)
    summary = "federated averaging of a GraphSAGE classifier, unweighted"
    reference = "McMahan et al. 2017"
    kinds: ClassVar[tuple[str, ...]] = ("node", "graph")
    devices: ClassVar[tuple[str, ...]] = DEVICES
    steps_on_sums: ClassVar[type[FedSageSteps] | None] = FedSageSteps
    """What stands for it under a node's budget, and whether a form does under a graph's; a subclass says so
    itself."""
    kept_by_steps: ClassVar[tuple[str, ...]] = ("hidden",)
    """Settings by hand that what stands for it takes over."""
    UPDATE = Channel("update", Reveal.SUM, trained=True, gives_model=True)
    Settings: ClassVar[type[TrainingSettings]] = BucketedSettings

    def on_sums(self, unit: str) -> Algorithm:
        """For one node ``steps_on_sums``, for one graph :class:`FedAvgMoments`.

        Itself where settings by hand are of local training. With a step a round, or one exchange, a proximal
        term pulls nowhere, so these are FedProx's forms too.
        """
        form: type[FedSageSteps] | None = vars(type(self)).get("steps_on_sums")
        by_hand = dict(self.by_hand)
        if form is None or self.learns_links:
            return self
        if self._make is not None:
            return FedSageSteps(self._make) if unit == Unit.NODE and not by_hand else self
        if unit == Unit.GRAPH:
            return self if by_hand.keys() - {"mu"} else FedAvgMoments()
        if unit != Unit.NODE or by_hand.keys() - {*self.kept_by_steps, "fanout", "network", "mu"}:
            return self
        if self.settings.network != form.network or ("fanout" in by_hand and not self.settings.trains_alone):
            return self
        return form(**{key: by_hand[key] for key in self.kept_by_steps if key in by_hand})

    @property
    def _adaptive(self) -> bool:
        return isinstance(self.settings, AveragingSettings) and self.settings.clip == "adaptive"

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights, which are public."""
        params = parameters_of(self.start(schema, seed))
        return params | adaptive_clip.start() if self._adaptive else params

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights, and the clip where it follows the clients."""
        if channel == self.UPDATE.name:
            if schema not in self._forms:  # the same names and shapes as the first weights, in every round
                start = parameters_of(self.model(schema))
                self._forms[schema] = like(start | adaptive_clip.start() if self._adaptive else start)
            return (self._forms[schema],)
        return super().takes(channel, schema)

    def released(self, state: State) -> State:
        """The weights."""
        return adaptive_clip.without(state)

    def notes(self, state: State) -> dict[str, Any]:
        """What the clip became, where it follows the clients."""
        return {"clip": float(state[adaptive_clip.CLIP])} if adaptive_clip.CLIP in state else {}

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """Enough owners for the buckets."""
        super().check_run(clients, split, evaluation)
        if self._bucket:
            buckets([str(i) for i in range(clients)], self._bucket)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The channels; with buckets, what their sums tell."""
        used = super().in_use
        if not self._bucket:
            return used
        told = f"the sum of every bucket of at least {self._bucket} owners, round after round the same owners"
        return tuple(
            replace(one, without_noise=told, smallest_sum=self._bucket, min_clients=FEWEST)
            if one.name == self.UPDATE.name
            else one
            for one in used
        )

    @property
    def _bucket(self) -> int:
        return self.settings.bucket if isinstance(self.settings, BucketedSettings) else 0

    def round(self, round: RoundApi, state: State) -> State:
        """Adds the mean update, or what the means of buckets have in common."""
        channel, s, params = self.as_used(self.UPDATE), self.settings, adaptive_clip.without(state)
        if isinstance(s, BucketedSettings) and s.bucket:
            parts = [round.among(one) for one in buckets(round.cohort, s.bucket)]
            means = [self._mean(part.reduce(channel, given=state)) for part in parts]
            return total(params, COMBINED[s.combine](means))
        opened = round.reduce(channel, given=state)
        if self._adaptive:
            mean, clip = adaptive_clip.mean(opened.total, len(opened.contributors), state[adaptive_clip.CLIP])
            return total(params, mean) | {adaptive_clip.CLIP: clip}
        return total(params, self._mean(opened))

    def _mean(self, opened: Total) -> State:
        s = self.settings
        if isinstance(s, AveragingSettings) and s.weighted:
            return weighted_mean(opened.total, len(opened.contributors), s.heaviest)
        return opened.mean

    @UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains from the global weights and returns the difference."""
        model, s, params = self.model(client.schema), self.settings, adaptive_clip.without(given)
        load(model, params)
        before = parameters_of(model)
        with self.seeded_sampling(client):
            trained = self.in_training(client, model)
            fit(client, self.training_graph(client), trained, s, self.penalty(before), device=self.device)
        update = difference(parameters_of(model), before)
        if self._adaptive:
            update = adaptive_clip.scaled(update, given.get(adaptive_clip.CLIP))
        elif isinstance(s, AveragingSettings) and s.weighted:
            update = weighed(update, int(client.graph.train_mask.sum()), s.heaviest)
        return Upload(update)

    def in_training(self, client: ClientContext, model: nn.Module) -> nn.Module:
        """The module that is trained, which holds the model's parameters: the model."""
        return model

    def penalty(self, given: State) -> Penalty | None:
        """The extra loss term of local training; none here."""
        return None


class FedProx(FedAvg):
    """FedAvg whose local loss pulls towards the global weights: ``+ mu/2 ||w - w_global||^2``.

    References:
        Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, equation 2.
    """

    name = "fedprox"
    steps_on_sums = FedSageSteps
    summary = "FedAvg with a proximal term in the local loss"
    reference = "Li et al. 2020"

    class Settings(BucketedSettings):
        """As FedAvg's, and ``mu``, the weight of the proximal term."""

        mu: float = Field(0.01, ge=0)

    settings: Settings

    def penalty(self, given: State) -> Penalty:
        """The proximal term; its gradient flows through the local weights."""

        def proximal(model: nn.Module) -> torch.Tensor:
            apart = [
                (p - copied_to(p.device, given[name])).square().sum() for name, p in model.named_parameters()
            ]
            return self.settings.mu / 2 * torch.stack(apart).sum()

        return proximal


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
