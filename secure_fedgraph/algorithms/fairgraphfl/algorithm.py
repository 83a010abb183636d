"""FairGraphFL: agents are valued by gradient and motifs, and given as much of the model as they are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Form, Settings, State
from secure_fedgraph.algorithms.fairgraphfl import bounded, fairness, motifs
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.algorithms.fairgraphfl.training import (
    KNOWN,
    PROTOTYPES,
    graph_distance,
    own_prototypes,
    prototype_distance,
    pull,
    shortened,
)
from secure_fedgraph.algorithms.training.gin_classifier import Distance, GinClassifier, seed_of
from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import all_finite
from secure_fedgraph.models.gin import CONVOLUTIONS
from secure_fedgraph.models.parameters import load
from secure_fedgraph.protocol import Channel, ContributionRows, Reveal, Unit, Upload
from secure_fedgraph.protocol.given import NOTHING, Entries, Expected, Integers, Numbers, Real, Whole
from secure_fedgraph.seams import ClientContext, RoundApi, Valuation

OWN = "fair."
"""What the names in the server's state begin with that are no parameter."""
SEED, AGENTS, LABELS = "fair.seed", "fair.agents", "fair.labels"
VALUES, PAYOFFS, ALIGNMENT, DIVERSITY = "fair.values", "fair.payoffs", "fair.alignment", "fair.diversity"
VOCABULARY, PRESENT, SIZES = "fair.vocabulary", "fair.present", "fair.sizes"
COUNTS = "fair.counts"
OF_VALUE = (
    "an agent's value is its own gradient's agreement with the rest "
    "(training.valuation=encrypted computes it unread)"
)
OF_DIVERSITY = "an agent's diversity is its own share of all motifs"
OF_ROWS = (
    "with training.prototypes=each rows are matched to what their agent said it has (use "
    "training.prototypes=sum, bounded or none)"
)
SCALE = 1024.0
"""Prototypes are sums over a graph's nodes and so in the hundreds: what is added up travels over this, so
that it fits the integer road's default limit."""


class FairGraphFL(GinClassifier):
    """Federated graph classification with fair rewards.

    Each round every agent trains its own GIN on its own graphs, pulled towards motif prototypes, and uploads
    its update and its prototypes. The server values every agent by how its update agrees with all of them and
    by how many kinds of motifs it has; it adds the updates up by value, gives each agent back the part of the
    sum that its value has earned, and pays it its share of a budget.

    Guarantees:
        - an agent is given the ``floor(D tanh(beta r_i) / max tanh(beta r_j))`` largest components of the
          aggregate, and none where its value is not positive;
        - payoffs of a round add up to the budget;
        - graphs, labels, how many graphs hold a motif (but for ``idf=global``), and moments stay with the
          agent.
    Needs:
        - the same agents in every round: values are shares of one;
        - a server that reads every update, or ``valuation="encrypted"``;
        - node features that are one-hot labels, or categories of which the first is: motifs are made of them.

    References:
        Fair Graph Federated Learning via motif prototypes and a value-based reward, AAAI 2024.
    """

    name = "fairgraphfl"
    alone: ClassVar[str] = "gin-local"
    summary = "graph classification; agents are valued, rewarded and paid by gradient and motif diversity"
    reference = "FairGraphFL, AAAI 2024"
    Settings: ClassVar[type[Settings]] = FairGraphFLSettings
    settings: FairGraphFLSettings
    forms = (
        Form({"vocabulary": "public"}, "agents say which of all possible motifs they have, as numbers"),
        Form({"valuation": "encrypted"}, "agents are valued on ciphertexts, so the server reads no update"),
        Form(
            {"valuation": "encrypted", "vocabulary": "public", "lists": "valued"},
            "agents are valued on ciphertexts, so the server reads no update and no list of motifs",
        ),
        Form(
            {"valuation": "encrypted", "use_diversity": False, "prototypes": "none"},
            "agents are valued by their updates alone, on ciphertexts, and nobody lists motifs",
        ),
    )

    UPDATE = Channel("update", Reveal.EACH, why=OF_VALUE)
    VALUED = Channel("valued_update", Reveal.VALUES)
    MOTIFS = Channel("motifs", Reveal.EACH, Unit.GRAPH, exact=True, why=OF_DIVERSITY)
    PRESENCE = Channel("motif_presence", Reveal.EACH, Unit.GRAPH, why=OF_DIVERSITY)
    VOCABULARY = Channel("vocabulary", Reveal.NOTHING)
    PROTOTYPES = Channel("prototypes", Reveal.EACH, Unit.GRAPH)
    PROTOTYPE_SUMS = Channel("prototype_sums", Reveal.SUM, Unit.GRAPH)
    MOTIF_COUNTS = Channel("motif_counts", Reveal.SUM, Unit.GRAPH)
    LISTS = Channel("motif_lists", Reveal.EACH, Unit.GRAPH, why=OF_DIVERSITY)
    VALUED_LISTS = Channel("valued_lists", Reveal.VALUES, Unit.GRAPH)
    MOTIF_SUMS = Channel("motif_sums", Reveal.SUM, Unit.GRAPH)
    SIZE = Channel("size", Reveal.EACH)
    REWARD = Channel("reward", Reveal.NOTHING, alike=False)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        s = self.settings
        used = {
            self.SIZE: s.weighting == "size",
            self._motifs: self._lists and s.lists == "chosen",
            self._counted: self._lists and s.lists == "counted",
            self.VALUED_LISTS: self._lists and s.lists == "valued",
            self.VOCABULARY: self._prototypes and s.vocabulary == "exchanged",
            self.UPDATE: s.valuation == "plain",
            self.VALUED: s.valuation == "encrypted",
            self.PROTOTYPES: s.prototypes == "each",
            self.PROTOTYPE_SUMS: s.prototypes == "sum",
            self._counts: s.prototypes == "bounded" and not (self._lists and s.lists == "counted"),
            self._sums: s.prototypes == "bounded",
            self.REWARD: True,
            self.PERSONAL: s.shared == "conv",
        }
        return tuple(channel for channel, is_used in used.items() if is_used)

    @property
    def _prototypes(self) -> bool:
        return self.settings.prototypes != "none"

    @property
    def _motifs(self) -> Channel:
        if self.settings.vocabulary != "public":
            return self.MOTIFS
        if self.settings.prototypes == "each":  # rows are told apart by what each agent said it has
            return replace(self.PRESENCE, exact=True, why=OF_ROWS)
        return self.PRESENCE

    @property
    def _lists(self) -> bool:
        return self.settings.use_diversity or self.settings.prototypes in ("sum", "each")

    @property
    def _counts(self) -> Channel:
        return replace(self.MOTIF_COUNTS, touches=bounded.touches(self.settings))

    @property
    def _counted(self) -> Channel:
        return replace(self.LISTS, touches=bounded.touches(self.settings))

    @property
    def _sums(self) -> Channel:
        alone = self.settings.embedding == "frozen"
        return replace(self.MOTIF_SUMS, touches=bounded.touches(self.settings, alone))

    def check(self, schema: Schema) -> None:
        """As every algorithm, and that a public vocabulary is short enough to list.

        Raises:
            BadInput: for other data.
        """
        super().check(schema)
        if self._lists or self._prototypes:
            motifs.check_public(self.settings, schema)

    def init(self, schema: Schema, seed: int) -> State:
        """First weights, which follow from a public seed, and the public vocabulary where there is one."""
        codes = motifs.check_public(self.settings, schema) if self._lists or self._prototypes else None
        public = {SEED: torch.tensor(seed), LABELS: torch.tensor(motifs.labels_of(schema))}
        state = {**public, **self.start(schema, seed)}
        return state if codes is None else {**state, VOCABULARY: codes}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Seeds, motifs, prototypes and rewards, each where it is due."""
        s = self.settings
        seed: Entries = {SEED: Whole()}
        if channel in (self.UPDATE.name, self.VALUED.name):
            told: Entries = {PROTOTYPES: Numbers((None, s.hidden)), KNOWN: Integers((None,), 0, 1)}
            return (seed, {**seed, **told}) if self._prototypes else (seed,)
        if channel == self.MOTIF_SUMS.name:
            return (seed,)
        if channel == self.VOCABULARY.name:
            return ({motifs.CODES: motifs.codes_of(s)},)
        if channel in (self.MOTIFS.name, self.PRESENCE.name):
            return motifs.asks(s)
        if channel == self.REWARD.name:
            length = sum(p.numel() for p in self._shared(self.start(schema, 0)).values())
            places = Integers((None,), 0, length - 1)
            return ({"places": places, "amounts": Numbers((None,)), "value": Real(), "payoff": Real()},)
        given_nothing = (
            self.LISTS,
            self.SIZE,
            self.PROTOTYPES,
            self.PROTOTYPE_SUMS,
            self.MOTIF_COUNTS,
            self.PERSONAL,
        )
        if channel in [one.name for one in given_nothing]:
            return NOTHING
        return super().takes(channel, schema)

    def released(self, state: State) -> State | None:
        """The global model; None where only convolutions are shared, so that it has no head."""
        return None if self.settings.shared == "conv" else _parameters(state)

    # --- the server

    def round(self, round: RoundApi, state: State) -> State:
        """Updates in, values, the aggregate, prototypes; out go rewards."""
        s, state = self.settings, self._met(round, state)
        values = state[VALUES][-1]
        weights = state[SIZES] / state[SIZES].sum() if s.weighting == "size" else fairness.shares(values)
        aggregate, alignment = self._updates(round, state, weights)
        state |= self._learned(round, state, values)
        found = fairness.next_values(
            values,
            alignment if s.use_gradient else torch.zeros_like(alignment),
            state[DIVERSITY] if s.use_diversity else torch.zeros_like(alignment),
            s.value_rate,
            s.beta_div,
        )
        paid = fairness.payoffs(found, state[VALUES], s.budget)
        step = s.server_rate * aggregate
        earned = fairness.fractions(found, s.beta_fair, s.tanh_arg) if s.sparse else torch.ones_like(found)
        rewards = {}
        for i, agent in enumerate(round.cohort):
            places = fairness.largest(step, float(earned[i])).nonzero().flatten()
            rewards[agent] = {
                "places": places.int(),
                "amounts": step[places],
                "value": float(found[i]),
                "payoff": float(paid[i]),
            }
        round.scatter(self.REWARD, rewards)
        return state | {
            **_added(self._shared(_parameters(state)), step),
            VALUES: torch.cat([state[VALUES], found[None]]),
            PAYOFFS: torch.cat([state[PAYOFFS], paid[None]]),
            ALIGNMENT: alignment,
        }

    def _met(self, round: RoundApi, state: State) -> State:
        """The state once the agents are known: their sizes, motifs, and values to start from."""
        names = torch.tensor(list("\n".join(round.cohort).encode()), dtype=torch.uint8)
        if AGENTS in state:
            if not torch.equal(state[AGENTS], names):
                raise BadInput(
                    "fairgraphfl asks the same agents in every round: their values are shares of one"
                )
            return dict(state)
        agents = len(round.cohort)
        state = {
            **state,
            AGENTS: names,
            VALUES: torch.full((1, agents), 1 / agents, dtype=torch.float64),
            PAYOFFS: torch.zeros(0, agents, dtype=torch.float64),
            DIVERSITY: torch.zeros(agents, dtype=torch.float64),
        }
        if self.settings.weighting == "size":
            sizes = torch.stack([values["graphs"].reshape(()) for values in round.gather(self.SIZE).values()])
            if not bool((torch.isfinite(sizes) & (sizes > 0)).all()):
                raise HostileMessage("an agent said a number of graphs that is none")
            state[SIZES] = sizes.double()
        return self._listed(round, state) if self._lists else state

    def _listed(self, round: RoundApi, state: State) -> State:
        """Who has which motifs, and the vocabulary that numbers them."""
        s, codes, labels = self.settings, state.get(VOCABULARY), int(state[LABELS])
        if s.lists == "counted":
            assert codes is not None
            count, present = bounded.counts_of(round.gather(self._counted), len(codes), s)
            return state | {COUNTS: count, PRESENT: present, DIVERSITY: fairness.diversity(present)}
        if s.lists == "valued":
            assert codes is not None
            valued = round.value(self.VALUED_LISTS, dict.fromkeys(round.cohort, 1.0))
            return state | {DIVERSITY: self._shares_of_motifs(valued, round.cohort, len(codes))}
        told: Mapping[str, Tensor] = {}
        if s.idf == "global":
            counted = round.gather(self._motifs, given={motifs.COUNTED: 1})
            told = motifs.rarities(counted, codes, s, labels)
        vocabulary, present = motifs.together(round.gather(self._motifs, given=told), codes, s, labels)
        if self._prototypes and codes is None:
            round.scatter(self.VOCABULARY, {name: {motifs.CODES: vocabulary} for name in round.cohort})
        return state | {VOCABULARY: vocabulary, PRESENT: present, DIVERSITY: fairness.diversity(present)}

    def _shares_of_motifs(self, valued: Valuation, agents: tuple[str, ...], motif_count: int) -> Tensor:
        """Each agent's share of all distinct motifs (definition 2), from the lengths of lists of ones."""
        mean = valued.aggregate.get("present")
        if not isinstance(mean, Tensor) or mean.shape != (motif_count,) or not bool(mean.isfinite().all()):
            raise HostileMessage(f"the agents' motifs are not {motif_count} finite numbers")
        everywhere = int((mean * len(agents) > 0.5).sum())
        # opened values carry the noise of their ciphertexts, and are whole
        own = torch.tensor([round(valued.lengths[name] ** 2) for name in agents], dtype=torch.float64)
        return (own / everywhere).clamp(max=1) if everywhere else torch.ones_like(own)

    def _updates(self, round: RoundApi, state: State, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sum of the updates (Eq. 13) and each one's agreement with it (Eq. 9)."""
        given = {SEED: int(state[SEED]), **{k: state[k] for k in (PROTOTYPES, KNOWN) if k in state}}
        like = self._shared(_parameters(state))
        if self.settings.valuation == "encrypted":
            by_agent = dict(zip(round.cohort, weights.tolist(), strict=True))
            valued = round.value(self.VALUED, by_agent, given=given)
            alignment = torch.tensor([valued.alignment[name] for name in round.cohort], dtype=torch.float64)
            return _flat(valued.aggregate, like, "the aggregate"), alignment
        uploads = round.gather(self.UPDATE, given=given)
        gradients = torch.stack([_flat(uploads[name], like, name) for name in round.cohort])
        aggregate = (weights @ gradients.double()).float()
        return aggregate, fairness.cosines(gradients, aggregate)

    def _learned(self, round: RoundApi, state: State, values: Tensor) -> State:
        """The prototypes of the round (Eq. 12)."""
        if not self._prototypes:
            return {}
        if self.settings.prototypes == "bounded":
            return self._learned_bounded(round, state)
        motif_count, width = len(state[VOCABULARY]), self.settings.hidden
        weighted, weight = torch.zeros(motif_count, width), torch.zeros(motif_count)
        if self.settings.prototypes == "sum":
            total = round.reduce(self.PROTOTYPE_SUMS).total
            weighted, weight = _rows(total, motif_count, width, "the agents' sum")
        else:
            uploads = round.gather(self.PROTOTYPES)
            for name, present, value in zip(round.cohort, state[PRESENT], values.clamp(min=0), strict=True):
                own, _ = _rows(uploads[name], int(present.sum()), width, name)
                weighted[present] += float(value) * own
                weight[present] += float(value)
        known = weight > fairness.SMALL
        prototypes = torch.where(known[:, None], weighted / weight.clamp(min=fairness.SMALL)[:, None], 0.0)
        return {PROTOTYPES: prototypes.float(), KNOWN: known.to(torch.uint8)}

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Counts and lists once, frozen sums once, the rest every round."""
        once = {self._counts.name, self._counted.name, self.VALUED_LISTS.name, self.SIZE.name}
        if self.settings.embedding == "frozen":
            once.add(self._sums.name)
        if channel.name == self._motifs.name:
            return 2
        return 1 if channel.name in once else rounds

    def _learned_bounded(self, round: RoundApi, state: State) -> State:
        """The same, from bounded sums: what is frozen is asked for once."""
        if PROTOTYPES in state and self.settings.embedding == "frozen":
            return {}
        count = state.get(COUNTS)
        if count is None:
            count = bounded.count_of(round.reduce(self._counts).total, len(state[VOCABULARY]))
        total = round.reduce(self._sums, given={SEED: int(state[SEED])}).total
        made, known = bounded.prototypes(total, count, self.settings)
        return {PROTOTYPES: made, KNOWN: known, COUNTS: count}

    def _shared(self, params: State) -> State:
        """The parameters that are exchanged."""
        if self.settings.shared == "all":
            return params
        return {k: v for k, v in params.items() if k.startswith(CONVOLUTIONS)}

    def notes(self, state: State) -> dict[str, Any]:
        """Every agent's value and payoff, by round, and what the last values were made of."""
        if AGENTS not in state:
            return {}
        agents = bytes(state[AGENTS].tolist()).decode().split("\n")
        rows = {"values": state[VALUES], "payoffs": state[PAYOFFS]}
        last = {"alignment": state[ALIGNMENT], "diversity": state[DIVERSITY]}
        return {
            "agents": agents,
            "budget": self.settings.budget,
            **{k: dict(zip(agents, row[-1].tolist(), strict=True)) for k, row in rows.items()},
            **{k: dict(zip(agents, row.tolist(), strict=True)) for k, row in last.items()},
            "by_round": {k: row.tolist() for k, row in rows.items()},
        }

    # --- the agents

    @SIZE.answer
    def size(self, client: ClientContext, given: State) -> Upload:
        """How many training graphs the agent has (ablation "aggregation" only)."""
        return Upload({"graphs": client.graph.train_mask.sum().float().reshape(1)})

    @MOTIFS.answer
    def motif_list(self, client: ClientContext, given: State) -> Upload:
        """The motifs that the agent keeps by TF-IDF."""
        return Upload(motifs.listed(client, given, self.settings))

    @PRESENCE.answer
    def motif_presence(self, client: ClientContext, given: State) -> Upload:
        """Which motifs of the public vocabulary the agent keeps by TF-IDF."""
        return Upload(motifs.listed(client, given, self.settings))

    @VOCABULARY.answer
    def vocabulary(self, client: ClientContext, given: State) -> None:
        """Takes the numbers of everybody's motifs over."""
        motifs.take_vocabulary(client, given, self.settings)

    @UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains its own model and returns how its shared part moved."""
        return Upload(self._trained(client, given))

    @VALUED.answer
    def valued_update(self, client: ClientContext, given: State) -> Upload:
        """The same, to be valued without being read."""
        return Upload(self._trained(client, given))

    @PROTOTYPES.answer
    def prototypes(self, client: ClientContext, given: State) -> Upload:
        """The agent's prototypes, in the order of the vocabulary (Eq. 11)."""
        own, at = self._own_prototypes(client)
        return Upload({"rows": own[at.argsort()] / SCALE})

    @PROTOTYPE_SUMS.answer
    def prototype_sums(self, client: ClientContext, given: State) -> Upload:
        """The agent's prototypes and its weight, over the whole vocabulary: zero where it has none."""
        own, at = self._own_prototypes(client)
        value = max(0.0, client.memory.get("value", 1.0))  # before the first reward all weigh the same
        length = int(client.memory[motifs.LENGTH])
        rows, weight = torch.zeros(length, self.settings.hidden), torch.zeros(length)
        rows[at], weight[at] = value * own / SCALE, value
        return Upload({"rows": rows, "weight": weight})

    @MOTIF_COUNTS.answer
    def motif_counts(self, client: ClientContext, given: State) -> ContributionRows:
        """Each of the agent's graphs, once for each of its motifs."""
        return bounded.counts(client, self.settings)

    @LISTS.answer
    def motif_lists(self, client: ClientContext, given: State) -> ContributionRows:
        """The same, to be read agent by agent."""
        return bounded.counts(client, self.settings)

    @VALUED_LISTS.answer
    def valued_lists(self, client: ClientContext, given: State) -> Upload:
        """Which motifs of the public vocabulary the agent keeps by TF-IDF, to be valued unread."""
        return Upload(motifs.listed(client, given, self.settings))

    @MOTIF_SUMS.answer
    def motif_sums(self, client: ClientContext, given: State) -> ContributionRows:
        """Each of the agent's graphs' embeddings, for each of its motifs."""
        model, frozen = self.model(client.schema), self.settings.embedding == "frozen"
        load(
            model,
            self.start(client.schema, seed_of(client, given.get(SEED))) if frozen else self.own_model(client),
        )
        return bounded.sums(client, model, self.settings)

    @REWARD.answer
    def reward(self, client: ClientContext, given: State) -> None:
        """Makes the agent's next model of its old one, its own update and the gradient that it has earned."""
        before = client.memory.pop("before", None)
        places, amounts = given.get("places"), given.get("amounts")
        params = self.own_model(client)
        shared = self._shared(params)
        length = sum(p.numel() for p in shared.values())
        right = (
            before is not None
            and isinstance(places, Tensor)
            and isinstance(amounts, Tensor)
            and places.dim() == 1
            and places.dtype in (torch.int32, torch.int64)
            and amounts.is_floating_point()
            and places.shape == amounts.shape
            and bool(torch.isfinite(amounts).all())
            and len(places.unique()) == len(places)
            and (not len(places) or 0 <= int(places.min()) <= int(places.max()) < length)
            and isinstance(given.get("value"), float)
            and math.isfinite(given["value"])
        )
        if not right:
            raise HostileMessage(f"{client.name} was given a reward that is none, or before it sent anything")
        assert isinstance(places, Tensor)
        assert isinstance(amounts, Tensor)
        places, start = places.long(), _flatten(before)
        moved = _flatten(shared) - start
        if self.settings.reading == "revert":
            moved = torch.zeros_like(moved)
        if self.settings.reading == "add":
            moved[places] += amounts
        else:
            moved[places] = amounts
        client.memory["model"] = params | all_finite(_added(before, moved))
        client.memory["value"] = given["value"]

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee, where no global one can be."""
        return Upload(self.own_model(client))

    def _marked(self, client: ClientContext, given: State) -> dict[str, Tensor]:
        return super()._marked(
            client, {}
        )  # its own tests are for its own model, also where a global one exists

    def _trained(self, client: ClientContext, given: State) -> State:
        before = client.memory.get("model") or self.start(client.schema, seed_of(client, given.get(SEED)))
        client.memory["model"] = self.fit(client, before, self._distance(client, given))
        client.memory["before"] = self._shared(before)
        return {k: client.memory["model"][k] - v for k, v in client.memory["before"].items()}

    def _distance(self, client: ClientContext, given: State) -> Distance | None:
        s = self.settings
        if not self._prototypes or PROTOTYPES not in given or not s.regularisation:
            return None
        apart = graph_distance if s.regulariser == "graph" else prototype_distance
        if s.prototypes == "bounded":
            held = motifs.holds(client, s)
            public = (held.shape[1], s.hidden)
            near = pull(client, given, held, torch.arange(held.shape[1]), public, s.distance)
            return lambda embedded, rows: s.regularisation * apart(shortened(embedded, s.clip), near, rows)
        table, at = motifs.incidence(client, s)
        target = pull(client, given, table, at, (int(client.memory[motifs.LENGTH]), s.hidden), s.distance)
        return lambda embedded, rows: s.regularisation * apart(embedded, target, rows)

    def _own_prototypes(self, client: ClientContext) -> tuple[Tensor, Tensor]:
        table, at = motifs.incidence(client, self.settings)
        model = self.model(client.schema)
        load(model, self.own_model(client))
        return own_prototypes(client, model, table), at


def _parameters(state: State) -> State:
    return {k: v for k, v in state.items() if not k.startswith(OWN) and k not in (PROTOTYPES, KNOWN)}


def _flatten(params: State) -> Tensor:
    return torch.cat([p.reshape(-1) for p in params.values()])


def _flat(upload: Mapping[str, Tensor], like: State, name: str) -> Tensor:
    """An upload's parameters as one vector.

    Raises:
        HostileMessage: for other names, shapes, or values that are not finite.
    """
    right = upload.keys() == like.keys() and all(
        upload[k].shape == v.shape and bool(torch.isfinite(upload[k]).all()) for k, v in like.items()
    )
    if not right:
        raise HostileMessage(f"the update of {name} is not one of these parameters, or not finite")
    return torch.cat([upload[k].reshape(-1) for k in like])


def _added(params: State, step: Tensor) -> State:
    """Parameters plus a vector over all of them."""
    pieces = step.split([p.numel() for p in params.values()])
    return {k: v + piece.reshape(v.shape) for (k, v), piece in zip(params.items(), pieces, strict=True)}


def _rows(values: Mapping[str, Tensor], rows: int, width: int, name: str) -> tuple[Tensor, Tensor]:
    """Prototypes and their weights as they were before they were scaled to travel.

    Raises:
        HostileMessage: for anything else.
    """
    found, weight = values.get("rows"), values.get("weight", torch.ones(rows))
    right = (
        isinstance(found, Tensor)
        and found.shape == (rows, width)
        and weight.shape == (rows,)
        and bool(torch.isfinite(found).all() and torch.isfinite(weight).all())
    )
    if not right:
        raise HostileMessage(f"the prototypes of {name} are not {rows} finite rows of {width} numbers")
    assert isinstance(found, Tensor)
    return found * SCALE, weight
