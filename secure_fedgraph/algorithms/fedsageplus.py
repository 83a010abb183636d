"""FedSage+ and LocSage+: owners generate the neighbours that they miss, and train on the completed graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedsage import PAPER, FedSage, LocSage
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, restore
from secure_fedgraph.algorithms.training.private_training import MADE
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.graph.impairing import Impaired, check_share, impair
from secure_fedgraph.graph.mending import mend
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import finite, note_divergence, take_step
from secure_fedgraph.models.neighgen.feedback import Feedback, blocks
from secure_fedgraph.models.neighgen.losses import FeatLossNorm, random_neighbourhoods
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.neighgen.training import joint_loss, predict_neighbours, train_locally
from secure_fedgraph.models.parameters import difference, glorot, load, parameters_of, total
from secure_fedgraph.protocol import Channel, ContributionRows, Reveal, Unit, UnitContribution, Upload
from secure_fedgraph.protocol.given import NOTHING, Entry, Expected, Numbers, like
from secure_fedgraph.seams import ClientContext, RoundApi, Total

CANDIDATES = 5
MOST = 2**28
"""Values of one answer's gradients, one a query, that an owner holds at a time (1 GiB)."""
RATE, DECAY = 0.001, 1e-4
"""Adam's rate and weight decay for generators, as in the released code."""

Query = tuple[State, torch.Tensor, torch.Tensor, torch.Tensor, float]
"""An owner's offer (generator, embeddings, counts), the features of who answers, the scale of the loss."""


class GeneratorSettings(TrainingSettings):
    """FedSage's settings and NeighGen's.

    Args:
        hidden_share: of an owner's nodes, hidden so that the generator has something to learn.
        generator_epochs: full-batch epochs of local pre-training.
        federated_epochs: epochs with feedback from the other owners, one exchange each.
        exchange_batch: nodes whose embeddings one offer holds; always exactly that many.
            An answering owner refuses offers about more.
        minimum_batch: an answering owner refuses offers about fewer nodes.
        encoder: hidden and output width of the encoder.
        generator_hidden: inner widths of the feature generator.
        alpha: weight of the other owners' term.
        feat_loss_norm: ``per_dim_mean``, or ``paper_sum``.
        cross_target: what an answering owner compares with: its ``nearest`` node (the paper), or
            ``random_neighbourhood`` (the released code).
        feedback: gradients at the generator's ``parameters``, or at its ``outputs``, which are smaller and
            carry the features openly.
        feedback_minimum: ``whole``, the paper's: a query is compared with all of an answering owner's nodes,
            and one of them may be the nearest of every query; ``partitioned``: nodes are dealt out to the
            queries, afresh for every answer, and a query sees its own only: a node moves one gradient.
        feedback_clip: under ``partitioned``, the L2 norm of one query's gradient.
        generator: each owner its ``own`` (the paper), or one ``shared`` by averaging (its Table 4).
    """

    hidden_share: float = Field(0.15, gt=0, lt=1)
    generator_epochs: int = Field(20, ge=0)
    federated_epochs: int = Field(20, ge=0)
    exchange_batch: int = Field(64, ge=1)
    minimum_batch: int = Field(64, ge=1)
    encoder: tuple[int, int] = (32, 128)
    generator_hidden: tuple[int, int] = (256, 2048)
    alpha: float = Field(1.0, ge=0, allow_inf_nan=False)
    feat_loss_norm: FeatLossNorm = "per_dim_mean"
    cross_target: Literal["nearest", "random_neighbourhood"] = "nearest"
    feedback: Literal["parameters", "outputs"] = "parameters"
    feedback_minimum: Literal["whole", "partitioned"] = "whole"
    feedback_clip: float = Field(1.0, gt=0, allow_inf_nan=False)
    generator: Literal["own", "shared"] = "own"

    @model_validator(mode="after")
    def _check_exchange(self) -> GeneratorSettings:
        if self.exchange_batch < self.minimum_batch:
            raise PydanticCustomError(
                "minimum_batch",
                "exchange_batch {batch} is below minimum_batch {minimum}: owners would refuse every offer",
                {"batch": self.exchange_batch, "minimum": self.minimum_batch},
            )
        if self.feedback_minimum == "partitioned" and self.cross_target != "nearest":
            raise PydanticCustomError(
                "feedback_minimum", "partitioned deals nodes out to find the nearest: leave cross_target"
            )
        return self


class _Generates:
    """What FedSage+ and LocSage+ share: an owner's generator, its pre-training, and its completed graph."""

    needs_neighbours: ClassVar[str] = "generated neighbours are what it is about"
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

    def pretrain(self, client: ClientContext) -> None:
        """Stage A: the generator learns from the owner's own hidden nodes."""
        model = self.neighgen(client.schema)
        glorot(model, client.generator("neighgen").initial_seed())
        impaired = self.impaired(client)
        with torch.no_grad():
            # the regression starts at the mean count: from zero, twenty epochs often end below the half that
            # rounds to a neighbour, and the completed graph is the old one
            model.dgen.bias.fill_(float(impaired.counts.float().mean()))
        train_locally(
            model,
            impaired,
            self.settings.generator_epochs,
            client.generator("pretraining"),
            learning_rate=RATE,
            weight_decay=DECAY,
            feat_loss_norm=self.settings.feat_loss_norm,
        )
        client.memory["neighgen"] = parameters_of(model)

    def check_records(self, schema: Schema, unit: str) -> None:
        """A completed graph has none."""
        raise BadInput(MADE)

    def check_own(self, graph: Data, name: str) -> None:
        """That hiding the share leaves some nodes, and hides some."""
        check_share(int(graph.num_nodes or 0), self.settings.hidden_share)

    def impaired(self, client: ClientContext) -> Impaired:
        """The owner's graph with a share of its nodes hidden: the same ones in every round."""
        seed = client.memory.setdefault("impair_seed", client.generator("impairing").initial_seed() % 2**32)
        return impair(client.graph, self.settings.hidden_share, seed)

    def own_generator(self, client: ClientContext) -> NeighGen:
        """The generator so far; pre-trained now, where no round has asked this owner to yet."""
        if "neighgen" not in client.memory:
            self.pretrain(client)
        model = self.neighgen(client.schema)
        load(model, client.memory["neighgen"])
        model.eval()
        return model

    def completed(self, client: ClientContext) -> Data:
        """The owner's original graph with generated neighbours, made once, before the classifier."""
        if "completed" not in client.memory:
            model = self.own_generator(client)
            counts, features = predict_neighbours(model, client.graph, client.generator("mending"))
            graph = mend(client.graph, counts, features)
            keys = ("x", "y", "edge_index", "train_mask")
            client.memory["completed"] = {key: graph[key] for key in keys}
        return Data(**client.memory["completed"])


class LocSagePlus(_Generates, LocSage):
    """LocSage on graphs that each owner mends by itself.

    References:
        Zhang et al., NeurIPS 2021, Table 2.
    """

    name = "locsage+"
    summary = "every owner alone, on a graph that it mends by itself"
    reference = PAPER
    Settings: ClassVar[type[TrainingSettings]] = GeneratorSettings
    settings: GeneratorSettings

    def training_graph(self, client: ClientContext) -> Data:
        """The completed graph."""
        return self.completed(client)


class FedSagePlus(_Generates, FedSage):
    """FedSage on completed graphs, whose generators learn from all owners.

    Rounds before the first scored one: one of local pre-training, then one a federated epoch. In each of
    those every owner offers embeddings and its feature generator to the others, they answer with the gradient
    of the distance to their own nearest nodes (Eq. 6), and the owner adds the sum to its own. The server only
    carries. Then FedSage.

    What leaks, and is measured by attacks C1 and C2: an answering owner's raw features stand in its gradient.
    Sealing hides them from the server, masking adds the owners up, and neither hides them from the owner that
    asked. ``minimum_batch`` makes solving for them harder; that is no guarantee.

    References:
        Zhang et al., NeurIPS 2021, sections 4.1 to 4.3, algorithm 1.
    """

    name = "fedsage+"
    summary = "FedSage on graphs completed by generators that owners train together"
    reference = PAPER
    Settings: ClassVar[type[TrainingSettings]] = GeneratorSettings
    settings: GeneratorSettings
    forms = (
        Form(
            {"generator": "shared"},
            "one generator is averaged over the owners, and no owner hands its own to the others",
        ),
    )

    PRETRAIN = Channel("pretrain", Reveal.NOTHING)
    GENERATOR = Channel("generator", Reveal.EACH, to="peer")
    FEEDBACK = Channel("feedback", Reveal.SUM, to="peer")
    SHARED = Channel("shared_generator", Reveal.SUM)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send, with what one node moves of the answers where that is bounded."""
        own = self.settings.generator == "own"
        spared = {self.SHARED.name} if own else {self.GENERATOR.name, self.FEEDBACK.name}
        used = (c for c in super().in_use if c.name not in spared)
        return tuple(self._feedback if c.name == self.FEEDBACK.name else c for c in used)

    @property
    def _feedback(self) -> Channel:
        s = self.settings
        if s.feedback_minimum == "whole":
            return self.FEEDBACK
        contribution = UnitContribution(1, s.feedback_clip / s.exchange_batch, removal_may_replace=True)
        return replace(self.FEEDBACK, unit=Unit.NODE, unit_contribution=contribution)

    @property
    def warm_up(self) -> int:
        """Pre-training, then the federated epochs."""
        return 1 + self.settings.federated_epochs

    def round(self, round: RoundApi, state: State) -> State:
        """Pre-training, an epoch of the generators, or a round of FedSage."""
        if round.number == 1:
            round.scatter(self.PRETRAIN, {name: {} for name in round.cohort})
            return state
        if round.number <= self.warm_up:
            return self._generator_epoch(round, state)
        classifier = {name: value for name, value in state.items() if not name.startswith(_SHARED)}
        return state | super().round(round, classifier)

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """The generators' channels in warm-up, FEEDBACK for every other owner; the classifier's after it."""
        epochs = self.settings.federated_epochs
        if channel.name == self.FEEDBACK.name:
            return epochs * (clients - 1)
        return epochs if channel.name in (self.GENERATOR.name, self.SHARED.name) else rounds

    def _generator_epoch(self, round: RoundApi, state: State) -> State:
        if self.settings.generator == "shared":
            generator = {k: v for k, v in state.items() if k.startswith(_SHARED)}
            return state | total(generator, round.reduce(self.SHARED, given=generator).mean)
        offers = round.collect(self.GENERATOR)
        for offer in offers.values():
            round.reduce_for(self._feedback, offer)
        return state

    def init(self, schema: Schema, seed: int) -> State:
        """The classifier's first weights; with a shared generator, its first weights too."""
        state = super().init(schema, seed)
        if self.settings.generator == "shared":
            model = self.neighgen(schema)
            glorot(model, seed)
            state |= {_SHARED + name: value for name, value in parameters_of(model).items()}
        return state

    def released(self, state: State) -> State:
        """The classifier."""
        return {k: v for k, v in super().released(state).items() if not k.startswith(_SHARED)}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights of the classifier or of the shared generator, a peer's offer, or nothing."""
        if channel in (self.PRETRAIN.name, self.GENERATOR.name):
            return NOTHING
        if channel == self.FEEDBACK.name:
            return tuple({self.GENERATOR.name: offer} for offer in self._offers(schema))
        if channel in (self.UPDATE.name, self.SHARED.name):
            shared, state = channel == self.SHARED.name, self.init(schema, 0)
            return (like({k: v for k, v in state.items() if k.startswith(_SHARED) == shared}),)
        return super().takes(channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """An offer, or the others' feedback to it."""
        if channel == self.GENERATOR.name:
            return self._offers(schema)
        if channel != self.FEEDBACK.name:
            return super().shows(channel, schema)
        s = self.settings
        if s.feedback == "outputs":
            return ({"outputs": Numbers((s.exchange_batch, CANDIDATES, schema.features))},)
        one = (1,) if s.feedback_minimum == "partitioned" else ()
        params = dict(self.neighgen(schema).fgen.named_parameters())
        return ({name: Numbers((*one, *p.shape)) for name, p in params.items()},)

    def _offers(self, schema: Schema) -> tuple[dict[str, Entry], ...]:
        params = dict(self.neighgen(schema).fgen.named_parameters())
        asked: dict[str, Entry] = {
            "z": Numbers((None, self.settings.encoder[1])),
            "counts": Numbers((None,)),
            "seed": Numbers(()),
        }
        return ({**{_FGEN + name: Numbers(tuple(p.shape)) for name, p in params.items()}, **asked},)

    @PRETRAIN.answer
    def start_generator(self, client: ClientContext, given: State) -> None:
        """Stage A."""
        self.pretrain(client)

    @GENERATOR.answer
    def offer(self, client: ClientContext, given: State) -> Upload:
        """Embeddings of a batch of nodes that miss neighbours, how many each misses, and the generator.

        Nodes are drawn with replacement, so that every offer has the same size and, where the owner has any
        such node, only nodes that are asked about.
        """
        model = self.own_generator(client)
        impaired = self.impaired(client)
        with torch.no_grad():
            z = model.embed(impaired.graph.x, impaired.graph.edge_index)
            counts = model.counts(model.missing(z))
        asked = counts.nonzero().flatten()
        pool = asked if len(asked) else torch.arange(len(z))
        generator = client.generator("offer")
        draws = torch.randperm(len(pool), generator=generator)[: self.settings.exchange_batch]
        more = torch.randint(len(pool), (self.settings.exchange_batch - len(draws),), generator=generator)
        nodes = pool[torch.cat([draws, more])]
        sent = {
            "z": finite(z[nodes]),
            "counts": counts[nodes].clamp(min=1).float(),
            "seed": torch.tensor(float(client.round)),
        }
        client.memory["offered"] = {name: value.clone() for name, value in sent.items()}
        return Upload({**{_FGEN + k: v for k, v in parameters_of(model.fgen).items()}, **sent})

    @FEEDBACK.answer
    def feedback(self, client: ClientContext, given: dict[str, Any]) -> Upload | ContributionRows:
        """The gradient of the mean squared distance to this owner's nodes, per generated vector.

        Under ``feedback_minimum="partitioned"`` one gradient a query; the door clips them and adds them up.
        """
        offer = given[self.GENERATOR.name]
        params = {k.removeprefix(_FGEN): v for k, v in offer.items() if k.startswith(_FGEN)}
        z, counts = offer.get("z", torch.empty(0)), offer.get("counts", torch.empty(0))
        # every row counts: one that asked for nothing would make the batch smaller than it looks
        counts = counts.nan_to_num().round().clamp(1, CANDIDATES).long()
        if len(z) < self.settings.minimum_batch:
            raise HostileMessage(
                f"{client.name} was asked about {len(z)} nodes at once and answers for no fewer than "
                f"{self.settings.minimum_batch}: a gradient of few nodes shows their features"
            )
        if len(z) > self.settings.exchange_batch:
            raise HostileMessage(
                f"{client.name} was asked about {len(z)} nodes at once, and {self.settings.exchange_batch} "
                "are agreed on (training.exchange_batch): every node that is asked about may name one of its "
                "own"
            )
        answered = client.memory["answered"] = int(client.memory.get("answered", 0)) + 1
        generator = client.generator(f"feedback/{answered}")
        targets, near = client.graph.x, None
        if self.settings.cross_target == "random_neighbourhood":
            table = NeighbourTable(client.graph.edge_index, client.graph.num_nodes)
            near = random_neighbourhoods(table, len(z), generator)
        scale = 1 / (len(z) * CANDIDATES)
        side = self._side(client.schema)
        if self.settings.feedback_minimum == "partitioned":
            return self._partitioned(client, side, (params, z, counts, targets, scale), generator)
        if self.settings.feedback == "outputs":
            # noise and dropout from the round's number, so that the asking owner can make the same vectors
            return Upload(
                {"outputs": side.output_gradient(params, z, counts, targets, scale, client.round, near)}
            )
        return Upload(side.generator_gradient(params, z, counts, targets, scale, generator, near))

    def _partitioned(
        self, client: ClientContext, side: Feedback, asked: Query, generator: torch.Generator
    ) -> ContributionRows:
        params, z, counts, targets, scale = asked
        queries = self.settings.exchange_batch
        if len(z) != queries:
            raise HostileMessage(f"{client.name} was asked about {len(z)} nodes, and {queries} are agreed on")
        near = blocks(client.secret_order(len(targets)), queries)
        if self.settings.feedback == "outputs":
            rows = side.output_gradient(params, z, counts, targets, scale, client.round, near)
            return ContributionRows({"outputs": rows}, torch.eye(queries))
        size = queries * sum(value.numel() for value in params.values())
        if size > MOST:
            raise BadInput(
                f"one gradient a query is {size:.2g} values: set training.feedback=outputs, or a smaller "
                "generator_hidden or exchange_batch"
            )
        gradients = side.query_gradients(params, z, counts, targets, scale, generator, near)
        return ContributionRows(gradients, torch.ones(queries, 1))

    @FEEDBACK.read
    def learn(self, client: ClientContext, answered: Total) -> None:
        """One step of the feature generator: the owner's own loss and the others' sum, weighed by alpha.

        Encoder, count and head stay as pre-trained, as in the released code: offers are made with them.
        """
        model = self.own_generator(client)
        others = {name: value.float() for name, value in answered.total.items()}
        if self.settings.feedback_minimum == "partitioned" and self.settings.feedback == "parameters":
            others = {name: value[0] for name, value in others.items()}  # one row, the sum over queries
        if self.settings.feedback == "outputs":
            sent = client.memory["offered"]
            others = self._side(client.schema).through(
                parameters_of(model.fgen),
                sent["z"],
                sent["counts"].long(),
                others["outputs"],
                client.round,
            )
        optimizer = torch.optim.Adam(model.fgen.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
        restore(optimizer, client.memory.get("generator_optimizer", {}))
        for part in (model.encoder, model.dgen, model.head):
            part.requires_grad_(False)
        model.train()
        own = joint_loss(
            model, self.impaired(client), client.generator("epoch"), self.settings.feat_loss_norm
        )
        (own.feature + own.classifier).backward()
        per_dim = client.schema.features if self.settings.feat_loss_norm == "per_dim_mean" else 1 / CANDIDATES
        for name, p in model.fgen.named_parameters():
            grad = p.grad if p.grad is not None else torch.zeros_like(p)
            p.grad = grad + self.settings.alpha / per_dim * others[name]
        note_divergence(client.name, bound_gradients(model.fgen.parameters(), self.settings.largest_gradient))
        take_step(optimizer)
        client.memory["generator_optimizer"] = moments(optimizer)
        client.memory["neighgen"] = parameters_of(model)

    @SHARED.answer
    def shared_epoch(self, client: ClientContext, given: State) -> Upload:
        """One local epoch of the shared generator, with the owner's own loss only."""
        before = {name.removeprefix(_SHARED): value for name, value in given.items()}
        model = self.neighgen(client.schema)
        load(model, before)
        train_locally(model, self.impaired(client), 1, client.generator("shared"), RATE, DECAY)
        after = parameters_of(model)
        client.memory["neighgen"] = after
        return Upload({_SHARED + name: value for name, value in difference(after, before).items()})

    def training_graph(self, client: ClientContext) -> Data:
        """The completed graph."""
        return self.completed(client)

    def _side(self, schema: Schema) -> Feedback:
        s = self.settings
        return Feedback(s.encoder[1], schema.features, CANDIDATES, s.generator_hidden)


_FGEN = "fgen."
_SHARED = "neighgen."
