"""D-FedGNN: a doubly stochastic ring whoever is there, sealed to neighbours, and relays that lie."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.d_fedgnn import mixing_weights, ring
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.protocol.dropouts import STEPS
from secure_fedgraph.protocol.transcript import everything

SMALL = {"hidden": (8, 8)}


@pytest.fixture(scope="module")
def federation():
    return sfg.federate("synthetic-citation", clients=5, partition="random", nodes=120, features=16)


def matrix(names: tuple[str, ...], links) -> np.ndarray:
    rows = [mixing_weights(name, links) for name in names]
    return np.array([[row.get(name, 0.0) for name in names] for row in rows])


@pytest.mark.parametrize("peers", range(1, 7))
def test_the_matrix_is_doubly_stochastic_whichever_links_hold(peers):
    names = tuple("abcdef"[:peers])
    links = ring(names)
    for size in range(len(links) + 1):
        for held in combinations(links, size):
            found = matrix(names, held)
            assert np.allclose(found.sum(0), 1)
            assert np.allclose(found.sum(1), 1)
            assert found.min() >= 0
    if peers >= 3:
        assert np.isclose(matrix(names, links)[matrix(names, links) > 0], 1 / 3).all()


def models(made: sfg.Run, round: int) -> dict[str, dict[str, np.ndarray]]:
    return {
        s.clients[0]: s.values for s in made.transcript.view("server").uploads("model") if s.round == round
    }


def kept(made: sfg.Run, scored: str) -> dict[str, dict[str, torch.Tensor]]:
    return {
        note.contributors[0]: {
            k: torch.as_tensor(np.array(v)) for k, v in wire.decode(made.transcript.body(note.number)).items()
        }
        for note in made.transcript.opened
        if note.channel == "personal_model" and note.reader == "referee"
    }


def test_a_peers_model_is_a_third_of_each_on_the_ring(federation):
    after, before = (
        sfg.train(sfg.DFedGnn(**SMALL, scored=scored), federation, "plaintext", rounds=1, keep=everything)
        for scored in ("after_mixing", "before_mixing")
    )
    mixed, trained = kept(after, "after"), kept(before, "before")
    names = sorted(mixed)
    for i, name in enumerate(names):
        for key in mixed[name]:
            near = torch.stack([trained[names[(i + step) % 5]][key] for step in (-1, 0, 1)])
            assert torch.allclose(mixed[name][key], near.mean(0), atol=1e-6)
            assert not torch.equal(mixed[name][key], trained[name][key])


@pytest.mark.parametrize("step", STEPS)
def test_a_peer_that_is_gone_leaves_the_mean_of_the_peers_where_it_was(federation, step):
    left = sfg.Dropouts(at={(1, "owner-2"): step})
    runs = {
        scored: sfg.train(
            sfg.DFedGnn(**SMALL, scored=scored), federation, "sealed", rounds=1, keep=everything,
            dropouts=sfg.Dropouts(at=left.at),
        )
        for scored in ("after_mixing", "before_mixing")
    }  # fmt: skip
    mixed, trained = (kept(runs[s], s) for s in ("after_mixing", "before_mixing"))
    assert set(mixed) == set(federation.names)
    for key in mixed["owner-0"]:
        means = [torch.stack([one[key] for one in found.values()]).mean(0) for found in (mixed, trained)]
        assert torch.allclose(*means, atol=1e-6)
        assert torch.allclose(mixed["owner-2"][key], trained["owner-2"][key], atol=1e-6)
    assert any(not torch.allclose(mixed["owner-0"][k], trained["owner-0"][k]) for k in mixed["owner-0"])


def test_it_comes_back_in_the_next_round(federation):
    left = sfg.Dropouts(at={(1, "owner-2"): "answer"})
    made = sfg.train(sfg.DFedGnn(**SMALL), federation, "plaintext", rounds=2, keep=everything, dropouts=left)
    assert [len(models(made, round)) for round in (1, 2)] == [4, 5]


def test_rounds_of_two_and_of_one_mix_what_is_there(federation):
    cohorts = {1: ("owner-0", "owner-3"), 2: ("owner-1",), 3: federation.names}
    made = sfg.train(
        sfg.DFedGnn(**SMALL), federation, "plaintext", rounds=3, keep=everything,
        sampler=lambda round, *_: cohorts[round],
    )  # fmt: skip
    assert [sorted(models(made, round)) for round in (1, 2, 3)] == [
        ["owner-0", "owner-3"], [], list(federation.names)
    ]  # fmt: skip


def test_fewer_than_three_peers_are_no_ring():
    two = sfg.federate("synthetic-citation", clients=2, partition="random", nodes=60, features=16)
    with pytest.raises(BadInput, match="clients = 2"):
        sfg.train(sfg.DFedGnn(**SMALL), two, "sealed", rounds=1)


def test_the_relay_reads_nothing_and_only_neighbours_have_a_key(federation):
    made = sfg.train(sfg.DFedGnn(**SMALL), federation, "masked", rounds=1, keep=everything)
    view = made.transcript.view("server")
    assert view.uploads("model") == [] and view.sums("model") == []
    assert "sealed" in view.why_unreadable("model")
    for note in view.sent:
        if note.channel == "model" and note.step == ANSWER and note.recipient == "server":
            reply = wire.decode(Message.from_bytes(made.transcript.body(note.number)).body)
            readers = {key.removeprefix("key/") for key in reply if key.startswith("key/")}
            near = {one for link in ring(federation.names) if note.sender in link for one in link}
            assert readers == near - {note.sender}
    heard = {
        o.contributors[0]
        for o in made.transcript.view("owner-0").opened
        if o.channel == "model" and o.reader == "owner-0"
    }
    assert heard == {"owner-1", "owner-4"}


@pytest.mark.parametrize(
    "links",
    [
        ("owner-0", "owner-2"),  # it read nothing of owner-2
        ("owner-0",),
        ("owner-0", "owner-1", "owner-0", "owner-4", "owner-0", "owner-2"),
    ],
)
def test_a_relay_cannot_make_a_peer_mix_what_it_did_not_read(federation, links):
    algorithm = sfg.DFedGnn(**SMALL)
    start = algorithm._start(federation.schema, 0)
    change = {name: torch.zeros_like(value) for name, value in start.items()}
    client = SimpleNamespace(
        name="owner-0",
        schema=federation.schema,
        scratch={"read from peers": {"owner-1": change, "owner-4": change}},
        memory={"seed of the start": 0, "trained": start},
    )
    with pytest.raises(HostileMessage):
        algorithm.mix(client, {"links": links})


@pytest.mark.parametrize("shape", [(3,), ()])
def test_a_peer_that_sends_other_shapes_ends_the_run_and_is_named(federation, shape, monkeypatch):
    answer = sfg.DFedGnn.share_model

    def hostile(self, client, given):
        upload = answer(self, client, given)
        if client.name == "owner-1":
            name = next(iter(upload.values))
            upload = type(upload)({**upload.values, name: torch.zeros(shape)})
        return upload

    monkeypatch.setattr(sfg.DFedGnn, "share_model", hostile)
    with pytest.raises(HostileMessage, match="owner-1"):
        sfg.train(sfg.DFedGnn(**SMALL), federation, "sealed", rounds=1)


def test_a_model_is_not_asked_for_before_training_and_the_start_is_one(federation):
    algorithm = sfg.DFedGnn(**SMALL)
    client = SimpleNamespace(name="owner-0", schema=federation.schema, memory={})
    with pytest.raises(HostileMessage, match="before it was asked to train"):
        algorithm.share_model(client, {})
    client.memory["seed of the start"] = 1
    with pytest.raises(HostileMessage, match="another seed"):
        algorithm.train(client, {"seed": 2})
