"""A clip that follows the clients' norms: the bit beside the update, the state, and when it is taken."""

from __future__ import annotations

import math

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.training.adaptive_clip import BIT, CLIP, FIRST, PART, WITHIN, mean, scaled
from secure_fedgraph.algorithms.training.weighting import AveragingSettings
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.policies import distributed_dp, local_dp, masked, plaintext
from secure_fedgraph.protocol.transcript import everything

SMALL = {"hidden": (8, 8), "learning_rate": 0.05}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=4, nodes=160, features=16, seed=3)


def norm(values) -> float:
    return math.sqrt(sum(float(v.double().square().sum()) for v in values.values()))


@pytest.mark.parametrize("size", [0.0, 0.01, 1.0, 50.0])
def test_an_upload_is_no_longer_than_one(size):
    update = {"w": torch.full((9,), size / 3), "b": torch.zeros(2)}
    found = scaled(update, 0.5)
    assert norm(found) <= 1 + 1e-6
    assert float(found[WITHIN]) == pytest.approx(BIT if size <= 0.5 else 0)
    assert norm({k: v for k, v in found.items() if k != WITHIN}) == pytest.approx(
        PART * min(size / 0.5, 1), abs=1e-6
    )


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf, torch.ones(3), None])
def test_a_clip_that_is_none_is_refused(clip):
    with pytest.raises(HostileMessage, match="no positive number"):
        scaled({"w": torch.ones(2)}, clip)


def test_what_is_within_the_clip_comes_back_as_it_was():
    updates = [{"w": torch.tensor([0.3, -0.1])}, {"w": torch.tensor([0.1, 0.2])}]
    uploads = [scaled(u, 0.4) for u in updates]
    found, then = mean({k: uploads[0][k] + uploads[1][k] for k in uploads[0]}, 2, torch.tensor(0.4))
    assert torch.allclose(found["w"], torch.tensor([0.2, 0.05]))
    assert float(then) == pytest.approx(0.4 * math.exp(-0.5))  # all within: it shrinks


def test_noise_moves_it_no_further_than_clients_could():
    for share, factor in ((-1e3, math.exp(0.5)), (1e3, math.exp(-0.5))):
        _, then = mean({"w": torch.zeros(1), WITHIN: torch.tensor([share])}, 5, torch.tensor(1.0))
        assert float(then) == pytest.approx(factor)


def test_it_settles_where_half_of_the_clients_are_within():
    norms, clip = torch.logspace(-1, 1, 101), torch.tensor(FIRST)
    for _ in range(60):
        uploads = [scaled({"w": n.reshape(1)}, float(clip)) for n in norms]
        total = {k: sum(u[k] for u in uploads) for k in ("w", WITHIN)}
        _, clip = mean(total, len(norms), clip)
    assert float(clip) == pytest.approx(float(norms.median()), rel=0.1)


@pytest.mark.parametrize("policy", [plaintext(), masked()], ids=lambda p: p.name)
def test_no_second_channel_and_no_clip_in_the_model(federation, policy):
    made = sfg.train(
        sfg.FedSage(**SMALL, clip="adaptive"), federation, policy, rounds=2, seed=0, keep=everything
    )
    channels = {s.channel for s in made.transcript.sent if "referee" not in (s.sender, s.recipient)}
    assert channels <= {"carrier/keys", "update"}
    assert CLIP in made.state
    assert CLIP not in made.algorithm.released(made.state)
    assert made.algorithm.notes(made.state) == {"clip": float(made.state[CLIP])}


def test_where_nobody_is_clipped_it_is_the_plain_mean(federation):
    wide = sfg.FedSage(**SMALL, clip="adaptive")
    start = wide.init
    wide.init = lambda *given: start(*given) | {CLIP: torch.tensor(100.0)}
    made = sfg.train(wide, federation, plaintext(), rounds=1, seed=0)
    plain = sfg.train(sfg.FedSage(**SMALL), federation, plaintext(), rounds=1, seed=0)
    for key, value in plain.state.items():
        assert torch.allclose(made.state[key], value, atol=1e-5)


@pytest.mark.parametrize("policy", [local_dp(1.0, 0.01), distributed_dp(1.0, 0.01)], ids=lambda p: p.name)
def test_the_norm_of_one_clips_nothing_more(federation, policy):
    quiet = sfg.train(sfg.FedSage(**SMALL, clip="adaptive"), federation, policy, rounds=1, seed=0)
    plain = sfg.train(sfg.FedSage(**SMALL, clip="adaptive"), federation, plaintext(), rounds=1, seed=0)
    for key, value in plain.algorithm.released(plain.state).items():
        assert torch.allclose(quiet.state[key], value, atol=FIRST * 0.05)


BASE = {"algorithm": "fedsage", "data": "synthetic-citation", "dataset": {"nodes": 90, "features": 8}}
BASE |= {"clients": 3, "rounds": 2, "training": {"hidden": [8], "fanout": [3]}, "policy": "distributed_dp"}


def test_a_budget_without_a_norm_takes_it():
    chosen = load(None, {**BASE, "epsilon": 8.0}, [])
    assert chosen.make_algorithm().settings.clip == "adaptive"
    made = execute(chosen, None)
    assert CLIP in made.state
    assert made.privacy("client")["epsilon"] <= 8


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_clip_of_something_else_is_left_alone(name):
    """FedEgo's clip is of reduced features, FairGraphFL's of embeddings: a budget does not touch them."""
    kind = ALGORITHMS[name]
    made = load(
        None, {"algorithm": name, "policy": "local_dp", "epsilon": 8.0, "unit": "client"}, []
    ).make_algorithm()
    assert getattr(made.settings, "clip", None) == (
        "adaptive" if issubclass(kind.Settings, AveragingSettings) else getattr(kind().settings, "clip", None)
    )


@pytest.mark.parametrize(
    "changes",
    [
        ["protection.norm=2"],
        ["training.clip=policy"],
        ["training.weighted=true"],
        ["policy=masked", "unit=node"],
    ],
)
def test_any_word_of_the_users_decides(changes):
    chosen = load(None, {**BASE, "epsilon": 8.0}, changes)
    assert chosen.make_algorithm().settings.clip == "policy"


def test_two_clips_are_refused():
    chosen = load(None, BASE, ["training.clip=adaptive", "protection.norm=2", "protection.multiplier=1"])
    with pytest.raises(BadInput, match="leave one of the two out"):
        chosen.make_algorithm()
    with pytest.raises(BadInput, match="weigh the same"):
        sfg.FedSage(clip="adaptive", weighted=True)


def test_noise_by_hand_needs_no_norm_beside_it():
    chosen = load(None, BASE, ["training.clip=adaptive", "protection.multiplier=0.5"])
    assert CLIP in execute(chosen, None).state
