"""What GLASU and its variants share: what a client keeps and checks, the referee's inference, the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.glasu import checks
from secure_fedgraph.algorithms.glasu.channels import (
    BACKWARD,
    EXAMINE,
    HIDDEN,
    LINKS,
    MOST_SEED,
    SAMPLE,
    STEP,
)
from secure_fedgraph.algorithms.glasu.forward_pass import Pass
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.layers import links_between
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.vertical.tower import Noise, Tower, segments_of
from secure_fedgraph.seams import ClientContext, RoundApi, Total

LIVE = "live"
"""The entry of a client's scratch."""
ALL_LINKS = "links of all"
"""The entry of a client's memory with all clients' randomised links."""


@dataclass
class Work:
    """What a client keeps within one round: its layers, its links, and the iteration that runs."""

    round: int
    tower: Tower
    table: NeighbourTable
    running: Pass | None = None

    def abandon(self) -> None:
        """Ends the iteration: an answer in it failed or came to nothing, and gradients cannot be put back."""
        self.running = None
        for p in self.tower.parameters():
            p.grad = None


Value = int | tuple[str, ...] | Tensor


@dataclass
class Iteration:
    """What the server keeps from one request of an iteration to the next.

    Args:
        cohort: all clients, in the order of their blocks.
        step: the iteration's number within the round.
        seed: of the batch, and of public index sets.
    """

    cohort: tuple[str, ...]
    step: int
    seed: int
    opened: dict[str, Value] = field(default_factory=dict)
    """What the last exchange opened, which the next request carries: a union, an aggregate or a gradient."""
    summands: dict[int, int] = field(default_factory=dict)
    """Segment -> by how many clients the sum of its rows was divided."""
    _missing: set[str] = field(default_factory=set)

    def request(self, segment: int | None = None) -> dict[str, Value]:
        """What a client is asked with, for one segment or for the whole iteration."""
        task: dict[str, Value] = {"step": self.step, "seed": self.seed, "parties": self.cohort}
        return {**task, **self.opened, **({} if segment is None else {"segment": segment})}

    def keep(self, contributors: Iterable[str]) -> None:
        """Notes who was in a sum: whoever is missing in one takes no step."""
        self._missing |= {*self.cohort} - {*contributors}

    @property
    def present(self) -> tuple[str, ...]:
        """The clients that were in all sums, in the cohort's order."""
        return tuple(name for name in self.cohort if name not in self._missing)


class Vertical(Algorithm):
    """The mechanics that GLASU and its variants share."""

    Settings: ClassVar[type[GlasuSettings]] = GlasuSettings
    settings: GlasuSettings

    def label_holders(self, cohort: tuple[str, ...]) -> tuple[str, ...]:
        """The clients that hold labels: all."""
        return cohort

    # -- the segments: layers between one aggregation and the next --------------------------------

    @property
    def segments(self) -> range:
        """Their numbers, from the features up."""
        return range(len(self.settings.aggregated))

    @property
    def top(self) -> int:
        """The number of the last."""
        return self.segments[-1]

    @property
    def unites(self) -> bool:
        """Whether clients sample and the server unites what they sampled."""
        return self.settings.sampler == "paper" and len(self.segments) > 1

    # -- what a client keeps ----------------------------------------------------------------------

    def tower(self, client: ClientContext) -> Tower:
        """A client's layers: as it keeps them, or as they start."""
        s = self.settings
        tower = Tower(
            client.graph.x.shape[1],
            client.schema.classes,
            s.hidden,
            segments_of(s.layers, s.aggregated),
            s.backbone,
            s.bound,
        )
        if "model" in client.memory:
            tower.load_state_dict(client.memory["model"])
        else:
            tower.start(client.memory.setdefault("start", client.generator("initialisation").initial_seed()))
        return tower

    def table(self, client: ClientContext) -> NeighbourTable:
        """The links that a client uses."""
        nodes = int(client.graph.num_nodes)
        if nodes > checks.MOST_NODES:
            raise BadInput(f"{nodes} nodes: index sets travel as float32, exact up to {checks.MOST_NODES}")
        links = client.memory.get(ALL_LINKS, client.graph.edge_index)
        return NeighbourTable.of(links, nodes)

    @property
    def divides_links(self) -> bool:
        """Whether clients hand each other the links that they randomised."""
        return self.settings.links == "divided"

    def take_links(self, client: ClientContext, uploads: dict[str, dict[str, Tensor]]) -> None:
        """Keeps the links that the others randomised, beside those that this client did."""
        names, nodes = sorted(client.clients), int(client.graph.num_nodes)
        theirs = [
            checks.pairs(name, values["pairs"], nodes, names.index(name), len(names)).T
            for name, values in sorted(uploads.items())
            if name != client.name
        ]
        both = [torch.cat([pairs, pairs.flip(0)], dim=1) for pairs in theirs]
        client.memory[ALL_LINKS] = torch.cat([client.graph.edge_index, *both], dim=1)
        client.scratch.pop(LIVE, None)

    def work(self, client: ClientContext) -> Work:
        """What a client keeps within this round."""
        work = client.scratch.get(LIVE)
        if not isinstance(work, Work) or work.round != client.round:
            work = Work(client.round, self.tower(client), self.table(client))
            client.scratch[LIVE] = work
        return work

    def keep_model(self, client: ClientContext) -> None:
        """At a round's end: keeps the layers and drops all else."""
        layers = self.work(client).tower.state_dict()
        client.memory["model"] = {name: value.detach().clone() for name, value in layers.items()}
        del client.scratch[LIVE]

    def rate(self, client: ClientContext) -> float:
        """The learning rate of this round."""
        s = self.settings
        times = (client.round - 1) // s.decay_every
        try:
            return s.learning_rate / s.decay**times
        except OverflowError:  # after a thousand halvings nothing is left of it
            return 0.0

    # -- what a request says ----------------------------------------------------------------------

    def parties(self, client: ClientContext, given: State) -> tuple[str, ...]:
        """Who takes part: all clients."""
        return checks.parties(given, client.clients)

    def iteration(self, client: ClientContext, given: State) -> Pass:
        """The iteration that runs; a new one where the server begins one."""
        names = self.parties(client, given)
        step, work = int(given["step"]), self.work(client)
        if work.running is None or work.running.step != step:
            if work.running is not None and step < work.running.step:
                raise HostileMessage(f"step {step} was asked for after step {work.running.step}")
            work.running = self.begun(client, step, names, int(given["seed"]))
        return work.running

    def begun(self, client: ClientContext, step: int, parties: tuple[str, ...], seed: int) -> Pass:
        """A new pass, with its batch drawn."""
        work = self.work(client)
        made = Pass(
            tower=work.tower,
            graph=client.graph,
            table=work.table,
            settings=self.settings,
            step=step,
            parties=len(parties),
            name=client.name,
            draw=client.generator,
            holds_labels=client.name in self.label_holders(parties),
        )
        made.begin(seed)
        return made

    def running(self, client: ClientContext) -> Pass:
        """The iteration that runs, for what peers send into it."""
        running = self.work(client).running
        if running is None:
            raise HostileMessage(f"{client.name} was handed something before an iteration began")
        return running

    def take_index_set(self, running: Pass, segment: int, given: State) -> None:
        """The nodes at a segment's aggregated end, where the server united them."""
        if self.unites and segment != self.top:
            end, nodes = running.ends[segment], running.table.num_nodes
            united = given.get("nodes", torch.empty(0))
            running.sets[end] = checks.index_set(united, nodes, within=running.sets.get(end))

    def take_aggregate(self, client: ClientContext, running: Pass, segment: int, given: State) -> None:
        """What was aggregated after a segment."""
        rows = self._rows(given, "aggregate", len(self.own_rows(running, segment)))
        running.take(segment, rows, int(given["summands"]))

    def own_rows(self, running: Pass, segment: int) -> Tensor:
        """What this client sent for a segment's aggregate."""
        if segment not in running.own_rows:
            raise HostileMessage(f"an aggregate of segment {segment} was given out of turn")
        return running.own_rows[segment].detach()

    def gradient_above(self, running: Pass, segment: int, given: State) -> Tensor:
        """The summed gradient at what was aggregated after a segment."""
        end = running.ends[segment]
        if end not in running.sets:
            raise HostileMessage(f"the gradient of segment {segment} was given out of turn")
        return self._rows(given, "gradient", len(running.sets[end]))

    def _rows(self, given: State, key: str, count: int) -> Tensor:
        return checks.rows(given.get(key, torch.empty(0)), count, self.settings.hidden)

    # -- the referee: it aggregates in the server's place and reads nobody's features ---------------

    @property
    def examined_segments(self) -> range:
        """The segments after which the referee aggregates: all."""
        return self.segments

    def predictions(self, state: State, round: RoundApi, inputs: Data, schema: Schema) -> dict[str, Tensor]:
        """Class scores of all nodes, ``[nodes, classes]``, by each client that holds labels.

        Raises:
            Refused: where all of them are gone.
        """
        given: dict[str, Value] = {"parties": round.cohort, "nodes": int(inputs.num_nodes or 0)}
        for segment in self.examined_segments:
            uploads = round.gather(EXAMINE, {**given, "segment": segment})
            rows = [uploads[name]["rows"] for name in round.cohort if name in uploads]
            given["aggregate"] = torch.stack(rows).mean(0)
        uploads = round.gather(EXAMINE, {**given, "segment": len(self.examined_segments)})
        holders = self.label_holders(round.cohort)
        scores = {name: uploads[name]["scores"] for name in holders if name in uploads}
        if not scores:
            raise Refused(f"{holders[0]} holds the labels and is gone, so nobody says what a node's class is")
        return scores

    @EXAMINE.answer
    def examine(self, client: ClientContext, given: State) -> Upload:
        """This client's rows of one segment on all nodes, or class scores of what was aggregated last."""
        self.parties(client, given)
        table, tower = self.table(client), self.tower(client)
        checks.examined(client, given)
        segment = int(given["segment"])
        rows = self._rows(given, "aggregate", table.num_nodes) if segment else None
        tower.eval()
        with torch.no_grad():
            if segment < len(self.segments):
                return Upload({"rows": self.whole_rows(client, table, tower, segment, rows)})
            assert rows is not None
            return Upload({"scores": tower.scores(rows)})

    def whole_rows(
        self, client: ClientContext, table: NeighbourTable, tower: Tower, segment: int, rows: Tensor | None
    ) -> Tensor:
        """A client's rows of a segment, on all nodes and all its links."""
        everywhere = torch.arange(table.num_nodes)
        between = links_between(table, everywhere, everywhere, tower.loop)
        depth = len(tower.segments[segment])
        return tower.segment(segment, rows, client.graph.x, [between] * depth, Noise())

    all_need_labels: ClassVar[bool] = True
    """Whether every client trains on labels."""
    of_one_label_holder: ClassVar[str] = ""
    """The variant for labels at one client, where there is one."""

    # -- before a run -----------------------------------------------------------------------------

    @property
    def hidden_channel(self) -> Channel:
        """On which clients send their rows of an aggregated layer."""
        return self.bounded(HIDDEN)

    @property
    def gradient_channels(self) -> tuple[Channel, ...]:
        """On which gradients are sent."""
        return (self.bounded(BACKWARD),) if self.settings.backward == "server" else ()

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Without those that these settings never open."""
        links = (LINKS,) if self.divides_links else ()
        sampled = (SAMPLE,) if self.unites else ()
        return (*links, *sampled, self.hidden_channel, *self.gradient_channels, STEP, EXAMINE)

    def bounded(self, channel: Channel) -> Channel:
        """A channel of sums, with the bound of its rows, and whether sums of two clients are accepted."""
        if channel is HIDDEN:
            channel = replace(channel, largest=self.settings.bound, largest_is="training.bound")
        return replace(channel, accept_too_few=self.settings.accept_two_clients)

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """That all who train on labels have them, that somebody outside scores, and that there are others.

        Raises:
            BadInput: where it is not so, with the key and the mend.
        """
        if split.get("labels") == "one" and not self.pools and self.all_need_labels:
            variant = self.of_one_label_holder
            if split.get("name") == "silos":
                raise BadInput(
                    f"one owner alone has labels, and every client of {self.name} trains on them: give every "
                    f"owner's data the same y{f', or run {variant}' if variant else ''}"
                )
            raise BadInput(
                f"split.labels = 'one' gives one client the labels, and every client of {self.name} trains "
                f"on them: set split.labels=all{f', or run {variant}' if variant else ''}"
            )
        if evaluation == "in_band":
            raise BadInput(
                f"evaluation = 'in_band': a client of {self.name} has some columns of every node, and no "
                "model or tests of its own: set evaluation=referee"
            )
        if self.divides_links and not self.hands_links_out:
            raise BadInput(
                f"training.links = 'divided': clients of {self.name} exchange nothing, or use no links: "
                "leave it out"
            )
        if clients == 1 and self.hidden_channel in self.in_use:
            raise BadInput(
                f"clients = 1: {self.name} aggregates over clients that each hold some columns; give 3 or "
                "more, or run glasu-centralized"
            )

    def check_inputs(self, divided: Sequence[str]) -> None:
        """That clients divide the links where they hand them out, and nowhere else.

        Raises:
            BadInput: with the key and the mend.
        """
        if self.divides_links and not divided:
            raise BadInput(
                "training.links = 'divided': clients would hand each other their own links; randomise them, "
                "with --unit edge --epsilon E or links=E, or set training.links=own"
            )
        if divided and not self.divides_links:
            raise BadInput(
                "links are divided among the clients and training.links = 'own': set training.links=divided"
            )

    @property
    def hops(self) -> int:
        """How far from a training node training looks."""
        return self.settings.layers

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Once an aggregated layer and step."""
        return 1 if channel is LINKS else rounds * self.settings.steps * len(self.segments)

    def init(self, schema: Schema, seed: int) -> State:
        """A seed for batches: the server has no weights."""
        return {"seed": torch.tensor(seed % MOST_SEED)}

    def released(self, state: State) -> None:
        """No model is released: every client keeps its own layers."""
        return None

    # -- in a round -------------------------------------------------------------------------------

    def with_all_clients(self, round: RoundApi, state: State) -> State:
        """The state, with the number of clients in it.

        Raises:
            BadInput: for another number than in the first round.
        """
        before = state.get("clients")
        if before is not None and int(before) != len(round.cohort):
            raise BadInput(
                f"round {round.number} asks {len(round.cohort)} clients and the first asked {int(before)}: "
                "in a vertical split every client takes part in every round"
            )
        return {**state, "clients": torch.tensor(len(round.cohort))}

    def begin_iteration(self, round: RoundApi, state: State, step: int) -> Iteration:
        """A new one, with a batch of its own."""
        return Iteration(round.cohort, step, sub_seed(int(state["seed"]), f"batch/{round.number}/{step}"))

    def sum(self, round: RoundApi, channel: Channel, iteration: Iteration, segment: int) -> Total:
        """A sum of enough clients that none learns another's rows by subtracting its own.

        Raises:
            Refused: where too few are left.
        """
        channel = self.bounded(channel)
        total = round.reduce(channel, iteration.request(segment))
        too_few = len(total.contributors) < min(channel.min_clients, len(round.cohort))
        if too_few and not channel.accept_too_few:
            raise Refused(
                f"round {round.number}, channel {channel.name!r}: {len(total.contributors)} clients are "
                "left, and each of two would learn the other's rows: go on with 'resume' when more are back"
            )
        iteration.keep(total.contributors)
        return total

    def union(self, lists: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
        """The nodes of all clients' lists, each once, ascending."""
        nodes = [checks.listed(name, values) for name, values in lists.items()]
        united: Tensor = torch.unique(torch.cat(nodes)).to(torch.int32)
        return united
