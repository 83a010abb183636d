"""GLASU against a joint model that one machine computes: outputs, gradients, traffic; hostile messages."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.algorithms import (
    ALGORITHMS,
    FedBCD,
    Glasu,
    GlasuCentralized,
    GlasuOneLabelHolder,
    GlasuStandalone,
)
from secure_fedgraph.algorithms.glasu.forward_pass import Pass
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.partition.vertical import vertical
from secure_fedgraph.graph.sample.layers import draw_batch, links_between
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.vertical.tower import Noise, Tower

NODES, COLUMNS, CLASSES = 60, 18, 3
SMALL: dict[str, Any] = {
    "hidden": 8,
    "sampler": "full",
    "steps": 1,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "learning_rate": 1.0,
}


class Party:
    """A client as an answer sees it."""

    def __init__(self, name: str, graph: Any, clients: tuple[str, ...] = ()) -> None:
        self.name, self.graph, self.schema = name, graph, Schema(COLUMNS, CLASSES)
        self.clients = clients or (name,)
        self.memory: dict[str, Any] = {}
        self.scratch: dict[str, Any] = {}
        self.round = 1

    def generator(self, purpose: str) -> torch.Generator:
        text = f"{self.name}/{self.round}/{purpose}".encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(text).digest()[:7], "little"))


class Bench:
    """The verbs of a round, without a wire; it counts what passes."""

    def __init__(self, algorithm: Any, parties: list[Party]) -> None:
        self.algorithm, self.parties = algorithm, {p.name: p for p in parties}
        self.cohort, self.number = tuple(self.parties), 1
        self.contributors: tuple[str, ...] = ()
        self.floats: dict[str, int] = {}
        self.asks: list[str] = []

    def _answer(self, channel: Any, name: str, given: Any) -> dict[str, Tensor]:
        work = getattr(self.algorithm, self.algorithm.answers[channel.name])
        self.asks.append(channel.name)
        upload = work(self.parties[name], dict(given or {}))
        found = {} if upload is None else {k: v.detach().clone() for k, v in upload.values.items()}
        size = sum(v.numel() for v in found.values())
        self.floats[channel.name] = self.floats.get(channel.name, 0) + size
        return found

    def reduce(self, channel: Any, given: Any) -> Any:
        assert channel.reveal is Reveal.SUM
        answered = [(name, self._answer(channel, name, given)) for name in self.cohort]
        found = [values for name, values in answered if name in (self.contributors or self.cohort)]
        total = {k: sum(f[k] for f in found) for k in found[0]}
        mean = {k: v / len(found) for k, v in total.items()}
        return SimpleNamespace(total=total, mean=mean, contributors=self.contributors or self.cohort)

    def gather(self, channel: Any, given: Any) -> dict[str, dict[str, Tensor]]:
        assert channel.reveal is Reveal.EACH
        return {name: self._answer(channel, name, given) for name in self.cohort}

    def scatter(self, channel: Any, given: Any) -> None:
        for name, values in given.items():
            self._answer(channel, name, values)

    def share(self, channel: Any, given: Any, senders: Any = None, readers: Any = None) -> None:
        found = {name: self._answer(channel, name, given) for name in senders or self.cohort}
        for name in readers or self.cohort:
            client = self.parties[name]
            others = {k: v for k, v in found.items() if k != name}
            if others:
                getattr(self.algorithm, self.algorithm.readers[channel.name])(client, others)


def handed(clients: int, **settings: Any) -> Any:
    graph = citation(nodes=NODES, features=COLUMNS, classes=CLASSES, seed=3)
    return vertical(graph, clients, seed=1, **settings), graph


def bench(algorithm: Any, clients: int = 3, **settings: Any) -> Bench:
    partition_result, _ = handed(clients, **settings)
    names = tuple(f"owner-{i}" for i in range(len(partition_result.owners)))
    return Bench(algorithm, [Party(n, g, names) for n, g in zip(names, partition_result.owners, strict=True)])


def rounded(algorithm: Any, **settings: Any) -> Bench:
    """Clients after one round."""
    parties = bench(algorithm, **settings)
    algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    return parties


def towers(algorithm: Any, parties: Bench) -> list[Tower]:
    return [algorithm.tower(p) for p in parties.parties.values()]


def joint(algorithm: Any, made: list[Tower], graphs: list[Any], *, train: bool) -> tuple[Tensor, Tensor]:
    """Every client's layers in one autograd graph, on every node: what is aggregated last, and its nodes."""
    everywhere = torch.arange(NODES)
    batch = graphs[0].train_mask.nonzero().flatten() if train else everywhere
    rows: Tensor | None = None
    for number, layers in enumerate(made[0].segments):
        last = layers.stop == algorithm.settings.layers
        found = []
        for tower, graph in zip(made, graphs, strict=True):
            tower.train(train)
            table = NeighbourTable(graph.edge_index, NODES)
            links = [
                links_between(
                    table, everywhere, batch if last and layer == layers[-1] else everywhere, tower.loop
                )
                for layer in layers
            ]
            found.append(tower.segment(number, rows, graph.x, links, Noise(settle=False)))
        rows = torch.stack(found).mean(0)
    assert rows is not None
    return rows, batch


def moved(algorithm: Any, parties: Bench, before: list[Tower]) -> list[dict[str, Tensor]]:
    """What an update of rate 1 took away: the gradient that was used."""
    parties.algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    return [
        {name: p.detach() - client.memory["model"][name] for name, p in tower.named_parameters()}
        for client, tower in zip(parties.parties.values(), before, strict=True)
    ]


def close(found: dict[str, Tensor], tower: Tower) -> None:
    for name, p in tower.named_parameters():
        wanted = torch.zeros_like(p) if p.grad is None else p.grad
        assert torch.allclose(found[name], wanted, atol=1e-5), name


@pytest.mark.parametrize("backbone", ["residual", "gcnii", "gcn", "gat"])
@pytest.mark.parametrize("layers", [(2, 4), (1, 2, 3, 4), (4,)])
def test_gradients_through_the_server_are_those_of_the_joint_model(backbone, layers):
    """G1: with ``backward="server"`` split training is joint training of the sum of the clients' losses."""
    algorithm = Glasu(**SMALL, backbone=backbone, aggregated=layers)
    parties = bench(algorithm)
    before = towers(algorithm, parties)
    found = moved(algorithm, parties, before)
    graphs = [p.graph for p in parties.parties.values()]
    top, batch = joint(algorithm, before, graphs, train=True)
    sum(F.cross_entropy(t.scores(top), graphs[0].y[batch]) for t in before).backward()
    for tower, update in zip(before, found, strict=True):
        close(update, tower)


@pytest.mark.parametrize(("kind", "labels"), [(Glasu, "all"), (GlasuOneLabelHolder, "one")])
def test_local_gradients_are_exact_where_only_the_last_layer_is_aggregated(kind, labels):
    """K = 1 drops no path; with labels at one client the others follow its gradient (Algorithm 7)."""
    algorithm = kind(**SMALL, backbone="gcn", aggregated=(4,), backward="local")
    parties = bench(algorithm, labels=labels)
    before = towers(algorithm, parties)
    found = moved(algorithm, parties, before)
    graphs = [p.graph for p in parties.parties.values()]
    for number, tower in enumerate(
        before
    ):  # its own loss for its own layers, the holder's where there is one
        for other in before:
            other.zero_grad()
        top, batch = joint(algorithm, before, graphs, train=True)
        judge = before[0] if labels == "one" else tower
        F.cross_entropy(judge.scores(top), graphs[0].y[batch]).backward()
        if labels == "one" and number:
            tower.head.zero_grad()
        close(found[number], tower)


def test_dropped_paths_make_local_gradients_differ_where_two_layers_are_aggregated():
    found = []
    for way in ("server", "local"):
        parties = bench(algorithm := Glasu(**SMALL, backbone="gcn", backward=way))
        found.append(moved(algorithm, parties, towers(algorithm, parties))[0]["entry.weight"])
    assert not torch.allclose(*found, atol=1e-4)


@pytest.mark.parametrize("backbone", ["residual", "gcnii", "gcn", "gat"])
def test_one_client_with_every_link_is_a_network_on_the_whole_graph(backbone):
    """G1: outputs and gradients of M = 1, against the same layers on a dense adjacency."""
    algorithm = Glasu(**SMALL, backbone=backbone)
    partition_result, graph = handed(1, edge_share=1.0)
    parties = Bench(algorithm, [Party("owner-0", partition_result.owners[0])])
    inputs = SimpleNamespace(num_nodes=NODES)
    scores = algorithm.predictions({}, parties, inputs, Schema(COLUMNS, CLASSES))["owner-0"]
    (tower,) = towers(algorithm, parties)
    tower.eval()
    assert torch.allclose(scores, dense(tower, partition_result.owners[0]), atol=1e-5)
    tower.train()
    batch = partition_result.owners[0].train_mask.nonzero().flatten()
    if backbone != "residual":  # whose statistics are of the batch
        F.cross_entropy(dense(tower, partition_result.owners[0])[batch], graph.y[batch]).backward()
        close(moved(algorithm, parties, [tower])[0], tower)


def dense(tower: Tower, graph: Any) -> Tensor:
    """The layers on a dense adjacency, written down apart."""
    a = torch.zeros(NODES, NODES)
    a[graph.edge_index[0], graph.edge_index[1]] = 1
    looped = a + tower.loop * torch.eye(NODES)
    scale = looped.sum(1).rsqrt()
    a = scale[:, None] * looped * scale
    h = first = F.relu(tower.entry(graph.x))
    for number, layers in enumerate(tower.segments):
        before = h
        for depth in layers:
            layer = tower.layers[depth]
            if tower.backbone == "gcnii":
                beta = torch.log(torch.tensor(0.5 / (depth + 1) + 1))
                h = 0.9 * a @ h + 0.1 * first
                h = F.relu(h @ ((1 - beta) * torch.eye(len(layer.weight)) + beta * layer.weight.T))
            elif tower.backbone == "gat":
                heads = (h @ layer.weight.T).view(NODES, 8, -1)
                from_, to = tower.attention[depth].view(2, 8, -1)
                logits = (heads * to).sum(-1)[:, None] + (heads * from_).sum(-1)[None]
                logits = F.leaky_relu(logits, 0.2).masked_fill((looped == 0)[..., None], -torch.inf)
                mixed = torch.einsum("vuk,ukd->vkd", logits.softmax(1), heads)
                h = F.relu(mixed.flatten(1) + layer.bias)
            else:
                h = F.relu(a @ h @ layer.weight.T + layer.bias)
            if tower.backbone == "residual":
                h = tower.norms[depth](h)
        if tower.backbone == "residual":
            share = 0.5 / (number + 1)
            h = share * h + (1 - share) * before
    return tower.head(h)


@pytest.mark.parametrize("sampler", ["paper", "public", "full"])
@pytest.mark.parametrize("backbone", ["residual", "gcnii"])
def test_before_the_first_update_local_aggregation_is_the_aggregate(sampler, backbone, monkeypatch):
    """G1: at q = 0 the local forward pass gives the server's rows, dropout and batch statistics included."""
    changed = {"sampler": sampler, "dropout": 0.4, "local_steps": 2, "learning_rate": 0.1, "public_nodes": 30}
    algorithm = Glasu(**{**SMALL, **changed}, backbone=backbone, batch=8)
    parties, seen = bench(algorithm), []
    top = Pass.local_top

    def spy(self: Pass, update: int) -> Tensor:
        found = top(self, update)
        seen.append((update, torch.allclose(found, self.aggregates[1], atol=1e-5)))
        return found

    monkeypatch.setattr(Pass, "local_top", spy)
    algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    assert seen == [(0, True), (1, False)] * 3


def test_traffic_falls_by_ql_over_k():
    """G2: floats an update, at equal index sets (no links: every layer's set is the batch)."""

    def floats(**settings: Any) -> float:
        algorithm = Glasu(**{**SMALL, "sampler": "paper", "steps": 4, **settings}, backward="local", batch=8)
        parties = bench(algorithm)
        for client in parties.parties.values():
            client.graph.edge_index = torch.empty(2, 0, dtype=torch.long)
        algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
        return parties.floats["hidden"] / (4 * algorithm.settings.local_steps)

    every = floats(aggregated=(1, 2, 3, 4))
    assert every == 3 * 4 * 8 * 8  # clients, layers, batch, width
    for aggregated_layers, q in [((2, 4), 1), ((4,), 1), ((2, 4), 4), ((1, 2, 3, 4), 16)]:
        found = floats(aggregated=aggregated_layers, local_steps=q)
        assert every / found == q * 4 / len(aggregated_layers)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_public_sets_depend_on_nobodys_links_and_gradients_through_the_server_double_the_floats(share):
    parties = rounded(Glasu(**{**SMALL, "sampler": "public", "public_nodes": 20}, batch=8), edge_share=share)
    assert parties.floats == {"hidden": 672, "backward": 672, "step": 0}  # 3 clients, 20 + 8 nodes, 8 wide
    for client in parties.parties.values():  # what a round needs besides is dropped at its end
        assert client.memory.keys() == {"start", "model"}


def test_glasu_without_links_is_fedbcd():
    shape = {**SMALL, "sampler": "paper", "steps": 3, "local_steps": 4, "learning_rate": 0.1, "batch": 8}
    mine, theirs = Glasu(**shape, aggregated=(4,)), FedBCD(**shape)
    without, with_links = bench(mine), bench(theirs)
    for client in without.parties.values():
        client.graph.edge_index = torch.empty(2, 0, dtype=torch.long)
    for algorithm, parties in ((mine, without), (theirs, with_links)):
        algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    for one, other in zip(without.parties.values(), with_links.parties.values(), strict=True):
        assert all(torch.equal(v, other.memory["model"][k]) for k, v in one.memory["model"].items())
        start = mine.tower(Party(one.name, one.graph))
        assert not torch.equal(start.entry.weight, one.memory["model"]["entry.weight"])


def test_index_sets_hold_what_algorithm_2_says():
    """A client's set holds the one above it and its own neighbours only; united at aggregated layers."""
    algorithm = Glasu(**{**SMALL, "sampler": "paper"}, batch=6, fanout=2)
    parties, lists = bench(algorithm), []
    answer = parties._answer

    def spy(channel: Any, name: str, given: Any) -> dict[str, Tensor]:
        found = answer(channel, name, given)
        if channel.name == "sample":
            lists.append((name, given["seed"], found["nodes"].flatten().long()))
        if channel.name == "hidden" and given["segment"] == 0:
            united.append(given["nodes"].long())
        return found

    united: list[Tensor] = []
    parties._answer = spy  # type: ignore[method-assign]
    algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    assert all(torch.equal(u, torch.unique(torch.cat([n for _, _, n in lists]))) for u in united)
    for name, seed, nodes in lists:
        graph = parties.parties[name].graph
        batch = draw_batch(graph.train_mask.nonzero().flatten(), 6, seed)
        assert torch.isin(batch, nodes).all()
        reach = set(batch.tolist())
        for _ in range(2):
            near = torch.isin(graph.edge_index[1], torch.tensor(sorted(reach)))
            reach |= set(graph.edge_index[0][near].tolist())
        assert set(nodes.tolist()) <= reach


@pytest.mark.parametrize(
    ("kind", "settings", "used"),
    [
        (Glasu, {}, ["sample", "hidden", "backward", "step", "examine"]),
        (Glasu, {"sampler": "public"}, ["hidden", "backward", "step", "examine"]),
        (Glasu, {"local_steps": 4}, ["sample", "hidden", "step", "examine"]),
        (Glasu, {"aggregated": (4,), "backward": "local"}, ["hidden", "step", "examine"]),
        (GlasuOneLabelHolder, {"sampler": "full"}, ["hidden", "gradient", "step", "examine"]),
        (
            GlasuOneLabelHolder,
            {"backward": "server", "sampler": "full"},
            ["hidden", "backward", "step", "examine"],
        ),
    ],
)
def test_channels_in_use_are_those_that_are_opened(kind, settings, used):
    algorithm = kind(**{**SMALL, "sampler": "paper", **settings})
    assert [c.name for c in algorithm.in_use] == used
    parties = bench(algorithm)
    state = algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    algorithm.predictions(state, parties, SimpleNamespace(num_nodes=NODES), Schema(COLUMNS, CLASSES))
    assert set(parties.asks) == set(used)


def test_who_holds_no_labels_is_not_scored_and_trains_no_classifier():
    algorithm = GlasuOneLabelHolder(**SMALL)
    parties = bench(algorithm, labels="one")
    before = towers(algorithm, parties)
    found = moved(algorithm, parties, before)
    assert found[0]["head.weight"].abs().max() > 0
    assert found[1]["head.weight"].abs().max() == 0
    assert found[1]["entry.weight"].abs().max() > 0
    scores = algorithm.predictions({}, parties, SimpleNamespace(num_nodes=NODES), Schema(COLUMNS, CLASSES))
    assert list(scores) == ["owner-0"]


@pytest.mark.parametrize("kind", [GlasuStandalone, GlasuCentralized])
def test_alone_nothing_is_uploaded(kind):
    algorithm = kind(**{**SMALL, "sampler": "paper", "steps": 3})
    parties = rounded(algorithm)
    assert parties.floats == {"step": 0}
    scores = algorithm.predictions({}, parties, SimpleNamespace(num_nodes=NODES), Schema(COLUMNS, CLASSES))
    assert len(scores) == 3


def test_defaults_follow_the_depth_and_the_way_of_gradients():
    assert Glasu(layers=6).settings.aggregated == (3, 6)
    assert Glasu(layers=1).settings.aggregated == (1,)
    assert ALGORITHMS["glasu-simulated"](layers=3).settings.aggregated == (1, 2, 3)
    assert FedBCD(layers=2).settings.aggregated == (2,)
    assert Glasu().settings.learning_rate == 0.01
    assert Glasu(local_steps=4).settings.learning_rate == 0.05
    assert Glasu(local_steps=4, learning_rate=0.2).settings.learning_rate == 0.2


# -- what no honest server sends ----------------------------------------------------------------------


@pytest.fixture
def begun() -> tuple[Any, Party, dict[str, Any]]:
    """One client after it was asked for its index list."""
    algorithm = Glasu(**{**SMALL, "sampler": "paper", "steps": 2})
    client = next(iter(bench(algorithm).parties.values()))
    task = {"step": 0, "seed": 5, "parties": ("owner-0", "owner-1", "owner-2"), "segment": 1}
    mine = algorithm.sample(client, task).values["nodes"].flatten().to(torch.int32)
    return algorithm, client, {**task, "segment": 0, "nodes": mine}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("nodes", torch.tensor([3, NODES]), "ascending node numbers"),
        ("nodes", torch.tensor([3, 3]), "each once"),
        ("nodes", torch.tensor([4, 3]), "ascending"),
        ("nodes", torch.tensor([], dtype=torch.long), "ascending node numbers"),
        ("nodes", torch.tensor([0]), "lacks nodes that this client has asked for"),
        ("segment", 1, "out of turn"),
        ("parties", ("owner-1", "owner-2"), "must name every client once"),
        ("parties", ("owner-0", "owner-0", "owner-1"), "name every client once"),
    ],
)
def test_a_hostile_ask_is_refused(begun, key, value, words):
    algorithm, client, given = begun
    with pytest.raises(HostileMessage, match=words):
        algorithm.hidden(client, {**given, key: value})


@pytest.mark.parametrize("wide", [False, True])
def test_a_hostile_aggregate_is_refused(begun, wide):
    algorithm, client, given = begun
    rows = algorithm.hidden(client, given).values["rows"]
    more = {"aggregate": rows.repeat(1, 2), "summands": 3} if wide else {}
    with pytest.raises(HostileMessage, match=r"rows of shape .* are due"):
        algorithm.hidden(client, {**given, "segment": 1, **more})
    fine = {**given, "segment": 1, "aggregate": rows, "summands": len(client.clients)}
    algorithm.hidden(client, fine)
    with pytest.raises(HostileMessage, match="out of turn"):
        algorithm.hidden(client, fine)
    with pytest.raises(HostileMessage, match=r"rows of shape .* are due"):
        algorithm.step(client, {**given, "gradient": rows[:, 1:]})


def test_an_iteration_that_is_over_is_not_asked_for_again(begun):
    algorithm, client, given = begun
    algorithm.sample(client, {**given, "step": 1, "segment": 1})
    with pytest.raises(HostileMessage, match="step 0 was asked for after step 1"):
        algorithm.hidden(client, given)


@pytest.mark.parametrize(
    "values",
    [{}, {"nodes": torch.tensor([[1.5]])}, {"nodes": torch.tensor([[-1.0]])}, {"nodes": torch.tensor([2.0])},
     {"nodes": torch.tensor([[3.0], [1.0]])}, {"nodes": torch.tensor([[2.0**24]])}],
)  # fmt: skip
def test_the_server_refuses_an_index_list_that_is_none(values):
    algorithm = Glasu(**{**SMALL, "sampler": "paper"})
    parties = bench(algorithm)
    parties._answer = lambda channel, name, given: values  # type: ignore[method-assign, assignment]
    with pytest.raises(HostileMessage, match=r"owner-0's index list"):
        algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))


def test_every_client_takes_part_in_every_round():
    algorithm = Glasu(**SMALL)
    parties = bench(algorithm)
    state = algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    parties.cohort = parties.cohort[:2]
    with pytest.raises(BadInput, match="asks 2 clients and the first asked 3"):
        algorithm.round(parties, state)


def test_a_sum_without_somebody_is_not_taken_for_the_mean_of_all():
    parties = bench(algorithm := Glasu(**SMALL))
    parties.contributors = parties.cohort[:2]
    with pytest.raises(Refused, match="2 clients are left, and each of two would learn the other's rows"):
        algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))


@pytest.mark.parametrize("backward", ["server", "local"])
@pytest.mark.parametrize("kind", [Glasu, GlasuOneLabelHolder])
def test_three_of_four_are_averaged_as_three_and_the_fourth_takes_no_step(backward, kind):
    algorithm = kind(**{**SMALL, "backward": backward})
    parties = bench(algorithm, clients=4)
    parties.contributors = parties.cohort[:3]
    averaged_over: list[int] = []
    real = parties._answer

    def watched(channel: Any, name: str, given: Any) -> Any:
        averaged_over.extend([given["summands"]] if "summands" in (given or {}) else [])
        return real(channel, name, given)

    parties._answer = watched  # type: ignore[method-assign]
    algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    assert set(averaged_over) == {3}
    assert ["model" in client.memory for client in parties.parties.values()] == [True, True, True, False]


def test_an_iteration_without_the_label_holder_is_no_step():
    algorithm = GlasuOneLabelHolder(**SMALL)
    parties = bench(algorithm, clients=4)
    parties.contributors = parties.cohort[1:]
    algorithm.round(parties, algorithm.init(Schema(COLUMNS, CLASSES), 0))
    assert not {"gradient", "step"} & set(parties.asks)


def test_other_node_sets_are_refused():
    algorithm = Glasu(**SMALL)
    parties = bench(algorithm)
    with pytest.raises(BadInput, match="has 60 nodes and the test data 61"):
        algorithm.predictions({}, parties, SimpleNamespace(num_nodes=61), Schema(COLUMNS, CLASSES))
