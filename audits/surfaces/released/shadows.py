"""Candidates that coins put in or out, the audited model over them, and shadow models of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd
from secure_fedgraph.algorithms.training.node_classifier import NodeClassifier
from secure_fedgraph.attacks.released import CANDIDATES, Candidates
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Maker
from secure_fedgraph.audits.surfaces.released.models import (
    Answering,
    Models,
    cut,
    keeps,
    logs,
    models_of,
    own_models,
    rerun,
    without_links,
)
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.given import scores_of
from secure_fedgraph.models.parameters import glorot
from secure_fedgraph.policies import plaintext
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.running.loop import train

SHADOWS, STEPS, RATE = 8, 60, 0.01
"""Shadow models, and how each is trained: full batches, whole neighbourhoods, Adam. Half a minute on Cora."""
STEPPED = 10
"""Rounds of a shadow model whose algorithm takes one step a round, at most."""


def coins(finished: FinishedRun) -> dict[str, np.ndarray]:
    """Owner -> ``[nodes]`` the coin that puts each node in or out; only those of training nodes are used."""
    rng = np.random.default_rng(sub_seed(finished.seed, "audited members"))
    owners = finished.federation.owners
    return {owner: rng.random(owners[owner].num_nodes) < 0.5 for owner in sorted(owners)}


@dataclass(frozen=True)
class Shadow:
    """One shadow model's probabilities of the training nodes' labels, by owner, and who was in.

    Args:
        linked, alone: owner -> ``[training nodes]``, asked with their links and without.
        inside: owner -> ``[nodes]``.
    """

    linked: Mapping[str, np.ndarray] = field(repr=False)
    alone: Mapping[str, np.ndarray] = field(repr=False)
    inside: Mapping[str, np.ndarray] = field(repr=False)


def candidates(finished: FinishedRun) -> dict[str, Candidates]:
    """Owner -> what the audited model and shadow models say about its training nodes.

    The audited model is trained as the run was configured, on the nodes that the coins left in. A node that
    is out loses its links too. In or out, the models are asked about it in its whole neighbourhood, and
    without its links.
    """
    if "config" not in finished.result or not _has_model(finished):
        return {}
    audited, shadows = _audited(finished), _shadows(finished)
    by_owner = {}
    for owner, graph in finished.federation.owners.items():
        rows = graph.train_mask.numpy()
        by_owner[owner] = Candidates(
            target=_own_labels(audited.of(owner), graph),
            right=audited.of(owner)(graph)[rows].argmax(1) == graph.y.numpy()[rows],
            shadows=np.stack([one.linked[owner] for one in shadows]),
            inside=np.stack([one.inside[owner][rows] for one in shadows]),
            alone=_own_labels(audited.of(owner), without_links(graph)),
            shadows_alone=np.stack([one.alone[owner] for one in shadows]),
        )
    return by_owner


def _has_model(finished: FinishedRun) -> bool:
    algorithm, schema = finished.algorithm, finished.federation.schema
    if finished.released is None:
        return own_models(algorithm, schema)
    return schema.kind == GraphDataset.kind and type(algorithm).predict is not Algorithm.predict


def _own_labels(answering: Answering, graph: Data) -> np.ndarray:
    """``[training nodes]`` the probability of each one's own label."""
    rows = graph.train_mask.numpy()
    own = graph.y.numpy()[rows]
    probabilities: np.ndarray = np.exp(answering(graph)[rows][np.arange(len(own)), own])
    return probabilities


def _audited(finished: FinishedRun) -> Models:
    """The models that the configured run publishes on the nodes that are in."""

    def make() -> Models:
        inside = coins(finished)
        owners = {o: held(g, torch.from_numpy(inside[o])) for o, g in finished.federation.owners.items()}
        return rerun(finished, replace(finished.federation, owners=owners))

    return once(("audited", id(finished.transcript)), finished, make)


def _shadows(finished: FinishedRun) -> list[Shadow]:
    """Models in pairs with opposite coins, so that each node is in half of them.

    Where models are personal, one of each owner's nodes alone.
    """

    def make() -> list[Shadow]:
        rng, owners = np.random.default_rng(sub_seed(finished.seed, "shadows")), finished.federation.owners
        shadows: list[Shadow] = []
        for number in range(SHADOWS):
            if number % 2:
                inside = {owner: ~coin for owner, coin in shadows[-1].inside.items()}
            else:
                inside = {owner: rng.random(graph.num_nodes) < 0.5 for owner, graph in owners.items()}
            graphs = {o: held(graph, torch.from_numpy(inside[o])) for o, graph in owners.items()}
            models = shadow_models(finished, graphs, sub_seed(finished.seed, f"shadow {number}"))
            linked = {owner: _own_labels(models.of(owner), graph) for owner, graph in owners.items()}
            alone = {o: _own_labels(models.of(o), without_links(graph)) for o, graph in owners.items()}
            shadows.append(Shadow(linked, alone, inside))
        return shadows

    key = (
        "shadows",
        finished.federation.facts.get("digest"),
        finished.seed,
        finished.algorithm.name,
        str(finished.algorithm.public()["settings"]),
    )
    return once((*key, finished.federation.names), finished, make)


def shadow_models(finished: FinishedRun, graphs: Mapping[str, Data], seed: int) -> Models:
    """What somebody trains who knows the algorithm and its settings, and has these graphs.

    A network that classifies nodes is trained on whole neighbourhoods, which is cheaper than the run and not
    the same: of all graphs one, or of each its own where models are personal. Every other algorithm runs as
    it was configured, without protection; one that takes a step a round, for a few rounds.
    """
    algorithm, rounds = finished.algorithm, finished.result["config"].get("rounds")
    if isinstance(algorithm, FedSgd):
        rounds = min(rounds or algorithm.rounds, STEPPED)
    if isinstance(algorithm, NodeClassifier) and type(algorithm).predict is NodeClassifier.predict:
        if algorithm.personal() is None:
            return Models(shared=_fitted(finished, list(graphs.values()), seed))
        return Models(personal={owner: _fitted(finished, [graph], seed) for owner, graph in graphs.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        run = train(
            algorithm,
            replace(finished.federation, owners=dict(graphs)),
            plaintext(),
            rounds=rounds,
            seed=seed,
            keep=keeps(algorithm),
            evaluation="at_home" if algorithm.personal() is None else "referee",
            allow_plaintext=True,
        )
    return models_of(run)


def _fitted(finished: FinishedRun, graphs: list[Data], seed: int) -> Answering:
    """One model of these graphs, on whole neighbourhoods."""
    algorithm, schema = finished.algorithm, finished.federation.schema
    assert isinstance(algorithm, NodeClassifier)
    if algorithm.made_with():  # a user's own model starts as its author has it
        model = algorithm.start(schema, seed)
    else:
        model = algorithm.model(schema)
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

    def answering(graph: Data) -> np.ndarray:
        with torch.no_grad():
            return logs(scores_of(model, graph))

    return answering


def held(graph: Data, inside: torch.Tensor) -> Data:
    """The graph without the training nodes that are out, and without the links at them."""
    made = cut(graph, inside | ~graph.train_mask)
    made.train_mask = graph.train_mask & inside
    return made


MAKERS: Mapping[str, Maker] = {CANDIDATES: candidates}
