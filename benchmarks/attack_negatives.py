"""Two published ideas that do not open FedEgo's mashes at n = 32, and where they stop: B7 and B8.

They are no attacks of the catalogue, for they find nothing at the sizes that are used; ``attack_costs.py``
prints them. Both read real messages of a plaintext run on Cora.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from secure_fedgraph.attacks import MashDictionary
from secure_fedgraph.attacks.mashes.labels import Mashed
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.mashes import candidates, drawn, training_rows
from secure_fedgraph.evaluation import roc_auc
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute

OWNER = "owner-0"


def _mashes(seed: int, batching: str, n: int, rounds: int) -> tuple[FinishedRun, list[Mashed]]:
    """A run, and what the server read of one owner's mashes."""
    training = {"hidden": [64, 64], "epochs": 1, "batching": batching, "batch": n}
    base = {
        "algorithm": "fedego-released",
        "data": "cora",
        "policy": "plaintext",
        "seed": seed,
        "rounds": rounds,
    }
    chosen = load(None, {**base, "clients": 10, "partition": "random", "training": training}, [])
    run = execute(chosen, None, keep=lambda channel, round: channel in ("egos", "reduction"))
    return FinishedRun.of(run, seed), MashDictionary().client_mashes(run.transcript.view("server"))[OWNER]


def b7(seed: int) -> Iterator[Mapping[str, Any]]:
    """InstaHide's first step: pairs of mashes of different rounds that share a node, by their likeness.

    Carlini et al. find the pairs of encodings that share an original, then cliques of them. The likeness is
    the cosine after the pool's covariance is taken out. Where nearly all pairs share one, a graph of them has
    no cliques to find; ``dense`` says how many do.
    """
    for n in (2, 4, 8, 16, 32):
        case, rounds = _mashes(seed, "seeded", n, 20)
        pool = candidates(case)
        vectors, members = [], []
        for one in rounds:
            reduced = one.reduced(pool)
            centred = one.rows[:, 0] - reduced.mean(0)
            spread = np.cov(reduced.T) + 1e-9 * np.eye(reduced.shape[1])
            batches = drawn(case, OWNER, one.round)
            whole = (batches >= 0).all(1)
            vectors.append(np.linalg.solve(np.linalg.cholesky(spread), centred[whole].T).T)
            members.append(batches[whole])
        likeness, shares = [], []
        for first in range(len(rounds)):
            for second in range(first):
                likeness.append(_cosines(vectors[first], vectors[second]).flatten())
                same = members[first][:, None, :, None] == members[second][None, :, None, :]
                shares.append(same.any((2, 3)).flatten())
        alike, sharing = np.concatenate(likeness), np.concatenate(shares)
        best = np.argsort(-alike)[: int(sharing.sum() / 2) + 1]
        yield {
            "attack": "b7",
            "n": n,
            "metric": "auc of sharing pairs",
            "value": round(roc_auc(alike, sharing), 3) if not sharing.all() else "all share",
            "dense": round(float(sharing.mean()), 3),
            "right among the likest": round(float(sharing[best].mean()), 3),
        }


def b8(seed: int) -> Iterator[Mapping[str, Any]]:
    """Set inversion without a pool: Adam over the features of all n nodes of a kept mash, five rounds.

    ``min_X sum_t |Y_t - mean_i ReLU(W_t'x_i + b_t)|^2`` with ``X = sigmoid``. Recovered rows are matched with
    the members; beside their mean cosine that of the mean node.
    """
    for n in (1, 2, 4, 8, 32):
        case, rounds = _mashes(seed, "released", n, 5)
        there = training_rows(case, OWNER)[drawn(case, OWNER, 1)[0]]
        mean = candidates(case).mean(0, keepdims=True)
        found = inverted(rounds, n, there.shape[1], mean, seed)
        cosines = _cosines(found, there)
        pairs = linear_sum_assignment(-cosines)
        yield {
            "attack": "b8",
            "n": n,
            "metric": "mean cosine",
            "value": round(float(cosines[pairs].mean()), 3),
            "baseline": round(float(_cosines(mean, there).mean()), 3),
            "exact": float((np.abs(found[pairs[0]] - there[pairs[1]]).max(1) < 0.5).mean()),
        }


def inverted(rounds: Sequence[Mashed], n: int, features: int, mean: np.ndarray, seed: int) -> np.ndarray:
    """``[n, features]`` that fit the first mash of every round, by 1500 steps of Adam."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.logit(torch.tensor(mean, dtype=torch.float32).clamp(1e-3, 1 - 1e-3))
    x = (start + torch.randn(n, features, generator=generator)).requires_grad_()
    known = [
        tuple(torch.tensor(np.array(v), dtype=torch.float32) for v in (one.weight, one.bias, one.rows[0, 0]))
        for one in rounds
    ]
    optimizer = torch.optim.Adam([x], lr=0.05)
    for _ in range(1500):
        optimizer.zero_grad()
        made = torch.sigmoid(x)
        loss = sum(((y - torch.relu(made @ w + b).mean(0)) ** 2).sum() for w, b, y in known)
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
    return torch.sigmoid(x.detach()).numpy()


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    sizes = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)
    found: np.ndarray = one @ other.T / np.maximum(sizes, 1e-12)
    return found
