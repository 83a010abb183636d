"""What an upload depends on: runs on other data that must send the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.audits.conformance.rehearsal import Answer, Rehearsal, tensors_of
from secure_fedgraph.audits.record import LEVEL, Finding
from secure_fedgraph.client import Client
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.privacy.dp_sgd import Training
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.seams import ClientContext

Sent = dict[tuple[int, str, str, str], torch.Tensor]
"""(round, channel, client, the tensor's name) -> the value of an answer, before it is protected."""
Shapes = dict[str, tuple[int, ...]]
"""A trained parameter's name -> its shape."""


class DataFreeTraining(Training):
    """Noisy steps without any record: gradients come from a public seed alone, and none is owed.

    A channel that shows noisy steps only cannot depend on the data then.
    """

    rounds = 0

    def run(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, Any]],
        occurrences: int = 1,
        penalty: Callable[[], Any] | None = None,
    ) -> None:
        """A round of steps."""
        self.rounds += 1
        self._trained = True
        self.shapes: Shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        generator = torch.Generator().manual_seed(self.rounds)
        for _ in range(min(self.how.steps, 3)):
            optimizer.zero_grad()
            if penalty is not None:
                penalty()
            for p in parameters.values():
                pull = torch.randn(p.shape, generator=generator).to(p.dtype) * self.how.clip
                p.grad = pull if p.grad is None else p.grad + pull
            optimizer.step()


def other_data(graph: Data, classes: int, seed: int) -> Data:
    """Other values in the same public shape: as many nodes, links and training nodes.

    Features are drawn from the owner's nodes, each class becomes the next one, and links move to other nodes;
    graphs of a set keep their links.
    """
    other = graph.clone()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(int(graph.num_nodes or 0), generator=generator)
    if graph.x is not None:
        other.x = graph.x[torch.randint(len(graph.x), (len(graph.x),), generator=generator)]
    y = graph.get("y")
    if isinstance(y, torch.Tensor) and y.is_floating_point():
        other.y = y[torch.randperm(len(y), generator=generator)]
    elif isinstance(y, torch.Tensor):
        other.y = torch.where(y >= 0, (y + 1) % classes, y)
    if graph.edge_index is not None and graph.get("graph") is None:
        other.edge_index = order[graph.edge_index]
    return other


def trained_channels(rehearsal: Rehearsal, rounds: int = 2) -> tuple[list[Finding], Shapes]:
    """That channels which are declared to carry results of noisy steps carry nothing else of the data.

    Returns:
        findings, and the shapes of the parameters that were trained.
    """
    policy, federation = rehearsal.policy, rehearsal.federation
    steps = policy.steps
    assert steps is not None
    trained = {channel.name for channel in rehearsal.algorithm.in_use if channel.trained}
    shapes: Shapes = {}

    def sent(owners: Mapping[str, Data] | None = None) -> Sent:
        answers: Sent = {}

        def before(client: Client) -> None:
            if not isinstance(client.training, DataFreeTraining):
                client.training = DataFreeTraining(steps, policy.relation)

        def after(client: Client, channel: str, made: Any) -> None:
            shapes.update(getattr(client.training, "shapes", {}))
            if channel in trained and isinstance(made, Answer):
                values = {
                    **tensors_of(made),
                    **({"places": made.places} if isinstance(made, ContributionRows) else {}),
                }
                for name, value in values.items():
                    answers[client.round, channel, client.name, name] = value.detach().clone()

        rehearsal.play(rounds, before, after, owners)
        return answers

    one, findings = sent(), dict[str, Finding]()
    others = {
        name: other_data(graph, federation.schema.classes, 1) for name, graph in federation.owners.items()
    }
    other = sent(others)
    again = sent() if one.keys() != other.keys() or any(_differ(one, other, key) for key in one) else one
    for key in sorted({*one, *other}):
        round, channel, client, name = key
        if _differ(one, other, key) and not _differ(one, again, key):  # what differs by itself says nothing
            what = f"{name!r} of {client} in round {round} depends on the data, and no record was in a step"
            findings.setdefault(channel, Finding("trained", channel, what))
    return list(findings.values()), shapes


def _differ(one: Sent, other: Sent, key: tuple[int, str, str, str]) -> bool:
    a, b = one.get(key), other.get(key)
    return a is None or b is None or a.shape != b.shape or not torch.equal(a, b)


def randomised_data(rehearsal: Rehearsal, rounds: int = 3) -> list[Finding]:
    """That clients with randomised data use one randomised copy in all rounds, and not their own values."""
    return [
        found for one in rehearsal.policy.randomizers for found in _randomised_once(rehearsal, one, rounds)
    ]


def _randomised_once(rehearsal: Rehearsal, randomizer: InputRandomizer, rounds: int) -> list[Finding]:
    used: dict[str, list[torch.Tensor]] = {}

    def look(client: ClientContext, *_: Any) -> None:
        value, before = getattr(client.graph, randomizer.place), used.setdefault(client.name, [])
        if not before or not torch.equal(before[-1], value):
            before.append(value.clone())

    rehearsal.play(rounds, look, look)
    where, owners = f"{randomizer.kind} of one {randomizer.unit}", rehearsal.federation.owners
    for name, values in used.items():
        if len(values) > 1:
            what = (
                f"{name} used {len(values)} different randomised copies in {rounds} rounds and paid for one"
            )
            return [Finding("randomised data", where, what)]
    own = {name: getattr(owners[name], randomizer.place) for name in used}
    if randomizer.kind == "links":  # in any order, and either way round
        own, used = (
            {n: _undirected(v) for n, v in own.items()},
            {n: [_undirected(v[0])] for n, v in used.items()},
        )
    others = rehearsal.federation.schema.classes - 1 if randomizer.kind == "labels" else 1
    by_chance = (
        sum(v.shape[-1] for v in own.values()) / 2 * math.log1p(others * math.exp(-randomizer.epsilon))
    )
    if by_chance > -math.log(LEVEL) and all(torch.equal(used[name][0], value) for name, value in own.items()):
        return [Finding("randomised data", where, "they are the owners' own values")]
    return []


def _undirected(links: torch.Tensor) -> torch.Tensor:
    ends = torch.sort(links, dim=0).values
    found: torch.Tensor = torch.unique(ends[:, ends[0] != ends[1]], dim=1)
    return found
