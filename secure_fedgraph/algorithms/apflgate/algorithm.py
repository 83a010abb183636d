"""APFLGate, and the two methods that it joins: APFL and FedGATE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, Settings, State, in_band_score
from secure_fedgraph.algorithms.apflgate import settings as how
from secure_fedgraph.algorithms.apflgate.ratings import ApflGateRatings
from secure_fedgraph.algorithms.fedridge.forms import ApflGateMoments
from secure_fedgraph.algorithms.training.graph_classifier import (
    GraphTask,
    NodeTask,
    Part,
    RatingTask,
    Task,
    batches,
    training_items,
)
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, restore
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.partition.result import EVERYBODY
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import SGD, Adam, all_finite, finite, note_divergence, take_step
from secure_fedgraph.models.parameters import difference, load, parameters_of
from secure_fedgraph.seams import ClientContext, RoundApi

ALPHA = "alpha"


class Personal:
    """A client's personal model during one round.

    Args:
        settings: the algorithm's.
        client: the client.
        task: what is learned.
        shared: the shared model as the round starts; its outputs are taken once and for all.
    """

    def __init__(
        self, settings: how.PersonalSettings, client: ClientContext, task: Task, shared: nn.Module
    ) -> None:
        s = settings
        self.client, self.task = client, task
        with torch.no_grad():
            self.base = task.outputs(shared, task.part(client.graph, None))
        self.model = task.model(client.schema)
        load(self.model, client.memory.get("personal") or parameters_of(shared))
        self.adaptive = s.alpha == "adaptive"
        self.alpha = float(client.memory.get(ALPHA, 0.5 if s.alpha == "adaptive" else s.alpha))
        self.alpha_rate, self.largest_gradient = s.alpha_rate, s.largest_gradient
        rate = s.learning_rate if s.personal_rate is None else s.personal_rate
        kind = Adam if s.personal_optimizer == "adam" else SGD
        self.optimizer = kind(self.model.parameters(), lr=rate, weight_decay=s.weight_decay)
        restore(self.optimizer, client.memory.get("optimizer", {}))
        self.noise = client.generator("personal dropout")
        self.slopes: list[Tensor] = []
        self.sound = True

    def step(self, chosen: Tensor, part: Part) -> None:
        """One step of the personal model on the mixed output."""
        self.optimizer.zero_grad()
        alpha = torch.tensor(self.alpha, requires_grad=self.adaptive)
        mixed = alpha * self.task.outputs(self.model, part, self.noise) + (1 - alpha) * self.base[chosen]
        self.task.loss(mixed, part).backward()
        self.sound &= bound_gradients(self.model.parameters(), self.largest_gradient)
        if alpha.grad is not None:
            self.slopes.append(alpha.grad)
        take_step(self.optimizer)

    def keep(self) -> None:
        """Into the client's memory, alpha after its step of the round."""
        if self.adaptive:
            slope = float(finite(torch.stack(self.slopes).mean()))
            self.alpha = min(max(self.alpha - self.alpha_rate * slope, 0.0), 1.0)
        note_divergence(self.client.name, self.sound)
        self.client.memory["personal"] = parameters_of(self.model)
        self.client.memory[ALPHA] = self.alpha
        self.client.memory["optimizer"] = moments(self.optimizer)


MODEL = "model."
GRAPHS = 16
"""A batch of graphs, where the settings name none."""
METRICS_OF = {"graph": "auc", "ratings": "mae"}


class ApflGate(Algorithm):
    """Personalised federated training with gradient tracking.

    A shared model learns from all clients, with a term on each client that turns its gradient towards the
    mean gradient; a personal model on each client learns what the shared one, frozen at the start of the
    round, leaves over; a client predicts with ``alpha`` of the personal model's output and the rest of the
    shared one's. Whole graphs are classified, ratings predicted, or nodes classified, as the data are.

    Guarantees:
        - the server needs the sum of the updates only; the mean that tracking needs goes back to the cohort,
          who could compute it from the next round's weights;
        - tracking terms, personal models, ``alpha``, and tables of one's own users and products do not leave
          the client (the experiment's referee apart);
        - with everybody in every round and nothing clipped or noised, the tracking terms add up to zero.

    References:
        APFLGate (poster), with signs and limits as ``docs/algorithms/apflgate.md`` has them; APFL: Deng et
        al. 2020; FedGATE: Haddadpour et al. 2021.
    """

    name = "apflgate"
    summary = "personal models beside a shared one whose clients track the mean gradient"
    reference = "APFLGate (poster)"
    rounds = 100
    data = "bbbp"
    clients: ClassVar[Mapping[str, int]] = {"bbbp": 16, "ciao": 28}
    kinds: ClassVar[tuple[str, ...]] = ("node", "graph", "ratings")
    partitions: ClassVar[tuple[str, ...]] = (
        "louvain",
        "dirichlet",
        "by_category",
        "random",
        "label_skew",
        "louvain_compiled",
    )
    metric = "auc"
    personalises: ClassVar[bool] = True
    tracks: ClassVar[bool] = True
    moments_on_sums: ClassVar[bool] = True
    """Whether :class:`ApflGateMoments` stands for it under a graph's budget, :class:`ApflGateRatings` under a
    rating's; a subclass says so itself."""
    Settings: ClassVar[type[Settings]] = how.ApflGateSettings
    settings: how.ApflGateSettings

    UPDATE = Channel("update", Reveal.SUM, gives_model=True)
    MEAN = Channel("mean_update", Reveal.NOTHING, once=True)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The mean goes back where somebody tracks; the referee asks where there are personal models."""
        spared = {c for c, used in ((self.MEAN, self.tracks), (self.PERSONAL, self.personalises)) if not used}
        return tuple(channel for channel in self.channels if channel not in spared)

    def on_sums(self, unit: str) -> Algorithm:
        """For a graph :class:`ApflGateMoments`, for a link :class:`ApflGateRatings`; by hand itself."""
        own = not vars(type(self)).get("moments_on_sums") or self.by_hand
        form = {Unit.GRAPH: ApflGateMoments, Unit.EDGE: ApflGateRatings}.get(Unit(unit))
        return self if own or form is None else form()

    @property
    def hops(self) -> int:
        """One a layer."""
        return len(self.settings.hidden)

    def measure(self, schema: Schema) -> str:
        """``auc`` for whole graphs, ``mae`` for ratings, ``accuracy`` for nodes."""
        return METRICS_OF.get(schema.kind, "accuracy")

    def task(self, schema: Schema) -> Task:
        """What the data ask for."""
        s = self.settings
        if schema.kind == "graph":
            return GraphTask(s.hidden, s.network, s.dropout)
        if schema.kind == "ratings":
            if s.network == "gin":
                raise BadInput(
                    "training.network = 'gin' reads whole graphs, not ratings: use gcn, gat or sage"
                )
            return RatingTask(s.hidden, s.network, s.habits)
        return NodeTask(s.hidden)

    def init(self, schema: Schema, seed: int) -> State:
        """Seeded first weights of the shared model, which are public."""
        return self.task(schema).start(schema, seed)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The shared weights, their mean update, or nothing."""
        if channel == self.PERSONAL.name:
            return NOTHING
        if channel in {one.name for one in (self.UPDATE, self.MEAN, *self.examiners())}:
            return (like(self.init(schema, 0)),)
        return super().takes(channel, schema)

    def round(self, round: RoundApi, state: State) -> State:
        """A step along the mean update, which is told to those who track it."""
        opened = round.reduce(self.UPDATE, given=state)
        mean = opened.mean
        if self.tracks:
            round.scatter(self.MEAN, dict.fromkeys(opened.contributors, mean))
        return {name: value + self.settings.server_rate * mean[name] for name, value in state.items()}

    # ---- the client's half

    @UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """R steps on the shared model, with the tracking term, and on the personal one."""
        if client.memory.get("sent", {}).get("round", client.round) != client.round:
            # its term no longer goes with the others', which a server may have moved meanwhile
            raise HostileMessage(
                f"{client.name} was in the sum of round {client.memory['sent']['round']} and was not given "
                "its mean"
            )
        task = self.task(client.schema)
        shared = self._shared(client, task, given)
        delta = client.memory.get("delta", {})
        personal = Personal(self.settings, client, task, shared) if self.personalises else None
        noise, sound = client.generator("dropout"), True
        for chosen, part in self._parts(client, task):
            loss = task.loss(task.outputs(shared, part, noise), part)
            sound &= _step(shared, loss, self.settings, delta)
            if personal is not None:
                personal.step(chosen, part)
        note_divergence(client.name, sound)
        if personal is not None:
            personal.keep()
        update = difference(parameters_of(shared), given)
        if self.tracks:
            client.memory["sent"] = {"round": client.round, "update": update}
        return Upload(update)

    @MEAN.answer
    def mean_update(self, client: ClientContext, given: State) -> None:
        """Takes the mean update of the round, and moves the tracking term by what the own one lacks of it."""
        sent = client.memory.get("sent", {})
        if sent.get("round") != client.round:  # it dropped out, or knows of no sum that its update is in:
            return  # its term stays as it is
        own = sent["update"]
        s = self.settings
        factor = s.gain_of_round / (s.learning_rate * s.local_steps)
        before = client.memory.get("delta") or {k: torch.zeros_like(v) for k, v in own.items()}
        delta = all_finite({k: before[k] + factor * (given[k] - v) for k, v in own.items()})
        client.memory["delta"] = delta if s.delta_norm is None else all_finite(_clipped(delta, s.delta_norm))
        del client.memory["sent"]

    def _parts(self, client: ClientContext, task: Task) -> Iterator[tuple[Tensor, Part]]:
        items = training_items(client.graph)
        s, size = self.settings, self.settings.batch or ("full" if client.schema.kind != "graph" else GRAPHS)
        for chosen in batches(items, s.local_steps, size, client.generator("batches")):
            yield chosen, task.part(client.graph, chosen)

    def _shared(self, client: ClientContext, task: Task, given: State) -> nn.Module:
        """The shared model as the server has it."""
        model = task.model(client.schema)
        load(model, given)
        return model

    # ---- predictions

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model and its share, for the referee; share 0 where no round has asked this client."""
        model = client.memory.get("personal") or self._untrained(client)
        alpha = client.memory.get(ALPHA, 0.0)
        return Upload(
            {ALPHA: torch.tensor([alpha]), **{MODEL + name: value for name, value in model.items()}}
        )

    def _untrained(self, client: ClientContext) -> State:
        return parameters_of(self.task(client.schema).model(client.schema))

    def predict(self, params: State, graph: Data, schema: Schema) -> Tensor:
        """What one set of weights says, the shared ones or a personal model's: class scores, or ratings."""
        task = self.task(schema)
        model = task.model(schema)
        load(model, params)
        with torch.no_grad():
            return task.outputs(model, task.part(graph, None))

    def predictions(self, state: State, round: RoundApi, inputs: Data, schema: Schema) -> dict[str, Tensor]:
        """Every owner's mixture of its personal model and the newest shared one."""
        shared = self.predict(state, inputs, schema)
        if not self.personalises:
            return {EVERYBODY: shared}
        scores = {}
        for owner, values in round.gather(self.PERSONAL).items():
            alpha = float(values[ALPHA])
            personal = {name.removeprefix(MODEL): v for name, v in values.items() if name.startswith(MODEL)}
            scores[owner] = alpha * self.predict(personal, inputs, schema) + (1 - alpha) * shared
        return scores

    def _marked(self, client: ClientContext, given: State) -> dict[str, Tensor]:
        task = self.task(client.schema)
        shared = self._shared(client, task, given)
        part = task.part(client.graph, None)
        with torch.no_grad():
            outputs = task.outputs(shared, part)
            if self.personalises and "personal" in client.memory:
                alpha = client.memory[ALPHA]
                outputs = (
                    alpha * self.predict(client.memory["personal"], client.graph, client.schema)
                    + (1 - alpha) * outputs
                )
        return task.marked(outputs, client.graph)

    def metrics(self, client: ClientContext, given: State) -> Upload:
        """The client's accuracy on its own test items; of ratings their mean absolute error."""
        name = "mae" if self.measure(client.schema) == "mae" else "accuracy"
        return in_band_score(name, *self._marked(client, given)["test"])


class Apfl(ApflGate):
    """APFL: personal models mixed with a shared one, without gradient tracking.

    Output mixing, as in the released FedTorch and in APFLGate; the paper mixes weights, which is the same for
    linear models only.

    References:
        Deng et al., Adaptive Personalized Federated Learning, 2020.
    """

    name = "apfl"
    summary = "personal models beside a shared one, mixed in their outputs"
    reference = "Deng et al. 2020"
    tracks = False
    moments_on_sums: ClassVar[bool] = True
    Settings: ClassVar[type[Settings]] = how.PersonalSettings


class FedGate(ApflGate):
    """FedGATE: one shared model whose clients track the mean gradient.

    References:
        Haddadpour et al., Federated Learning with Compression: Unified Analysis and Sharp Guarantees, 2021,
        without its compression.
    """

    name = "fedgate"
    summary = "a shared model whose clients track the mean gradient"
    reference = "Haddadpour et al. 2021"
    personalises = False
    Settings: ClassVar[type[Settings]] = how.TrackingSettings


def _step(model: nn.Module, loss: Tensor, settings: how.SharedSettings, delta: State) -> bool:
    """``w - eta (g - delta)``; what is the client's own has no delta. Whether all gradients were finite."""
    model.zero_grad()
    loss.backward()
    sound = bound_gradients(model.parameters(), settings.largest_gradient)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.grad is not None:
                direction = p.grad + settings.weight_decay * p - delta.get(name, 0.0)
                p.sub_(settings.learning_rate * finite(direction)).nan_to_num_()
    model.zero_grad()
    return sound


def _clipped(delta: State, norm: float) -> State:
    length = torch.stack([value.square().sum() for value in delta.values()]).sum().sqrt()
    factor = (norm / length.clamp(min=norm)).float()
    return {name: factor * value for name, value in delta.items()}
