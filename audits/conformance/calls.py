"""Checks that put something of their own into a small federation: a stage that reads the ledger before an
upload leaves, or training that notes which records were asked for."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.training.private_training import neighbours_of
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.audits.record import Finding
from secure_fedgraph.backends.in_process import InProcess
from secure_fedgraph.client import Client
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.channel import Channel, Domain
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import BindContext, Scope, Sensitivity, Stage
from secure_fedgraph.core.spending.ledger import Ledger, read_ledger
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.dp_sgd import Gradient, multiplied_out
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.round import Round, set_up
from secure_fedgraph.running.loop import train

NODES = 60
"""How many nodes of a client are zeroed out one by one, those in most records first."""


class _ChargeCheck(Stage):
    """Leaves an upload as it is, and checks that the ledger already has its charge.

    Clients of an exchange seal one after another: the first needs one charge in the ledger, the last needs
    all of them.
    """

    takes = gives = Domain.REAL

    def __init__(self, path: Path, sealed: Counter[tuple[str, int]], late: set[tuple[str, int]]) -> None:
        self.path, self.sealed, self.late = path, sealed, late

    def bind(self, sensitivity: Sensitivity, context: BindContext) -> tuple[Stage, Sensitivity]:
        return self, sensitivity

    def apply(self, matrix: np.ndarray, scope: Scope) -> np.ndarray:
        place = scope.channel, scope.exchange
        self.sealed[place] += 1
        charged = sum((c.channel, c.exchange) == place for c in read_ledger(self.path))
        if charged < self.sealed[place]:
            self.late.add(place)
        return matrix


def written_ahead(algorithm: Algorithm, federation: Federation, policy: Policy) -> list[Finding]:
    """That every charge is on disk before its upload is clipped, noised or sealed; one round is run.

    Raises:
        BadInput: for a policy that does not choose protections by its recipe, such as strictest.
    """
    recipe, sealed, late = policy.recipe, Counter[tuple[str, int]](), set[tuple[str, int]]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        path.touch()

        def watched(channel: Channel) -> Protection:
            made = recipe(channel)
            return replace(made, stages=(_ChargeCheck(path, sealed, late), *made.stages))

        train(
            algorithm,
            federation,
            replace(policy, recipe=watched),
            rounds=1,
            ledger=path,
            allow_plaintext=True,
        )
    if not sealed:
        raise BadInput(
            f"policy {policy.name!r} does not bind by its recipe: probe the policy that it chooses"
        )
    return [
        Finding("written ahead", channel, f"exchange {exchange} was sealed before it was charged")
        for channel, exchange in sorted(late)
    ]


@dataclass
class Records:
    """Takes the place of a client's :class:`Training`: notes what it is given and takes no step."""

    unit: str
    parameters: Mapping[str, Any] | None = None
    number: int = 0
    gradients: Callable[[torch.Tensor], Mapping[str, Gradient]] | None = None
    occurrences: int = 0

    def run(
        self,
        optimizer: Any,
        parameters: Mapping[str, Any],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, Gradient]],
        occurrences: int = 1,
        penalty: Any = None,
    ) -> None:
        """Notes its arguments."""
        self.parameters, self.number, self.gradients = parameters, records, gradients
        self.occurrences = occurrences

    def owed(self) -> dict[str, tuple[Event, ...]]:
        """Nothing: no step was taken."""
        return {}

    def paid(self) -> None:
        """Nothing is owed."""

    def of(self, chosen: torch.Tensor) -> torch.Tensor:
        """The gradients of some records, ``[b, values]``."""
        assert self.gradients is not None and self.parameters is not None
        gradients = self.gradients(chosen)
        return torch.cat(
            [multiplied_out(gradients[name]).detach().flatten(1) for name in self.parameters], dim=1
        )


def records(algorithm: Algorithm, federation: Federation, policy: Policy) -> list[Finding]:
    """That a record's gradient depends on it alone, and that one unit is in no more records than are charged.

    Units are removed one by one: their features, their label, and a node's links too. Neighbours are then
    sampled again.
    """
    assert policy.steps is not None
    bound = policy.bind(algorithm.in_use, federation.names)
    clients = federation.make_clients(algorithm, bound, "probe", Ledger(), 0)
    for client in clients:
        client.training = Records(policy.steps.unit)  # type: ignore[assignment]
        client.graph = client.graph.clone()
    courier = Courier("probe", InProcess(clients), Transcript(public={"clients": list(federation.names)}))
    set_up(bound, courier, federation.names)
    algorithm.round(Round(1, federation.names, bound, courier), algorithm.init(federation.schema, 0))
    findings = []
    for client in clients:
        findings += _own_gradients(client) + _touched(client)
    return findings


def _own_gradients(client: Client) -> list[Finding]:
    training = cast(Records, client.training)
    order = torch.randperm(training.number, generator=torch.Generator().manual_seed(0))
    some = order[: min(7, training.number)]
    together = training.of(some)
    alone = torch.cat([training.of(one[None]) for one in some])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-6):
        return [
            Finding("own gradients", client.name, "a record's gradient depends on who else is in its batch")
        ]
    return []


def _touched(client: Client) -> list[Finding]:
    training, settings = cast(Records, client.training), client._algorithm.settings
    graph = client.graph
    table: torch.Tensor | None = client.memory.get("frozen")
    all_records = torch.arange(training.number)
    before = training.of(all_records)
    if training.unit == "graph":
        units = [(graph.graph == i).nonzero().flatten() for i in range(int(graph.graph.max()) + 1)]
    elif table is None:  # nodes that are trained on alone: which have most links does not matter
        units = [node[None] for node in graph.train_mask.nonzero().flatten()]
    else:
        nodes = int(graph.num_nodes or 0)
        occurrences = torch.bincount(table[table >= 0].flatten(), minlength=nodes)
        units = [v[None] for v in occurrences.argsort(descending=True)]
    worst = 0
    for number, unit in enumerate(units[:NODES]):
        x, y = graph.x[unit].clone(), graph.y.clone()
        rows, links = table.clone() if table is not None else None, graph.edge_index
        label = number if training.unit == "graph" else int(unit[0])
        graph.x[unit] = 0
        graph.y[label] = (graph.y[label] + 1) % (graph.y.max() + 1)
        if table is not None:
            graph.edge_index = links[:, (links != unit).all(0)]
            assert isinstance(settings, TrainingSettings)
            table.copy_(neighbours_of(client, graph, settings))
        changed = int(((training.of(all_records) - before).abs().amax(1) > 1e-7).sum())
        worst = max(worst, changed)
        graph.x[unit], graph.y, graph.edge_index = x, graph.y.copy_(y), links
        if table is not None and rows is not None:
            table.copy_(rows)
    if worst > training.occurrences:
        return [
            Finding(
                "occurrences",
                client.name,
                f"one {training.unit} changes {worst} records' gradients, {training.occurrences} are charged",
            )
        ]
    return []
