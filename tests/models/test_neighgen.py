"""NeighGen: the generator's shape and seeds, losses against loops, gradients against autograd, training."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.mending import Impaired, impair, mend
from secure_fedgraph.models.neighgen import training as at_home
from secure_fedgraph.models.neighgen.model import FeatureGenerator, Gcn, NeighGen
from secure_fedgraph.models.neighgen.training import (
    count_loss,
    generator_gradient,
    joint_loss,
    matched_distances,
    nearest_distances,
    predict_neighbours,
    train_locally,
)
from secure_fedgraph.models.parameters import glorot, parameters_of

SHAPE = {"latent": 6, "features": 4, "candidates": 3, "hidden": (8, 10)}
COUNTS = torch.tensor([2, 0, 3, 1, 0])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fgen(seed: int = 0) -> FeatureGenerator:
    made = FeatureGenerator(**SHAPE)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=seeded(seed)) / 2)
    return made


def embeddings(nodes: int = 5) -> Tensor:
    return torch.rand(nodes, 6, generator=seeded(3))


def targets(nodes: int = 7) -> Tensor:
    return torch.rand(nodes, 4, generator=seeded(4)) * 2 - 1


def naive_nearest(generated: Tensor, counts: Tensor, pool: Tensor) -> Tensor:
    """Sum over nodes and their first ``counts[v]`` vectors of the least squared distance."""
    total = torch.zeros(())
    for v, count in enumerate(counts.tolist()):
        for p in range(count):
            total = total + min(((generated[v, p] - u) ** 2).sum() for u in pool)
    return total


# the generator


def test_parameter_names_and_shapes_are_fixed_and_coras_count_is_15_240_445() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in FeatureGenerator().named_parameters()}
    assert shapes == {
        "inner.0.weight": (256, 128),
        "inner.0.bias": (256,),
        "inner.1.weight": (2048, 256),
        "inner.1.bias": (2048,),
        "outer.weight": (7165, 2048),
        "outer.bias": (7165,),
    }
    assert sum(math.prod(shape) for shape in shapes.values()) == 15_240_445


def test_forward_by_hand() -> None:
    net = FeatureGenerator(1, 1, candidates=2, hidden=(2,)).eval()
    with torch.no_grad():
        net.inner[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        net.outer.weight.copy_(torch.tensor([[2.0, 5.0], [-1.0, 5.0]]))
        net.outer.bias.copy_(torch.tensor([0.0, 0.5]))
        out = net(torch.tensor([[0.2]]), torch.tensor([[0.1]]))
    # inside: relu(.3), relu(-.3) = .3, 0; outside: tanh(.6), tanh(-.3 + .5)
    torch.testing.assert_close(out, torch.tensor([[[math.tanh(0.6)], [math.tanh(0.2)]]]))


def test_generate_is_forward_on_the_nodes_that_ask_in_values_and_gradients() -> None:
    net, z = fgen().train(), embeddings()
    some = COUNTS.nonzero().flatten()
    mask = torch.arange(3) < COUNTS[some].unsqueeze(1)
    random = seeded(9)
    noise = net.noise(len(some), random)
    z_slow, z_fast = z.clone().requires_grad_(), z.clone().requires_grad_()
    slow = net(z_slow[some], noise, random)
    weigh = torch.randn(slow.shape, generator=seeded(5))
    (slow * weigh)[mask].sum().backward()
    expected = {name: p.grad for name, p in net.named_parameters()}
    net.zero_grad()
    made = net.generate(z_fast, COUNTS, seeded(9))
    assert sorted(zip(made.anchor.tolist(), made.slot.tolist(), strict=True)) == [
        (0, 0), (0, 1), (2, 0), (2, 1), (2, 2), (3, 0),
    ]  # fmt: skip
    padded = made.padded(5, 3)
    torch.testing.assert_close(padded[some][mask], slow[mask])
    assert not padded[[1, 4]].any()
    assert not padded[0, 2].any()
    (padded[some] * weigh).sum().backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, expected[name])
    torch.testing.assert_close(z_fast.grad, z_slow.grad)


def test_generate_when_nobody_asks_and_when_only_the_first_slot_is_asked() -> None:
    net = fgen()
    none = net.generate(embeddings(), torch.zeros(5, dtype=torch.long), seeded())
    assert none.rows.shape == (0, 4)
    assert none.padded(5, 3).shape == (5, 3, 4)
    one = net.generate(embeddings(), torch.ones(5, dtype=torch.long), seeded())
    one.rows.sum().backward()
    assert net.outer.weight.grad is not None
    assert net.outer.weight.grad[:4].any()
    assert not net.outer.weight.grad[4:].any()  # written as zero, not left as memory was


def test_dropout_is_seeded_drops_half_of_a_nodes_last_layer_and_leaves_global_state() -> None:
    net, z = FeatureGenerator(6, 4, hidden=(8, 4000)), torch.ones(1, 6)
    glorot(net, 1)
    with torch.no_grad():
        net.inner[1].bias.fill_(1.0)
        net.inner[1].weight.zero_()
        state = torch.get_rng_state()
        inside = net._inside(z, seeded(1))
        assert torch.equal(inside, net._inside(z, seeded(1)))
        assert not torch.equal(inside, net._inside(z, seeded(2)))
        assert torch.equal(state, torch.get_rng_state())
    assert sorted(set(inside.flatten().tolist())) == [0.0, 2.0]
    assert abs(float((inside == 0).float().mean()) - 0.5) < 0.05
    with pytest.raises(BadInput, match=r"torch\.Generator"):
        net(z, torch.zeros(1, 6))
    net.eval()
    assert set(net._inside(z, None).flatten().tolist()) == {1.0}


@pytest.mark.parametrize("bad", [{"dropout": 1.0}, {"candidates": 0}, {"hidden": ()}, {"hidden": (8, 0)}])
def test_widths_and_dropout_that_are_none(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        FeatureGenerator(**SHAPE | bad)


# the encoder and the counts


def test_gcn_is_the_row_normalised_dense_product() -> None:
    net, x = Gcn(4, 5, 3).eval(), targets(6)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=seeded(2)))
    links = torch.tensor([[0, 1, 2, 0, 3], [1, 0, 0, 2, 2]])
    adjacency = torch.eye(6)
    adjacency[links[1], links[0]] = 1  # from source to target
    mean = adjacency / adjacency.sum(1, keepdim=True)
    with torch.no_grad():
        dense = F.relu(mean @ x @ net.first.weight.T + net.first.bias)
        dense = mean @ dense @ net.second.weight.T + net.second.bias
        torch.testing.assert_close(net(x, links), dense)


def test_counts_are_rounded_and_clipped() -> None:
    net = NeighGen(4, 2, encoder=(3, 6), hidden=(4,))
    assert net.counts(torch.tensor([0.0, 0.49, 0.51, 4.4, 4.6, 99.0])).tolist() == [0, 0, 1, 4, 5, 5]


# losses


def test_count_loss_by_hand() -> None:
    # |.5| -> .125; |3| -> 2.5; 0
    loss = count_loss(torch.tensor([1.5, 0.0, 2.0]), torch.tensor([1, 3, 2]))
    assert float(loss) == pytest.approx((0.125 + 2.5) / 3)


@pytest.mark.parametrize("nearest", [False, True])
def test_distances_and_their_gradients_are_those_of_a_loop(nearest: bool) -> None:
    fast = torch.randn(5, 3, 4, generator=seeded(1)).requires_grad_()
    slow = fast.detach().clone().requires_grad_()
    table = torch.tensor([[0, 2, 5], [1, -1, -1], [6, 3, -1], [-1, -1, -1], [4, -1, -1]])
    total = torch.zeros(())
    for v in range(5):
        own = [int(u) for u in table[v] if u >= 0]
        if own or nearest:
            pool = targets() if nearest else targets()[own]
            total = total + naive_nearest(slow[v : v + 1], COUNTS[v : v + 1], pool)
    total.backward()
    anchor, slot = (torch.arange(3) < COUNTS.unsqueeze(1)).nonzero(as_tuple=True)
    rows = fast[anchor, slot]
    pool = targets()
    loss = nearest_distances(rows, pool) if nearest else matched_distances(rows, table[anchor], pool)
    torch.testing.assert_close(loss.sum(), total)
    loss.sum().backward()
    torch.testing.assert_close(fast.grad, slow.grad)
    assert fast.grad is not None and (nearest or not fast.grad[3].any())


def test_distances_to_nothing() -> None:
    with pytest.raises(BadInput, match="one or more rows of 4 features"):
        nearest_distances(torch.zeros(2, 4), torch.empty(0, 4))


def test_the_search_in_pieces_is_the_search_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, choice = torch.randn(9, 4, generator=seeded()), torch.randint(-1, 7, (9, 3), generator=seeded())
    whole = nearest_distances(rows, targets()), matched_distances(rows, choice, targets())
    monkeypatch.setattr("secure_fedgraph.models.neighgen.training._SCRATCH", 16)
    torch.testing.assert_close(nearest_distances(rows, targets()), whole[0])
    torch.testing.assert_close(matched_distances(rows, choice, targets()), whole[1])


# what an answering owner computes


def test_generator_gradient_is_autograd_of_the_naive_loss() -> None:
    net, z, pool = fgen().train(), embeddings(), targets()
    some = COUNTS.nonzero().flatten()
    random = seeded(11)
    noise = net.noise(len(some), random)
    (0.25 * naive_nearest(net(z[some], noise, random), COUNTS[some], pool)).backward()
    params = parameters_of(net)
    got = generator_gradient(fgen(), z, COUNTS, pool, 0.25, seeded(11))
    assert got.keys() == params.keys()
    for name, p in net.named_parameters():
        torch.testing.assert_close(got[name], p.grad)
        assert torch.equal(params[name], p)  # what came is not changed
        assert not params[name].requires_grad
    assert got["outer.weight"].any()


def test_each_owner_draws_its_own_noise_and_no_global_state() -> None:
    args, state = (fgen(), embeddings(), COUNTS, targets(), 1.0), torch.get_rng_state()
    one, same, other = (generator_gradient(*args, seeded(s)) for s in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["outer.weight"], other["outer.weight"])
    assert torch.equal(state, torch.get_rng_state())


def test_a_single_nodes_gradient_gives_its_nearest_feature_away() -> None:
    """Attack C1: why these messages need a channel that protects."""
    params, pool, scale = parameters_of(fgen()), targets(), 0.5
    g = generator_gradient(fgen(), embeddings(1), torch.tensor([3]), pool, scale, seeded(8))
    weight, bias = g["outer.weight"].double(), g["outer.bias"].double()
    h = weight.T @ bias / bias.square().sum()
    made = torch.tanh(params["outer.weight"].double() @ h + params["outer.bias"].double())
    stolen = (made - bias / (2 * scale * (1 - made**2))).view(3, 4)
    apart = torch.cdist(stolen, pool.double())
    assert apart.min(1).values.max() < 1e-4


def test_where_a_gradient_overflows_depends_on_the_targets_and_is_zero() -> None:
    huge = fgen()
    with torch.no_grad():
        for p in huge.parameters():
            p.mul_(1e30)
    got = generator_gradient(huge, embeddings(), COUNTS, targets(), 1.0, seeded())
    assert all(bool(torch.isfinite(g).all()) for g in got.values())


def test_nobody_asks_gives_zero_gradients() -> None:
    params, none = parameters_of(fgen()), torch.zeros(5, dtype=torch.long)
    got = generator_gradient(fgen(), embeddings(), none, targets(), 1.0, seeded())
    assert {name: g.shape for name, g in got.items()} == {name: p.shape for name, p in params.items()}
    assert not any(g.any() for g in got.values())


# training


def impaired() -> Impaired:
    graph = citation(nodes=120, features=24)
    graph.train_mask = torch.arange(120) % 5 < 3
    return impair(graph, 0.3, 0)


def neighgen(seed: int = 0) -> NeighGen:
    made = NeighGen(24, 4, encoder=(8, 16), head=8, hidden=(16, 32))
    glorot(made, seed)
    with torch.no_grad():
        made.dgen.bias.fill_(1.0)  # so that something is generated from the start
    return made


def test_joint_loss_is_that_of_its_parts() -> None:
    made, net = impaired(), neighgen().eval()  # without dropout: the noise is all that is drawn
    got = joint_loss(net, made, seeded(2), "paper_sum")
    graph = made.graph
    with torch.no_grad():
        missing = net.missing(net.embed(graph.x, graph.edge_index))
        counts, generated = predict_neighbours(net, graph, seeded(2), chunk=1000)
        mended = mend(graph, counts, generated)
        scores = net.head(mended.x, mended.edge_index)
    known = mended.train_mask
    assert counts.sum() > 0
    torch.testing.assert_close(got.count, count_loss(missing, made.counts))
    anchor, slot = (torch.arange(generated.shape[1]) < counts.unsqueeze(1)).nonzero(as_tuple=True)
    apart = matched_distances(generated[anchor, slot], made.neighbours[anchor], made.hidden_x)
    expected = apart.sum() / len(graph.x)
    torch.testing.assert_close(got.feature, expected)
    per_dim = joint_loss(net, made, seeded(2)).feature  # 5 candidates of 24 columns
    torch.testing.assert_close(per_dim, expected / 120)
    torch.testing.assert_close(got.classifier, F.cross_entropy(scores[known], mended.y[known]))


@pytest.mark.parametrize(
    ("term", "trained"),
    [
        ("count", {"encoder", "dgen"}),
        ("feature", {"encoder", "fgen"}),
        ("classifier", {"encoder", "fgen", "head"}),
    ],
)
def test_what_each_term_trains(term: str, trained: set[str]) -> None:
    net = neighgen()
    getattr(joint_loss(net, impaired(), seeded()), term).backward()
    touched = {name for name, p in net.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name.split(".")[0] for name in touched} == trained


def test_training_lowers_the_loss_and_is_seeded() -> None:
    nets = [neighgen().eval(), neighgen(), neighgen()]
    state = torch.get_rng_state()
    histories = [
        train_locally(net, impaired(), 60, seeded(s), learning_rate=0.01)
        for net, s in zip(nets, (1, 1, 2), strict=True)
    ]
    assert nets[0].training
    assert torch.equal(state, torch.get_rng_state())
    assert sum(histories[0][-5:]) < sum(histories[0][:5])
    assert histories[0] == histories[1] != histories[2]
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))


def test_frozen_parts_stay() -> None:
    net = neighgen()
    before = parameters_of(net)
    for part in (net.encoder, net.dgen, net.head):
        part.requires_grad_(False)
    train_locally(net, impaired(), 2, seeded())
    changed = {name.split(".")[0] for name, p in net.named_parameters() if not torch.equal(before[name], p)}
    assert changed == {"fgen"}


def test_no_training_node_left_is_no_classifier_term() -> None:
    made = impaired()
    made.graph.train_mask[:] = False
    history = train_locally(neighgen(), made, 1, seeded())
    assert math.isfinite(history[0]) and joint_loss(neighgen(), made, seeded()).classifier == 0


def test_prediction_is_chunked_seeded_and_without_dropout_and_may_be_of_nobody() -> None:
    net, graph = neighgen().train(), citation(nodes=50, features=24)
    state = torch.get_rng_state()
    counts, features = predict_neighbours(net, graph, seeded(4), chunk=7)
    assert net.training
    assert torch.equal(state, torch.get_rng_state())
    assert features.shape == (50, int(counts.max()), 24)
    again = predict_neighbours(net, graph, seeded(4), chunk=7)
    assert torch.equal(counts, again[0])
    assert torch.equal(features, again[1])
    assert not torch.equal(features, predict_neighbours(net, graph, seeded(5), chunk=7)[1])
    beyond = torch.arange(features.shape[1]) >= counts.unsqueeze(1)
    assert not features[beyond].any()
    assert features[~beyond].any(-1).all()
    with torch.no_grad():
        net.dgen.bias.fill_(-99.0)
    counts, features = predict_neighbours(net, graph, seeded())
    assert not counts.any() and features.shape == (50, 0, 24)
    assert len(mend(graph, counts, features).x) == 50


@pytest.mark.parametrize("trained", [True, False])
def test_an_owner_mends_its_graph_by_its_own_training_labels_alone(trained: bool) -> None:
    graph = citation(nodes=120, features=24, classes=3, seed=0)
    graph.train_mask = (torch.arange(120) < 60) & trained
    other = graph.clone()
    other.y = torch.where(graph.train_mask, graph.y, 0)
    first, second = (at_home.mended(one, 3, seeded()) for one in (graph, other))
    assert torch.equal(first.x, second.x) and torch.equal(first.edge_index, second.edge_index)
    assert len(first.x) > 120 and torch.equal(first.x[:120], graph.x)
    other.y = torch.where(graph.train_mask, (graph.y + 1) % 3, graph.y)
    other.y[0] = graph.y[0]
    assert torch.equal(at_home.mended(other, 3, seeded()).x, first.x) is not trained


def test_a_graph_that_cannot_be_mended_is_refused_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = citation(nodes=120, features=24, classes=3, seed=0)
    at_home.check(graph, "a")
    with pytest.raises(BadInput, match="hides none"):
        at_home.check(graph.subgraph(torch.arange(2)), "a")
    monkeypatch.setattr(at_home, "MOST_VALUES", 100)
    with pytest.raises(BadInput, match=r"training\.mend = at_home: .* a's 120 nodes.*training\.mend=none"):
        at_home.check(graph, "a")
