"""FedEgo: clients upload mashed ego-graphs, and the server trains on them the layers that clients mix in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedego import batches, bounded
from secure_fedgraph.algorithms.fedego.settings import FedEgoSettings
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.algorithms.training.optimizers import moments, optimizer_of, restore
from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.graph.sample.ego_graphs import ego_table, level_sizes, levels, once
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.ego.free import EgoFree
from secure_fedgraph.models.ego.mash import (
    LEAST,
    class_shares,
    coefficient,
    crowded,
    mash,
    mean_shares,
    one_hot,
)
from secure_fedgraph.models.ego.model import REDUCTION, EgoSage
from secure_fedgraph.models.finite import finite
from secure_fedgraph.models.parameters import difference, load, parameters_of, total
from secure_fedgraph.protocol import Channel, ContributionTrees, Reveal, Unit, Upload
from secure_fedgraph.protocol.given import NOTHING, Entries, Expected, Numbers, Whole, like
from secure_fedgraph.seams import ClientContext, RoundApi

ADAM, SEED, SHARES, RELEASED = "adam.", "seed", "shares", "released."
TRAINED = "trained"
PILE = ("rows", "labels")
Mash = dict[str, Tensor]


class FedEgo(NodeClassifier):
    """Federated ego-graph mashing: shared reduction layers, personal upper layers that mix with global ones.

    Each round every client trains its own model; the reduction layers are averaged; each client mixes the
    reduced ego-graphs of its training nodes, batch by batch, and uploads the mixtures with their soft labels;
    the server trains global upper layers on them; and each client takes over as much of these as its classes
    differ from everybody's.

    Guarantees:
        - a mash mixes ``n`` ego-graphs, never fewer (the ablation ``mixup=False`` and any ``batching`` but
          ``secret`` apart): what is left over of a pool is not sent (rule R1);
        - batches are drawn afresh every round, from the operating system: who knew them could solve the
          mashes of some rounds for single nodes (``threats`` B6). So a resumed run draws others. The
          exceptions are ``batching="released"`` and ``"seeded"``, which are for audits and give nodes away;
        - under ``rules="node"`` they are drawn once and kept; with a frozen reduction too, one node moves a
          client's mashes by an amount that its door enforces, and noise has a finite epsilon for it;
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
    partitions: ClassVar[tuple[str, ...]] = ("label_skew", "louvain", "random")
    own_models: ClassVar[bool] = False
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5, "dblp": 10}
    Settings = FedEgoSettings
    settings: FedEgoSettings
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

    @property
    def _mixes(self) -> bool:
        return self.settings.mixing != 0

    @property
    def _averages(self) -> bool:
        return self.settings.average_reduction and self.settings.reduction == "trained"

    @property
    def _takes_reduction(self) -> bool:
        """Whether clients take the averaged reduction over."""
        return self._averages and self.settings.profile == "paper"

    @property
    def _bounded(self) -> bool:
        return self.settings.rules == "node"

    @property
    def _egos(self) -> Channel:
        return self._bounding(self.EGOS)

    @property
    def _egos_across(self) -> Channel:
        return self._bounding(self.EGOS_ACROSS)

    def _bounding(self, channel: Channel) -> Channel:
        """The channel with what one node moves of it, under the rules that bound it."""
        s = self.settings
        if not self._bounded:
            return channel
        return replace(
            channel,
            touches=bounded.touches(s),
            largest=bounded.reach(s),
            largest_is="training.clip and label_clip together",
        )

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Mashes may be uploaded in the first rounds only."""
        wanted = self.settings.mash_rounds
        once = wanted and channel.name in (self.EGOS.name, self.EGOS_ACROSS.name)
        return min(wanted, rounds) if once else super().uses(channel, rounds, clients)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        across = self.settings.mash == "across"
        used = {
            self.REDUCTION: self._averages,
            self._egos: self._mixes and not across,
            self._egos_across: self._mixes and across,
            self.MIX: True,
            self.PERSONAL: True,
        }
        return tuple(channel for channel, is_used in used.items() if is_used)

    def model(self, schema: Schema) -> nn.Module:
        """The ego-graph model, or the one of the ablation without ego-graphs."""
        s = self.settings
        if not s.ego:
            return EgoFree(schema.features, schema.classes, s.hidden[0], s.fanout, s.dropout)
        clip = s.clip if self._bounded else math.inf
        return EgoSage(schema.features, schema.classes, s.hidden[0], s.fanout, s.linear, s.dropout, clip)

    def check_own(self, graph: Data, name: str) -> None:
        """That there is one whole mash at least."""
        bounded.check_pool(graph, name, self.settings)

    def init(self, schema: Schema, seed: int) -> State:
        """First weights, which follow from a public seed: clients start from the same."""
        return {**parameters_of(self.start(schema, seed)), SEED: torch.tensor(seed)}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, and what of the model is shared."""
        if channel == self.PERSONAL.name:
            return NOTHING
        seed: Entries = {SEED: Whole()}
        if channel in (self.EGOS.name, self.EGOS_ACROSS.name):
            return (seed,)
        if channel not in (self.REDUCTION.name, self.MIX.name):
            return super().takes(channel, schema)
        state = self.init(schema, 0)
        if channel == self.REDUCTION.name:
            return ({**like(_part(state, shared=True)), **seed},)
        told: Entries = {}
        if self._mixes:
            told = {**like(_part(state, shared=False)), SHARES: Numbers((schema.classes,))}
        if self._takes_reduction:
            told = {**told, **like(_part(state, shared=True))}
        return (told,)

    def released(self, state: State) -> None:
        """Models are personal."""
        return None

    # --- the server

    def round(self, round: RoundApi, state: State) -> State:
        """Algorithm 1: average the reduction, train the upper layers on mashes, hand both out."""
        told: dict[str, Any] = {SEED: int(state[SEED])}
        state, cohort = dict(state), round.cohort
        if self._averages:
            shared = _part(state, shared=True)
            told |= shared
            reduced = round.reduce(self.REDUCTION, given=told)
            state |= total(shared, reduced.mean)
            cohort = reduced.contributors
            told = {SEED: told[SEED]}
        given = {}
        if self._mixes:
            if not self.settings.mash_rounds or round.number <= self.settings.mash_rounds:
                mashes, there = self._mashes(round, told, state)
                cohort = tuple(name for name in cohort if name in there)
                state |= self._kept(state, mashes)
            else:
                mashes = {key: state[RELEASED + key] for key in PILE}
            generator = torch.Generator().manual_seed(sub_seed(int(state[SEED]), f"server/{round.number}"))
            state = self._learn(state, mashes, generator)
            given = {**_part(state, shared=False), SHARES: state[SHARES]}
        if self._takes_reduction:
            given |= _part(state, shared=True)
        round.scatter(self.MIX, dict.fromkeys(cohort, given))
        return state

    def _mashes(self, round: RoundApi, told: dict[str, Any], state: State) -> tuple[Mash, set[str]]:
        """All mashes of the round in one pile, and whose ego-graphs are in them."""
        if self.settings.mash == "across":
            found = round.reduce(self._egos_across, given=told)
            piles, there = {"the clients' sum": found.mean}, set(found.contributors)
        else:
            piles = round.gather(self._egos, given=told)
            there = set(piles)
        if self._bounded:
            piles = {name: bounded.opened(pile, self.settings, name) for name, pile in piles.items()}
        classes, width = state["head.weight"].shape
        for name, pile in piles.items():
            self._check(pile, width, classes, name)
        return {key: torch.cat([pile[key] for pile in piles.values()]) for key in PILE}, there

    def _kept(self, state: State, mashes: Mash) -> State:
        """What later rounds use again, where mashes are released in the first rounds only."""
        if not self.settings.mash_rounds:
            return {}
        before = {key: state.get(RELEASED + key, value[:0]) for key, value in mashes.items()}
        return {RELEASED + key: torch.cat([before[key], value]) for key, value in mashes.items()}

    def _check(self, pile: Mash, width: int, classes: int, name: str) -> None:
        positions = self._positions
        sizes = {"rows": width, "labels": classes}
        count = len(pile.get("rows", ()))
        right = (
            count
            and pile.keys() == sizes.keys()
            and all(
                pile[key].shape == (count, positions, size) and bool(torch.isfinite(pile[key]).all())
                for key, size in sizes.items()
            )
        )
        if not right:
            raise HostileMessage(
                f"the mashes of {name} are not finite ego-graphs of {positions} positions, {width} features "
                f"and {classes} classes"
            )

    @property
    def _positions(self) -> int:
        return sum(level_sizes(self.settings.fanout)) if self.settings.ego else EgoFree.positions

    def _learn(self, state: State, mashes: Mash, generator: torch.Generator) -> State:
        """Trains the upper layers on the centres' soft labels; the server keeps their moments."""
        s = self.settings
        model: Any = self.model(Schema(*_sizes(state)))
        load(model, _parameters(state))
        for name, p in model.named_parameters():
            p.requires_grad_(not name.startswith(REDUCTION))
        optimizer = optimizer_of(_Upper(model), s)
        restore(optimizer, _nested(state))
        rows, labels = mashes["rows"], mashes["labels"][:, 0]
        drawn = max(1, int(s.server_share * len(rows)))
        for _ in range(s.server_epochs):
            for batch in torch.randperm(len(rows), generator=generator)[:drawn].split(s.batch):
                optimizer.zero_grad()
                F.cross_entropy(model.forward_mash(rows[batch]), labels[batch]).backward()
                optimizer.step()
        return {
            **state,
            **_part(parameters_of(model), shared=False),
            **_flat(moments(optimizer)),
            SHARES: mean_shares(mashes["labels"]),
        }

    # --- the clients

    @REDUCTION.answer
    def reduction(self, client: ClientContext, given: State) -> Upload:
        """Trains, and returns how the reduction layers moved."""
        shared = {k: v for k, v in given.items() if k != SEED}
        model = self._own(client, given.get(SEED))
        before = parameters_of(model)
        _insist(_part(before, shared=True), shared)
        load(model, before | shared)
        self._train(client, model)
        return Upload(difference(client.memory["model"], shared))

    @EGOS.answer
    def egos(self, client: ClientContext, given: State) -> Upload | ContributionTrees:
        """This client's mashes."""
        return self._mashed(client, given)

    @EGOS_ACROSS.answer
    def egos_across(self, client: ClientContext, given: State) -> Upload | ContributionTrees:
        """As many mashes as everybody makes, to be added up."""
        return self._mashed(client, given)

    @MIX.answer
    def mix(self, client: ClientContext, given: State) -> None:
        """Takes the averaged reduction over, and the share of the global layers that its classes ask for."""
        if (
            "model" not in client.memory
        ):  # it dropped out of the first sum that it trained for: nothing to mix
            return
        if (
            not self._averages and TRAINED not in client.scratch
        ):  # nothing was asked of this client this round
            self._train(client, self._own(client, None))
        own: State = client.memory["model"]
        averaged = self._takes_reduction
        told = {k: v for k, v in given.items() if k != SHARES}
        expected = {k: v for k, v in own.items() if (averaged if k.startswith(REDUCTION) else self._mixes)}
        _insist(expected, told)
        share = self._share(client, given.get(SHARES)) if self._mixes else 0.0
        client.memory["model"] = own | {
            k: v.clone() if k.startswith(REDUCTION) else finite(torch.lerp(own[k], v, share))
            for k, v in told.items()
        }

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee."""
        return Upload(self.own_model(client))

    def own_model(self, client: ClientContext) -> State:
        """The client's own reduction and upper layers; fresh ones where no round has asked it yet."""
        if "model" in client.memory:
            found: State = client.memory["model"]
            return found
        return parameters_of(self.start(client.schema, client.generator("initialisation").initial_seed()))

    def _own(self, client: ClientContext, seed: object) -> nn.Module:
        """The model so far; before the first round the one that everybody starts from."""
        if "model" in client.memory:
            model = self.model(client.schema)
            load(model, client.memory["model"])
            return model
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**62:
            raise HostileMessage(f"{client.name} has no model yet and was told no seed to start from")
        return self.start(client.schema, seed)

    def _train(self, client: ClientContext, model: nn.Module) -> None:
        s = self.settings
        if "egos" not in client.memory:
            client.memory["egos"] = ego_table(
                client.graph, s.fanout, generator=client.generator("egos"), slots=s.slots
            ).to(torch.int32)
        if s.reduction == "frozen":
            for name, p in model.named_parameters():
                p.requires_grad_(not name.startswith(REDUCTION))
        table = client.memory["egos"]
        fresh = s.redraw and s.slots == "sampled"
        fit(
            client,
            client.graph,
            model,
            s,
            trees=None if fresh else lambda rows: levels(table[rows].long(), s.fanout),
        )
        client.memory["model"] = parameters_of(model)
        client.scratch[TRAINED] = True

    def _mashed(self, client: ClientContext, given: State) -> Upload | ContributionTrees:
        model: Any = self._own(client, given.get(SEED))
        bounded.count(client, self.settings)
        # nothing was asked of this client yet this round, or it dropped out of the sum that it trained for
        if not self._averages or "egos" not in client.memory:
            self._train(client, model)
        if self._bounded:
            return bounded.mashes(client, model, self.settings)
        model.eval()
        s, chosen = self.settings, self._centres(client)
        rows = client.memory["egos"][chosen.clamp(min=0)].long()[..., : model.positions]
        rows = torch.where(chosen.unsqueeze(-1) < 0, -1, rows)
        rows = once(rows) if s.once else rows
        if s.batching == "released":
            rows = batches.shifted(rows, s.fanout)
        if s.batching == "secret" and s.mixup:
            rows = crowded(rows, min(LEAST, s.batch))
        elif not s.mixup:
            rows, chosen = rows[:, :1], chosen[:, :1]
        with torch.no_grad():
            reduced = model.embedded(client.graph.x, client.graph.edge_index)
        labels = one_hot(client.graph.y, client.schema.classes)
        # a batch that is short is divided by its own size
        scale = (chosen.shape[1] / (chosen >= 0).sum(1)).view(-1, 1, 1)
        return Upload({"rows": mash(reduced, rows) * scale, "labels": mash(labels, rows) * scale})

    def _centres(self, client: ClientContext) -> Tensor:
        """``[mashes, n]``; -1 where a batch is short."""
        return batches.centres(client, self.settings)

    def _share(self, client: ClientContext, shares: object) -> float:
        classes = client.schema.classes
        if (
            not isinstance(shares, Tensor)
            or shares.shape != (classes,)
            or not bool(torch.isfinite(shares).all())
            or float(shares.min()) < 0
            or abs(float(shares.sum()) - 1) > 1e-3
        ):
            raise HostileMessage(
                f"{client.name} was told class shares that are no distribution over {classes} classes"
            )
        if self.settings.mixing != "adaptive":
            return float(self.settings.mixing)
        return coefficient(class_shares(client.graph.y, classes), shares, self.settings.gamma)


class _Upper(nn.Module):
    """The trainable part of a model, for an optimiser."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.part = nn.ParameterList(p for p in model.parameters() if p.requires_grad)


def _part(values: State, *, shared: bool) -> State:
    """The reduction's parameters, or the upper layers', of a model or of the server's state."""
    return {k: v for k, v in _parameters(values).items() if k.startswith(REDUCTION) == shared}


def _parameters(state: State) -> State:
    return {k: v for k, v in state.items() if k not in (SEED, SHARES) and not k.startswith((ADAM, RELEASED))}


def _insist(own: State, given: State) -> None:
    """Parameters that fit one's own.

    Raises:
        HostileMessage: for other names, shapes or values that are not finite.
    """
    if given.keys() != own.keys():
        raise HostileMessage(f"parameters do not fit: {sorted(given.keys() ^ own.keys())[:3]} differ")
    for name, value in given.items():
        fits = isinstance(value, Tensor) and value.dtype == own[name].dtype and value.shape == own[name].shape
        if not fits or not bool(torch.isfinite(value).all()):
            raise HostileMessage(f"parameter {name!r} has another shape or values that are not finite")


def _sizes(state: State) -> tuple[int, int]:
    """Features and classes of the model in a state."""
    reduction = next(v for k, v in state.items() if k.startswith(REDUCTION) and v.dim() == 2)
    return reduction.shape[0], state["head.weight"].shape[0]


def _flat(nested: dict[str, dict[str, Tensor]]) -> State:
    return {f"{ADAM}{i}.{slot}": v for i, slots in nested.items() for slot, v in slots.items()}


def _nested(state: State) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        if key.startswith(ADAM):
            _, i, slot = key.split(".")
            found.setdefault(i, {})[slot] = value.clone()
    return found
