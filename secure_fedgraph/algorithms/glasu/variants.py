"""GLASU's special cases: every layer aggregated, no graph, no exchange, one owner of everything."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.glasu import messages as sent
from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.client import LIVE, MOST_SEED
from secure_fedgraph.algorithms.glasu.forward_pass import Pass
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.protocol import Channel, Transcript, Upload
from secure_fedgraph.protocol.given import Expected, Text, Whole
from secure_fedgraph.seams import ClientContext, RoundApi


class GlasuSimulated(Glasu):
    """GLASU with every layer aggregated and every link at every client: centralised training by messages.

    What FedVGCN (Ni et al. 2021) computes, under whatever protection the policy gives its sums.
    """

    name = "glasu-simulated"
    summary = "every layer aggregated, every client has all links"
    partitions: ClassVar[tuple[str, ...]] = ("vertical_all_links", "vertical")

    class Settings(GlasuSettings):
        """GLASU's, with every layer aggregated."""

        aggregated: tuple[int, ...] = (1, 2, 3, 4)

        @classmethod
        def usual(cls, layers: int) -> tuple[int, ...]:
            """Every layer."""
            return tuple(range(1, layers + 1))

    settings: Settings


class FedBCD(Glasu):
    """Vertical learning without a graph: links are ignored, and the last layer is aggregated.

    References:
        Liu et al., FedBCD: A Communication-Efficient Collaborative Learning Framework for Distributed
        Features, IEEE Transactions on Signal Processing 2022 (the parallel version).
    """

    name = "fedbcd"
    summary = "split by columns without a graph; stale updates"
    reference = "Liu et al. 2022"

    class Settings(GlasuSettings):
        """GLASU's, with the last layer aggregated only."""

        aggregated: tuple[int, ...] = (4,)

        @classmethod
        def usual(cls, layers: int) -> tuple[int, ...]:
            """The last."""
            return (layers,)

    settings: Settings

    @property
    def hops(self) -> int:
        """No link is followed."""
        return 0

    def _table(self, client: ClientContext) -> NeighbourTable:
        return NeighbourTable(torch.empty(2, 0, dtype=torch.long), int(client.graph.num_nodes))


class GlasuStandalone(Glasu):
    """Every client alone with its columns and links: no exchange at all."""

    name = "glasu-standalone"
    summary = "every client alone with its columns and links"

    _lacks_labels = True
    _or_one = ""

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Nothing but the order to go on, and the examination."""
        return (self.STEP, self.EXAMINE)

    def round(self, round: RoundApi, state: State) -> State:
        """Tells everybody to make as many updates as GLASU would."""
        seed = sub_seed(int(state["seed"]), f"batch/{round.number}")
        given = {"seed": seed, "parties": "\n".join(round.cohort)}
        round.scatter(self.STEP, dict.fromkeys(round.cohort, given))
        return state

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Who takes part, and the seed of the batches or the number of nodes."""
        if channel == self.STEP.name:
            return ({"seed": Whole(0, MOST_SEED - 1), "parties": Text()},)
        return super().takes(channel, schema)

    def findings(self, transcript: Transcript) -> dict[str, Any]:
        """Nothing is exchanged."""
        return {}

    @Glasu.STEP.answer
    def step(self, client: ClientContext, given: State) -> None:
        """A round of updates."""
        self._parties(client, given)
        seed = sent.number(given, "seed", 0, MOST_SEED - 1)
        work = self._work(client)
        alone = self.settings.model_copy(update={"labels": "all"})
        for step in range(self.settings.steps * self.settings.local_steps):
            running = Pass(work.tower, client.graph, work.table, alone, step, 1, 0, client.generator)
            running.begin(sub_seed(seed, f"{step}"))
            running.update_alone(self._rate(client))
        client.memory["model"] = {k: v.detach().clone() for k, v in work.tower.state_dict().items()}
        del client.scratch[LIVE]

    @property
    def _examined_stretches(self) -> int:
        return 0

    @Glasu.EXAMINE.answer
    def examine(self, client: ClientContext, given: State) -> Upload:
        """Class scores of every node, for the referee."""
        self._parties(client, given)
        table, tower = self._table(client), self._tower(client, 1)
        tower.eval()
        rows: Tensor | None = None
        with torch.no_grad():
            for number in range(len(self._ends)):
                rows = self._whole(client, table, tower, number, rows)
            assert rows is not None
            return Upload({"scores": tower.scores(rows)})


class GlasuCentralized(GlasuStandalone):
    """One owner of every column and every link: the ceiling. Not federated."""

    name = "glasu-centralized"
    summary = "one owner of everything: the ceiling, not federated"
    pools = True
