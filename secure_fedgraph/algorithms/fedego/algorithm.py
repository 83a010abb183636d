"""FedEgo: clients upload mashed ego-graphs, and the server trains on them the layers that clients mix in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, Form, State
from secure_fedgraph.algorithms.fedego import clients, server
from secure_fedgraph.algorithms.fedego import server as served
from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.algorithms.fedridge.algorithm import OWNERS, FedRidge
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Entries, Expected, Numbers, Whole, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.ego_graphs import level_sizes
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.ego.mash import LEAST, drop_sparse_cells
from secure_fedgraph.models.ego.model import EgoSage
from secure_fedgraph.models.parameters import difference, load, parameters_of, total
from secure_fedgraph.seams import ClientContext, RoundApi


class ClassMashSettings(RidgeSettings):
    """As :class:`~secure_fedgraph.algorithms.fedridge.settings.RidgeSettings`.

    Args:
        mash: ``class``, the sum over all owners' training nodes of a class; FedEgo has other mashes.
    """

    mash: Literal["class"] = "class"


class FedEgoSums(FedRidge):
    """FedEgo with one mash a class, the sum over all owners: its form under a budget for a node or a label.

    A mash adds up the training nodes of one class, each its ego-graph's centre alone and of length 1. All
    owners send their parts of each mash once, and the server opens their sum. Global layers are a ridge
    regression on the mashes. Each owner has layers of its own, trained on its own data as they are, and its
    own validation nodes say how much of the global ones it takes over, in place of Eq. 15.

    Guarantees:
        - one node is in one mash once, with a length that the client enforces; of the owners that hold it one
          alone counts it (its ``home``), where owners know which;
        - nothing that is sent depends on a link;
        - an owner's own layers, and how much it mixes in, do not leave it (the experiment's referee apart).

    Args:
        settings: :class:`ClassMashSettings`.

    References:
        FedEgo, ACM TKDD, Eq. 8 (mashes) and 15 (mixing); Vu and Slavkovic 2009.
    """

    name = "fedego-sums"
    summary = "FedEgo's form under a budget: one mash a class over all owners, personal layers at home"
    reference = "FedEgo, ACM TKDD 2023; Vu and Slavkovic 2009"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    data: ClassVar[str] = "cora"
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5, "dblp": 10}
    partitions: ClassVar[tuple[str, ...]] = ("label_skew", "louvain", "louvain_compiled", "random")
    Settings: ClassVar[type[RidgeSettings]] = ClassMashSettings
    of_graphs = None

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The sums of moments, of which class sums are the mashes; each node at one owner."""
        (moments,) = super().in_use
        return (replace(moments, one_holder=True),)

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Mashes once."""
        return 1 if channel.name == self.MOMENTS.name else super().uses(channel, rounds, clients)

    def under_budget(
        self, epsilon: float, delta: float, unit: str, schema: Schema, sizes: Mapping[str, int]
    ) -> Self:
        """Says what it does, for a node or a label."""
        if self.form is not None or unit not in (Unit.NODE, Unit.LABEL):
            return self
        why = (
            "owners send one sum a class, once; it adds up single nodes, without links, each node at one "
            "owner only; links are read for predictions, and each owner adds its own layers at home"
        )
        return self.in_form(Form({"mash": "class"}, why))

    def suited(
        self, channel: Channel, noise: float, schema: Schema, clients: int, sizes: Mapping[str, int]
    ) -> Self:
        """As FedRidge's."""
        found = super().suited(channel, noise, schema, clients, sizes)
        if found is not self and found.form is not None and self.form is not None:
            both = {**self.form.settings, **found.form.settings}
            found.form = Form(both, f"{self.form.why}; {found.form.why}")
        return found

    def round(self, round: RoundApi, state: State) -> State:
        """The mashes in the first round; nothing later."""
        return state if float(state[OWNERS]) else super().round(round, state)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As FedRidge's."""
        return super().takes(channel, schema)


class FedEgo(NodeClassifier):
    """Federated ego-graph mashing: shared reduction layers, personal upper layers that mix with global ones.

    Each round every client trains its own model; the reduction layers are averaged; each client mixes the
    reduced ego-graphs of its training nodes, batch by batch, and uploads the mixtures with their soft labels;
    the server trains global upper layers on them; and each client takes over as much of these as its classes
    differ from everybody's.

    Guarantees:
        - a mash mixes ``n`` ego-graphs, never fewer (the ablation ``mixup=False`` apart): what is left over
          of a pool is not sent (rule R1);
        - batches are drawn afresh every round, from the operating system: who knew them could solve the
          mashes of some rounds for single nodes (``threats`` B6). So a resumed run draws others;
        - a client's class frequencies, its mixing coefficient, its upper layers and its optimiser's moments
          do not leave it (the experiment's referee apart).

    A client that drops out of a sum (under ``masked``, with ``mash="across"``) is missing from that round's
    means: reduction layers and mashes are means over the others, who alone mix.

    References:
        FedEgo: Privacy-preserving Personalized Federated Graph Learning with Ego-graphs, ACM TKDD,
        Algorithm 1.
    """

    name = "fedego"
    summary = "mashed ego-graphs train global upper layers that every client mixes with its own"
    reference = "FedEgo, ACM TKDD 2023"
    rounds = 200
    partitions: ClassVar[tuple[str, ...]] = ("label_skew", "louvain", "louvain_compiled", "random")
    own_models: ClassVar[bool] = False
    needs_neighbours: ClassVar[str] = "a mash mixes nodes with their neighbours"
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5, "dblp": 10}
    Settings: ClassVar[type[FedEgoSettings]] = FedEgoSettings
    settings: FedEgoSettings
    class_sums: ClassVar[bool] = True
    """Whether :class:`FedEgoSums` stands for it under a budget; a subclass says so itself."""
    forms = (
        Form(
            {"mash": "across"},
            "the server reads sums of mashes over the clients, and not each client's own mashes",
        ),
    )

    REDUCTION = Channel("reduction", Reveal.SUM)
    EGOS = Channel("egos", Reveal.EACH, Unit.NODE)
    EGOS_ACROSS = Channel("egos_across", Reveal.SUM, Unit.NODE)
    MIX = Channel("mix", Reveal.NOTHING)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    def on_sums(self, unit: str) -> Algorithm:
        """For one node or label: :class:`FedEgoSums`, unless any setting is by hand."""
        stands = vars(type(self)).get("class_sums") and unit in (Unit.NODE, Unit.LABEL)
        return FedEgoSums() if stands and not self.by_hand else self

    # --- Algorithm 1

    def init(self, schema: Schema, seed: int) -> State:
        """First weights, which follow from a public seed: clients start from the same."""
        return {**parameters_of(self.start(schema, seed)), served.SEED: torch.tensor(seed)}

    def round(self, round: RoundApi, state: State) -> State:
        """Clients train; the server averages the reduction, trains the upper layers, hands both out."""
        cohort, shares = round.cohort, {}
        if self.averages:
            before = served.reduction_of(state)
            change = round.reduce(self.REDUCTION, given={served.SEED: int(state[served.SEED]), **before})
            state, cohort = state | total(before, change.mean), change.contributors
        if self.mixes:
            mashes, senders = self.mashes(round, state)
            cohort = tuple(name for name in cohort if name in senders)
            state = self.train_upper_layers(round.number, state, mashes)
            shares = {served.SHARES: state[served.SHARES]}
        round.scatter(self.MIX, dict.fromkeys(cohort, self.handed_out(state) | shares))
        return state

    @REDUCTION.answer
    def reduction(self, client: ClientContext, given: State) -> Upload:
        """Trains from the averaged reduction, and returns how it moved."""
        model = self.model_of(client, int(given[served.SEED]))
        averaged = {k: v for k, v in given.items() if k != served.SEED}
        load(model, parameters_of(model) | averaged)
        self.train(client, model)
        return Upload(difference(client.memory[clients.MODEL], averaged))

    @EGOS.answer
    def egos(self, client: ClientContext, given: State) -> Upload:
        """This client's mashes."""
        return self.mash(client, self.model_of(client, int(given[served.SEED])))

    @EGOS_ACROSS.answer
    def egos_across(self, client: ClientContext, given: State) -> Upload:
        """As many mashes as everybody makes, to be added up."""
        return self.mash(client, self.model_of(client, int(given[served.SEED])))

    def mash(self, client: ClientContext, model: EgoSage) -> Upload:
        """Mixes ego-graphs, ``n`` at a time (Eq. 8)."""
        # it was asked for nothing yet this round, or dropped out of the sum that it trained for
        if not self.averages or clients.EGO_GRAPHS not in client.memory:
            self.train(client, model)
        return self.mixture(client, model)

    @MIX.answer
    def mix(self, client: ClientContext, given: State) -> None:
        """Takes the averaged reduction, and as much of the global layers as its classes ask for (Eq. 15)."""
        if clients.MODEL not in client.memory:  # it dropped out of the first sum: nothing to mix
            return
        if not self.averages and not clients.has_trained(client):  # nothing was asked of it this round
            self.train(client, self.model_of(client))
        own: State = client.memory[clients.MODEL]
        layers = {k: v for k, v in given.items() if k != served.SHARES}
        share = (
            clients.share_of_global_layers(client, given[served.SHARES], self.settings) if self.mixes else 0.0
        )
        client.memory[clients.MODEL] = clients.mixed(own, layers, share)

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee."""
        return Upload(self.own_model(client))

    # --- its parts, which variants change

    @property
    def mixes(self) -> bool:
        """Whether clients take global upper layers over, and so whether there are mashes."""
        return self.settings.mixing != 0

    @property
    def averages(self) -> bool:
        """Whether the reduction is averaged."""
        return self.settings.average_reduction

    @property
    def hands_reduction_out(self) -> bool:
        """Whether clients take the averaged reduction over at the end of a round."""
        return self.averages

    @property
    def mash_channel(self) -> Channel:
        """The channel that mashes travel on."""
        return self.EGOS_ACROSS if self.settings.mash == "across" else self.EGOS

    def handed_out(self, model: State) -> State:
        """What of the server's model, or of a client's own, clients take over."""
        return {
            **(served.upper_layers_of(model) if self.mixes else {}),
            **(served.reduction_of(model) if self.hands_reduction_out else {}),
        }

    def mashes(self, round: RoundApi, state: State) -> tuple[served.Mashes, Collection[str]]:
        """All mashes of the round in one pile, and whose ego-graphs are in it."""
        given = {served.SEED: int(state[served.SEED])}
        uploads: Mapping[str, Mapping[str, Tensor]]
        senders: Collection[str]
        if self.settings.mash == "across":
            summed = round.reduce(self.mash_channel, given=given)
            uploads, senders = {"the clients' sum": summed.mean}, summed.contributors
        else:
            uploads = round.gather(self.mash_channel, given=given)
            senders = uploads.keys()
        opened = {name: self.opened(upload, name) for name, upload in uploads.items()}
        classes, width = state["head.weight"].shape
        positions = sum(level_sizes(self.settings.fanout))
        return server.concatenated_mashes(opened, positions, width, classes), senders

    def opened(self, upload: Mapping[str, Tensor], sender: str) -> Mapping[str, Tensor]:
        """An upload as the server reads it: rows and labels of mashes."""
        return upload

    def train_upper_layers(self, number: int, state: State, mashes: served.Mashes) -> State:
        """The server's training in a round, on the mashes' centres."""
        generator = torch.Generator().manual_seed(sub_seed(int(state[served.SEED]), f"server/{number}"))
        return server.train_upper_layers(
            self.model(served.schema_of(state)), state, mashes, self.settings, generator
        )

    def train(self, client: ClientContext, model: EgoSage) -> None:
        """A client's training in a round; it keeps the model."""
        clients.train(client, model, self.settings)

    def mixture(self, client: ClientContext, model: EgoSage) -> Upload:
        """A client's mashes, of batches that nobody can foresee."""
        rows = clients.ego_graphs(client, self.centres(client), model.positions)
        rows = (
            drop_sparse_cells(rows, min(LEAST, self.settings.batch)) if self.settings.mixup else rows[:, :1]
        )
        return Upload(clients.mashes_of(client, model, rows))

    def centres(self, client: ClientContext) -> Tensor:
        """``[mashes, n]``: the training nodes of each batch."""
        pool = client.graph.train_mask.nonzero().flatten()
        chosen: Tensor = pool[clients.numbered(len(pool), self.settings, client.secret_order)]
        return chosen

    def model(self, schema: Schema) -> EgoSage:
        """A fresh ego-graph model."""
        s = self.settings
        return EgoSage(schema.features, schema.classes, s.hidden[0], s.fanout, s.dropout)

    def model_of(self, client: ClientContext, seed: int = 0) -> EgoSage:
        """A client's model so far; before its first round the one that everybody starts from."""
        if clients.MODEL not in client.memory:
            return cast(EgoSage, self.start(client.schema, seed))
        model = self.model(client.schema)
        load(model, client.memory[clients.MODEL])
        return model

    def own_model(self, client: ClientContext) -> State:
        """The client's own reduction and upper layers; fresh ones where no round has asked it yet."""
        if clients.MODEL in client.memory:
            own: State = client.memory[clients.MODEL]
            return own
        return parameters_of(self.start(client.schema, client.generator("initialisation").initial_seed()))

    # --- what policies, the clients' doors and the referee ask

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        used = (
            (self.REDUCTION, self.averages),
            (self.mash_channel, self.mixes),
            (self.MIX, True),
            (self.PERSONAL, True),
        )
        return tuple(channel for channel, is_used in used if is_used)

    def check_own(self, graph: Data, name: str) -> None:
        """That there is one whole mash at least."""
        clients.check_pool(graph, name, self.settings.batch)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, and what of the model is shared."""
        if channel == self.PERSONAL.name:
            return NOTHING
        seed: Entries = {served.SEED: Whole()}
        if channel in (self.EGOS.name, self.EGOS_ACROSS.name):
            return (seed,)
        if channel not in (self.REDUCTION.name, self.MIX.name):
            return super().takes(channel, schema)
        state = self.init(schema, 0)
        if channel == self.REDUCTION.name:
            return ({**like(served.reduction_of(state)), **seed},)
        shares: Entries = {served.SHARES: Numbers((schema.classes,))} if self.mixes else {}
        return ({**like(self.handed_out(state)), **shares},)

    def released(self, state: State) -> None:
        """Models are personal."""
        return None
