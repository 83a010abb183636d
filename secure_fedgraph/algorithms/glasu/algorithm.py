"""GLASU: a graph network split over owners of features and links, with lazy aggregation and stale updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.glasu import messages as sent
from secure_fedgraph.algorithms.glasu.client import MOST_SEED, Vertical, joined
from secure_fedgraph.algorithms.glasu.savings import savings
from secure_fedgraph.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.graph.sample.layers import links_between
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.vertical import Noise, Tower
from secure_fedgraph.protocol import Channel, Reveal, Transcript, Unit, Upload
from secure_fedgraph.protocol.given import Entries, Expected, Integers, Numbers, Text, Whole
from secure_fedgraph.seams import ClientContext, RoundApi, Total

TWO = (
    "the mean goes back to both of 2 clients, and each learns the other's rows by subtracting its own; take "
    "3 clients or more, or accept it with training.accept_two_clients=true"
)
PAPER = "Zhang et al., GLASU, TMLR 2024 (arXiv 2303.09531)"


class Glasu(Vertical):
    """Vertical federated learning on a graph whose features and links are spread over owners.

    Every client has all nodes, some columns and some links, and a graph network of its own. In the layers of
    ``aggregated`` the server averages (or concatenates) the clients' rows and hands the result to everybody;
    between them clients compute alone (lazy aggregation). After each joint inference they make
    ``local_steps`` updates in which the others' rows stay as they were (stale updates).

    Guarantees:
        - with ``aggregation="mean"`` the server needs sums of representations only, so masks bind;
        - with ``sampler="public"`` or ``"full"`` whose rows are sent depends on nobody's links, so index sets
          tell nobody about them.

    A client that drops out of a sum (under ``masked``) is missing from that layer's mean, which is then of
    the others' rows. Those who were in all sums of an iteration take its step; whoever is missing at the
    round's last goes back to its weights of the round's start. No fewer than three are summed.

    What it does not hide: everybody gets the aggregates, and with two clients the mean gives each the other's
    rows by subtraction; with labels at one client, the gradient that it sends gives the others the labels.

    References:
        Zhang et al., GLASU, TMLR 2024: Algorithms 1 to 4; 5 to 7 with ``labels="one"``.
    """

    name = "glasu"
    alone: ClassVar[str] = "glasu-standalone"
    summary = "a graph network split by columns: lazy aggregation, stale updates"
    reference = PAPER
    rounds = 32
    partitions: ClassVar[tuple[str, ...]] = ("vertical", "vertical_all_links")
    forms = (
        Form(
            {"sampler": "public"},
            "index sets are drawn from the public seed, so no client lists the nodes that it sampled",
        ),
    )

    SAMPLE = Channel("sample", Reveal.EACH, Unit.EDGE, exact=True)
    HIDDEN = Channel("hidden", Reveal.SUM, Unit.NODE, least=3, below=TWO)
    HIDDEN_EACH = Channel("hidden_each", Reveal.EACH, Unit.NODE)
    HIDDEN_SHARED = Channel("hidden_shared", Reveal.EACH, Unit.NODE, to="peer")
    BACKWARD = Channel("backward", Reveal.SUM, Unit.NODE, least=3, below=TWO)
    GRADIENT = Channel("gradient", Reveal.EACH, Unit.NODE, to="peer")
    STEP = Channel("step", Reveal.NOTHING)
    EXAMINE = Channel("examine", Reveal.EACH, Unit.NODE, to="referee")

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Without those that these settings never open."""
        s = self.settings
        found = [self._hidden]
        if self.unites:
            found.insert(0, self.SAMPLE)
        if s.backward == "server":
            found.append(self._sum(self.BACKWARD))
        elif s.labels == "one":
            found.append(self.GRADIENT)
        return (*found, self.STEP, self.EXAMINE)

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """As every vertical method, and that there is somebody to aggregate with.

        Raises:
            BadInput: for one client.
        """
        super().check_run(clients, split, evaluation)
        if clients == 1 and self._hidden in self.in_use:
            raise BadInput(
                f"clients = 1: {self.name} aggregates over clients that each hold some columns; give 3 or "
                "more, or run glasu-centralized"
            )

    @property
    def hops(self) -> int:
        """How far from a training node training looks."""
        return self.settings.layers

    @property
    def _hidden(self) -> Channel:
        if self.settings.aggregation == "mean":
            return self._sum(self.HIDDEN)
        return self.HIDDEN_SHARED if self.settings.carried == "peers" else self.HIDDEN_EACH

    def _sum(self, channel: Channel) -> Channel:
        s = self.settings
        if channel.name == self.HIDDEN.name:
            channel = replace(channel, largest=s.bound, largest_is="training.bound")
        return replace(channel, accepted=s.accept_two_clients)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The iteration's task, with index sets, aggregates or gradients where they are due."""
        if channel == self.EXAMINE.name:
            asked: Entries = {"parties": Text(), "nodes": Whole(1), "stretch": Whole()}
            return (asked, {**asked, "aggregate": Numbers((None, None))})
        if channel not in [one.name for one in self.channels]:
            return super().takes(channel, schema)
        task, numbered = self._task, {**self._task, "stretch": Whole()}
        nodes: Entries = {"nodes": Integers((None,), 0, sent.MOST_NODES)}
        gradient: Entries = {"gradient": Numbers((None, None))}
        if channel == self.SAMPLE.name:
            return (numbered, {**numbered, **nodes})
        if channel == self.BACKWARD.name:
            return ({**numbered, **self._rows}, {**numbered, **gradient})
        if channel in (self.GRADIENT.name, self.STEP.name):
            return (task, {**task, **self._rows}, {**task, **gradient})
        return (numbered, {**numbered, **nodes}, {**numbered, **self._rows})

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """Rows of a layer, or the gradient at them."""
        if channel in (self.HIDDEN_SHARED.name, self.GRADIENT.name):
            return ({"rows": Numbers((None, None))},)
        return super().shows(channel, schema)

    # -- the server -------------------------------------------------------------------------------

    def init(self, schema: Schema, seed: int) -> State:
        """A seed for batches: the server has no weights."""
        return {"seed": torch.tensor(seed % MOST_SEED)}

    def released(self, state: State) -> None:
        """No model is released: every client keeps its own layers."""
        return None

    def round(self, round: RoundApi, state: State) -> State:
        """``steps`` iterations of Algorithm 1."""
        before = state.get("clients")
        if before is not None and int(before) != len(round.cohort):
            raise BadInput(
                f"round {round.number} asks {len(round.cohort)} clients and the first asked {int(before)}: "
                "in a vertical split every client takes part in every round"
            )
        for step in range(self.settings.steps):
            seed = sub_seed(int(state["seed"]), f"batch/{round.number}/{step}")
            task = {"step": step, "seed": seed, "parties": "\n".join(round.cohort)}
            self._iterate(round, task)
        return {**state, "clients": torch.tensor(len(round.cohort))}

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Once an aggregated layer and step."""
        return rounds * self.settings.steps * len(self._ends)

    def _iterate(self, round: RoundApi, task: dict[str, Any]) -> None:
        given = {**task, **self._index_sets(round, task)}
        present, among = set(round.cohort), []
        for number in range(len(self._ends)):
            found, there = self._aggregated(round, {**given, "stretch": number})
            given = {**task, **found}
            present &= there
            among.append(len(there))
        if self.settings.backward == "server":
            for number in reversed(range(len(self._ends))):
                total = self._summed(round, self.BACKWARD, {**given, "stretch": number})
                # a row weighed one part in as many as its layer's mean is of
                parts = among[number] if self.settings.aggregation == "mean" else 1
                given = {**task, "gradient": (total.total["rows"] / parts).float()}
                present &= set(total.contributors)
        stepping = tuple(name for name in round.cohort if name in present)
        if self.settings.backward == "local" and self.settings.labels == "one":
            if round.cohort[0] not in present:  # without its gradient there is no step
                return
            round.share(self.GRADIENT, given, senders=round.cohort[:1], readers=stepping)
        if stepping:
            round.scatter(self.STEP, dict.fromkeys(stepping, given))

    def _index_sets(self, round: RoundApi, task: dict[str, Any]) -> dict[str, Tensor]:
        """Algorithm 2: the union of the clients' sets at every aggregated layer, from the top."""
        united: dict[str, Tensor] = {}
        if self.unites:
            for number in reversed(range(1, len(self._ends))):
                lists = round.gather(self.SAMPLE, {**task, **united, "stretch": number})
                found = [sent.listed(name, values) for name, values in lists.items()]
                united = {"nodes": torch.unique(torch.cat(found)).to(torch.int32)}
        return united

    def _aggregated(self, round: RoundApi, given: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """Algorithm 3, one aggregated layer, and of whose rows; clients may aggregate for themselves."""
        if self.settings.aggregation == "mean":
            found = self._summed(round, self.HIDDEN, given)
            there = set(found.contributors)
            return {"aggregate": found.mean["rows"], "among": len(there)}, there
        if self.settings.carried == "peers":
            round.share(self.HIDDEN_SHARED, given)
            return {}, set(round.cohort)
        uploads = round.gather(self.HIDDEN_EACH, given)
        aggregate = joined([uploads[name]["rows"] for name in round.cohort])
        return {"aggregate": aggregate, "among": len(uploads)}, set(round.cohort)

    def _summed(self, round: RoundApi, channel: Channel, given: dict[str, Any]) -> Total:
        """A sum of enough clients that none learns another's rows by subtracting its own."""
        channel = self._sum(channel)
        total = round.reduce(channel, given)
        if len(total.contributors) < min(channel.least, len(round.cohort)) and not channel.accepted:
            raise Refused(
                f"round {round.number}, channel {channel.name!r}: {len(total.contributors)} clients are "
                "left, and each of two would learn the other's rows: go on with 'resume' when more are back"
            )
        return total

    def findings(self, transcript: Transcript) -> dict[str, Any]:
        """What lazy aggregation and stale updates save in messages and bytes."""
        return {"savings": savings(transcript, self.settings)}

    # -- the referee ------------------------------------------------------------------------------

    def predictions(self, state: State, round: RoundApi, inputs: Data, schema: Schema) -> dict[str, Tensor]:
        """A joint inference on whole neighbourhoods, in which the referee stands where the server does."""
        nodes = int(inputs.num_nodes or 0)
        given: dict[str, Any] = {"parties": "\n".join(round.cohort), "nodes": nodes}
        for number in range(self._examined_stretches):
            uploads = round.gather(self.EXAMINE, {**given, "stretch": number})
            parts = [uploads[name]["rows"] for name in round.cohort if name in uploads]
            mean = self.settings.aggregation == "mean"
            given = {**given, "aggregate": torch.stack(parts).mean(0) if mean else joined(parts)}
        uploads = round.gather(self.EXAMINE, {**given, "stretch": self._examined_stretches})
        asked = round.cohort if self.settings.labels == "all" else round.cohort[:1]
        found = {name: uploads[name]["scores"] for name in asked if name in uploads}
        if not found:
            raise Refused(f"{asked[0]} holds the labels and is gone, so nobody says what a node's class is")
        return found

    @property
    def _examined_stretches(self) -> int:
        return len(self._ends)

    # -- the clients ------------------------------------------------------------------------------

    @SAMPLE.answer
    def sample(self, client: ClientContext, given: State) -> Upload:
        """The nodes that this client samples for an aggregated layer."""
        running = self._pass(client, given)
        number = sent.number(given, "stretch", 1, len(self._ends) - 1)
        self._take_union(running, number, given)
        return Upload({"nodes": running.descend(number).to(torch.float32).unsqueeze(1)})

    @HIDDEN.answer
    def hidden(self, client: ClientContext, given: State) -> Upload:
        """This client's rows for one aggregated layer."""
        running = self._pass(client, given)
        number = sent.number(given, "stretch", 0, len(self._ends) - 1)
        if number:
            self._take_aggregate(client, running, number - 1, given)
        else:
            self._take_union(running, 0, given)
        return Upload({"rows": running.joint(number)})

    @HIDDEN_EACH.answer
    def hidden_each(self, client: ClientContext, given: State) -> Upload:
        """The same, where the server concatenates."""
        return self.hidden(client, given)

    @HIDDEN_SHARED.answer
    def hidden_shared(self, client: ClientContext, given: State) -> Upload:
        """The same, for the other clients."""
        return self.hidden(client, given)

    @HIDDEN_SHARED.read
    def others(self, client: ClientContext, uploads: dict[str, dict[str, Tensor]]) -> None:
        """Keeps the other clients' rows of the layer that is aggregated now."""
        work, running = self._work(client), self._running(client)
        number = len(running.inner) - 1
        if number not in running.inner:
            raise HostileMessage(f"{client.name} was handed the others' rows before it made its own")
        mine = running.inner[number]
        work.others[number] = {
            name: sent.rows(values, "rows", len(mine), mine.shape[1]) for name, values in uploads.items()
        }

    @BACKWARD.answer
    def backward(self, client: ClientContext, given: State) -> Upload:
        """The gradient of everything above at one aggregated layer."""
        running = self._pass(client, given)
        last = len(self._ends) - 1
        number = sent.number(given, "stretch", 0, last)
        if number == last:
            self._take_aggregate(client, running, last, given)
            return Upload({"rows": running.back_from_the_top()})
        gradient = self._gradient(running, number + 1, given)
        found = running.back_through(number + 1, gradient)
        assert found is not None
        return Upload({"rows": found})

    @GRADIENT.answer
    def gradient(self, client: ClientContext, given: State) -> Upload:
        """The label holder's gradient at the last aggregate (Algorithm 6)."""
        running = self._pass(client, given)
        self._take_aggregate(client, running, len(self._ends) - 1, given)
        top = running.given[len(self._ends) - 1].detach().clone().requires_grad_()
        if not running.holds_labels:
            raise HostileMessage("the gradient is asked of a client that holds no labels")
        return Upload({"rows": torch.autograd.grad(running.loss(top), top)[0]})

    @GRADIENT.read
    def follow(self, client: ClientContext, uploads: dict[str, dict[str, Tensor]]) -> None:
        """Keeps the label holder's gradient for the updates."""
        running = self._running(client)
        if len(uploads) != 1 or running.holds_labels:
            raise HostileMessage("one gradient is taken, from the label holder, by those who hold no labels")
        (values,) = uploads.values()
        running.gradient = sent.rows(values, "rows", len(running.sets[self._ends[-1]]), running.width)

    @STEP.answer
    def step(self, client: ClientContext, given: State) -> None:
        """The updates of one iteration; after the round's last what lived within it is dropped."""
        running = self._work(client).running
        if running is None:  # the iteration ended when it dropped out of a sum: there is nothing to step from
            return
        running = self._pass(client, given)
        if self.settings.backward == "server":
            running.back_through(0, self._gradient(running, 0, given))
            running.descend_gradient(self._rate(client))
        else:
            last = len(self._ends) - 1
            if last not in running.given:
                self._take_aggregate(client, running, last, given)
            running.update_locally(self._rate(client))
        self._finish(client)

    @EXAMINE.answer
    def examine(self, client: ClientContext, given: State) -> Upload:
        """One stretch on whole neighbourhoods, or class scores of every node, for the referee."""
        parties = self._parties(client, given)
        table, tower = self._table(client), self._tower(client, len(parties))
        nodes = table.num_nodes
        if given.get("nodes") != nodes:
            raise BadInput(
                f"{client.name} has {nodes} nodes and the test data {given.get('nodes')}: in a vertical "
                "split every client has every node"
            )
        number = sent.number(given, "stretch", 0, len(self._ends))
        width = self.settings.hidden * (len(parties) if self.settings.aggregation == "concat" else 1)
        rows = sent.rows(given, "aggregate", nodes, width) if number else None
        tower.eval()
        with torch.no_grad():
            if number == len(self._ends):
                assert rows is not None
                return Upload({"scores": tower.scores(rows)})
            return Upload({"rows": self._whole(client, table, tower, number, rows)})

    def _whole(
        self, client: ClientContext, table: NeighbourTable, tower: Tower, number: int, rows: Tensor | None
    ) -> Tensor:
        everywhere = torch.arange(table.num_nodes)
        between = links_between(table, everywhere, everywhere, tower.loop)
        depth = len(tower.stretches[number])
        return tower.stretch(number, rows, client.graph.x, [between] * depth, Noise())
