"""The FedSage family: what a round is, what stays with a client, what leaves it, and what seeds decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.message import Message
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.protocol.transcript import everything

SMALL = {"batch": 16, "hidden": (8, 4), "fanout": (3, 3), "learning_rate": 0.01}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)


def go(algorithm: sfg.Algorithm, federation: sfg.Federation, rounds: int = 2, **options: Any) -> sfg.Run:
    options = {"policy": sfg.policies.plaintext(), "keep": everything, **options}
    return sfg.train(algorithm, federation, rounds=rounds, **options)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def apart(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return sum(float((a[name] - b[name]).square().sum()) for name in a) ** 0.5


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients of the runs that follow, oldest first: for looking into memories."""
    seen: list[Client] = []
    make_clients = sfg.Federation.make_clients

    def watched(self: sfg.Federation, *args: Any, **more: Any) -> list[Client]:
        found = make_clients(self, *args, **more)
        seen.extend(found)
        return found

    monkeypatch.setattr(sfg.Federation, "make_clients", watched)
    return seen


def test_fedsages_defaults_are_the_papers() -> None:
    s = sfg.FedSage().settings
    assert (s.learning_rate, s.optimizer, s.weight_decay, s.batch, s.epochs) == (0.001, "adam", 0.0, 64, 1)
    assert (s.network, s.fanout, s.hidden, s.head, s.dropout) == ("sage", (5, 5), (64, 32), "glorot", 0.0)
    assert (s.weighted, s.clip, s.share, s.class_weight) == (False, "policy", 1.0, ())
    assert sfg.FedSage.rounds == 50
    assert sfg.LocSage().settings == sfg.GlobSage().settings
    # which one client has no use for
    weights = {"weighted": False, "heaviest": 10_000, "clip": "policy", "bucket": 0, "combine": "inliers"}
    assert sfg.LocSage().settings.model_dump() | weights == sfg.FedSage().settings.model_dump()


def test_only_the_ceilings_pool() -> None:
    assert {name for name, kind in ALGORITHMS.items() if kind.pools} == {"globsage", "glasu-centralized"}


def test_a_round_adds_the_unweighted_mean_of_the_updates(federation: sfg.Federation) -> None:
    algorithm = sfg.FedSage(**SMALL)
    first, second = go(algorithm, federation, 1), go(algorithm, federation, 2)
    view = second.transcript.view("server")
    before = algorithm.init(federation.schema, sub_seed(0, "initialisation"))
    for number, after in ((1, first.state), (2, second.state)):
        uploads = [seen.values for seen in view.uploads("update") if seen.round == number]
        asked = next(seen.values for seen in view.asked("update") if seen.round == number)
        assert len(uploads) == 3
        for name, value in after.items():
            assert torch.equal(torch.tensor(asked[name]), before[name])
            # by hand: (a + b + c) / 3, whatever the owners' sizes
            mean = sum(torch.tensor(u[name], dtype=torch.float64) for u in uploads) / 3
            torch.testing.assert_close(value, (before[name] + mean).float(), rtol=1e-6, atol=1e-7)
        before = first.state


def test_an_update_is_what_local_training_changed(federation: sfg.Federation, clients: list[Client]) -> None:
    algorithm = sfg.FedSage(**SMALL)
    run = go(algorithm, federation, 1)
    start = algorithm.init(federation.schema, sub_seed(0, "initialisation"))
    upload = next(s for s in run.transcript.view("server").uploads("update") if s.clients == ("owner-1",))
    again = clients[1]
    again.memory = {}
    by_hand = algorithm.update(again, start)
    for name, value in by_hand.values.items():
        assert torch.equal(value, torch.tensor(upload.values[name]))


def test_adam_moments_stay_with_the_client_and_differ_by_client(
    federation: sfg.Federation, clients: list[Client]
) -> None:
    run = go(sfg.FedSage(**SMALL), federation, 3)
    for client in clients:
        steps = -(-int(client.graph.train_mask.sum()) // 16)
        moments = client.memory["optimizer"]
        assert len(moments) == len(run.state)
        assert {int(m["step"]) for m in moments.values()} == {3 * steps}  # never reset between rounds
    one, two, three = (c.memory["optimizer"]["0"]["exp_avg"] for c in clients)
    assert not torch.equal(one, two)
    assert not torch.equal(two, three)
    names = {s.channel for s in run.transcript.sent}
    assert names == {"update"}
    assert all(set(u.values) == set(run.state) for u in run.transcript.view("server").uploads("update"))


def test_kept_moments_change_the_next_round(federation: sfg.Federation, clients: list[Client]) -> None:
    algorithm = sfg.FedSage(**SMALL)
    run = go(algorithm, federation, 1)
    kept = algorithm.update(clients[0], run.state)
    clients[0].memory = {}
    fresh = algorithm.update(clients[0], run.state)
    assert apart(kept.values, fresh.values) > 1e-4


def test_sgd_keeps_no_moments_and_one_full_step_is_the_gradient(federation: sfg.Federation) -> None:
    algorithm = sfg.FedAvg(optimizer="sgd", batch="full", learning_rate=0.5, hidden=(8, 4), fanout=(3, 3))
    state = algorithm.init(federation.schema, 0)
    graph = federation.owners["owner-0"]
    client = SimpleNamespace(
        name="owner-0",
        training=None,
        true_labels=1.0,
        graph=graph,
        schema=federation.schema,
        memory={},
        generator=lambda purpose: torch.Generator().manual_seed(7),
    )
    upload = algorithm.update(client, state)
    assert client.memory == {"optimizer": {}}
    # the last bias: lr * (class shares - mean prediction), and both sum to one
    step = upload.values["head.bias"] / 0.5
    assert abs(float(step.sum())) < 1e-6
    assert float(step.abs().max()) < 1


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedsage", "globsage", "local", "locsage"])
def test_the_same_seed_gives_the_same_run_bit_for_bit_and_another_another(
    name: str, federation: sfg.Federation, clients: list[Client]
) -> None:
    def outcome(seed: int) -> tuple[dict[str, torch.Tensor], list[float]]:
        clients.clear()
        run = go(ALGORITHMS[name](**SMALL), federation, seed=seed)
        state = run.state or {f"{c.name}/{k}": v for c in clients for k, v in c.memory["model"].items()}
        return state, [row["loss"] for row in run.history]

    first, again, other = outcome(5), outcome(5), outcome(6)
    assert same(first[0], again[0]) and first[1] == again[1]
    assert not same(first[0], other[0]) and first[1] != other[1]


def test_global_random_state_is_neither_read_nor_touched(federation: sfg.Federation) -> None:
    before = torch.random.get_rng_state()
    first = go(sfg.FedSage(**SMALL), federation)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(3)
    assert same(first.state, go(sfg.FedSage(**SMALL), federation).state)


def test_fedprox_without_its_term_is_fedavg(federation: sfg.Federation) -> None:
    assert same(go(sfg.FedProx(mu=0, **SMALL), federation).state, go(sfg.FedAvg(**SMALL), federation).state)


def test_fedproxs_pull_keeps_updates_short(federation: sfg.Federation) -> None:
    settings = {**SMALL, "optimizer": "sgd", "epochs": 5, "learning_rate": 0.05}
    start = sfg.FedAvg(**settings).init(federation.schema, sub_seed(0, "initialisation"))
    moved = [apart(go(sfg.FedProx(mu=mu, **settings), federation, 1).state, start) for mu in (0, 1, 10)]
    assert moved[0] > moved[1] > moved[2] > 0


def test_fedproxs_gradient_is_mu_times_the_distance(federation: sfg.Federation) -> None:
    # the released code takes the term on detached values: its gradient is zero (algorithms.md 1.8)
    algorithm = sfg.FedProx(mu=0.3, **SMALL)
    state = algorithm.init(federation.schema, 0)
    model = algorithm.model(federation.schema)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(state[name] + 2)
    term = algorithm.penalty(state)(model)
    count = sum(p.numel() for p in model.parameters())
    assert term.item() == pytest.approx(0.3 / 2 * 4 * count, rel=1e-4)
    term.backward()
    for p in model.parameters():
        torch.testing.assert_close(p.grad, torch.full_like(p, 0.6))


@pytest.mark.parametrize("kind", [sfg.Local, sfg.LocSage])
def test_local_training_sends_the_server_no_value(
    kind: type[sfg.Algorithm], federation: sfg.Federation
) -> None:
    run = go(kind(**SMALL), federation)
    replies = [s for s in run.transcript.sent if s.recipient == "server"]
    assert len(replies) == 2 * 3
    for reply in replies:
        message = Message.from_bytes(run.transcript.body(reply.number))
        assert wire.decode(message.body) == {}
    view = run.transcript.view("server")
    assert view.uploads("train") == view.sums("train") == []
    assert not any(s.channel == "personal_model" for s in view.sent)
    assert run.charges == ()
    assert all(entry["epsilon"] == 0 for entry in run.privacy().values())
    assert run.state == {}


def test_local_models_differ_and_are_what_the_client_trains_on(
    federation: sfg.Federation, clients: list[Client]
) -> None:
    go(sfg.LocSage(**SMALL), federation, 1)
    after_one = {c.name: c.memory["model"] for c in clients}
    clients.clear()
    go(sfg.LocSage(**SMALL), federation, 2)
    for client in clients:
        assert not same(after_one[client.name], client.memory["model"])
    assert not same(clients[0].memory["model"], clients[1].memory["model"])


def test_globsage_is_marked_and_has_one_owner_of_everything(federation: sfg.Federation) -> None:
    run = go(sfg.GlobSage(**SMALL), federation)
    assert run.algorithm.pools
    assert run.federation.names == ("pool",)
    assert run.federation.facts["pooled"] is True
    graph = run.federation.owners["pool"]
    assert int(graph.train_mask.sum()) == sum(int(g.train_mask.sum()) for g in federation.owners.values())
    assert graph.num_edges > sum(g.num_edges for g in federation.owners.values())  # the missing links too
