"""What an algorithm is promised of a client and of a round, and what the two really have."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from parties import session

from secure_fedgraph.core.protection.bound import Sum, Valued
from secure_fedgraph.policies import plaintext
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.round import Round
from secure_fedgraph.seams import ClientContext, NoisyTraining, RoundApi, Total, Valuation


def members(seam: type) -> dict[str, Any]:
    return {name: value for name, value in vars(seam).items() if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any]]:
    named = inspect.signature(function).parameters.values()
    return [(p.name, p.default) for p in named if p.name != "self"]


@pytest.fixture(scope="module")
def real() -> dict[type, Any]:
    made = session(plaintext())
    return {
        ClientContext: made.clients["owner-0"],
        RoundApi: made.round(),
        NoisyTraining: Training(PrivateSteps(noise=1.0, clip=1.0, rate=0.5, steps=1), "zero-out"),
        Total: Sum({}, ()),
        Valuation: Valued({}, {}, {}),
    }


@pytest.mark.parametrize("seam", [ClientContext, RoundApi, NoisyTraining, Total, Valuation])
def test_what_is_promised_is_there_under_the_same_names(seam, real):
    promised = members(seam)
    assert promised
    for name, value in promised.items():
        assert value.__doc__, name
        there = getattr(real[seam], name)
        if not isinstance(value, property):
            assert parameters(there) == parameters(value), name


def test_every_verb_of_a_round_is_promised():
    verbs = {name for name, value in vars(Round).items() if callable(value) and not name.startswith("_")}
    assert verbs <= members(RoundApi).keys()
