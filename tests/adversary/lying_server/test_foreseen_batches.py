"""B6: a server that can foresee which nodes FedEgo mixes solves some mashes for single nodes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.graph.seeds import sub_seed

N, ROUNDS, VICTIM = 8, 12, "owner-0"


def foreseen(size: int, round: int) -> torch.Tensor:
    """The order that would follow from the public seed, as anybody can work it out."""
    label = f"{sub_seed(0, 'clients')}/{VICTIM}/{round}/secret order".encode()
    seed = int.from_bytes(hashlib.sha256(label).digest()[:8], "little") >> 1
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def solved() -> tuple[int, float]:
    """The rank of the server's equations, and the share of the victim's training labels that they give."""
    federation = small.federation("fedego")
    algorithm = small.algorithm("fedego", mash="client", batch=N)
    run = sfg.train(
        algorithm, federation, sfg.policies.plaintext(), rounds=ROUNDS, keep=lambda channel, round: True
    )
    graph = federation.owners[VICTIM]  # the judge's: the attack below uses its size and the view
    true = graph.y[graph.train_mask].numpy()
    seen = [u for u in run.transcript.view("server").uploads("egos") if u.clients == (VICTIM,)]
    mixtures, labels = [], []
    for upload in seen:
        order = foreseen(len(true), upload.round)[: len(true) // N * N].view(-1, N)
        for batch, soft in zip(order, upload.values["labels"], strict=True):
            mixtures.append(np.bincount(batch.numpy(), minlength=len(true)) / N)
            labels.append(soft[0])
    found, _, rank, _ = np.linalg.lstsq(np.array(mixtures), np.array(labels), rcond=None)
    return int(rank), float((found.argmax(1) == true).mean())


def test_secret_batches_are_solved_for_nobody() -> None:
    rank, share = solved()
    assert rank > 1  # it had its equations; they are about other batches
    assert share < 0.8


def test_batches_that_follow_from_the_seed_are_solved_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    small.foreseeable(monkeypatch)
    rank, share = solved()
    assert share == 1.0, rank
