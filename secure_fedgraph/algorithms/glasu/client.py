"""What a GLASU client keeps, and what it makes sure of before an iteration goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.algorithms.glasu import messages as sent
from secure_fedgraph.algorithms.glasu.forward_pass import Pass
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.models.vertical import Tower, stretches_of
from secure_fedgraph.protocol.given import Entries, Numbers, Text, Whole
from secure_fedgraph.seams import ClientContext

MOST_SEED = 2**32
LIVE = "live"
"""The entry of a client's scratch."""


@dataclass
class Work:
    """What a client keeps within one round: its layers, its links, and the iteration that runs."""

    round: int
    tower: Tower
    table: NeighbourTable
    running: Pass | None = None
    others: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def abandon(self) -> None:
        """Ends the iteration: an answer in it failed or came to nothing, and gradients cannot be put back."""
        self.running, self.others = None, {}
        for p in self.tower.parameters():
            p.grad = None


class Vertical(Algorithm):
    """The client's side that GLASU and its special cases share."""

    Settings: ClassVar[type[GlasuSettings]] = GlasuSettings
    settings: GlasuSettings

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """That labels are where the settings say, and that somebody outside scores.

        Raises:
            BadInput: for labels at one client only that all are to have, and for scoring in band.
        """
        if split.get("labels") == "one" and not self.pools and self._lacks_labels:
            raise BadInput(
                f"split.labels = 'one' gives one client the labels, and every client of {self.name} trains "
                f"on them: set split.labels=all{self._or_one}"
            )
        if evaluation == "in_band":
            raise BadInput(
                f"evaluation = 'in_band': a client of {self.name} has some columns of every node, and no "
                "model or tests of its own: set evaluation=referee"
            )

    @property
    def _lacks_labels(self) -> bool:
        """Whether it cannot do with labels at one client alone."""
        return self.settings.labels == "all"

    _or_one: ClassVar[str] = ", or training.labels=one too"

    @property
    def unites(self) -> bool:
        """Whether clients sample and the server unites what they sampled."""
        return self.settings.sampler == "paper" and len(self._ends) > 1

    @property
    def _ends(self) -> tuple[int, ...]:
        return self.settings.aggregated

    @property
    def _task(self) -> Entries:
        """What comes with every ask of an iteration."""
        return {
            "step": Whole(0, self.settings.steps - 1),
            "seed": Whole(0, MOST_SEED - 1),
            "parties": Text(),
        }

    @property
    def _rows(self) -> Entries:
        """What is aggregated, and how many clients' rows it is of."""
        if self.settings.carried == "peers":
            return {}
        return {"aggregate": Numbers((None, None)), "among": Whole(1)}

    def _parties(self, client: ClientContext, given: State) -> tuple[str, ...]:
        return sent.parties(given, client.clients)

    def _pass(self, client: ClientContext, given: State) -> Pass:
        """The iteration that runs; a new one where the server begins one."""
        names = self._parties(client, given)
        step = sent.number(given, "step", 0, self.settings.steps - 1)
        work = self._work(client)
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
                place=names.index(client.name),
                draw=client.generator,
            )
            work.others = {}
            work.running.begin(sent.number(given, "seed", 0, MOST_SEED - 1))
        return work.running

    def _running(self, client: ClientContext) -> Pass:
        running = self._work(client).running
        if running is None:
            raise HostileMessage(f"{client.name} was handed something before an iteration began")
        return running

    def _work(self, client: ClientContext) -> Work:
        work = client.scratch.get(LIVE)
        if not isinstance(work, Work) or work.round != client.round:
            work = Work(client.round, self._tower(client, len(client.clients)), self._table(client))
            client.scratch[LIVE] = work
        return work

    def _finish(self, client: ClientContext) -> None:
        work = self._work(client)
        assert work.running is not None
        if work.running.step == self.settings.steps - 1:
            client.memory["model"] = {k: v.detach().clone() for k, v in work.tower.state_dict().items()}
            del client.scratch[LIVE]

    def _tower(self, client: ClientContext, parties: int) -> Tower:
        s = self.settings
        tower = Tower(
            client.graph.x.shape[1],
            client.schema.classes,
            s.hidden,
            stretches_of(s.layers, s.aggregated),
            s.backbone,
            s.hidden * (parties if s.aggregation == "concat" else 1),
            s.bound,
        )
        if "model" in client.memory:
            tower.load_state_dict(client.memory["model"])
        else:
            tower.start(client.memory.setdefault("start", client.generator("initialisation").initial_seed()))
        return tower

    def _table(self, client: ClientContext) -> NeighbourTable:
        nodes = int(client.graph.num_nodes)
        if nodes > sent.MOST_NODES:
            raise BadInput(f"{nodes} nodes: index sets travel as float32, exact up to {sent.MOST_NODES}")
        return NeighbourTable(client.graph.edge_index, nodes)

    def _take_union(self, running: Pass, number: int, given: State) -> None:
        """The set at a stretch's aggregated end, where the server united it."""
        end = running.ends[number]
        if not self.unites or number == len(self._ends) - 1:
            return
        nodes = running.table.num_nodes
        running.sets[end] = sent.index_set(given, "nodes", nodes, within=running.sets.get(end))

    def _take_aggregate(self, client: ClientContext, running: Pass, number: int, given: State) -> None:
        if number not in running.inner:
            raise HostileMessage(f"an aggregate of stretch {number} was given out of turn")
        mine = running.inner[number].detach()
        others = self._work(client).others.pop(number, None)
        among = running.parties
        if self.settings.carried == "peers":
            names = self._parties(client, given)
            if others is None or {*others, client.name} != set(names):
                raise HostileMessage("the rows of some clients are missing, so nothing can be concatenated")
            aggregate = joined([mine if name == client.name else others[name] for name in names])
        else:
            aggregate = sent.rows(given, "aggregate", len(mine), running.width)
            among = sent.number(given, "among", 1, running.parties)
        running.take(number, aggregate, among)

    def _gradient(self, running: Pass, number: int, given: State) -> Tensor:
        if self._ends[number] not in running.sets:
            raise HostileMessage(f"the gradient of stretch {number} was given out of turn")
        rows = len(running.sets[self._ends[number]])
        return sent.rows(given, "gradient", rows, running.width)

    def _rate(self, client: ClientContext) -> float:
        s = self.settings
        times = (client.round - 1) // s.decay_every
        try:
            return s.learning_rate / s.decay**times
        except OverflowError:  # after a thousand halvings nothing is left of it
            return 0.0


def joined(parts: list[Tensor]) -> Tensor:
    """Blocks of a concatenation, in the order of the parties."""
    return torch.cat(parts, dim=1)
