"""What outsiders with a released model are granted: answers, a shadow graph, candidates, shadow models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.attacks.released import ANSWERS, EMBEDDED, Answers, Embedded
from secure_fedgraph.attacks.released_shadow import CANDIDATES, Candidates
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Maker
from secure_fedgraph.audits.rerun import train_again
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.sample.links import EDGE_FIELDS, edge_values
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.given import scores_of
from secure_fedgraph.models.parameters import glorot, load

SHADOWS, STEPS, RATE = 8, 60, 0.01
"""Shadow models, and how each is trained: full batches, whole neighbourhoods, Adam. Half a minute on Cora."""
Made = TypeVar("Made")
_MADE: dict[tuple[Any, ...], Any] = {}
_MOST = 8


def answers(finished: FinishedRun) -> dict[str, Answers]:
    """Owner -> what the released model answers about its nodes, with its links and without."""
    model = _released(finished)
    if model is None:
        return {}
    return {
        owner: Answers(_logs(model, graph), _logs(model, _cut(graph, torch.zeros(graph.num_nodes).bool())))
        for owner, graph in finished.federation.owners.items()
    }


def embedded(finished: FinishedRun) -> dict[str, Embedded]:
    """Owner -> its training nodes as the released model embeds them; ``""`` -> a shadow graph's nodes.

    The shadow graph has the nodes that nobody trained on, and the links between them.
    """
    model = _released(finished)
    if model is None or not isinstance(getattr(model, "head", None), nn.Module):
        return {}
    inner = copy.deepcopy(model)
    inner.head = nn.Identity()
    by_owner, shadow = {}, []
    for owner, graph in finished.federation.owners.items():
        mine, rest = graph.train_mask, ~graph.train_mask
        by_owner[owner] = Embedded(_scores(inner, graph)[mine].numpy(), _logs(model, graph)[mine.numpy()])
        alone = _cut(graph, rest)
        shadow.append(
            (_scores(inner, alone)[rest].numpy(), _logs(model, alone)[rest.numpy()], graph.x[rest].numpy())
        )
    parts = [np.concatenate(part) for part in zip(*shadow, strict=True)]
    return {**by_owner, **({"": Embedded(*parts)} if len(parts[0]) else {})}


def coins(finished: FinishedRun) -> dict[str, np.ndarray]:
    """Owner -> ``[nodes]`` the coin that puts each node in or out; only those of training nodes are used."""
    rng = np.random.default_rng(sub_seed(finished.seed, "audited members"))
    owners = finished.federation.owners
    return {owner: rng.random(owners[owner].num_nodes) < 0.5 for owner in sorted(owners)}


def candidates(finished: FinishedRun) -> dict[str, Candidates]:
    """Owner -> what the audited model and shadow models say about its training nodes.

    The audited model is trained as the run was configured, on the nodes that the coins left in. A node that
    is out loses its links too. In or out, the models are asked about it in its whole neighbourhood.
    """
    algorithm = finished.algorithm
    if "config" not in finished.result or _released(finished) is None:
        return {}
    assert isinstance(algorithm, NodeClassifier)
    audited, shadows = _audited(finished), _shadows(finished)
    by_owner = {}
    for owner, graph in finished.federation.owners.items():
        rows = graph.train_mask.numpy()
        logs = _logs(audited, graph)[rows]
        own = graph.y.numpy()[rows]
        by_owner[owner] = Candidates(
            np.exp(logs[np.arange(len(own)), own]),
            logs.argmax(1) == own,
            np.stack([probability[owner] for probability, _ in shadows]),
            np.stack([inside[owner][rows] for _, inside in shadows]),
        )
    return by_owner


def _audited(finished: FinishedRun) -> nn.Module:
    """The model that the configured run releases on the nodes that are in."""

    def make() -> nn.Module:
        inside = coins(finished)
        owners = {o: _held(g, torch.from_numpy(inside[o])) for o, g in finished.federation.owners.items()}
        federation = replace(finished.federation, owners=owners)
        run = train_again(finished, federation)
        model = _model(finished, run.algorithm.released(run.state))
        assert model is not None
        return model

    return _once(("audited", id(finished.transcript)), finished, make)


def _shadows(finished: FinishedRun) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """For each shadow model its probabilities of the training nodes' labels, by owner, and who was in.

    Models come in pairs with opposite coins, so each node is in half of them.
    """

    def make() -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
        rng, owners = np.random.default_rng(sub_seed(finished.seed, "shadows")), finished.federation.owners
        shadows: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []
        for number in range(SHADOWS):
            if number % 2:
                inside = {owner: ~coin for owner, coin in shadows[-1][1].items()}
            else:
                inside = {owner: rng.random(graph.num_nodes) < 0.5 for owner, graph in owners.items()}
            held = [_held(graph, torch.from_numpy(inside[owner])) for owner, graph in owners.items()]
            model = _fitted(finished, held, sub_seed(finished.seed, f"shadow {number}"))
            probabilities = {}
            for owner, graph in owners.items():
                rows = graph.train_mask.numpy()
                own = graph.y.numpy()[rows]
                probabilities[owner] = np.exp(_logs(model, graph)[rows][np.arange(len(own)), own])
            shadows.append((probabilities, inside))
        return shadows

    key = (
        "shadows",
        finished.federation.facts.get("digest"),
        finished.seed,
        str(finished.algorithm.public()["settings"]),
    )
    return _once((*key, finished.federation.names), finished, make)


def _fitted(finished: FinishedRun, graphs: list[Data], seed: int) -> nn.Module:
    """One model of all owners' graphs, on whole neighbourhoods."""
    assert isinstance(finished.algorithm, NodeClassifier)
    if finished.algorithm.made_with():  # a user's own model starts as its author has it
        model = finished.algorithm.start(finished.federation.schema, seed)
    else:
        model = finished.algorithm.model(finished.federation.schema)
        glorot(model, seed)
    starts = np.cumsum([0, *(graph.num_nodes for graph in graphs)])
    x, y = torch.cat([g.x for g in graphs]), torch.cat([g.y for g in graphs])
    links = torch.cat([g.edge_index + int(start) for g, start in zip(graphs, starts, strict=False)], dim=1)
    rows = torch.cat([g.train_mask for g in graphs])
    fields = {k: torch.cat([g[k] for g in graphs]) for k in EDGE_FIELDS if graphs[0].get(k) is not None}
    union = Data(x=x, edge_index=links, **fields)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(scores_of(model, union)[rows], y[rows]).backward()
        optimizer.step()
    model.eval()
    return model


def _held(graph: Data, inside: torch.Tensor) -> Data:
    """The graph without the training nodes that are out, and without the links at them."""
    kept = inside | ~graph.train_mask
    made = _cut(graph, kept)
    made.train_mask = graph.train_mask & inside
    return made


def _cut(graph: Data, kept: torch.Tensor) -> Data:
    """The graph with the links among these nodes only."""
    source, target = graph.edge_index
    made = graph.clone()
    inside = kept[source] & kept[target]
    made.edge_index = graph.edge_index[:, inside]
    for key, values in edge_values(graph, inside).items():
        made[key] = values
    return made


def _released(finished: FinishedRun) -> nn.Module | None:
    """The released model, where it is a classifier of nodes."""
    return _model(finished, finished.released)


def _model(finished: FinishedRun, released: Mapping[str, torch.Tensor] | None) -> nn.Module | None:
    schema = finished.federation.schema
    if (
        released is None
        or not isinstance(finished.algorithm, NodeClassifier)
        or schema.kind != GraphDataset.kind
    ):
        return None
    model = finished.algorithm.model(schema)
    load(model, released)
    model.eval()
    return model


def _scores(model: nn.Module, graph: Data) -> torch.Tensor:
    with torch.no_grad():
        return scores_of(model, graph)


def _logs(model: nn.Module, graph: Data) -> np.ndarray:
    """``[nodes, classes]`` log-probabilities."""
    logs: np.ndarray = F.log_softmax(_scores(model, graph).double(), dim=1).numpy()
    return logs


def _once(key: tuple[Any, ...], finished: FinishedRun, make: Callable[[], Made]) -> Made:
    """What was already made for the same run; both aims of an attack need the same."""
    if key not in _MADE:
        while len(_MADE) >= _MOST:
            del _MADE[next(iter(_MADE))]
        _MADE[key] = (make(), finished)  # the run is kept, so that no other gets its id
    made: Made = _MADE[key][0]
    return made


MAKERS: Mapping[str, Maker] = {
    ANSWERS: answers,
    EMBEDDED: embedded,
    CANDIDATES: candidates,
}
