"""GraphSAGE and parameters: trees against whole neighbourhoods, shapes, counts, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.models import GraphSage
from secure_fedgraph.models.gnn import SageLayer
from secure_fedgraph.models.parameters import (
    difference,
    glorot,
    load,
    made_over,
    parameters_of,
    tensors_of,
    total,
)

NONE = -1


def ring(nodes: int = 8) -> torch.Tensor:
    """Every node's neighbours are the two beside it."""
    here = torch.arange(nodes)
    return torch.cat(
        [torch.stack([(here + 1) % nodes, here]), torch.stack([(here - 1) % nodes, here])], dim=1
    )


def whole_tree(nodes: int) -> list[torch.Tensor]:
    """The ring's full neighbourhoods as a tree of two hops."""
    roots = torch.arange(nodes)
    first = torch.stack([(roots - 1) % nodes, (roots + 1) % nodes], dim=1)
    second = torch.stack([(first - 1) % nodes, (first + 1) % nodes], dim=2)
    return [roots, first, second]


def model(features: int = 5, classes: int = 3, hidden: tuple[int, ...] = (8, 4), seed: int = 1) -> GraphSage:
    made = GraphSage(features, classes, hidden)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return made


def features(nodes: int, width: int = 5) -> torch.Tensor:
    return torch.randn(nodes, width, generator=torch.Generator().manual_seed(0))


def test_one_layer_by_hand() -> None:
    layer = SageLayer(2, 2)
    with torch.no_grad():
        layer.own.weight.copy_(torch.tensor([[1.0, 0.0]]))
        layer.neighbour.weight.copy_(torch.tensor([[0.0, 2.0]]))
        layer.bias.copy_(torch.tensor([0.5, -1.0]))
        joined = layer.join(
            layer.own(torch.tensor([[3.0, 9.0]])), layer.neighbour(torch.tensor([[9.0, 4.0]]))
        )
    assert joined.tolist() == [[3.5, 7.0]]


def test_a_neighbourless_node_sees_zero_neighbours_and_its_own_features() -> None:
    net, x = model(), features(3)
    links = torch.tensor([[0, 1], [1, 0]])  # node 2 is isolated
    tree = [torch.tensor([2]), torch.full((1, 5), NONE), torch.full((1, 5, 5), NONE)]
    with torch.no_grad():
        scores = net(x, links)
        torch.testing.assert_close(net.forward_tree(x, tree), scores[2:])
        first, second = net.layers
        hidden = torch.relu(torch.cat([first.own(x[2]), torch.zeros(4)]) + first.bias)
        last = torch.cat([second.own(hidden), torch.zeros(2)]) + second.bias
        torch.testing.assert_close(net.head(last / last.norm()), scores[2])
    assert torch.isfinite(scores).all()


def test_a_mean_is_over_the_neighbours_that_are_there() -> None:
    # x_1, not (x_1 + 0) / 2: as from whole neighbourhoods
    net, x = model(hidden=(8,)), features(2)
    with torch.no_grad():
        got = net.forward_tree(x, [torch.tensor([0]), torch.tensor([[1, NONE]])])
        layer = net.layers[0]
        last = torch.cat([layer.own(x[0]), layer.neighbour(x[1])]) + layer.bias
        torch.testing.assert_close(got[0], net.head(last / last.norm()))


@pytest.mark.parametrize("hidden", [(8,), (8, 4), (8, 6, 4), (8, 6, 6, 4)])
def test_trees_positions_and_whole_neighbourhoods_score_alike_where_neighbours_are_missing(
    hidden: tuple[int, ...],
) -> None:
    # 0 -> 1 -> 2 -> 3 and 3 <- 4: node 0 and node 4 have no neighbour, and no node has two but 3
    net, x, depth = model(hidden=hidden), features(5), len(hidden)
    assert net.hops == depth
    table = torch.tensor([[NONE, NONE], [NONE, 0], [1, NONE], [2, 4], [NONE, NONE], [NONE, NONE]])
    tree = [torch.arange(5)]
    for _ in range(depth):
        tree.append(table[tree[-1]])  # the last row is that of -1
    rows = torch.cat([level.reshape(5, -1) for level in tree], dim=1)
    with torch.no_grad():
        whole = net(x, torch.tensor([[0, 1, 2, 4], [1, 2, 3, 3]]))
        torch.testing.assert_close(net.forward_tree(x, tree), whole)
        filled = rows >= 0
        positions = net.forward_positions(x[rows.clamp(min=0)] * filled.unsqueeze(-1), filled)
        torch.testing.assert_close(positions, whole)


def test_a_graph_without_any_link_and_an_all_zero_node_are_finite() -> None:
    net = GraphSage(5, 3)  # all zero: the row before normalisation is the zero vector
    x = torch.zeros(2, 5)
    assert torch.isfinite(net(x, torch.empty(2, 0, dtype=torch.long))).all()
    glorot(net, 0)
    scores = net(x, torch.empty(2, 0, dtype=torch.long))
    scores.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_shapes_are_concatenated_halves_and_coras_count_is_94087() -> None:
    shapes = {name: tuple(p.shape) for name, p in GraphSage(1433, 7).named_parameters()}
    assert shapes == {
        "layers.0.own.weight": (32, 1433),
        "layers.0.neighbour.weight": (32, 1433),
        "layers.0.bias": (64,),
        "layers.1.own.weight": (16, 64),
        "layers.1.neighbour.weight": (16, 64),
        "layers.1.bias": (32,),
        "head.weight": (7, 32),
        "head.bias": (7,),
    }
    # 2*32*1433 + 64 + 2*16*64 + 32 + 32*7 + 7
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 94_087


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(BadInput, match="hidden width 7 is odd"):
        GraphSage(5, 3, (7, 4))


def test_the_gradient_is_that_of_the_whole_graph() -> None:
    trees, whole, x = model(), model(), features(8)
    y = torch.arange(8) % 3
    torch.nn.functional.cross_entropy(trees.forward_tree(x, whole_tree(8)), y).backward()
    torch.nn.functional.cross_entropy(whole(x, ring(8)), y).backward()
    for a, b in zip(trees.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
        assert a.grad is not None and a.grad.any()


def test_load_and_parameters_of_are_inverse_and_copy() -> None:
    source, target = model(seed=1), model(seed=2)
    values = parameters_of(source)
    load(target, values)
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))
    with torch.no_grad():
        source.head.bias += 1
    assert not torch.equal(values["head.bias"], source.head.bias)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p | {"head.bias": torch.zeros(4)},
        lambda p: p | {"head.bias": torch.tensor([0.0, float("nan"), 0.0])},
        lambda p: p | {"head.bias": torch.tensor([0.0, float("inf"), 0.0])},
        lambda p: p | {"extra": torch.zeros(1)},
        lambda p: {name: value for name, value in p.items() if name != "head.bias"},
        lambda p: p | {"head.weight": p["head.weight"].T.contiguous()},
    ],
    ids=["shape", "nan", "inf", "extra", "missing", "transposed"],
)
def test_load_refuses_what_is_not_this_models(spoil) -> None:  # type: ignore[no-untyped-def]
    net = model()
    before = parameters_of(net)
    with pytest.raises(HostileMessage, match=r"head|extra"):
        load(net, spoil(parameters_of(model(seed=2))))
    assert all(torch.equal(before[name], p) for name, p in net.named_parameters())  # nothing was copied
    with pytest.raises(HostileMessage, match=r"head|extra"):
        made_over(model, spoil(parameters_of(model(seed=2))))


def test_a_model_made_over_tensors_holds_these_and_no_copies() -> None:
    kept = parameters_of(model(seed=2))
    made = made_over(model, kept)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in tensors_of(made).items())
    with torch.no_grad():
        made.head.bias += 1
    assert torch.equal(kept["head.bias"], made.head.bias)
    assert all(p.requires_grad and not p.is_meta for p in made.parameters())


def test_difference_and_total() -> None:
    after, before = {"w": torch.tensor([3.0, 1.0])}, {"w": torch.tensor([1.0, 4.0])}
    assert difference(after, before)["w"].tolist() == [2.0, -3.0]
    assert total(before, difference(after, before))["w"].tolist() == [3.0, 1.0]


def test_glorot_is_seeded_within_its_bound_and_leaves_biases_zero() -> None:
    one, same, other = GraphSage(50, 4), GraphSage(50, 4), GraphSage(50, 4)
    glorot(one, 3)
    glorot(same, 3)
    glorot(other, 4)
    weight = one.layers[0].own.weight
    assert torch.equal(weight, same.layers[0].own.weight)
    assert not torch.equal(weight, other.layers[0].own.weight)
    bound = (6 / (50 + 32)) ** 0.5
    assert 0.9 * bound < weight.abs().max().item() <= bound
    assert not one.head.bias.any()
    assert not one.layers[0].bias.any()


def test_glorot_refuses_what_it_has_no_rule_for() -> None:
    with pytest.raises(BadInput, match="3 dimensions"):
        glorot(torch.nn.Conv1d(2, 3, 2), 0)
