"""What GLASU is compared with: every client alone, and one owner of everything. Nothing is exchanged."""

from __future__ import annotations

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.channels import EXAMINE, MOST_SEED, PARTIES, STEP
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.inputs import Expected, Whole
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.seams import ClientContext, RoundApi


class GlasuStandalone(Glasu):
    """Every client alone with its columns and links: no exchange at all."""

    name = "glasu-standalone"
    summary = "every client alone with its columns and links"

    hands_links_out = False
    of_one_label_holder = ""

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """Nothing but the order to go on, and the examination."""
        return (STEP, EXAMINE)

    def round(self, round: RoundApi, state: State) -> State:
        """Orders as many updates as GLASU would make."""
        seed = sub_seed(int(state["seed"]), f"batch/{round.number}")
        given = {"seed": seed, "parties": round.cohort}
        round.scatter(STEP, dict.fromkeys(round.cohort, given))
        return state

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Who takes part, and the seed of the batches or the number of nodes."""
        if channel == STEP.name:
            return ({"seed": Whole(0, MOST_SEED - 1), "parties": PARTIES},)
        return super().takes(channel, schema)

    @STEP.answer
    def step(self, client: ClientContext, given: State) -> None:
        """A round of updates."""
        self.parties(client, given)
        for step in range(self.settings.steps * self.settings.local_steps):
            running = self.begun(client, step, (client.name,), sub_seed(int(given["seed"]), f"{step}"))
            running.update_alone(self.rate(client))
        self.keep_model(client)

    @property
    def examined_segments(self) -> range:
        """The referee aggregates nothing."""
        return range(0)

    @EXAMINE.answer
    def examine(self, client: ClientContext, given: State) -> Upload:
        """Class scores of every node, for the referee."""
        self.parties(client, given)
        table, tower = self.table(client), self.tower(client)
        tower.eval()
        rows: Tensor | None = None
        with torch.no_grad():
            for segment in self.segments:
                rows = self.whole_rows(client, table, tower, segment, rows)
            assert rows is not None
            return Upload({"scores": tower.scores(rows)})


class GlasuCentralized(GlasuStandalone):
    """One owner of every column and every link: the ceiling. Not federated."""

    name = "glasu-centralized"
    summary = "one owner of everything: the ceiling, not federated"
    pools = True
