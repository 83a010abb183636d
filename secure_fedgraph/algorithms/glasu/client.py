"""A GLASU client: what it keeps, and what it makes sure of before it uses what the server sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.glasu import checks
from secure_fedgraph.algorithms.glasu.forward_pass import Pass
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.models.vertical.tower import Tower, segments_of
from secure_fedgraph.seams import ClientContext

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


class VerticalClient(Algorithm):
    """The client's mechanics that GLASU and its variants share."""

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
            work.running = Pass(
                tower=work.tower,
                graph=client.graph,
                table=work.table,
                settings=self.settings,
                step=step,
                parties=len(names),
                name=client.name,
                draw=client.generator,
                holds_labels=client.name in self.label_holders(names),
            )
            work.running.begin(int(given["seed"]))
        return work.running

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
