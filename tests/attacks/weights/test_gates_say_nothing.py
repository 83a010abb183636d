"""A8, what APFLGate's gates give away: they do not touch what an owner sends, so there is nothing to read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import secure_fedgraph as sfg

SMALL: dict[str, Any] = {"local_steps": 3, "hidden": (8, 8), "learning_rate": 0.05, "dropout": 0.2}


def uploads(kind: type[sfg.ApflGate], **settings: Any) -> dict[tuple[str, str, int], Any]:
    """Everything that any owner sent in three rounds, as the server reads it in plaintext."""
    federation = sfg.federate("synthetic-molecules", clients=3, seed=0, partition="dirichlet", graphs=60)
    run = sfg.train(
        kind(**{**SMALL, **settings}), federation, sfg.policies.plaintext(), rounds=3,
        keep=lambda channel, round: True,
    )  # fmt: skip
    view = run.transcript.view("server")
    return {
        (seen.clients[0], channel, seen.exchange): seen.values
        for channel in view.public["channels"]
        for seen in view.uploads(channel)
    }


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(torch.as_tensor(one[sent][name]), torch.as_tensor(other[sent][name]))
        for sent in one
        for name in one[sent]
    )


@pytest.mark.parametrize("kind", [sfg.ApflGate, sfg.Apfl])
def test_uploads_are_the_same_bit_for_bit_whatever_the_gates_are(kind: type[sfg.ApflGate]) -> None:
    little = uploads(kind, alpha=0.1)
    assert little
    assert same(little, uploads(kind, alpha=0.9))
    assert same(little, uploads(kind, alpha="adaptive", alpha_rate=10.0))


def test_what_does_touch_the_shared_model_shows_in_uploads() -> None:
    """So the comparison can fail."""
    assert not same(uploads(sfg.ApflGate, alpha=0.1), uploads(sfg.ApflGate, alpha=0.1, local_steps=2))
