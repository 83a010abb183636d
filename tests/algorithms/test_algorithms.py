"""The FedSage family: what a round is, what stays with a client, what leaves it, and what seeds decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput
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
    assert sfg.FedSage().settings.model_dump() == {
        "learning_rate": 0.001,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "batch": 64,
        "epochs": 1,
        "fanout": (5, 5),
        "hidden": (64, 32),
        "head": "glorot",
        "network": "sage",
        "share": 1.0,
        "dropout": 0.0,
        "weighted": False,
        "heaviest": 10_000,
        "clip": "policy",
        "largest_gradient": 100.0,
        "class_weight": (),
        "places": 0,
        "crowd": 100,
    }
    assert sfg.FedSage.rounds == 50
    assert sfg.LocSage().settings == sfg.GlobSage().settings
    weights = {"weighted": False, "heaviest": 10_000, "clip": "policy"}  # which one client has no use for
    assert sfg.LocSage().settings.model_dump() | weights == sfg.FedSage().settings.model_dump()


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedsage", "globsage"])
def test_averaging_algorithms_ask_for_one_sum(name: str) -> None:
    (channel,) = ALGORITHMS[name].channels
    assert (channel.name, channel.reveal.value, channel.unit.value, channel.to) == (
        "update",
        "sum",
        "client",
        "server",
    )


def test_only_the_ceilings_pool() -> None:
    assert {name for name, kind in ALGORITHMS.items() if kind.pools} == {"globsage", "glasu-centralized"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": 0}, "'learning_rate' = 0"),
        ({"epochs": 0}, "'epochs' = 0"),
        ({"lr": 0.1}, "'lr' is unknown"),
        ({"optimizer": "adamw"}, "'optimizer' = 'adamw'"),
        ({"batch": 0}, "batch"),
        ({"batch": -4}, "batch"),
        ({"fanout": (0, 5)}, "fanout"),
        ({"fanout": ()}, "fanout"),
        ({"fanout": (5,)}, "'hidden' = .* as many widths as fanout has numbers, which is 1"),
        ({"batch": "half"}, "'batch' = 'half': give a whole number from 1, or full"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"hidden": ()}, "hidden"),
        ({"hidden": (63, 32)}, "hidden"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sfg.FedSage(**settings)


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


def test_one_owner_trains_the_same_model_alone_as_in_a_federation_of_one() -> None:
    # LocSage is FedSage without averaging: with one owner and one round both take the same steps
    alone = sfg.federate("synthetic-citation", clients=1, seed=0, nodes=60, features=16)
    fed, local = go(sfg.FedSage(**SMALL), alone), go(sfg.LocSage(**SMALL), alone)
    assert fed.accuracy["global"] == pytest.approx(local.accuracy["global"], abs=0.2)


def test_globsage_is_marked_and_has_one_owner_of_everything(federation: sfg.Federation) -> None:
    run = go(sfg.GlobSage(**SMALL), federation)
    assert run.algorithm.pools
    assert run.federation.names == ("pool",)
    assert run.federation.facts["pooled"] is True
    graph = run.federation.owners["pool"]
    assert int(graph.train_mask.sum()) == sum(int(g.train_mask.sum()) for g in federation.owners.values())
    assert graph.num_edges > sum(g.num_edges for g in federation.owners.values())  # the missing links too


class Linear(nn.Module):
    """A user's own model: no ``forward_tree``, no ``head``."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.out(x)


@pytest.mark.parametrize("kind", [sfg.FedAvg, sfg.LocSage])
def test_an_own_module_trains(kind: type[sfg.Algorithm], federation: sfg.Federation) -> None:
    algorithm = kind(model=lambda schema: Linear(schema.features, schema.classes), learning_rate=0.1)
    run = go(algorithm, federation, 5)
    losses = [row["loss"] for row in run.history]
    assert losses[-1] != losses[0]
    if run.state:  # five steps on three owners' sum help; on one owner's few nodes they need not
        assert losses[-1] < losses[0]
        assert {name: tuple(v.shape) for name, v in run.state.items()} == {
            "out.weight": (4, 16),
            "out.bias": (4,),
        }


def test_a_batch_is_a_pass_over_all_training_nodes_once(federation: sfg.Federation) -> None:
    from secure_fedgraph.algorithms.training.local_training import _batches

    graph = federation.owners["owner-0"]
    client = SimpleNamespace(
        training=None, graph=graph, generator=lambda purpose: torch.Generator().manual_seed(1)
    )
    batches = list(_batches(client, graph, sfg.FedSage(batch=10, epochs=2).settings))
    nodes = graph.train_mask.nonzero().flatten().tolist()
    assert sorted(torch.cat(batches).tolist()) == sorted(nodes * 2)
    assert max(len(b) for b in batches) == 10
    assert [len(b) for b in _batches(client, graph, sfg.FedSage(batch="full").settings)] == [len(nodes)]
