"""What attackers of a split by columns are granted: who trains, and what an owner has itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from secure_fedgraph.algorithms import Glasu
from secure_fedgraph.attacks.vertical.labels import HEADS
from secure_fedgraph.attacks.vertical.lists import NODES, OWN_LINKS, TRAINING
from secure_fedgraph.attacks.vertical.rows import OWN_ROWS, TAKE
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.judgement import Maker
from secure_fedgraph.policies import plaintext
from secure_fedgraph.running.loop import train
from secure_fedgraph.seams import ClientContext

ROWS_SENT = ("hidden",)


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
        def tower(self, client: ClientContext, clients: int) -> Any:
            tower = super().tower(client, clients)
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


def first_owner(finished: FinishedRun) -> str:
    """Whom the audit puts in the place of a curious owner."""
    return finished.parties("client")[0]


def _trains(finished: FinishedRun) -> bool:
    """Whether owners train layers together, so that there is a first iteration."""
    return all(channel.name != TAKE for channel in finished.algorithm.in_use)


def training_nodes(finished: FinishedRun) -> np.ndarray:
    """Their numbers: every owner has all nodes in the same order, and knows which train."""
    graph = finished.federation.owners[first_owner(finished)]
    numbers: np.ndarray = torch.as_tensor(graph.train_mask).nonzero().flatten().numpy()
    return numbers


def own_links(finished: FinishedRun) -> np.ndarray:
    """The first owner's, ``[2, links]``."""
    links: np.ndarray = finished.federation.owners[first_owner(finished)].edge_index.numpy()
    return links


def own_rows(finished: FinishedRun) -> np.ndarray | None:
    """The first owner's of the first iteration: it made them, though a masked message does not show them."""
    return begun(finished).rows.get(first_owner(finished)) if _trains(finished) else None


def heads(finished: FinishedRun) -> dict[str, np.ndarray]:
    """The classifiers of those who hold labels, as they started."""
    algorithm = finished.algorithm
    if not isinstance(algorithm, Glasu):
        return {}
    started = begun(finished).heads
    holders = algorithm.label_holders(finished.federation.names)
    return {name: started[name] for name in holders if name in started}


def nodes(finished: FinishedRun) -> int:
    """How many nodes there are: as many at every owner."""
    return int(finished.federation.owners[first_owner(finished)].num_nodes)


def _where(made: Callable[[FinishedRun], Any]) -> Callable[[FinishedRun], Any]:
    """None for algorithms that split nothing by columns: their views leave these attacks blind anyway."""
    return lambda finished: made(finished) if by_columns(finished) else None


MAKERS: Mapping[str, Maker] = {
    TRAINING: _where(training_nodes),
    NODES: _where(nodes),
    OWN_LINKS: _where(own_links),
    OWN_ROWS: _where(own_rows),
    HEADS: _where(heads),
}
