"""Answers of this package replace what a client's memory holds, so that going back needs no copies."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.client import Client
from secure_fedgraph.core.answer_state import AnswerState
from secure_fedgraph.policies import plaintext, strictest

FAST = ("fedsage", "fedego", "apflgate", "fairgraphfl")


def parts(value: Any) -> list[tuple[Any, int]]:
    """Every tensor in a nested value with its version, every container with how much it holds."""
    if isinstance(value, torch.Tensor):
        return [(value, value._version)]
    if isinstance(value, dict):
        return [(value, len(value)), *(part for one in value.values() for part in parts(one))]
    if isinstance(value, list | tuple):
        return [(value, len(value)), *(part for one in value for part in parts(one))]
    return []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name in sorted(ALGORITHMS)
        if not ALGORITHMS[name].pools
    ],
)
def test_no_answer_changes_in_place_what_was_kept(name, monkeypatch):
    held: dict[int, list[tuple[Any, int]]] = {}
    changed: list[str] = []
    real = AnswerState.begin, Client._commit

    def remembers(self: AnswerState) -> None:
        held[id(self)] = [part for value in self.memory.values() for part in parts(value)]
        real[0](self)

    def keep(self: Client, request: Any, *rest: Any) -> None:
        for value, before in held.pop(id(self._state), []):
            after = value._version if isinstance(value, torch.Tensor) else len(value)
            if after != before:
                changed.append(f"{request.channel}: {type(value).__name__}")
        real[1](self, request, *rest)

    monkeypatch.setattr(AnswerState, "begin", remembers)
    monkeypatch.setattr(Client, "_commit", keep)
    algorithm = small.algorithm(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = plaintext() if name != "fairgraphfl" else strictest()
        sfg.train(algorithm, small.federation(name), policy, rounds=3)
    assert changed == []
