"""Federations: one graph split among owners, with a referee who keeps the test data."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.client import Client
from secure_fedgraph.core.crypto import KEY_BYTES, Identity
from secure_fedgraph.core.door import OpenedRecorder
from secure_fedgraph.core.errors import BadInput, check_whole, wrong_type
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.spending.keyed_digest import kept_key, keyed
from secure_fedgraph.core.spending.ledger import OF_GRAPH_SETS, OF_NODES, OF_ONE_GRAPH, Ledger
from secure_fedgraph.disputes.record import identity_in, owner_folder
from secure_fedgraph.evaluation import Evaluator
from secure_fedgraph.graph.answers import answers_of, check_varied
from secure_fedgraph.graph.data.checks import check_owner
from secure_fedgraph.graph.data.datasets import DATASETS, load
from secure_fedgraph.graph.data.molecules import schema_of
from secure_fedgraph.graph.data.own_graph import DataWarning, own_dataset
from secure_fedgraph.graph.data.sources import cache_folder
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.kinds import Dataset, GraphDataset, GraphSetDataset
from secure_fedgraph.graph.own.objects import brought
from secure_fedgraph.graph.own.pairs import paired
from secure_fedgraph.graph.own.sets import own_set
from secure_fedgraph.graph.partition.partition import handed_out
from secure_fedgraph.graph.partition.registry import split_data
from secure_fedgraph.graph.partition.result import Partition, owner_names
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, OF_LINKS, Schema, Task
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.graph.silos.given import OwnData, are_silos, digest_of_silos, parts_by_owner, silos_of
from secure_fedgraph.graph.silos.result import Silos
from secure_fedgraph.graph.silos.rows import no_test_set
from secure_fedgraph.privacy.input_dp.labels import HOME
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.storage.party_store import PartyStore

_KEY = os.urandom(KEY_BYTES)


@dataclass(frozen=True, repr=False)
class Federation:
    """Owners of pieces of one graph.

    Args:
        schema: what everybody knows about the data.
        referee: who holds the test data.
        facts: where the data came from and how they were split, for results.
        owners: name -> that owner's graph. Only :meth:`make_clients` reads it, and gives each its own;
            :meth:`check_ledger` reads digests.
        pool: all data with one owner, where the partition can be undone.
    """

    schema: Schema
    referee: Evaluator = field(repr=False)
    facts: Mapping[str, Any]
    owners: Mapping[str, Data] = field(repr=False)
    pool: Data | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """What it is made of, in a line."""
        data = self.facts.get("data", "own data")
        return f"Federation({data}, {len(self.names)} clients, {self.schema.kind})"

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' public names."""
        return tuple(self.owners)

    @property
    def knows_homes(self) -> bool:
        """Whether owners know who counts a node that several hold."""
        return self.holders == 1 or all(HOME in graph for graph in self.owners.values())

    @property
    def holders(self) -> int:
        """How many clients may hold the same node."""
        return int(self.facts["partition"].get("holders", 1))

    @property
    def evaluation(self) -> str:
        """Who scores a run unless its options say: the referee, or the clients where it has no test data."""
        return "referee" if self.referee.test_set.tests or not self.silos else "in_band"

    @property
    def silos(self) -> bool:
        """Whether owners came with data of their own."""
        return bool(self.facts.get("silos"))

    @property
    def units(self) -> tuple[str, ...]:
        """The units of privacy that these data have, largest first."""
        return OF_GRAPH_SETS if self.schema.kind == GraphSetDataset.kind else OF_ONE_GRAPH

    @property
    def units_of_budgets(self) -> tuple[str, ...]:
        """The units that a budget may have: the same, and parts of one node."""
        return (*self.units, *OF_NODES) if self.schema.kind == GraphDataset.kind else self.units

    @property
    def sizes(self) -> dict[str, int]:
        """How many clients, graphs and nodes there are, which is public; of links, where these are rows."""
        sizes = {"client": len(self.names), "graph": int(self.facts["partition"].get("graphs", 0))}
        rows = sum(self.facts["rows"]) if "rows" in self.facts else self.facts["partition"].get("ratings")
        links = {} if rows is None else {"edge": int(rows)}
        return {**sizes, "node": int(self.facts.get("nodes", 0)), **links}

    def check(self, algorithm: Algorithm, evaluation: str) -> None:
        """Checks that the algorithm runs on these owners' data.

        Raises:
            BadInput: as :meth:`~secure_fedgraph.algorithm.Algorithm.check` and ``check_run``.
        """
        algorithm.check(self.schema)
        if self.silos:
            check_sides(type(algorithm), "columns" in self.facts["partition"])
        algorithm.check_run(len(self.names), self.facts.get("partition", {}), evaluation)

    def make_clients(
        self,
        algorithm: Algorithm,
        policy: BoundPolicy,
        run: str,
        ledger: Ledger,
        seed: int,
        witness: OpenedRecorder | None = None,
        store_folder: Path | None = None,
        after: int = -1,
    ) -> list[Client]:
        """Fresh clients for one run, each with its own graph, identity and empty memory.

        Identity keys come from the operating system; the roster of public keys is handed to the clients
        here, as an operator would, and not by the server.

        Args:
            store_folder: where each gets a folder of its own to keep its memory in.
            after: exchange numbers up to this one are refused.
        """
        folders: dict[str, Path | None] = dict.fromkeys(self.owners)
        if store_folder and policy.disputes:
            folders |= {name: owner_folder(store_folder.parents[1], name) for name in self.owners}
        identities = {
            name: identity_in(folder) if folder else Identity.generate() for name, folder in folders.items()
        }
        roster = {name: identity.public for name, identity in identities.items()}
        return [
            Client(
                party=Party(name, identities[name], roster, folder=folders[name]),
                graph=graph,
                schema=self.schema,
                algorithm=algorithm,
                policy=policy,
                run=run,
                ledger=ledger,
                seed=seed,
                witness=witness,
                store=PartyStore(store_folder / name, name, store_folder.parents[1])
                if store_folder
                else None,
                after=after,
                data=digest_of_data(graph),
            )
            for name, graph in self.owners.items()
        ]

    def check_ledger(self, path: Path) -> None:
        """Checks that a ledger that a run is to share knows its owners by their data.

        Raises:
            BadInput: for an owner whose charges there are about other data, or under another name, and for a
                damaged ledger.
        """
        ledger = Ledger(path)
        for name, graph in self.owners.items():
            data = digest_of_data(graph)
            ledger.check_data(name, data)
            ledger.check_name(name, data, self.names)

    def pooled(self) -> Federation:
        """The same data with one owner of everything: for baselines that are not federated.

        Raises:
            BadInput: where the partition cannot be undone.
        """
        if self.pool is None:
            if self.silos:
                raise BadInput("own silos: nobody has all owners' data, so nothing that pools them runs")
            raise BadInput(f"partition {self.facts['partition']['name']!r} cannot be pooled again")
        return replace(self, facts={**self.facts, "pooled": True}, owners={"pool": self.pool})


def federate(
    data: str | Data | Dataset | Mapping[str, OwnData] | Sequence[OwnData] | Any,
    clients: int | None = None,
    partition: str | None = None,
    seed: int = 0,
    split: Mapping[str, Any] | int | None = None,
    *,
    owners: Sequence[int | str] | Tensor | None = None,
    rows: str | None = None,
    classes: int | None = None,
    holders: int = 1,
    task: str | None = None,
    **settings: Any,
) -> Federation:
    """Brings owners together who have data of their own, or splits one data set among made-up owners.

    Args:
        data: owners' own data: a dict of name -> PyG ``Data`` (or a list of them for a set of graphs), or a
            list, whose owners are called ``owner-0`` and so on. Each tests on its own nodes, and runs are
            scored in band. Or one data set that is split: its name, what ``graph.data.datasets.load`` gives,
            a PyG ``Data``, a list of graphs that are classified whole (with ``clients``), a data set object
            of PyG or OGB, or a graph of NetworkX. A ``Data`` has ``edge_index`` (or ``adj_t``), ``x`` where
            nodes have features, and ``y``: classes, -1 where a node has none; or 0 and 1 in several columns;
            or numbers; NaN where there is none. Its ``train_mask``, ``val_mask`` and ``test_mask`` are used
            as they are; ``edge_weight`` and ``edge_attr`` go to models that take them. Of owners' own data
            ``feature_names`` and ``class_names`` are compared, where they are given.
        clients: how many owners one data set is split among; 3 by default.
        partition: how one data set is split, ``louvain`` by default, ``random`` of a set of graphs;
            ``graph.partition.registry.BY_KIND`` lists the ways.
        seed: for the partition and the split, each from a sub-seed of its own.
        split: the partition's own settings, e.g. ``{"local_share": 0.3}`` of ``label_skew``; or, of masks
            with several splits ``[N, splits]``, the number of the one that is used, from 0.
        owners: who has which node of one ``Data``: a number or a name a node. The referee tests on the whole
            graph, and the links between owners are nobody's.
        rows: of owners of columns: the field that names an owner's rows. Each ``Data`` then has the features
            ``x`` that this owner has, links where it has some, and one or all have ``y``.
        classes: how many there are, where it may be more than the owners' labels show. Of one data set it is
            a setting like any other.
        holders: how many owners may hold the same node (or graph): a customer of three banks is one unit at
            three owners. Budgets count them all.
        task: what is learned, one of :class:`~secure_fedgraph.graph.schema.Task`, where the answers do not
            show it: ``number`` for whole numbers that are no classes, ``links`` for the links themselves.
        settings: the data set's own settings, e.g. ``nodes`` of ``synthetic-citation``.

    Raises:
        BadInput: for data or arguments that cannot be used, owners whose data do not fit each other, or an
            owner without training nodes.

    Warns:
        DataWarning: names the fields of a ``Data`` that were converted or are not used, masks that were
            derived, and rows that not every owner has.

    >>> federate("synthetic-citation", clients=2, nodes=60, features=16).names
    ('owner-0', 'owner-1')
    """
    check_whole("seed", seed, 0)
    column = split if isinstance(split, int) and not isinstance(split, bool) else None
    if column is not None:
        check_whole("split", column, 0)
        split = None
    if task is not None and task not in list(Task):
        raise unknown_name("task", str(task), list(Task))
    by_hand = {"clients": clients, "partition": partition, "split": split, "owners": owners, **settings}
    if are_silos(data) and not (isinstance(data, list | tuple) and clients is not None):
        _refuse(by_hand, "owners come with data of their own, and nothing is split")
        return with_links_as_items(
            _of_silos(silos_of(data, seed, classes, rows, holders, task, column)), seed
        )
    _refuse({"rows": rows}, "it is for owners with data of their own")
    if classes is not None:  # a data set may have a setting of that name
        settings = {**settings, "classes": classes}
    if holders != 1:
        raise BadInput(f"holders = {holders!r} is for owners with data of their own; leave it out")
    if owners is not None:
        _refuse({**by_hand, "owners": None}, "owners says who has which node")
        dataset = _dataset(data, seed, {}, task, column)
        if not isinstance(dataset, GraphDataset) or isinstance(data, str | Dataset):
            raise wrong_type("data", data, "give a PyG Data beside owners, which names an owner a node")
        names, parts = parts_by_owner(dataset.graph, owners)
        parted = handed_out(dataset.graph, parts, names, seed)
        return with_links_as_items(_of_dataset(dataset, "by_owner", names, parted), seed)
    clients = 3 if clients is None else clients
    if partition is not None and not isinstance(partition, str):
        raise wrong_type("partition", partition, "give the name of a partition, such as louvain")
    if split is not None and not isinstance(split, Mapping):
        raise wrong_type(
            "split",
            split,
            "give the partition's settings as a dict, such as {'local_share': 0.3}, or the number of a split "
            "of masks",
        )
    check_whole("clients", clients, 1)
    dataset = _dataset(data, seed, settings, task, column)
    if partition is None:
        own_set = isinstance(dataset, GraphSetDataset) and not isinstance(data, str | Dataset)
        partition = "random" if own_set else "louvain"
    result = split_data(partition, dataset, clients, seed, **(split or {}))
    made = _of_dataset(dataset, partition, owner_names(len(result.owners)), result)
    return with_links_as_items(made, seed)


def with_links_as_items(federation: Federation, seed: int) -> Federation:
    """The same federation; where links are learned, owners' graphs have links as rows, and test on these.

    Args:
        federation: with the owners' graphs of nodes.
        seed: of splits and of wrong links.

    Raises:
        BadInput: as :func:`~secure_fedgraph.graph.own.pairs.paired`.

    Warns:
        DataWarning: names what is not used of the data.
    """
    schema = federation.schema
    if schema.task not in OF_LINKS or schema.ends:
        return federation
    owners, made, notes = paired(federation.owners, schema, sub_seed(seed, "links"))
    if notes:
        warnings.warn("; ".join(notes), DataWarning, stacklevel=3)
    rows = [len(graph.y) for graph in owners.values()]
    facts = {**federation.facts, "classes": made.classes, "task": str(made.task), "rows": rows}
    return Federation(made, Evaluator(no_test_set()), facts, owners)


def check_sides(kind: type[Algorithm], columns: bool) -> None:
    """Refuses owners of columns for algorithms of owners of rows, and the other way round.

    Raises:
        BadInput: naming what the algorithm needs.
    """
    of_columns = all(one.startswith("vertical") for one in kind.partitions)
    if of_columns and not columns:
        raise BadInput(
            f"{kind.name} learns from owners of columns of the same rows, and these have rows of their own: "
            "name the rows (rows='id', --rows id), or use another algorithm"
        )
    if columns and not of_columns:
        raise BadInput(f"{kind.name} learns from owners of rows, and these have columns (rows): use glasu")


def _refuse(given: Mapping[str, object], why: str) -> None:
    for key, value in given.items():
        if value is not None:
            raise BadInput(f"{key} = {str(value)[:60]}: {why}; leave {key} out")


def _of_dataset(dataset: Dataset, partition: str, names: Sequence[str], result: Partition) -> Federation:
    owners = dict(zip(names, result.owners, strict=True))
    for name, graph in owners.items():
        check_owner(graph, name)
    schema = _schema(dataset)
    _check_training(schema, owners)
    facts = {
        "data": dataset.name,
        "source": dataset.source,
        "digest": _published(dataset),
        "nodes": int(getattr(dataset, "graph", Data(num_nodes=0)).num_nodes or 0),
        "features": schema.features,
        "classes": schema.classes,
        **_task(schema),
        "clients": len(owners),
        "partition": {"name": partition, **result.facts},
    }
    if isinstance(dataset, GraphDataset) and dataset.graph.get("train_mask") is not None:
        facts["masks"] = {key: int(dataset.graph[key].sum()) for key in MASKS}
    if isinstance(dataset, GraphDataset | GraphSetDataset):
        facts |= _in_words({"feature_names": dataset.feature_names, "class_names": dataset.class_names})
    return Federation(schema, Evaluator(result.test_set), facts, owners, result.pool)


def _of_silos(silos: Silos) -> Federation:
    _check_training(silos.schema, silos.owners)
    graphs = silos.schema.kind == GraphSetDataset.kind
    nodes = silos.facts.get("nodes", sum(int(one.num_nodes or 0) for one in silos.owners.values()))
    facts = {
        "data": "own silos",
        "source": "given",
        "digest": keyed(_digest_key(), digest_of_silos(silos)),
        "nodes": 0 if graphs else nodes,
        "features": silos.schema.features,
        "classes": silos.schema.classes,
        **_task(silos.schema),
        "clients": len(silos.owners),
        "silos": list(silos.owners),
        "partition": {"name": "silos", **silos.facts},
        **_in_words(silos.names),
    }
    return Federation(silos.schema, Evaluator(silos.test_set), facts, silos.owners)


def _in_words(names: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What features and classes are called, for pages; nothing where the data have no words."""
    return {key: list(words) for key, words in names.items() if words}


def _published(dataset: Dataset) -> str:
    """The content hash of this package's data sets, which are public; of other data a keyed hash.

    Without the key nobody can check a guess against a keyed hash. The key is in the user's cache folder.
    Where that cannot be written, the key lasts as long as this process.
    """
    return dataset.digest if dataset.name in DATASETS.own else keyed(_digest_key(), dataset.digest)


def _digest_key() -> bytes:
    try:
        return kept_key(cache_folder() / "digest.key")
    except OSError:
        return _KEY


def _check_training(schema: Schema, owners: Mapping[str, Data]) -> None:
    """Refuses data whose training nodes, over all owners, have one answer only."""
    if schema.kind in (GraphDataset.kind, GraphSetDataset.kind) and schema.task != Task.LINKS:
        trained = [answers_of(graph.y, graph.train_mask) for graph in owners.values()]
        check_varied(trained, "training nodes of all owners together")


def _task(schema: Schema) -> dict[str, Any]:
    """What is learned, for results, where it is something else than classes."""
    return {} if schema.task == Task.CLASSES else {"task": str(schema.task)}


def _dataset(
    data: object, seed: int, settings: Mapping[str, Any], task: str | None, column: int | None
) -> Dataset:
    if isinstance(data, str | Dataset):
        if column is not None:
            raise BadInput(
                f"split = {column}: it chooses among the splits of your own data's masks; leave it out"
            )
        loaded = load(data, seed=sub_seed(seed, "data"), **settings) if isinstance(data, str) else data
        return _with_task(loaded, task)
    made, notes = _own(data)
    if made is None:
        raise BadInput(
            f"data is of type {type(data).__name__}: give a data set's name, a PyG Data, a list of graphs, "
            "or a dict of owners' Data"
        )
    if settings:
        raise unknown_name(
            "argument of federate",
            min(settings),
            ("data", "clients", "partition", "seed", "split", "owners", "task"),
        )
    if isinstance(made, Data):
        return own_dataset(made, seed, task, column, notes)
    if column is not None:
        raise BadInput(f"split = {column}: partitions of sets of graphs draw their own splits; leave it out")
    return own_set(made, task, notes)


def _own(data: object) -> tuple[Data | list[Data] | None, list[str]]:
    """A user's graph, or graphs that are classified whole, in PyG's form; None for something else."""
    if not isinstance(data, list | tuple):
        return brought(data, "data")
    found = [brought(one, f"data of graph {number}") for number, one in enumerate(data)]
    graphs = [one for one, _ in found]
    if not all(isinstance(one, Data) for one in graphs):
        odd = next(n for n, one in enumerate(graphs) if not isinstance(one, Data))
        raise wrong_type(f"data of graph {odd}", data[odd], "give a PyG Data")
    return graphs, sorted({note for _, notes in found for note in notes})


def _with_task(dataset: Dataset, task: str | None) -> Dataset:
    """A data set by name, of which links may be learned in the place of its classes."""
    if task is None or task == getattr(dataset, "task", Task.CLASSES):
        return dataset
    if task != Task.LINKS or not isinstance(dataset, GraphDataset):
        kind = str(getattr(dataset, "task", Task.CLASSES))
        raise BadInput(f"task = {str(task)!r}: {dataset.name!r} is for {kind!r}; leave task out")
    graph = copy(dataset.graph)
    graph.y = torch.zeros_like(graph.y)
    return replace(dataset, graph=graph, task=Task.LINKS, classes=2, class_names=())


def _schema(dataset: Dataset) -> Schema:
    schema = schema_of(dataset)
    if isinstance(dataset, GraphDataset | GraphSetDataset):
        learned = {key: getattr(dataset, key) for key in ("positive", "low", "high")}
        schema = replace(schema, task=str(dataset.task), **learned)
    first = dataset.graph if isinstance(dataset, GraphDataset) else None
    if isinstance(dataset, GraphSetDataset) and dataset.source == "given":
        first = dataset.graphs[0]
    if first is None:
        return schema
    weight, attributes = (first.get(key) for key in EDGE_FIELDS)
    columns = NO_EDGE_ATTR if attributes is None else 0 if attributes.dim() == 1 else attributes.shape[1]
    return replace(schema, edge_weight=weight is not None, edge_attr=columns)
