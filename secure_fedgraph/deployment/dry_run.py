"""What would leave a silo under a federation's file: from a run on made-up data of the same schema."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch_geometric.data import Data

from secure_fedgraph.core.accounting.epsilon import WITHOUT, Spent
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.deployment.terms import Terms
from secure_fedgraph.evaluation import Evaluator
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.partition.result import EVERYBODY, TestSet
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import NO_EDGE_ATTR
from secure_fedgraph.graph.silos.rows import no_test_set
from secure_fedgraph.graph.stand_in import stand_in
from secure_fedgraph.privacy.spent import spent
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.running.loop import train
from secure_fedgraph.running.run import Run

T = TypeVar("T")
NODES, GRAPHS = 60, 20
"""How large a stand-in is: what leaves does not depend on it, but for numbers of rows."""


@dataclass(frozen=True)
class Leaving:
    """One channel of the whole run.

    Args:
        channel: its name.
        to: who reads it.
        reveal: what the reader learns: the sum, each upload, or nothing.
        protection: in words.
        uploads: how many leave each silo in the whole run.
    """

    channel: str
    to: str
    reveal: str
    protection: str
    uploads: int


@dataclass(frozen=True)
class DryRun:
    """What a silo learns before it joins.

    Args:
        leaving: every channel.
        spent: unit -> reader -> the epsilon of the whole run and of this silo's earlier ones.
        alone: the same of the whole run alone.
        released: what the run reveals beside the figures, in sentences.
    """

    leaving: tuple[Leaving, ...]
    spent: dict[str, dict[str, Spent]]
    alone: dict[str, dict[str, Spent]]
    released: tuple[str, ...]


def dry_run(terms: Terms, name: str, before: Iterable[Charge] = ()) -> DryRun:
    """Runs two rounds among stand-ins of all silos, and counts what the whole run would charge.

    Charges follow from public facts, so stand-ins are charged what the silos will be. What the second round
    costs, every later one does.

    Args:
        terms: of the file.
        name: the silo's; one that holds labels sends more than one that does not.
        before: what this silo was charged by earlier runs; it adds up.
    """
    prepared = terms.prepared
    owners = _stand_ins(terms)
    shorter, longer = (_run(terms, owners, rounds) for rounds in (1, 2))
    whole = _in_all(_charges(shorter, name), _charges(longer, name), prepared.rounds)
    uses = _in_all(_answers(shorter, name), _answers(longer, name), prepared.rounds)
    charges = list(whole.elements())
    experiment = terms.experiment
    together = [*charges, *(replace(charge, client=name) for charge in before)]
    units = tuple(dict.fromkeys((*owners.units, *(one.unit for one in prepared.bound.randomizers))))
    figures, alone = (spent(some, experiment.delta, owners.holders, units) for some in (together, charges))
    for row in (*figures.values(), *alone.values()) if terms.server_scores else ():
        row[Reader.SERVER] = WITHOUT
    leaving = tuple(
        Leaving(row["name"], row["to"], row["reveal"], row["policy"], uses[row["name"]])
        for row in prepared.bound.describe()
    )
    return DryRun(leaving, figures, alone, tuple(_released(terms)))


def _released(terms: Terms) -> Iterable[str]:
    bounds = terms.prepared.bound.bounds.values()
    sent = [b for b in bounds if b.channel.reveal is not Reveal.NOTHING and b.channel.to != REFEREE]
    exact = [one.channel.name for one in sent if one.unprotected]
    if exact:
        yield f"in plaintext: {', '.join(exact)}"
    noised = {one.channel.name for one in sent if one.releases()}
    sums = [one.channel.name for one in sent if not one.unprotected and one.channel.name not in noised]
    if sums and terms.prepared.bound.steps is None and not terms.prepared.bound.randomizers:
        yield f"what the reader of each learns, hidden from the others: {', '.join(sums)}"
    excesses: dict[tuple[str, str], list[str]] = {}
    for one in sent:
        name = one.channel.name
        for sentence in one.excess:
            excesses.setdefault((sentence, " with its noise" if name in noised else ""), []).append(name)
    for (sentence, how), channels in excesses.items():
        yield f"of {', '.join(channels)}{how}: {sentence}"
    if terms.approved.federation.data.rows:
        yield (
            "whoever runs the server is the referee, outside every guarantee: it has the labels of "
            "validation and test rows, and may ask each silo at any time for its own rows of every "
            "aggregated layer, without noise; from those of the first layer features can be computed"
        )
        yield "how many rows all silos share"
    yield "sizes and times of messages, and who takes part in which round"


def _run(terms: Terms, owners: Federation, rounds: int) -> Run:
    prepared = terms.prepared
    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(
            copy.deepcopy(prepared.algorithm),
            owners,
            prepared.bound.policy,
            rounds=rounds,
            seed=prepared.options.seed,
            evaluation=prepared.evaluation,
            checkpoint_every=0,
            allow_plaintext=True,
        )


def _charges(run: Run, name: str) -> Counter[Charge]:
    return Counter(
        replace(charge, run="", round=0, exchange=0, data="")
        for charge in run.charges
        if charge.client == name
    )


def _answers(run: Run, name: str) -> Counter[str]:
    return Counter(one.channel for one in run.transcript.sent if one.sender == name and one.step == ANSWER)


def _in_all(one: Counter[T], two: Counter[T], rounds: int) -> Counter[T]:
    """How often each comes in so many rounds, of which all but the first are alike."""
    return Counter({key: one[key] + (two[key] - one[key]) * (rounds - 1) for key in one | two})


def _stand_ins(terms: Terms) -> Federation:
    federation = terms.prepared.federation
    schema, held = federation.schema, terms.approved.federation.data
    columns = {one.name: one.columns or schema.features for one in terms.approved.federation.silos}
    owners = {
        name: stand_in(_template(columns[name], held.edge_weight, held.edge_attr, schema.kind), schema)
        for name in federation.names
    }
    test_set = no_test_set()
    if held.rows:
        first = owners[federation.names[0]]
        place = {key: first[f"{key}_mask"].nonzero().flatten() for key in ("train", "val", "test")}
        test_set = TestSet(
            Data(num_nodes=NODES),
            first.y.clone(),
            {EVERYBODY: place["test"]},
            {EVERYBODY: place["val"]},
            {EVERYBODY: place["train"]},
        )
        for number, owner in enumerate(owners.values()):
            known = held.labels == "all" or number == 0
            owner.y = torch.where(owner.train_mask & torch.tensor(known), owner.y, -1)
    return replace(federation, owners=owners, referee=Evaluator(test_set))


def _template(features: int, weights: bool, attributes: int, kind: str) -> Data:
    """A graph with the fields that a silo's has; its values are replaced."""
    if kind == GraphSetDataset.kind:
        size = NODES // GRAPHS
        graph = pack([_template_graph(size, features, attributes) for _ in range(GRAPHS)])
    else:
        graph = _template_graph(NODES, features, attributes)
        graph.y = torch.zeros(NODES, dtype=torch.long)
        if weights:
            graph.edge_weight = torch.ones(0)
    items = len(graph.y)
    for key in ("train_mask", "val_mask", "test_mask"):
        graph[key] = torch.ones(items, dtype=torch.bool)
    return graph


def _template_graph(nodes: int, features: int, attributes: int) -> Data:
    graph = Data(
        x=torch.zeros(nodes, features),
        edge_index=torch.zeros(2, 0, dtype=torch.long),
        y=torch.zeros(1, dtype=torch.long),
    )
    if attributes != NO_EDGE_ATTR:
        graph.edge_attr = torch.zeros(0, attributes) if attributes else torch.zeros(0)
    return graph
