"""What an upload depends on: runs on other data that must send the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch_geometric.data import Data

from secure_fedgraph.audits.conformance.rehearsal import Answer, OutOfTime, Rehearsal, tensors_of
from secure_fedgraph.audits.record import LEVEL, Finding
from secure_fedgraph.client import Client
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.links import DividedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.seams import ClientContext

Key = tuple[int, str, str, str]
"""Round, channel, client, the tensor's name."""
Answers = dict[Key, torch.Tensor]


class DataFreeTraining:
    """Noisy steps without any record: gradients come from a public seed alone.

    A channel that shows noisy steps only cannot depend on the data then.

    Args:
        how: the steps.
    """

    def __init__(self, private_steps: PrivateSteps) -> None:
        self.how = private_steps
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.rounds = 0

    @property
    def unit(self) -> str:
        """Whose data a record is."""
        return self.how.unit

    def run(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, torch.Tensor]],
        occurrences: int = 1,
        penalty: Callable[[], Any] | None = None,
    ) -> None:
        """A round of steps, as :meth:`~secure_fedgraph.privacy.dp_sgd.Training.run` takes them."""
        self.rounds += 1
        self.shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        generator = torch.Generator().manual_seed(self.rounds)
        for _ in range(min(self.how.steps, 3)):
            optimizer.zero_grad()
            if penalty is not None:
                penalty()
            for p in parameters.values():
                pull = torch.randn(p.shape, generator=generator).to(p.dtype) * self.how.clip
                p.grad = pull if p.grad is None else p.grad + pull
            optimizer.step()

    def owed(self) -> dict[str, tuple[Event, ...]]:
        """Nothing, for this unit."""
        return {self.how.unit: ()}

    def paid(self) -> None:
        """Nothing is owed."""

    def to_text(self) -> str:
        """Nothing is owed."""
        return ""

    def take_over(self, text: str) -> None:
        """Nothing is owed."""


@dataclass
class _Listening:
    """Collects answers; it replaces clients' noisy training by :class:`DataFreeTraining`."""

    steps: PrivateSteps | None = None
    answers: Answers = field(default_factory=dict)
    trainings: dict[str, DataFreeTraining] = field(default_factory=dict)

    def before(self, client: Client) -> None:
        if self.steps is not None and client.name not in self.trainings:
            self.trainings[client.name] = data_free = DataFreeTraining(self.steps)
            client.training = data_free  # type: ignore[assignment]

    def after(self, client: ClientContext, channel: str, made: Any) -> None:
        if isinstance(made, Answer):
            for name, value in tensors_of(made).items():
                self.answers[client.round, channel, client.name, name] = value.detach().clone()
            if isinstance(made, ContributionRows):
                self.answers[client.round, channel, client.name, "places"] = made.places.clone()


def other_data(
    graph: Data, classes: int, seed: int, what: tuple[str, ...] = ("x", "y", "edge_index")
) -> Data:
    """Other values in the same public shape: as many nodes, links and training nodes.

    Features are drawn from the owner's nodes, each class becomes the next one, and links move to other nodes;
    graphs of a set keep their links.
    """
    other = graph.clone()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(int(graph.num_nodes or 0), generator=generator)
    if "x" in what and graph.x is not None:
        other.x = graph.x[torch.randint(len(graph.x), (len(graph.x),), generator=generator)]
    y = graph.get("y")
    if "y" in what and isinstance(y, torch.Tensor):
        whole = not y.is_floating_point()
        other.y = (
            torch.where(y >= 0, (y + 1) % classes, y)
            if whole
            else y[torch.randperm(len(y), generator=generator)]
        )
    if "edge_index" in what and graph.edge_index is not None and graph.get("graph") is None:
        other.edge_index = order[graph.edge_index]
    return other


def _answers(rehearsal: Rehearsal, rounds: int, steps: PrivateSteps | None = None, **more: Any) -> _Listening:
    listening = _Listening(steps)
    rehearsal.play(rounds, listening.before, listening.after, **more)
    return listening


def trained_channels(
    rehearsal: Rehearsal, rounds: int = 2
) -> tuple[list[Finding], dict[str, tuple[int, ...]]]:
    """That channels which are declared to carry results of noisy steps carry nothing else of the data.

    Returns:
        findings, and the shapes of the parameters that were trained.
    """
    steps = rehearsal.policy.steps
    assert steps is not None
    classes, graphs = rehearsal.federation.schema.classes, rehearsal.federation.owners
    one = _answers(rehearsal, rounds, steps)
    shapes = next((t.shapes for t in one.trainings.values() if t.shapes), {})
    trained = {c.name for c in rehearsal.algorithm.in_use if c.trained}
    others = {name: other_data(graph, classes, 1) for name, graph in graphs.items()}
    differing = _differing(rehearsal, one, others, rounds, steps=steps)
    findings = [
        Finding("trained", channel, f"{what} depends on the data though no record takes part in a step")
        for channel, what in differing.items()
        if channel in trained
    ]
    return findings, shapes


def linkless_channels(rehearsal: Rehearsal, rounds: int = 2) -> list[Finding]:
    """That what is declared to read no link is the same, byte for byte, over other links.

    Clients train without noise here. Uploads that differ on the same data too (of units that secret coins
    took) say nothing.
    """
    declared = {c.name for c in rehearsal.channels if not c.links and c.to != REFEREE}
    classes, graphs = rehearsal.federation.schema.classes, rehearsal.federation.owners
    policy = replace(rehearsal.policy, steps=None)
    others = {name: other_data(graph, classes, 3, ("edge_index",)) for name, graph in graphs.items()}
    differing = _differing(
        rehearsal, _answers(rehearsal, rounds, policy=policy), others, rounds, policy=policy
    )
    return [
        Finding("no links", channel, f"{what} depends on links, and the channel declares that none does")
        for channel, what in differing.items()
        if channel in declared
    ]


def _differing(
    rehearsal: Rehearsal, one: _Listening, owners: Mapping[str, Data], rounds: int, **more: Any
) -> dict[str, str]:
    """Channel -> what differs on other data, but not between two runs on the same data."""
    try:
        other = _answers(rehearsal, rounds, owners=owners, **more)
    except OutOfTime:
        raise
    except SecureFedGraphError as error:
        return {channel: f"whether it answers ({error})" for _, channel, _, _ in one.answers}
    differing = _first_differences(one.answers, other.answers)
    if differing:  # what differs on the same data too is random, and says nothing
        again = _first_differences(one.answers, _answers(rehearsal, rounds, **more).answers)
        differing = {channel: what for channel, what in differing.items() if channel not in again}
    return differing


def _first_differences(one: Answers, other: Answers) -> dict[str, str]:
    differences: dict[str, str] = {}
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if a is None or b is None or a.shape != b.shape or not torch.equal(a, b):
            round, channel, client, name = key
            differences.setdefault(channel, f"{name!r} of {client} in round {round}")
    return differences


def randomised_data(rehearsal: Rehearsal, rounds: int = 3) -> list[Finding]:
    """That clients with randomised data use one randomised copy for all, and never their own values."""
    findings = []
    for one in rehearsal.policy.randomizers:
        findings += _randomised_once(rehearsal, one, rounds) + _own_unused(rehearsal, one)
    return findings


def _randomised_once(rehearsal: Rehearsal, randomizer: InputRandomizer, rounds: int) -> list[Finding]:
    """One randomised copy for all answers, different from the owner's data as often as its epsilon says."""
    seen: dict[str, list[torch.Tensor]] = {}

    def look(client: ClientContext, *_: Any) -> None:
        value = getattr(client.graph, randomizer.place)
        before = seen.setdefault(client.name, [])
        if not before or not torch.equal(before[-1], value):
            before.append(value.clone())

    rehearsal.play(rounds, look, look)
    where = f"{randomizer.kind} of one {randomizer.unit}"
    again = {name: values for name, values in seen.items() if len(values) > 1}
    if again:
        name, values = next(iter(again.items()))
        text = f"{name} used {len(values)} different randomised copies in {rounds} rounds and paid for one"
        return [Finding("randomised data", where, text)]
    findings = []
    graphs = rehearsal.federation.owners
    same = [torch.equal(values[0], getattr(graphs[name], randomizer.place)) for name, values in seen.items()]
    if randomizer.kind in ("labels", "links"):
        kept, total = np.sum([_kept(randomizer, values[0], graphs[name]) for name, values in seen.items()], 0)
        # how likely one of the other answers is, against the true one
        others = rehearsal.federation.schema.classes - 1 if randomizer.kind == "labels" else 1
        if binom.sf(kept - 1, total, 1 / (1 + others * math.exp(-randomizer.epsilon))) < LEVEL:
            what = f"{kept} of {total} {randomizer.kind} are the owners' own"
            findings.append(Finding("randomised data", where, what))
        for number, name in enumerate(sorted(graphs)):
            if not isinstance(randomizer, DividedLinks) or name not in seen:
                continue
            if strange := int((~_of_part(randomizer.at(number, len(graphs)), seen[name][0])).sum()):
                what = f"{name} answers about {strange} links of another client's part, and pays for none"
                findings.append(Finding("randomised data", where, what))
    elif same and all(same):
        findings.append(Finding("randomised data", where, "they are the owners' own values"))
    return findings


def _kept(randomizer: InputRandomizer, used: torch.Tensor, graph: Data) -> tuple[int, int]:
    """How many of an owner's own labels or links are used, and how many it has."""
    if randomizer.kind == "labels":
        labelled = graph.y >= 0
        return int((used == graph.y)[labelled].sum()), int(labelled.sum())
    own, used_links = (
        {(min(a, b), max(a, b)) for a, b in links.T.tolist() if a != b} for links in (graph.edge_index, used)
    )
    return len(own & used_links), len(own)


def _own_unused(rehearsal: Rehearsal, randomizer: InputRandomizer) -> list[Finding]:
    """With known values in place of randomised ones, an owner's own values change nothing that it sends."""
    classes, graphs = rehearsal.federation.schema.classes, rehearsal.federation.owners
    randomizers = tuple(_known(each, graphs, classes) for each in rehearsal.policy.randomizers)
    policy = replace(rehearsal.policy, randomizers=randomizers)
    known = _values(randomizer, graphs, classes)
    unused: list[str] = []

    def look(client: ClientContext, *_: Any) -> None:
        value = getattr(client.graph, randomizer.place)
        if not any(torch.equal(value, v) for v in known if v.shape == value.shape):
            unused.append(client.name)

    listening = _Listening()

    def after(client: ClientContext, channel: str, made: Any) -> None:
        look(client)
        listening.after(client, channel, made)

    rehearsal.play(1, look, after, policy=policy)
    where = f"{randomizer.kind} of one {randomizer.unit}"
    if unused:
        return [Finding("randomised data", where, f"{unused[0]} uses values other than the randomised ones")]
    others = {name: other_data(graph, classes, 9, (randomizer.place,)) for name, graph in graphs.items()}
    differing = _differing(rehearsal, listening, others, 1, policy=policy)
    to = {c.name: c.to for c in rehearsal.algorithm.in_use}
    return [
        Finding("randomised data", where, f"channel {channel!r}: {what} depends on the owner's own values")
        for channel, what in differing.items()
        if to.get(channel) != REFEREE
    ]


def _values(randomizer: InputRandomizer, graphs: Mapping[str, Data], classes: int) -> list[torch.Tensor]:
    """For each owner other values in the shape of its own, or its part of them."""
    values = [
        getattr(other_data(graph, classes, 5, (randomizer.place,)), randomizer.place)
        for graph in graphs.values()
    ]
    if not isinstance(randomizer, DividedLinks) or randomizer.index >= 0:
        return values
    parts = [randomizer.at(place, randomizer.clients) for place in range(randomizer.clients)]
    return values + [value[:, _of_part(part, value)] for value in values for part in parts]


def _of_part(links: DividedLinks, edges: torch.Tensor) -> torch.Tensor:
    """Which links are a client's part."""
    return edges.sum(0) % links.clients == links.index


def _known(randomizer: InputRandomizer, graphs: Mapping[str, Data], classes: int) -> InputRandomizer:
    """A randomizer of the same kind and cost that gives known values in the shape of the owner's own."""
    values = _values(randomizer, graphs, classes)

    def randomize(asked: InputRandomizer, graph: Data, classes: int) -> torch.Tensor:
        shape = getattr(graph, randomizer.place).shape
        value = next(value for value in values if value.shape == shape).clone()
        return value[:, _of_part(asked, value)] if isinstance(asked, DividedLinks) else value

    kind: type[InputRandomizer] = type(
        type(randomizer).__name__, (type(randomizer),), {"randomize": randomize}
    )
    return kind(**vars(randomizer))
