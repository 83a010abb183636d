"""Whoever plays an active attack, the owners check what they are given as they would of an honest party."""

from __future__ import annotations

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.attacks import ATTACKS, Attack
from secure_fedgraph.graph.schema import Schema

ACTIVE = [kind for kind in ATTACKS.own.values() if hasattr(kind, "plays")]
PLAYED = ("fedsage", "fedsage+", "fedgcn")


def schema() -> Schema:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=20).schema


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize("attack", ACTIVE, ids=lambda kind: kind.id)
def test_what_owners_take_is_what_they_take_of_an_honest_party(attack: type[Attack], name: str) -> None:
    honest: Algorithm = ALGORITHMS[name]()
    played: Algorithm = attack.plays(ALGORITHMS[name])()  # type: ignore[attr-defined]
    about = schema()
    for channel in honest.channel_names():
        forms, same = honest.expected(channel, about), played.expected(channel, about)
        assert (forms is None) == (same is None), channel
        assert [sorted(one) for one in forms or ()] == [sorted(one) for one in same or ()]


def test_there_are_active_attacks() -> None:
    assert {"a5-planted-units", "h5-standing-model", "i2-constant-answers"} <= {kind.id for kind in ACTIVE}
