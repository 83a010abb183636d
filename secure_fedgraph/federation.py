"""Federations: one graph handed out to owners, with a referee who keeps the test data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.backends.enlistment import algorithm_text, policy_text
from secure_fedgraph.backends.isolated import Workers
from secure_fedgraph.client import Client, Witness
from secure_fedgraph.crypto import Identity
from secure_fedgraph.errors import BadInput
from secure_fedgraph.evaluation import Referee
from secure_fedgraph.graph.canonical import content_digest
from secure_fedgraph.graph.checks import check_graph, check_owner
from secure_fedgraph.graph.datasets import GraphDataset, load_graph
from secure_fedgraph.graph.partition import induced, partition
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.splits import stratified
from secure_fedgraph.privacy.ledger import Ledger
from secure_fedgraph.privacy.party import Party
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.shelf import Shelf


@dataclass(frozen=True)
class Federation:
    """Owners of pieces of one graph.

    Args:
        schema: what everybody knows about the data.
        referee: who holds the test data.
        facts: where the data came from and how it was handed out, for results.
        owners: name -> that owner's graph. Only :meth:`enlist` reads it, to hand each to its own client.
    """

    schema: Schema
    referee: Referee = field(repr=False)
    facts: Mapping[str, Any]
    owners: Mapping[str, Data] = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' public names."""
        return tuple(self.owners)

    def enlist(
        self,
        algorithm: Algorithm,
        policy: BoundPolicy,
        run: str,
        ledger: Ledger,
        seed: int,
        witness: Witness | None = None,
        shelves: Path | None = None,
        after: int = -1,
    ) -> list[Client]:
        """Fresh clients for one run, each with its own graph, identity and empty memory.

        Identity keys come from the operating system; the roster of public keys is handed to the clients
        here, as an operator would, and not by the server.

        Args:
            shelves: where each gets a folder of its own to keep its memory in.
            after: exchange numbers up to this one are refused.
        """
        identities = {name: Identity.generate() for name in self.owners}
        roster = {name: identity.public for name, identity in identities.items()}
        return [
            Client(
                party=Party(name, identities[name], roster),
                graph=graph,
                schema=self.schema,
                algorithm=algorithm,
                policy=policy,
                run=run,
                ledger=ledger,
                seed=seed,
                witness=witness,
                shelf=Shelf(shelves / name, name) if shelves else None,
                after=after,
            )
            for name, graph in self.owners.items()
        ]

    def isolate(
        self,
        algorithm: Algorithm,
        policy: BoundPolicy,
        run: str,
        ledger: Path,
        seed: int,
        shelves: Path | None = None,
        after: int = -1,
    ) -> Workers:
        """The same clients, each in a process of its own that makes its own identity key.

        Raises:
            BadInput: for an algorithm, a model or a policy that another process cannot make by name.
        """
        everybody = {
            "algorithm": algorithm_text(algorithm),
            "policy": policy_text(policy, self.names),
            "channels": list(policy.bounds),
            "schema": asdict(self.schema),
            "run": run,
            "ledger": str(ledger.resolve()),
            "seed": seed,
            "after": after,
        }
        return Workers(
            {
                name: {
                    **everybody,
                    "name": name,
                    "graph": graph.to_dict(),
                    "shelf": str((shelves / name).resolve()) if shelves else "",
                }
                for name, graph in self.owners.items()
            }
        )

    def pooled(self) -> Federation:
        """The same data with one owner of everything: for baselines that are not federated."""
        everything = self.referee.graph.clone()
        everything.train_mask = _mask(everything, self.referee.trainings)
        everything.val_mask = _mask(everything, self.referee.validations)
        everything.test_mask = _mask(everything, self.referee.tests)
        return Federation(self.schema, self.referee, {**self.facts, "pooled": True}, {"pool": everything})


def federate(
    data: str | Data | GraphDataset,
    clients: int = 3,
    partition: str = "louvain",
    seed: int = 0,
    **settings: Any,
) -> Federation:
    """Hands one graph out to owners, who lose the links between them.

    Args:
        data: a data set's name, or a PyG ``Data`` with ``x``, ``edge_index`` and ``y``.
        clients: how many owners.
        partition: how nodes are handed out: ``louvain`` (the FedSage paper's) or ``random``.
        seed: for the partition and the split, each from a sub-seed of its own.
        settings: the data set's own settings, e.g. ``nodes`` of ``synthetic-citation``.

    Raises:
        BadInput: for data that cannot be used, or an owner without training nodes.

    >>> federate("synthetic-citation", clients=2, nodes=60, features=16).names
    ('owner-0', 'owner-1')
    """
    dataset = _dataset(data, seed, settings)
    graph = dataset.graph
    parts = _partition(partition, graph, clients, sub_seed(seed, "partition"))
    owners, tests, validations, trainings = {}, {}, {}, {}
    width = len(str(max(len(parts.parts) - 1, 0)))
    for number, nodes in enumerate(parts.parts):
        name = f"owner-{number:0{width}d}"
        own = induced(graph, nodes)
        own.train_mask, own.val_mask, own.test_mask = stratified(own.y, sub_seed(seed, f"split/{number}"))
        check_owner(own, name)
        owners[name] = own
        tests[name], validations[name], trainings[name] = (
            nodes[own.test_mask],
            nodes[own.val_mask],
            nodes[own.train_mask],
        )
    for what, nodes_of in (("test", tests), ("validation", validations)):
        if not any(len(nodes) for nodes in nodes_of.values()):
            raise BadInput(f"no owner has a {what} node: use fewer than {clients} clients or a larger graph")
    facts = {
        "data": dataset.name,
        "source": dataset.source,
        "digest": dataset.digest,
        "nodes": int(graph.num_nodes),
        "features": dataset.features,
        "classes": dataset.classes,
        "clients": len(owners),
        "partition": {"name": partition, **parts.table(), "sizes": list(parts.sizes)},
    }
    schema = Schema(dataset.features, dataset.classes)
    return Federation(schema, Referee(graph, tests, validations, trainings), facts, owners)


def sub_seed(seed: int, purpose: str) -> int:
    """A seed of its own for one purpose, so that each can be frozen alone.

    >>> sub_seed(0, "split") == sub_seed(0, "partition")
    False
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:4], "little")


def _dataset(data: str | Data | GraphDataset, seed: int, settings: Mapping[str, Any]) -> GraphDataset:
    if isinstance(data, str):
        return load_graph(data, seed=sub_seed(seed, "data"), **settings)
    if isinstance(data, GraphDataset):
        return data
    if not isinstance(data, Data):
        raise BadInput(f"data is a {type(data).__name__}: give a data set's name or a PyG Data object")
    check_graph(data, "your graph")
    return GraphDataset(
        name="your graph",
        graph=data,
        source="given",
        digest=content_digest(data),
        features=data.x.shape[1],
        classes=int(data.y.max()) + 1,
    )


_partition = partition


def _mask(graph: Data, nodes: Mapping[str, torch.Tensor]) -> torch.Tensor:
    mask = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
    mask[torch.cat(list(nodes.values()))] = True
    return mask
