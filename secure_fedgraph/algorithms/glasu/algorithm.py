"""GLASU: a graph network split over owners of features and links, with lazy aggregation and stale updates."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, Form, State
from secure_fedgraph.algorithms.glasu import channels
from secure_fedgraph.algorithms.glasu.at_home import GlasuAtHome
from secure_fedgraph.algorithms.glasu.channels import BACKWARD, HIDDEN, LINKS, SAMPLE, STEP
from secure_fedgraph.algorithms.glasu.vertical import Iteration, Vertical
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import ClientContext, RoundApi

DRAWN = "index sets are drawn from the public seed, so no client lists the nodes that it sampled"


class Glasu(Vertical):
    """Vertical federated learning on a graph whose features and links are spread over owners.

    Every client has all nodes, some columns and some links, and a graph network of its own. In the layers of
    ``aggregated`` the server averages the clients' rows and hands the mean to everybody; between them clients
    compute alone (lazy aggregation). After each joint inference they make ``local_steps`` updates in which
    the others' rows stay as they were (stale updates). A *segment* is the layers from one aggregation to the
    next, counted from 0 at the features.

    Guarantees:
        - the server needs sums of representations only, so masks bind;
        - with ``sampler="public"`` or ``"full"`` whose rows are sent depends on nobody's links, so index sets
          tell nobody about them.

    A client that drops out of a sum (under ``masked``) is missing from that layer's mean, which is then of
    the others' rows. Those who were in all sums of an iteration take its step; whoever is missing at the
    round's last goes back to its weights of the round's start. No fewer than three are summed.

    What it does not hide: everybody gets the aggregates, and with two clients the mean gives each the other's
    rows by subtraction.

    References:
        Zhang et al., GLASU, TMLR 2024 (arXiv 2303.09531): Algorithms 1 to 4. ``backward="server"`` is the
        gradient of the joint model, through the server.
    """

    name = "glasu"
    alone: ClassVar[str] = "glasu-standalone"
    summary = "a graph network split by columns: lazy aggregation, stale updates"
    reference = "Zhang et al., GLASU, TMLR 2024 (arXiv 2303.09531)"
    rounds = 32
    partitions: ClassVar[tuple[str, ...]] = ("vertical", "vertical_all_links")
    hands_links_out = True
    of_one_label_holder = "glasu-one-label-holder"
    forms = (
        Form(
            {"sampler": "public", "backward": "server", "steps": 8, "learning_rate": 0.1},
            f"{DRAWN}; they are larger than sampled ones, and serve fewer steps at a larger rate",
        ),
        Form({"sampler": "public"}, DRAWN),
    )

    def untouched_by(self, unit: str) -> Algorithm:
        """:class:`GlasuAtHome` for a part of a node, or a node, unless settings by hand are of training."""
        if type(self) is not Glasu or self.by_hand.keys() - {"accept_two_clients"}:
            return self
        home = GlasuAtHome(**self.by_hand)
        formed = home.untouched_by(unit)
        return self if formed is home else formed

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The iteration's task, with index sets, aggregates or gradients where they are due."""
        fields = channels.request(channel, self.settings)
        return fields or super().takes(channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """Pairs of nodes, for the other clients."""
        return channels.PAIRS if channel == LINKS.name else super().shows(channel, schema)

    # -- the server -------------------------------------------------------------------------------

    def round(self, round: RoundApi, state: State) -> State:
        """Algorithm 1: joint inferences, and updates after each."""
        state = self.with_all_clients(round, state)
        if self.divides_links and round.number == 1:
            round.share(LINKS, {"parties": round.cohort})
        for step in range(self.settings.steps):
            iteration = self.begin_iteration(round, state, step)
            self.unite_index_sets(round, iteration)
            self.infer_jointly(round, iteration)
            if self.settings.backward == "server":
                self.propagate_back(round, iteration)
            self.update(round, iteration)
        return state

    def unite_index_sets(self, round: RoundApi, iteration: Iteration) -> None:
        """Algorithm 2: from the top, the union of what clients sample below an aggregated layer."""
        for segment in reversed(self.segments[1:]) if self.unites else ():
            lists = round.gather(SAMPLE, iteration.request(segment))
            iteration.opened = {"nodes": self.union(lists)}

    def infer_jointly(self, round: RoundApi, iteration: Iteration) -> None:
        """Algorithm 3: in each aggregated layer the mean of the clients' rows."""
        for segment in self.segments:
            rows = self.sum(round, HIDDEN, iteration, segment)
            iteration.summands[segment] = len(rows.contributors)
            iteration.opened = {"aggregate": rows.mean["rows"], "summands": len(rows.contributors)}

    def propagate_back(self, round: RoundApi, iteration: Iteration) -> None:
        """The gradient of all clients' losses at each aggregated layer, from the top."""
        for segment in reversed(self.segments):
            gradients = self.sum(round, BACKWARD, iteration, segment)
            gradient = gradients.total["rows"] / iteration.summands[segment]
            iteration.opened = {"gradient": gradient.float()}

    def update(self, round: RoundApi, iteration: Iteration) -> None:
        """Those who are in all sums take the step (Algorithm 4)."""
        if iteration.present:
            round.scatter(STEP, dict.fromkeys(iteration.present, iteration.request()))

    # -- the clients ------------------------------------------------------------------------------

    @LINKS.answer
    def links(self, client: ClientContext, given: State) -> Upload:
        """The links that this client randomised, for the other clients."""
        self.parties(client, given)
        links, nodes = client.graph.edge_index, int(client.graph.num_nodes)
        numbers = torch.unique(links.min(0).values * nodes + links.max(0).values)
        pairs = torch.stack([numbers // nodes, numbers % nodes], dim=1)
        return Upload({"pairs": pairs.to(torch.float32)})

    @LINKS.read
    def keep_links(self, client: ClientContext, uploads: dict[str, dict[str, Tensor]]) -> None:
        """Uses the others' randomised links beside its own."""
        self.take_links(client, uploads)

    @SAMPLE.answer
    def sample(self, client: ClientContext, given: State) -> Upload:
        """Algorithm 2: the nodes that this client samples for a segment."""
        running, segment = self.iteration(client, given), int(given["segment"])
        self.take_index_set(running, segment, given)
        return Upload({"nodes": running.sample(segment).to(torch.float32).unsqueeze(1)})

    @HIDDEN.answer
    def hidden(self, client: ClientContext, given: State) -> Upload:
        """Algorithm 3: this client's rows of a segment, from the aggregate below it."""
        running, segment = self.iteration(client, given), int(given["segment"])
        if segment:
            self.take_aggregate(client, running, segment - 1, given)
        else:
            self.take_index_set(running, segment, given)
        return Upload({"rows": running.joint(segment)})

    @BACKWARD.answer
    def backward(self, client: ClientContext, given: State) -> Upload:
        """The gradient at a segment's aggregate, from this client's loss or the gradient above."""
        running, segment = self.iteration(client, given), int(given["segment"])
        if segment == self.top:
            self.take_aggregate(client, running, segment, given)
            running.back_from_the_loss()
        else:
            running.back_through(segment + 1, self.gradient_above(running, segment + 1, given))
        return Upload({"rows": running.gradient_at(segment)})

    @STEP.answer
    def step(self, client: ClientContext, given: State) -> None:
        """Algorithm 4: ``local_steps`` updates, the others' rows as they were."""
        if self.work(client).running is None:  # the iteration ended when it dropped out of a sum
            return
        running = self.iteration(client, given)
        if self.settings.backward == "server":
            running.back_through(0, self.gradient_above(running, 0, given))
            running.descend_gradient(self.rate(client))
        else:
            if self.top not in running.aggregates:
                self.take_aggregate(client, running, self.top, given)
            for update in range(self.settings.local_steps):
                running.loss(running.local_top(update)).backward()
                running.descend_gradient(self.rate(client))
        if running.step == self.settings.steps - 1:
            self.keep_model(client)
