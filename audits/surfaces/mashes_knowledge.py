"""What attacks on mashes are granted: the public pool of candidates, and which batches a known seed makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from secure_fedgraph.algorithms.fedego import batches
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.attacks.mashes.mixing import MIXING
from secure_fedgraph.attacks.mashes.pool import POOL
from secure_fedgraph.audits.finished_run import Case
from secure_fedgraph.client import seeded
from secure_fedgraph.errors import Refused
from secure_fedgraph.graph.seeds import sub_seed


def candidates(case: Case) -> np.ndarray:
    """``[candidates, features]``: all that nodes of the data set look like, in an order that tells nothing.

    Nodes that look the same are one candidate. Where owners overlap, these are the nodes of all owners and of
    the referee's graph. Empty where an algorithm makes no mashes.
    """
    federation = case.federation
    if not isinstance(case.algorithm, FedEgo):
        return np.zeros((0, federation.schema.features))
    if federation.pool is not None:
        everybody = federation.pool.x.numpy()
    else:
        asked = getattr(federation.referee.exam.question, "x", None)
        parts = [graph.x.numpy() for graph in federation.owners.values()]
        everybody = np.concatenate([*parts, *([] if asked is None else [asked.numpy()])])
    rows = np.unique(everybody, axis=0)
    order = np.random.default_rng(sub_seed(case.seed, "candidates")).permutation(len(rows))
    shuffled: np.ndarray = rows[order]
    return shuffled


def drawn(case: Case, owner: str, round: int) -> np.ndarray:
    """``[mashes, n]``: numbers of an owner's training nodes in its batches of a round; -1 where one is short.

    Raises:
        Refused: where batches are secret.
    """
    settings = cast(FedEgo, case.algorithm).settings
    size = int(case.federation.owners[owner].train_mask.sum())
    generator = partial(seeded, sub_seed(case.seed, "clients"), owner, round)
    return batches.numbered(size, settings, batches.orders(settings, _secret, generator)).numpy()


def mixing(case: Case) -> dict[str, dict[int, tuple[np.ndarray, int]]]:
    """Owner -> round -> its batches by number, and how many training nodes it has; empty where secret."""
    settings = case.algorithm.settings
    if getattr(settings, "batching", "secret") == "secret":
        return {}
    rounds = sorted({note.round for note in case.transcript.sent if note.channel.startswith("egos")})
    return {
        owner: {t: (drawn(case, owner, t), int(graph.train_mask.sum())) for t in rounds}
        for owner, graph in case.federation.owners.items()
    }


def training_rows(case: Case, owner: str) -> np.ndarray:
    """``[training nodes, features]``, in the order that numbers count in."""
    graph = case.federation.owners[owner]
    rows: np.ndarray = graph.x[graph.train_mask].numpy()
    return rows


def _secret(size: int) -> torch.Tensor:
    raise Refused("batches that the operating system drew cannot be drawn again")


MAKERS_OF_MASHES: Mapping[str, Callable[[Case], Any]] = {POOL: candidates, MIXING: mixing}
