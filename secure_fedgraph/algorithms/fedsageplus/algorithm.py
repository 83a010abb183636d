"""FedSage+ and LocSage+: owners generate the neighbours that they miss, and train on the completed graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedsage import PAPER, FedSage, LocSage
from secure_fedgraph.algorithms.fedsageplus import generation
from secure_fedgraph.algorithms.fedsageplus.generation import CANDIDATES, DECAY, RATE, Generates
from secure_fedgraph.algorithms.fedsageplus.settings import PROTOTYPES, GeneratorSettings, MendingSettings
from secure_fedgraph.algorithms.fedsgd.graph_sage import FedSageSteps
from secure_fedgraph.algorithms.training.optimizers import bound_gradients, moments, restore
from secure_fedgraph.algorithms.training.records import check_held
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Entry, Expected, Numbers, like
from secure_fedgraph.core.upload import ContributionMoments, Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import parameters
from secure_fedgraph.models.finite import Adam, finite, note_divergence, take_step
from secure_fedgraph.models.neighgen.mixture import PrototypeMixture
from secure_fedgraph.models.neighgen.model import NeighGen
from secure_fedgraph.models.neighgen.training import generator_gradient, joint_loss, train_locally
from secure_fedgraph.seams import ClientContext, RoundApi, Total

MIXTURE_RATE = 0.01
"""Adam's rate where weights of prototypes are learned: they are few, and every epoch is one step."""


class LocSagePlus(Generates, LocSage):
    """LocSage on graphs that each owner mends by itself.

    References:
        Zhang et al., NeurIPS 2021, Table 2.
    """

    name = "locsage+"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    summary = "every owner alone, on a graph that it mends by itself"
    reference = PAPER
    Settings: ClassVar[type[TrainingSettings]] = GeneratorSettings
    settings: GeneratorSettings

    def check(self, schema: Schema) -> None:
        """As of :class:`LocSage`, and that nothing is to be released."""
        super().check(schema)
        if self.settings.of_prototypes:
            raise BadInput(
                f"training.feedback = {PROTOTYPES}: {self.name} exchanges nothing; leave it out, or "
                "use fedsage+"
            )

    def training_graph(self, client: ClientContext) -> Data:
        """The completed graph."""
        return self.completed(client)


class FedSagePlus(Generates, FedSage):
    """FedSage on completed graphs, whose generators learn from all owners.

    As in the paper (``feedback="parameters"``): rounds before the first scored one are one of local
    pre-training, then one a federated epoch. In each of those every owner offers embeddings and its feature
    generator to the others, they answer with the gradient of the distance to their own nearest nodes (Eq. 6),
    and the owner adds the sum to its own. The server only carries. Then FedSage.

    What leaks, and is measured by attacks C1 and C2: an answering owner's raw features stand in its gradient.
    Sealing hides them from the server, masking adds the owners up, and neither hides them from the owner that
    asked. ``minimum_batch`` makes solving for them harder; that is no guarantee.

    Without that exchange (``feedback="prototypes"``, recommended): in one round every owner adds once to sums
    of features by class, whose means the server hands to all. Each owner trains its generator at home, and
    what it generates are mixtures of these means. Nothing interactive follows.

    Guarantees:
        - with ``feedback="prototypes"`` one node moves what its owner adds to the sums by a known amount,
          which the client enforces: noise on it has a finite epsilon for a node.

    References:
        Zhang et al., NeurIPS 2021, sections 4.1 to 4.3, algorithm 1. Prototypes in the place of gradients:
        FedDEP (2024) hands out embeddings, without a bound on one node; the sums here are others.
    """

    name = "fedsage+"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    summary = "FedSage on graphs completed by generators that owners train together"
    reference = PAPER
    steps_on_sums = FedSageSteps
    kept_by_steps = ("hidden", "mend")
    Settings: ClassVar[type[TrainingSettings]] = MendingSettings
    settings: MendingSettings
    forms = (
        Form(
            {"generator": "shared"},
            "one generator is averaged over the owners, and no owner hands its own to the others",
        ),
        Form(
            {"feedback": PROTOTYPES},
            "owners add once to sums of features by class, and send no gradient at anybody's features",
            without_leak=True,
        ),
    )

    PRETRAIN = Channel("pretrain", Reveal.NOTHING)
    FEATURE_SUMS = Channel(
        "feature_sums",
        Reveal.SUM,
        without_noise="sums of few nodes show whose features are in them and, where features are sparse, "
        "words of single nodes (attack C7); only classes of fewer than training.anonymity nodes of an owner "
        "are left out",
    )
    GENERATOR = Channel("generator", Reveal.EACH, to="peer")
    FEEDBACK = Channel(
        "feedback",
        Reveal.SUM,
        to="peer",
        leak="the owner that asked can solve the answers for raw features (attacks C1, C2 and C3)",
    )
    SHARED = Channel("shared_generator", Reveal.SUM, gives_model=True)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send, with what one node moves of the answers where that is bounded."""
        exchanged = (self.GENERATOR.name, self.FEEDBACK.name)
        ways = {"own": exchanged, "shared": (self.SHARED.name,), PROTOTYPES: (self.FEATURE_SUMS.name,)}
        taken = ways[PROTOTYPES if self.settings.of_prototypes else self.settings.generator]
        spared = {name for way in ways.values() for name in way} - set(taken)
        used = (c for c in super().in_use if c.name not in spared)
        return tuple(self._feature_sums if c.name == self.FEATURE_SUMS.name else c for c in used)

    @property
    def _feature_sums(self) -> Channel:
        moved = generation.contribution(self.settings)
        return replace(self.FEATURE_SUMS, unit=Unit.NODE, links=False, unit_contribution=moved)

    @property
    def warm_up(self) -> int:
        """Pre-training, then the federated epochs; or the release and training at home, in one."""
        return 1 if self.settings.of_prototypes else 1 + self.settings.federated_epochs

    def round(self, round: RoundApi, state: State) -> State:
        """Pre-training, with a release before it or without, an epoch of the generators, or FedSage."""
        if round.number == 1:
            given: State = {}
            if self.settings.of_prototypes:
                given = generation.released(round.reduce(self._feature_sums), self.settings)
            round.scatter(self.as_used(self.PRETRAIN), dict.fromkeys(round.cohort, given))
            return state | given
        if round.number <= self.warm_up:
            return self._generator_epoch(round, state)
        return state | super().round(round, _classifier(state))

    def suited(
        self, channel: Channel, noise: float, schema: Schema, clients: int, sizes: Mapping[str, int]
    ) -> Self:
        """As of :class:`FedSage`.

        Raises:
            BadInput: for noise on the sums of features that hides no node.
        """
        if channel.name == self.FEATURE_SUMS.name:
            generation.check_noise(noise, self.settings)
        return super().suited(channel, noise, schema, clients, sizes)

    def first_round(self, channel: str) -> int:
        """After the warm-up for the classifier, after pre-training for a shared generator."""
        return {self.UPDATE.name: self.warm_up + 1, self.SHARED.name: 2}.get(channel, 1)

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Sums of features once; the generators' channels in warm-up, FEEDBACK for every other owner; the
        classifier's after it."""
        epochs = self.settings.federated_epochs
        if channel.name == self.FEATURE_SUMS.name:
            return 1
        if channel.name == self.FEEDBACK.name:
            return epochs * (clients - 1)
        return epochs if channel.name in (self.GENERATOR.name, self.SHARED.name) else rounds

    def _generator_epoch(self, round: RoundApi, state: State) -> State:
        if self.settings.generator == "shared":
            generator = {k: v for k, v in state.items() if k.startswith(_SHARED)}
            return state | parameters.total(generator, round.reduce(self.SHARED, given=generator).mean)
        offers = round.collect(self.GENERATOR)
        for offer in offers.values():
            round.reduce_for(self.FEEDBACK, offer)
        return state

    def init(self, schema: Schema, seed: int) -> State:
        """The classifier's first weights; with a shared generator, its first weights too; no prototype.

        Raises:
            BadInput: for ``mend``, which is of the form under a node's budget.
        """
        if self.settings.mend != "none":
            raise BadInput(
                f"training.mend = {self.settings.mend} is of {self.name}'s form under a node's budget: give "
                "--unit node --epsilon without settings of local training, or leave it out"
            )
        state = super().init(schema, seed)
        if self.settings.of_prototypes:
            state |= generation.nothing_known(schema)
        if self.settings.generator == "shared":
            model = self.neighgen(schema)
            parameters.glorot(model, seed)
            state |= {_SHARED + name: value for name, value in parameters.parameters_of(model).items()}
        return state

    def released(self, state: State) -> State:
        """The classifier."""
        return _classifier(super().released(state))

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Weights of the classifier or of the shared generator, a peer's offer, prototypes; or nothing."""
        if channel == self.PRETRAIN.name and self.settings.of_prototypes:
            return (like(generation.nothing_known(schema)),)
        if channel in (self.PRETRAIN.name, self.GENERATOR.name, self.FEATURE_SUMS.name):
            return NOTHING
        if channel == self.FEEDBACK.name:
            return tuple({self.GENERATOR.name: offer} for offer in self._offers(schema))
        if channel in (self.UPDATE.name, self.SHARED.name):
            state = self.init(schema, 0)
            if channel == self.UPDATE.name:
                return (like(_classifier(state)),)
            return (like({k: v for k, v in state.items() if k.startswith(_SHARED)}),)
        return super().takes(channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """An offer, or the others' feedback to it."""
        if channel == self.GENERATOR.name:
            return self._offers(schema)
        if channel != self.FEEDBACK.name:
            return super().shows(channel, schema)
        return ({name: Numbers(shape) for name, shape in self._generator_shapes(schema).items()},)

    def _offers(self, schema: Schema) -> tuple[dict[str, Entry], ...]:
        asked: dict[str, Entry] = {"z": Numbers((None, self.settings.encoder[1])), "counts": Numbers((None,))}
        shapes = self._generator_shapes(schema)
        return ({**{_FGEN + name: Numbers(shape) for name, shape in shapes.items()}, **asked},)

    def _generator_shapes(self, schema: Schema) -> dict[str, tuple[int, ...]]:
        with torch.device("meta"):  # no memory: each message asks for the shapes, and a generator has 60 MB
            params = dict(self.neighgen(schema).fgen.named_parameters())
        return {name: tuple(p.shape) for name, p in params.items()}

    @PRETRAIN.answer
    def start_generator(self, client: ClientContext, given: State) -> None:
        """Stage A; before it, what was released is kept."""
        if self.settings.of_prototypes:
            generation.once(client, self.PRETRAIN.name)
            generation.keep(client, given)
        self.pretrain(client)

    @FEATURE_SUMS.answer
    def feature_sums(self, client: ClientContext, given: State) -> ContributionMoments:
        """The training nodes' features and classes, of which the client's door makes sums by class."""
        generation.once(client, self.FEATURE_SUMS.name)
        return generation.records_of(client, self.settings, client.noised(self._feature_sums))

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
        sent = {"z": finite(z[nodes]), "counts": counts[nodes].clamp(min=1).float()}
        return Upload({**{_FGEN + k: v for k, v in parameters.tensors_of(model.fgen).items()}, **sent})

    @FEEDBACK.answer
    def feedback(self, client: ClientContext, given: dict[str, Any]) -> Upload:
        """The gradient of the mean squared distance to this owner's nodes, per generated vector."""
        offer = given[self.GENERATOR.name]
        params = {k.removeprefix(_FGEN): v for k, v in offer.items() if k.startswith(_FGEN)}
        z, counts = offer["z"].float(), offer["counts"]
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
        if len(counts) != len(z):
            raise HostileMessage(f"{client.name} was given {len(counts)} counts for {len(z)} nodes")
        answered = client.memory["answered"] = int(client.memory.get("answered", 0)) + 1
        generator = client.generator(f"feedback/{answered}")
        fgen = parameters.made_over(lambda: self.neighgen(client.schema).fgen, params)
        scale = 1 / (len(z) * CANDIDATES)
        return Upload(generator_gradient(fgen, z, counts, client.graph.x, scale, generator))

    @FEEDBACK.read
    def learn(self, client: ClientContext, answered: Total) -> None:
        """One step of the feature generator: the owner's own loss and the others' sum, weighed by alpha.

        Encoder, count and head stay as pre-trained, as in the released code: offers are made with them.
        """
        model = self.own_generator(client, to_train=True)
        others = {name: value.to(torch.float32, copy=True) for name, value in answered.total.items()}
        optimizer = Adam(model.fgen.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
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
            theirs = others[name].mul_(self.settings.alpha / per_dim)  # in place: a generator is large
            p.grad = theirs if p.grad is None else p.grad.add_(theirs)
        note_divergence(client.name, bound_gradients(model.fgen.parameters(), self.settings.largest_gradient))
        take_step(optimizer)
        client.memory["generator_optimizer"] = moments(optimizer)
        client.memory["neighgen"] = parameters.tensors_of(model)  # nobody else has the model

    @SHARED.answer
    def shared_epoch(self, client: ClientContext, given: State) -> Upload:
        """One local epoch of the shared generator, with the owner's own loss only."""
        before = {name.removeprefix(_SHARED): value for name, value in given.items()}
        model = self.neighgen(client.schema)
        parameters.load(model, before)
        train_locally(model, self.impaired(client), 1, client.generator("shared"), RATE, DECAY)
        after = parameters.parameters_of(model)
        client.memory["neighgen"] = after
        return Upload({_SHARED + name: value for name, value in parameters.difference(after, before).items()})

    def training_graph(self, client: ClientContext) -> Data:
        """The completed graph."""
        return self.completed(client)

    @property
    def at_home(self) -> tuple[int, float]:
        """As :attr:`Generates.at_home`; all epochs are at home where prototypes were released."""
        if not self.settings.of_prototypes:
            return super().at_home
        return self.settings.generator_epochs + self.settings.federated_epochs, MIXTURE_RATE

    def generator_of(self, client: ClientContext) -> NeighGen:
        """A fresh generator for one owner; of mixtures where prototypes were released."""
        if not self.settings.of_prototypes:
            return super().generator_of(client)
        encoder, schema = self.settings.encoder, client.schema
        mixture = PrototypeMixture(encoder[1], generation.at_home(client), CANDIDATES)
        return NeighGen(schema.features, schema.classes, encoder, candidates=CANDIDATES, fgen=mixture)

    def check_own(self, graph: Data, name: str) -> None:
        """As :meth:`Generates.check_own`, and that sums are not cut."""
        super().check_own(graph, name)
        if self.settings.of_prototypes:
            check_held(int(graph.train_mask.sum()), self.settings.records, name, "training node")


_FGEN = "fgen."
_SHARED = "neighgen."


def _classifier(state: State) -> State:
    """Of a state, what FedSage has."""
    return {k: v for k, v in state.items() if not k.startswith((_SHARED, generation.PREFIX))}
