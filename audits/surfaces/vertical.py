"""Data split by columns: what attackers are granted, and judges of links, rows and labels of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch_geometric.data import Data

from secure_fedgraph.algorithms import Glasu
from secure_fedgraph.attacks.attack import LAST, Guess
from secure_fedgraph.attacks.vertical.labels import (
    CLUSTERS,
    COMPLETED,
    GROUPS,
    HEADS,
    LABELLED,
    NODE_LABELS,
    completed,
)
from secure_fedgraph.attacks.vertical.links import (
    ALIKE,
    LINKS,
    NODES,
    OWN_LINKS,
    OWN_ROWS,
    ROWS,
    TAKE,
    TRAINING,
)
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.audits.scoring import ScoreKind, share_right
from secure_fedgraph.audits.surfaces.links import Pairs, auc, f1_at_links, linked_nodes
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.policies import plaintext
from secure_fedgraph.running.loop import train
from secure_fedgraph.seams import ClientContext

ROWS_SENT = ("hidden",)
SAME = 1e-6
"""The error of an exact entry, at most, relative to the largest entry of the true rows."""
EACH = 4
"""Labelled training nodes of each class."""


@dataclass(frozen=True)
class Begun:
    """How a run began: the same seeds give the same first iteration.

    Args:
        rows: owner -> its rows of the first aggregated layer in the first iteration, ``[nodes, width]``.
        heads: owner -> its classifier before that, ``[classes, width]``.
    """

    rows: dict[str, np.ndarray] = field(repr=False)
    heads: dict[str, np.ndarray] = field(repr=False)


def begun(finished: FinishedRun) -> Begun:
    """The first iteration of a run, made again in the open from everybody's data and seeds."""
    return once(("begun", id(finished.transcript)), finished, lambda: _again(finished))


def _again(finished: FinishedRun) -> Begun:
    kind, heads = type(finished.algorithm), dict[str, np.ndarray]()

    class RerunForTruth(kind):  # type: ignore[misc,valid-type]
        def tower(self, client: ClientContext) -> Any:
            tower = super().tower(client)
            heads.setdefault(client.name, tower.head.weight.detach().double().numpy().copy())
            return tower

    run = train(
        RerunForTruth(**finished.algorithm.settings.model_dump() | {"steps": 1}),
        finished.federation,
        plaintext(),
        rounds=1,
        seed=finished.seed,
        keep=lambda channel, round: channel in ROWS_SENT,
    )
    view, names = run.transcript.view("server"), {channel.name for channel in run.algorithm.in_use}
    seen = [one for name in ROWS_SENT if name in names for one in view.uploads(name)]
    first = min((one.exchange for one in seen), default=0)
    rows = {one.clients[0]: np.asarray(one.values["rows"]) for one in seen if one.exchange == first}
    return Begun(rows, heads)


def by_columns(finished: FinishedRun) -> bool:
    """Whether the owners share all nodes: whether there is anything here to grant."""
    return any(channel.name in (*ROWS_SENT, TAKE) for channel in finished.algorithm.in_use)


def _first(finished: FinishedRun) -> tuple[str, Data]:
    """A curious owner's name and graph; all owners have all nodes, in one order."""
    (name,) = finished.parties("client")
    return name, finished.federation.owners[name]


def _trains(finished: FinishedRun) -> bool:
    """Whether owners train layers together, so that there is a first iteration."""
    return all(channel.name != TAKE for channel in finished.algorithm.in_use)


def own_rows(finished: FinishedRun) -> np.ndarray | None:
    """The first owner's of the first iteration: it made them, though a masked message does not show them."""
    return begun(finished).rows.get(_first(finished)[0]) if _trains(finished) else None


def heads(finished: FinishedRun) -> dict[str, np.ndarray]:
    """The classifiers of those who hold labels, as they started."""
    algorithm = finished.algorithm
    if not isinstance(algorithm, Glasu):
        return {}
    started = begun(finished).heads
    holders = algorithm.label_holders(finished.federation.names)
    return {name: started[name] for name in holders if name in started}


def _where(made: Callable[[FinishedRun], Any]) -> Callable[[FinishedRun], Any]:
    """None for algorithms that split nothing by columns: their views leave these attacks blind anyway."""
    return lambda finished: made(finished) if by_columns(finished) else None


def labelled(finished: FinishedRun) -> np.ndarray:
    """``[nodes]`` the label of four random training nodes of each class, -1 of all others."""
    rng = np.random.default_rng(sub_seed(finished.seed, "labelled nodes"))
    y, training = _labels(finished)
    known = np.full(len(y), -1)
    for one in np.unique(y[training]):
        nodes = np.flatnonzero(training & (y == one))
        known[rng.permutation(nodes)[:EACH]] = one
    return known


def links(guess: Guess, finished: FinishedRun) -> Judgement:
    """F1 of as many pairs as there are links."""
    return f1_at_links(_pairs(guess, finished))


def alike(guess: Guess, finished: FinishedRun) -> Judgement:
    """AUC of all pairs; owners share nodes."""
    return auc(_pairs(guess, finished), shared=True)


def _pairs(guess: Guess, finished: FinishedRun) -> dict[str, Pairs]:
    owners, pairs = finished.federation.owners, {}
    everything = np.concatenate([graph.x.numpy() for graph in owners.values()], axis=1)
    for target, about in guess.targets.items():
        linked = np.any([linked_nodes(owners[owner]) for owner in about], axis=0)
        np.fill_diagonal(linked, False)
        scores = np.full(linked.shape, np.nan, dtype=np.float32)
        given = guess.values[target]
        scores[: len(given), : len(given)] = given
        of_target = np.concatenate([owners[o].x.numpy() for o in about], axis=1)
        alike = {"cosine of the owner's features": of_target, "cosine of all features": everything}
        pairs[target] = Pairs(scores, linked, alike)
    return pairs


def rows(guess: Guess, finished: FinishedRun) -> Judgement:
    """Rows of the first iteration: the share of entries that are exact to a millionth of the largest.

    The truth of a guess about several owners is their mean. Trivial: zeros. In the interval a node's entries
    count together.
    """
    made = begun(finished).rows
    true = {t: np.mean([made[o] for o in owners], axis=0) for t, owners in guess.targets.items()}
    off = {t: np.abs(guess.values[t] - true[t]) for t in true}
    scale = max(float(np.abs(value).max()) for value in true.values())
    all_off = np.concatenate([value.ravel() for value in off.values()])
    whole = np.concatenate([value.ravel() for value in true.values()])
    exact = all_off <= SAME * scale
    nodes = np.concatenate([np.repeat(np.arange(len(value)), value.shape[1]) for value in off.values()])
    single = {
        f"largest_error_about_{owner}": float(np.abs(guess.values[t] - made[owner]).max())
        for t, owners in guess.targets.items()
        if len(owners) > 1
        for owner in owners
    }
    score = share_right(
        "exact entries",
        [exact],
        [nodes],
        {"zeros": float((np.abs(whole) <= SAME * scale).mean())},
        {"largest_error": float(all_off.max()), "largest_entry": scale, **single},
        ScoreKind.MEAN,
    )
    few = {t: np.round(value[:4], 4) for t, value in true.items()}
    return Judgement(score, few, {t: np.round(guess.values[t][:4], 4) for t in few})


def node_labels(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of right classes among the nodes whose class was guessed."""
    return _judged("labels right", guess, finished, lambda labels, y: labels)


def clusters(guess: Guess, finished: FinishedRun) -> Judgement:
    """Purity: the share of nodes whose cluster's commonest class is theirs."""
    return _judged("purity", guess, finished, _commonest, "clusters drawn by chance")


def groups(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of nodes in the group that the best one-to-one assignment gives their class."""
    return _judged("grouped right", guess, finished, _assigned, "groups drawn by chance")


def completions(guess: Guess, finished: FinishedRun) -> Judgement:
    """The share of nodes whose class is right, of those whose label was not granted.

    One more trivial guess: the same completion from the last owner's own features, averaged over its links.
    """
    y, known, (owner,) = _labels(finished)[0], labelled(finished), finished.parties(LAST)
    own = completed(_smoothed(finished, owner), known, finished.federation.schema.classes)
    seen = [np.flatnonzero(of >= 0) for of in guess.values.values()]
    right = sum(int((own[one] == y[one]).sum()) for one in seen) / max(sum(map(len, seen)), 1)
    return _judged("labels right", guess, finished, lambda labels, y: labels, more={"own features": right})


def _judged(
    metric: str,
    guess: Guess,
    finished: FinishedRun,
    named: Callable[[np.ndarray, np.ndarray], np.ndarray],
    by_chance: str = "",
    more: Mapping[str, float] | None = None,
) -> Judgement:
    """The share of nodes whose class is right, of those that were guessed.

    Trivial: the commonest class; and for groups without a name, groups of the same sizes drawn by chance.
    Owners share nodes and labels, so guesses about one node of several owners are one term of the interval.

    Args:
        named: each node's class, from what was guessed and the truth.
        by_chance: what the trivial guess of groups is called; empty where classes were guessed.
    """
    y, _ = _labels(finished)
    hits, nodes, chance, common, many = [], [], 0, 0, []
    rng = np.random.default_rng(0)
    for of in guess.values.values():
        seen = np.flatnonzero(of >= 0)
        guessed, true = of[seen].astype(int), y[seen]
        hits.append(named(guessed, true) == true)
        nodes.append(seen)
        common += int(np.bincount(true).max(initial=0)) if len(seen) else 0
        if by_chance:
            chance += int((named(rng.permutation(guessed), true) == true).sum())
            many.append(len(np.unique(guessed)))
    of_all = max(sum(map(len, nodes)), 1)
    baselines = {"the commonest class": common / of_all, **(more or {})}
    details = {"nodes": float(sum(map(len, nodes)))}
    if by_chance:
        baselines[by_chance], details["groups"] = chance / of_all, float(np.mean(many or [0]))
    return Judgement(share_right(metric, hits, nodes, baselines, details))


def _commonest(groups: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Each row's class by the commonest one of its group."""
    return np.asarray(_table(groups, y).argmax(1)[groups])


def _assigned(groups: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Each row's class by the best assignment of one class to each group; -1 for groups that get none."""
    table = _table(groups, y)
    rows, columns = linear_sum_assignment(-table)
    named = np.full(len(table), -1)
    named[rows] = columns
    return np.asarray(named[groups])


def _table(groups: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``[groups, classes]`` how many nodes of each class are in each group."""
    table = np.zeros((groups.max(initial=0) + 1, y.max(initial=0) + 1), dtype=int)
    np.add.at(table, (groups, y), 1)
    return table


def _labels(finished: FinishedRun) -> tuple[np.ndarray, np.ndarray]:
    """Labels and which nodes train: of the owner that holds labels, the first."""
    graph = finished.federation.owners[finished.federation.names[0]]
    return graph.y.numpy(), torch.as_tensor(graph.train_mask).numpy()


def _smoothed(finished: FinishedRun, owner: str) -> np.ndarray:
    graph = finished.federation.owners[owner]
    x = graph.x.double().numpy()
    source, target = graph.edge_index.numpy()
    total, many = x.copy(), np.ones(len(x))
    np.add.at(total, target, x[source])
    np.add.at(many, target, 1)
    return np.asarray(total / many[:, None])


MAKERS: Mapping[str, Maker] = {
    TRAINING: _where(lambda finished: np.flatnonzero(_first(finished)[1].train_mask.numpy())),
    NODES: _where(lambda finished: int(_first(finished)[1].num_nodes or 0)),
    OWN_LINKS: _where(lambda finished: _first(finished)[1].edge_index.numpy()),
    OWN_ROWS: _where(own_rows),
    HEADS: _where(heads),
    LABELLED: _where(labelled),
}
JUDGES: Mapping[str, Judge] = {
    LINKS: links,
    ALIKE: alike,
    ROWS: rows,
    NODE_LABELS: node_labels,
    CLUSTERS: clusters,
    GROUPS: groups,
    COMPLETED: completions,
}
