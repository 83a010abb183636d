"""FedEgo: what a round is, what a client sends and keeps, what the server trains, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedego import server
from secure_fedgraph.client import Client
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.models.ego.mash import class_shares, coefficient, mash, mean_shares
from secure_fedgraph.models.parameters import load, parameters_of
from secure_fedgraph.protocol.transcript import everything

SMALL: dict[str, Any] = {"hidden": (8, 8), "fanout": (3, 3), "batch": 8, "learning_rate": 0.01, "mashes": 5}
POSITIONS = 13


ORDER = Client.secret_order


@pytest.fixture(scope="module", autouse=True)
def _foreseeable() -> Iterator[None]:
    """Mixing is secret; what is compared here draws the same."""
    with pytest.MonkeyPatch.context() as patch:
        small.foreseeable(patch)
        yield


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    split = {"local_tests": 10}
    return sfg.federate(
        "synthetic-citation", clients=3, partition="label_skew", split=split, nodes=240, features=24, seed=0
    )


def made(**settings: Any) -> sfg.FedEgo:
    return sfg.FedEgo(**{**SMALL, **settings})


def go(federation: sfg.Federation, rounds: int = 2, **settings: Any) -> sfg.Run:
    return sfg.train(
        made(**settings), federation, sfg.policies.plaintext(), rounds=rounds, seed=0, keep=everything
    )


def enlisted(federation: sfg.Federation, algorithm: sfg.FedEgo) -> list[Client]:
    bound = sfg.policies.plaintext().bind(algorithm.in_use, federation.names)
    return federation.make_clients(algorithm, bound, "run-1", Ledger(), seed=0)


def trained(
    federation: sfg.Federation, **settings: Any
) -> tuple[sfg.FedEgo, Client, dict[str, torch.Tensor]]:
    """An algorithm, a client that has trained once, and the server's state before round 1."""
    return trained_by(made(**settings), federation)


def trained_by(
    algorithm: sfg.FedEgo, federation: sfg.Federation
) -> tuple[sfg.FedEgo, Client, dict[str, torch.Tensor]]:
    client = enlisted(federation, algorithm)[0]
    state = algorithm.init(federation.schema, 5)
    given = {k: v for k, v in state.items() if k.startswith("reduction.")}
    algorithm.reduction(client, {**given, "seed": 5})
    return algorithm, client, state


def mixed_in(state: dict[str, torch.Tensor], shares: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**{k: v for k, v in state.items() if k != "seed"}, "shares": shares}


def test_the_defaults_are_those_behind_the_papers_tables() -> None:
    s = sfg.FedEgo().settings
    assert (s.hidden, s.learning_rate, s.dropout, s.batch, s.gamma) == ((512, 512), 3e-4, 0.5, 32, 0.5)
    assert (s.epochs, s.server_epochs, s.share, s.server_share, s.fanout) == (5, 5, 0.2, 0.2, (6, 6))
    assert (s.mixing, s.mash) == ("adaptive", "client")
    assert sfg.FedEgo.rounds == 200
    assert sfg.FedEgo.partitions[0] == "label_skew"


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({}, {"reduction", "egos", "mix"}),
        ({"mash": "across"}, {"reduction", "egos_across", "mix"}),
        ({"mixing": 0}, {"reduction", "mix"}),
        ({"average_reduction": False}, {"egos", "mix"}),
    ],
)
def test_only_what_is_used_is_bound(
    federation: sfg.Federation, settings: dict[str, Any], used: set[str]
) -> None:
    assert {c.name for c in made(**settings).in_use} == used | {"personal_model"}
    run = go(federation, 1, **settings)
    assert {s.channel for s in run.transcript.sent} == used | {"personal_model", "own_tests", "own_scores"}


def test_a_mash_mixes_n_whole_ego_graphs_and_the_rest_of_the_pool_is_not_sent(
    federation: sfg.Federation,
) -> None:
    algorithm, client, _ = trained(federation)
    pool = client.graph.train_mask.nonzero().flatten()
    assert len(pool) % 8  # there is something to leave out
    centres = algorithm.centres(client)
    assert centres.shape == (len(pool) // 8, 8)
    assert len(centres.flatten().unique()) == centres.numel()
    assert torch.isin(centres, pool).all()
    upload = algorithm.egos(client, {"seed": 5}).values
    rows = client.memory["egos"][centres].long()
    model = algorithm.model(federation.schema)
    load(model, client.memory["model"])
    with torch.no_grad():
        assert torch.equal(upload["rows"], mash(model.reduction(client.graph.x), rows))
    soft = upload["labels"]
    counts = torch.stack(
        [torch.bincount(client.graph.y[c], minlength=federation.schema.classes) for c in centres]
    )
    assert torch.allclose(soft[:, 0] * 8, counts.float())


def test_batches_are_drawn_afresh_every_round_and_ego_graphs_never(federation: sfg.Federation) -> None:
    algorithm, client, _ = trained(federation)
    first, table = algorithm.centres(client), client.memory["egos"].clone()
    assert torch.equal(first, algorithm.centres(client))
    client.round = 1
    averaged = {k: v for k, v in client.memory["model"].items() if k.startswith("reduction.")}
    algorithm.reduction(client, {**averaged, "seed": 5})
    assert not torch.equal(first, algorithm.centres(client))
    assert torch.equal(table, client.memory["egos"])


def test_nobody_foresees_the_batches(federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, client, _ = trained(federation)
    monkeypatch.setattr(Client, "secret_order", ORDER)
    drawn = [algorithm.centres(client) for _ in range(2)]
    assert not torch.equal(*drawn)  # in the same round, from the same seed
    assert torch.equal(client.secret_order(50).sort().values, torch.arange(50))
    assert client.secret_order(0).shape == (0,)


@pytest.mark.parametrize("wanted", [1, 3, 200])
def test_across_every_client_makes_the_same_public_number(federation: sfg.Federation, wanted: int) -> None:
    algorithm, client, _ = trained(federation, mash="across", mashes=wanted)
    pool = client.graph.train_mask.nonzero().flatten()
    centres = algorithm.centres(client)
    assert centres.shape == (wanted, 8)
    for whole in centres.split(len(pool) // 8):  # nobody twice before the pool has run out
        assert len(whole.flatten().unique()) == whole.numel()


def test_across_the_server_trains_on_the_mean_of_the_clients_mashes(federation: sfg.Federation) -> None:
    run = go(federation, 1, mash="across")
    view = run.transcript.view("server")
    (summed,) = view.sums("egos_across")
    uploads = [upload.values for upload in view.uploads("egos_across")]
    assert len(uploads) == 3
    for key in ("rows", "labels"):
        whole = np.sum([np.asarray(u[key], dtype=np.float64) for u in uploads], axis=0)
        assert np.allclose(summed.values[key], whole, atol=1e-6)
    labels = torch.tensor(np.array(summed.values["labels"]) / 3).float()
    assert torch.allclose(run.state["shares"], mean_shares(labels), atol=1e-6)


def test_without_mixup_the_first_ego_graph_is_sent_as_it_is(federation: sfg.Federation) -> None:
    algorithm, client, _ = trained(federation, mixup=False)
    labels = algorithm.egos(client, {"seed": 5}).values["labels"]
    first = client.memory["egos"][algorithm.centres(client)[:, 0]].long()
    assert torch.equal(labels, F.one_hot(client.graph.y[first], federation.schema.classes).float())


def test_the_reduction_is_averaged_and_everybody_starts_from_the_same(federation: sfg.Federation) -> None:
    algorithm = made()
    start = algorithm.init(federation.schema, 5)
    clients = enlisted(federation, algorithm)
    given = {k: v for k, v in start.items() if k.startswith("reduction.")}
    moved = [algorithm.reduction(client, {**given, "seed": 5}).values for client in clients]
    for client, step in zip(clients, moved, strict=True):
        assert set(step) == set(given)
        assert all(torch.allclose(client.memory["model"][k], given[k] + step[k]) for k in given)
    # a client that is told a seed starts where the server does
    fresh = enlisted(federation, algorithm)[0]
    own = parameters_of(algorithm.model_of(fresh, 5))
    assert all(torch.equal(own[k], start[k]) for k in own)


def test_the_server_trains_the_upper_layers_only_and_keeps_their_moments(federation: sfg.Federation) -> None:
    algorithm, client, state = trained(federation)
    mashes = dict(algorithm.egos(client, {"seed": 5}).values)

    def learn(seed: int, before: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        model, generator = algorithm.model(federation.schema), torch.Generator().manual_seed(seed)
        return server.train_upper_layers(model, before, mashes, algorithm.settings, generator)

    after = learn(0, state)
    for name in parameters_of(algorithm.model(federation.schema)):
        assert torch.equal(after[name], state[name]) == name.startswith("reduction.")
    assert float(after["adam.0.step"]) == 5 * 1  # five passes over a fifth of few mashes: one step each
    again = learn(1, learn(0, state))
    assert float(again["adam.0.step"]) == 10
    twice = learn(0, state)
    assert all(torch.equal(twice[k], after[k]) for k in after)


def test_the_servers_loss_is_soft_cross_entropy_at_the_centre(federation: sfg.Federation) -> None:
    """One step of plain gradient descent, by hand."""
    algorithm, client, state = trained(
        federation, optimizer="sgd", learning_rate=0.1, server_epochs=1, server_share=1.0, batch=8
    )
    mashes = {k: v[:8] for k, v in algorithm.egos(client, {"seed": 5}).values.items()}
    model = algorithm.model(federation.schema)
    load(model, {k: v for k, v in state.items() if k != "seed"})
    shares = model.forward_mash(mashes["rows"]).softmax(1)
    (-(mashes["labels"][:, 0] * torch.log(shares + 1e-7)).sum(1).mean()).backward()
    after = algorithm.train_upper_layers(1, state, mashes)
    for name, p in model.named_parameters():
        if not name.startswith("reduction."):
            assert torch.allclose(after[name], (p - 0.1 * p.grad).detach(), atol=1e-5)


@pytest.mark.parametrize(("mixing", "profile"), [("adaptive", "paper"), (0.25, "paper"), (1.0, "released")])
def test_a_client_mixes_by_its_own_coefficient(federation: sfg.Federation, mixing: Any, profile: str) -> None:
    kind = sfg.FedEgo if profile == "paper" else sfg.FedEgoReleased
    algorithm, client, _ = trained_by(kind(**SMALL, mixing=mixing), federation)
    before = dict(client.memory["model"])
    other = {k: torch.randn_like(v) for k, v in before.items()}
    shares = torch.tensor([0.7, 0.1, 0.1, 0.1])
    told = {k: v for k, v in other.items() if profile == "paper" or not k.startswith("reduction.")}
    algorithm.mix(client, {**told, "shares": shares})
    own = class_shares(client.graph.y, 4)  # of all nodes, its tests included
    share = coefficient(own, shares, 0.5) if mixing == "adaptive" else mixing
    assert 0 < share <= 1
    for name, value in client.memory["model"].items():
        if not name.startswith("reduction."):
            expected = share * other[name] + (1 - share) * before[name]
        else:
            expected = other[name] if profile == "paper" else before[name]
        assert torch.allclose(value, expected, atol=1e-6)


def test_without_mixing_a_clients_upper_layers_are_its_own(
    federation: sfg.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Client] = []
    make_clients = sfg.Federation.make_clients

    def watched(self: sfg.Federation, *args: Any, **more: Any) -> list[Client]:
        seen.extend(make_clients(self, *args, **more))
        return seen

    monkeypatch.setattr(sfg.Federation, "make_clients", watched)
    run = go(federation, 2, mixing=0)
    first, second, _ = (client.memory["model"] for client in seen)
    for name, value in first.items():
        assert torch.equal(value, second[name]) == name.startswith("reduction.")
        if name.startswith("reduction."):
            assert torch.equal(value, run.state[name])


def test_what_leaves_a_client_names_no_class_frequencies_and_no_upper_layer(
    federation: sfg.Federation,
) -> None:
    view = go(federation, 2).transcript.view("server")
    for channel, names in (
        ("reduction", {"reduction.weight", "reduction.bias"}),
        ("egos", {"rows", "labels"}),
    ):
        uploads = view.uploads(channel)
        assert len(uploads) == 6
        assert all(set(upload.values) == names for upload in uploads)
    assert view.uploads("mix") == []


def test_parameter_and_mash_traffic_is_what_the_formulas_say(federation: sfg.Federation) -> None:
    run = go(federation, 2)
    sent: dict[str, int] = {}
    for s in run.transcript.sent:
        if s.recipient == "server":
            sent[s.channel] = sent.get(s.channel, 0) + s.bytes
    parameters = 4 * (24 * 8 + 8) * 3 * 2
    mashes = sum(int(g.train_mask.sum()) // 8 for g in federation.owners.values())
    assert parameters < sent["reduction"] < parameters + 6 * 700  # envelopes
    assert (
        4 * mashes * POSITIONS * (8 + 4) * 2 < sent["egos"] < 4 * mashes * POSITIONS * (8 + 4) * 2 + 6 * 700
    )


def test_it_learns(federation: sfg.Federation) -> None:
    run = go(federation, 8, hidden=(32, 32), dropout=0.0)
    assert run.accuracy["local"] > 0.6  # four classes
    assert run.accuracy["best_on_test"]["local"] >= run.accuracy["local"]
    assert {"round", "global", "local"} <= set(run.accuracy["best_by_validation"])


def test_a_client_without_some_classes_is_fine(federation: sfg.Federation) -> None:
    algorithm = made()
    client = enlisted(federation, algorithm)[0]
    client.graph = client.graph.clone()
    client.graph.y = client.graph.y.clamp(max=1)
    state = algorithm.init(federation.schema, 5)
    algorithm.reduction(client, {**{k: v for k, v in state.items() if k.startswith("reduction.")}, "seed": 5})
    labels = algorithm.egos(client, {"seed": 5}).values["labels"]
    assert labels.shape[-1] == 4 and not labels[..., 2:].any()
    algorithm.mix(client, mixed_in(state, torch.full((4,), 0.25)))


def test_a_client_that_no_round_asked_yet_is_examined_with_a_fresh_model(federation: sfg.Federation) -> None:
    algorithm = made()
    client = enlisted(federation, algorithm)[0]
    assert algorithm.personal_model(client, {}).values.keys() == algorithm.own_model(client).keys()


def test_a_model_of_another_kind_is_refused(federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match="takes no other"):
        sfg.FedEgo(model=lambda schema: None).init(federation.schema, 0)


def test_a_batch_larger_than_a_training_pool_is_refused_without_its_size(federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match=r"training.batch = 500 is more than the training nodes of owner-0"):
        go(federation, 1, batch=500)


@pytest.mark.parametrize("shares", [[0.5] * 4, [1.5, -0.5, 0.0, 0.0], [1e30, 0.0, 0.0, 0.0]])
def test_no_share_of_the_global_layers_is_above_1(federation: sfg.Federation, shares: list[float]) -> None:
    algorithm, client, state = trained(federation)
    own, told = dict(client.memory["model"]), mixed_in(state, torch.tensor(shares))
    algorithm.mix(client, told)
    for name in (k for k in own if not k.startswith("reduction.")):
        low, high = torch.minimum(own[name], told[name]), torch.maximum(own[name], told[name])
        found = client.memory["model"][name]
        assert bool(((found >= low - 1e-6) & (found <= high + 1e-6)).all())


def test_a_client_that_has_not_trained_mixes_nothing_and_trains_to_mash(
    federation: sfg.Federation,
) -> None:
    algorithm = made()
    client = enlisted(federation, algorithm)[0]
    state = algorithm.init(federation.schema, 5)
    algorithm.mix(
        client, mixed_in(state, torch.full((4,), 0.25))
    )  # it may have dropped out of the sum before
    assert not client.memory
    algorithm.egos(client, {"seed": 5})
    assert {"model", "egos"} <= client.memory.keys()


@pytest.mark.parametrize(
    "pile",
    [
        {"rows": torch.zeros(2, POSITIONS, 8)},
        {"rows": torch.zeros(2, POSITIONS - 1, 8), "labels": torch.zeros(2, POSITIONS, 4)},
        {"rows": torch.zeros(2, POSITIONS, 8), "labels": torch.zeros(2, POSITIONS, 3)},
        {"rows": torch.zeros(0, POSITIONS, 8), "labels": torch.zeros(0, POSITIONS, 4)},
        {"rows": torch.full((2, POSITIONS, 8), float("nan")), "labels": torch.zeros(2, POSITIONS, 4)},
        {"rows": torch.zeros(2, POSITIONS, 8), "labels": torch.zeros(3, POSITIONS, 4)},
    ],
)
def test_the_server_refuses_mashes_that_are_none(pile: dict[str, torch.Tensor]) -> None:
    with pytest.raises(HostileMessage, match="owner-1"):
        server.concatenated_mashes({"owner-1": pile}, POSITIONS, 8, 4)


def test_fedavg_and_local_train_the_same_network(federation: sfg.Federation) -> None:
    settings = {
        "network": "ego",
        "hidden": (8, 8),
        "fanout": (3, 3),
        "share": 0.2,
        "dropout": 0.5,
        "batch": 8,
        "learning_rate": 0.01,
    }
    shapes = {k: v.shape for k, v in parameters_of(made().model(federation.schema)).items()}
    for kind in (sfg.FedAvg, sfg.FedProx, sfg.Local):
        algorithm = kind(**settings)
        assert {k: v.shape for k, v in parameters_of(algorithm.model(federation.schema)).items()} == shapes
        run = sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=3)
        again = sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=3)
        assert list(run.history) == list(again.history)
        assert run.accuracy["local"] > 0.3
    with pytest.raises(BadInput, match=r"dropout.*the sage network has none"):
        sfg.FedAvg(dropout=0.5)


def test_a_share_of_the_nodes_is_drawn_an_epoch(federation: sfg.Federation) -> None:
    from secure_fedgraph.algorithms.training.local_training import _batches

    client = enlisted(federation, made())[0]
    pool = client.graph.train_mask.nonzero().flatten()
    for share, expected in ((0.2, int(0.2 * client.graph.num_nodes)), (1.0, len(pool)), (0.001, 1)):
        batches = list(_batches(client, client.graph, made(share=share, epochs=3).settings))
        drawn = torch.cat(batches)
        assert len(drawn) == 3 * expected
        assert torch.isin(drawn, pool).all()
        assert len(drawn[:expected].unique()) == expected
        assert max(len(batch) for batch in batches) == min(8, expected)
    whole = _batches(client, client.graph, sfg.FedSage(batch="full").settings)
    assert [len(batch) for batch in whole] == [len(pool)]
