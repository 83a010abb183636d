"""One GLASU iteration at one client: index sets, its part of the joint inference, and its updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.graph.partition.vertical import UNKNOWN
from secure_fedgraph.graph.sample.layers import InducedLinks, Links, draw_batch, grow, public_set
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.models.finite import all_are_finite, finite, note_divergence
from secure_fedgraph.models.sparse_rows import chosen, compact_of
from secure_fedgraph.models.vertical.residual import pull
from secure_fedgraph.models.vertical.tower import Noise, Tower, locally

Draw = Callable[[str], torch.Generator]


@dataclass
class Pass:
    """What one client holds during one iteration, dropped at its end.

    Layers are counted from 0 (features) to L; ``sets[l]`` is this client's index set of layer ``l``.

    Args:
        tower: its layers, trained in place.
        graph: its own.
        table: its own links.
        settings: of the algorithm.
        step: of the round.
        parties: how many clients there are.
        name: the client's.
        draw: purpose -> generator, of this client and round.
        holds_labels: whether this client computes a loss.
    """

    tower: Tower
    graph: Data
    table: NeighbourTable
    settings: GlasuSettings
    step: int
    parties: int
    name: str
    draw: Draw
    holds_labels: bool = True
    sets: dict[int, Tensor] = field(default_factory=dict)
    own_rows: dict[int, Tensor] = field(default_factory=dict)
    """Number of a segment -> what this client computed for its aggregation, ``H+``."""
    aggregates: dict[int, Tensor] = field(default_factory=dict)
    """Number of a segment -> what was aggregated after it, ``H``."""
    summands: dict[int, int] = field(default_factory=dict)
    """Number of a segment -> how many clients' rows its mean is of; all, but where some dropped out."""
    gradient: Tensor | None = None
    """The label holder's at the last aggregate, where this client has no labels."""
    _links: dict[int, list[Links]] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[int, ...]:
        """The aggregated layers, ascending."""
        return tuple(segment.stop for segment in self.tower.segments)

    def begin(self, seed: int) -> None:
        """Draws the batch, and the public sets where there are any, from the server's seed."""
        s, nodes = self.settings, self.table.num_nodes
        training = self.graph.train_mask.nonzero().flatten()
        everywhere = torch.arange(nodes)
        batch = training if s.sampler == "full" else draw_batch(training, s.batch, seed)
        self.sets[self.ends[-1]] = batch
        for end in self.ends[:-1]:
            if s.sampler == "full":
                self.sets[end] = everywhere
            elif s.sampler == "public":
                self.sets[end] = public_set(batch, nodes, s.public_nodes, seed)
        if s.sampler == "full":
            self.sets[0] = everywhere

    def sample(self, number: int) -> Tensor:
        """The sets of one segment, from its aggregated end down to its start, which is returned."""
        layers = self.tower.segments[number]
        if layers.stop not in self.sets:
            raise HostileMessage(f"the nodes of segment {number} were asked for out of turn")
        shared = self.sets.get(layers.start)
        for layer in reversed(layers):
            if layer in self.sets:
                continue
            if shared is not None:  # public: what lies between two public sets is the lower one
                self.sets[layer] = shared
                continue
            generator = self.draw(f"neighbours/{self.step}/{layer}")
            self.sets[layer] = grow(self.table, self.sets[layer + 1], self.settings.fanout, generator)
        return self.sets[layers.start]

    def links(self, number: int) -> list[Links]:
        """One segment's links, a layer each."""
        if number not in self._links:
            self.sample(number)
            self._links[number] = links = list[Links]()
            induced: InducedLinks | None = None
            for layer in self.tower.segments[number]:
                if induced is None or induced.inputs is not self.sets[layer]:
                    induced = InducedLinks(self.table, self.sets[layer], self.tower.loop)
                links.append(induced.onto(self.sets[layer + 1]))
        return self._links[number]

    def forward(self, number: int, rows: Tensor | None, update: int, settle: bool) -> Tensor:
        """One segment in training. Update 0 draws what the joint inference draws."""
        seed = self.draw(f"dropout/{self.step}/{number}/{update}").initial_seed()
        noise = Noise(self.settings.dropout, seed, settle)
        links = self.links(number)
        x = chosen(compact_of(self.graph.x), self.sets[self.tower.segments[number].start])
        self.tower.train()
        return self.tower.segment(number, rows, x, links, noise)

    def joint(self, number: int) -> Tensor:
        """One segment of the joint inference: what this client has aggregated."""
        if (number and number - 1 not in self.aggregates) or number in self.own_rows:
            raise HostileMessage(f"segment {number} was asked for out of turn")
        if self.settings.backward == "server":
            self.own_rows[number] = self.forward(number, self.aggregates.get(number - 1), 0, settle=True)
        else:
            with torch.no_grad():
                self.own_rows[number] = self.forward(number, self.aggregates.get(number - 1), 0, settle=False)
        return self.own_rows[number].detach()

    def take(self, number: int, aggregate: Tensor, summands: int) -> None:
        """Keeps what was aggregated after a segment."""
        if number not in self.own_rows or number in self.aggregates:
            raise HostileMessage(f"an aggregate of segment {number} was given out of turn")
        self.summands[number] = summands
        self.aggregates[number] = aggregate.detach().requires_grad_(self.settings.backward == "server")

    def loss(self, top: Tensor) -> Tensor:
        """Cross entropy on the batch, or the stale gradient's inner product where others hold the labels."""
        if self.holds_labels:
            labels = self.graph.y[self.sets[self.ends[-1]]]
            if len(labels) and int(labels.min()) <= UNKNOWN:
                raise HostileMessage("a loss is asked of a client that holds no labels")
            return F.cross_entropy(self.tower.scores(top), labels)
        if self.gradient is None:
            raise HostileMessage("an update was asked for before the label holder's gradient came")
        return (self.gradient * top).sum()

    # -- gradients through the server -------------------------------------------------------------

    def back_from_the_loss(self) -> None:
        """From this client's loss to the last aggregate; it stays at zero where it holds no labels."""
        top = self.aggregates[len(self.ends) - 1]
        if top.grad is not None:
            raise HostileMessage("the gradient at the last aggregate was asked for a second time")
        if self.holds_labels:
            self.loss(top).backward()

    def back_through(self, number: int, gradient: Tensor) -> None:
        """Through one segment: from the gradient at its end to the one at its start."""
        own_rows = self.own_rows.pop(number, None)
        before = self.aggregates.get(number - 1)
        if own_rows is None or own_rows.grad_fn is None or (number and before is None):
            raise HostileMessage(f"the gradient of segment {number} was given out of turn")
        pull(own_rows, gradient).backward()

    def gradient_at(self, number: int) -> Tensor:
        """The gradient of everything above, at what was aggregated after a segment."""
        aggregate = self.aggregates[number]
        return torch.zeros_like(aggregate) if aggregate.grad is None else aggregate.grad

    # -- updates ----------------------------------------------------------------------------------

    def local_top(self, update: int) -> Tensor:
        """The last representation with local aggregation in the server's place."""
        rows: Tensor | None = None
        for number in range(len(self.ends)):
            fresh = self.forward(number, rows, update, settle=True)
            rows = locally(self.aggregates[number], self.own_rows[number], fresh, self.summands[number])
        assert rows is not None
        return rows

    def update_alone(self, rate: float) -> None:
        """One update without anybody else."""
        for number in reversed(range(len(self.ends))):
            self.sample(number)
        rows: Tensor | None = None
        for number in range(len(self.ends)):
            rows = self.forward(number, rows, 0, settle=True)
        assert rows is not None
        self.loss(rows).backward()
        self.descend_gradient(rate)

    @torch.no_grad()
    def descend_gradient(self, rate: float) -> None:
        """Plain SGD with weight decay."""
        decay = self.settings.weight_decay / self.parties
        trained = [(p, p.grad) for p in self.tower.parameters() if p.grad is not None]
        steps = [(decay * p).add_(gradient) for p, gradient in trained]
        if not all_are_finite(steps):
            note_divergence(self.name, all_are_finite(gradient for _, gradient in trained))
            steps = [finite(step) for step in steps]
        for (p, _), step in zip(trained, steps, strict=True):
            p.sub_(step, alpha=rate)
            p.grad = None
        if not all_are_finite(p for p, _ in trained):
            for p, _ in trained:
                p.nan_to_num_()
