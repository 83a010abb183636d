"""APFLGate and its parts on molecules and ratings: under every recipe, resumed, isolated, and what leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.client import Client
from secure_fedgraph.core.message import Message
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.privacy.policies import policy_with_noise
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol.transcript import everything

SMALL: dict[str, Any] = {"hidden": (8, 8), "local_steps": 2, "learning_rate": 0.05}


@pytest.fixture(scope="module", params=["molecules", "ratings"])
def federation(request: pytest.FixtureRequest) -> sfg.Federation:
    if request.param == "ratings":
        return sfg.federate(small.ratings(), clients=3, partition="by_category")
    return sfg.federate(
        "synthetic-molecules", clients=3, partition="dirichlet", split={"concentration": 5.0}, graphs=60
    )


def policy(name: str) -> Policy:
    return policy_with_noise(name, 1.0, {})


def run(federation: sfg.Federation, name: str, recipe: str, rounds: int = 1, **arguments: Any) -> sfg.Run:
    settings = {"seed": 0, "keep": everything, **arguments}
    return sfg.train(ALGORITHMS[name](**SMALL), federation, policy(recipe), rounds=rounds, **settings)


class TestWhatLeaves:
    @pytest.fixture
    def spied(self, federation, monkeypatch) -> tuple[list[Client], list[bytes]]:
        """The clients of a run, and everything that the server was sent."""
        clients: list[Client] = []
        sent: list[bytes] = []
        make_clients, handle = sfg.Federation.make_clients, Client.handle

        def watched(self: Client, raw: bytes) -> bytes:
            reply = handle(self, raw)
            if Message.from_bytes(raw).sender == "server":
                sent.append(reply)
            return reply

        def kept(self: sfg.Federation, *given: Any, **named: Any) -> list[Client]:
            clients.extend(make_clients(self, *given, **named))
            return clients

        monkeypatch.setattr(Client, "handle", watched)
        monkeypatch.setattr(sfg.Federation, "make_clients", kept)
        run(federation, "apflgate", "plaintext", 2)
        return clients, sent

    def test_nothing_personal(self, spied):
        clients, sent = spied
        together = b"".join(sent)
        for client in clients:
            assert set(client.memory) == {"delta", "personal", "alpha", "optimizer"}
            for kind in ("delta", "personal"):
                for value in client.memory[kind].values():
                    raw = value.numpy().tobytes()
                    pieces = [raw[i : i + 16] for i in range(0, len(raw) - 15, 16)]
                    pieces = [p for p in pieces if np.frombuffer(p, "<f4").all()]  # weights that learned
                    assert not any(piece in together for piece in pieces)
        assert sum(len(raw) for raw in sent) > 10_000

    def test_the_search_finds_what_is_sent(self, federation):
        made = run(federation, "apflgate", "plaintext", 1)
        update = made.transcript.view("server").uploads("update")[0].values
        raw = max((np.asarray(v) for v in update.values()), key=np.size).astype("<f4").tobytes()
        sent = b"".join(made.transcript.body(s.number) for s in made.transcript.sent)
        assert raw in sent

    def test_the_terms_add_up_to_zero(self, spied):
        clients, _ = spied
        for name in clients[0].memory["delta"]:
            terms = torch.stack([client.memory["delta"][name] for client in clients])
            assert torch.allclose(terms.sum(0), torch.zeros(()), atol=1e-4)
            assert terms.shape[0] == 3


def test_what_clients_upload_is_all_that_the_ledger_counts(federation):
    made = run(federation, "apflgate", "masked", 2)
    assert len(made.charges) == 6
    assert made.privacy(unit="client")["epsilon"] == "inf"


class TestFromTheCommandLine:
    def test_what_is_not_named_is_as_in_the_paper(self):
        made = load(None, {"algorithm": "apflgate"}, [])
        assert (made.data, made.clients, made.partition) == ("bbbp", 16, "dirichlet")
        made = load(None, {"algorithm": "apfl", "data": "ciao"}, ["training.alpha=0.25"])
        assert (made.clients, made.partition) == (28, "by_category")
        assert made.make_algorithm().settings.alpha == 0.25
        made = load(None, {"algorithm": "fedgate", "data": "cora"}, [])
        assert (made.clients, made.partition) == (3, "louvain")

    def test_words(self):
        adaptive = Experiment(algorithm="apflgate", training={"alpha": "adaptive", "gain": "1/tau", "tau": 2})
        assert adaptive.make_algorithm().settings.alpha == "adaptive"


@pytest.mark.parametrize("partition", ["louvain", "label_skew"])
def test_nodes_of_one_graph_too(partition):
    split = {"local_tests": 10} if partition == "label_skew" else {}
    federation = sfg.federate(
        "synthetic-citation", clients=3, partition=partition, split=split, nodes=240, features=24
    )
    scores = run(federation, "apflgate", "masked").accuracy
    assert 0 <= scores["global"] <= 1 and 0 <= scores["local"] <= 1 and "auc" not in scores


def test_an_owner_without_test_graphs_is_left_out_of_the_means(tmp_path):
    federation = sfg.federate("synthetic-molecules", clients=3, partition="dirichlet", graphs=60)
    assert federation.facts["partition"]["tests"] == [3, 3, 0]
    made = run(federation, "apflgate", "plaintext", out=Path(tmp_path) / "run")  # and JSON has no NaN
    owners = made.history[0]["owners"]
    assert set(owners) == {"owner-0", "owner-1"}
    assert made.accuracy["local"] == pytest.approx(sum(owners.values()) / 2)
