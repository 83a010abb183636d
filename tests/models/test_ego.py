"""FedEgo's models: the tree against the definition, sparse against dense, mashes and mixing coefficients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.ego_graphs import ego_table, levels
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.ego.mash import class_shares, coefficient, distance, mash, mean_shares
from secure_fedgraph.models.ego.model import EgoSage, Reduction
from secure_fedgraph.models.molecules import dropped
from secure_fedgraph.models.parameters import parameters_of
from secure_fedgraph.models.sparse_rows import compact

GRAPH = citation(nodes=80, features=40, classes=3, seed=4)
FANOUT = (3, 2)


def made(**options) -> EgoSage:
    model = EgoSage(40, 3, width=8, fanout=FANOUT, **options)
    model.initialise(1)
    with torch.no_grad():  # biases that matter
        for layer in model.layers:
            layer.neighbour.bias.normal_(generator=seeded(2))
    return model.eval()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def table() -> torch.Tensor:
    return ego_table(GRAPH, FANOUT, generator=seeded())


def by_hand(model: EgoSage, row: list[int]) -> torch.Tensor:
    """Eq. 7 and 10, node by node; -1 is the zero vector."""
    w, b = model.reduction.weight, model.reduction.bias
    r = [F.relu(GRAPH.x[v] @ w + b) if v >= 0 else torch.zeros(8) for v in row]

    def layer(number: int, own: torch.Tensor, children: list[torch.Tensor]) -> torch.Tensor:
        one = model.layers[number]
        mean = torch.stack(children).mean(0)
        return F.relu(one.neighbour.weight @ mean + one.neighbour.bias + one.own.weight @ own)

    first = [layer(0, r[0], r[1:4])] + [layer(0, r[j], r[2 * j + 2 : 2 * j + 4]) for j in range(1, 4)]
    return model.head.weight @ layer(1, first[0], first[1:])


def test_a_tree_is_scored_as_defined() -> None:
    model, rows = made(), table()[:6].clone()
    rows[1, 3] = -1
    rows[1, 8:] = -1
    expected = torch.stack([by_hand(model, row) for row in rows.tolist()])
    assert torch.allclose(model.forward_tree(GRAPH.x, levels(rows, FANOUT)), expected, atol=1e-5)


def test_whole_neighbourhoods_are_trees_that_hold_all_of_them() -> None:
    """On a ring every node has two neighbours: a tree of two children each is the whole neighbourhood."""
    n = 12
    here = torch.arange(n)
    edges = torch.stack([torch.cat([here, here]), torch.cat([(here + 1) % n, (here - 1) % n])])
    x = torch.rand(n, 40, generator=seeded())
    model = EgoSage(40, 3, width=8, fanout=(2, 2))
    model.initialise(0)
    first = torch.stack([(here - 1) % n, (here + 1) % n], 1)
    second = torch.stack([(first - 1) % n, (first + 1) % n], 2)
    assert torch.allclose(model.forward_tree(x, [here, first, second]), model(x, edges), atol=1e-5)


def test_an_isolated_node_is_scored_from_itself() -> None:
    scores = made()(GRAPH.x[:2], torch.empty(2, 0, dtype=torch.long))
    assert torch.isfinite(scores).all() and not torch.equal(scores[0], scores[1])


def test_what_is_dense_stays_dense() -> None:
    assert isinstance(compact(torch.eye(20)), SparseMatrix)
    assert isinstance(compact(torch.rand(20, 20) + 0.1), torch.Tensor)
    dense, sparse = (Reduction(20, 4) for _ in range(2))
    for one in (dense, sparse):
        torch.nn.init.ones_(one.weight)
    x = torch.eye(20)
    assert torch.allclose(dense(x), sparse(compact(x)))


def test_parameter_counts_are_those_behind_the_papers_table_7() -> None:
    """E1: uploads of 5 clients in 200 rounds, 4-byte floats, 2^20 bytes a MB."""

    def megabytes(features: int, classes: int, part: str) -> float:
        model = EgoSage(features, classes)
        count = sum(p.numel() for name, p in model.named_parameters() if name.startswith(part))
        return count * 4 * 5 * 200 / 2**20

    assert round(megabytes(1433, 7, "reduction.")) == 2801
    assert round(megabytes(3703, 6, "reduction.")) == 7234
    assert round(megabytes(1433, 7, "")) == 6818  # the paper: 6819, a rounding of parts
    assert round(megabytes(3703, 6, "")) == 11250


def test_the_start_is_kaiming_normal_and_follows_from_the_seed() -> None:
    model = EgoSage(1000, 5, width=256)
    assert not any(p.any() for p in model.parameters())
    model.initialise(3)
    params = parameters_of(model)
    assert float(params["reduction.weight"].std()) == pytest.approx(math.sqrt(2 / 1000), rel=0.02)
    assert float(params["layers.0.own.weight"].std()) == pytest.approx(math.sqrt(2 / 256), rel=0.02)
    assert float(params["layers.1.neighbour.bias"].abs().max()) == 0
    again = EgoSage(1000, 5, width=256)
    again.initialise(3)
    assert all(torch.equal(value, params[name]) for name, value in parameters_of(again).items())


def test_dropout_is_drawn_from_its_generator_once_a_node() -> None:
    model = made(dropout=0.5)
    model.train()
    row = torch.tensor([[0, 1, 1, 1, 0, 0, 0, 0, 0, 0]])
    tree = levels(row, FANOUT)
    first, again, other = (model.forward_tree(GRAPH.x, tree, seeded(s)) for s in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(model.forward_tree(GRAPH.x, tree), model.eval().forward_tree(GRAPH.x, tree, seeded()))


def test_dropout_keeps_the_mean() -> None:
    kept = dropped(torch.ones(100, 1000), 0.25, seeded())
    assert float((kept == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.01)
    assert dropped(torch.ones(2, 2), 0.25, None).tolist() == [[1.0, 1.0]] * 2


def test_a_mash_is_the_mean_position_by_position() -> None:
    values = torch.tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0]])
    rows = torch.tensor([[[0, 1], [2, 1]], [[1, -1], [0, -1]]])
    assert mash(values, rows).tolist() == [[[3.0, 30.0], [3.0, 30.0]], [[2.0, 20.0], [0.0, 0.0]]]


def test_mashes_of_labels_are_soft_labels() -> None:
    rows = table()[:32].view(2, 16, -1)
    soft = mash(F.one_hot(GRAPH.y, 3).float(), rows)
    present = (rows >= 0).float().mean(1)
    assert torch.allclose(soft.sum(-1), present)
    assert torch.allclose(soft[0, 0] * 16, torch.bincount(GRAPH.y[:16], minlength=3).float())


def test_a_mash_of_one_is_its_ego_graph() -> None:
    model, rows = made(), table()[:5]
    values = mash(model.embedded(GRAPH.x, GRAPH.edge_index), rows.unsqueeze(1))
    assert torch.allclose(
        model.forward_mash(values), model.forward_tree(GRAPH.x, levels(rows, FANOUT)), atol=1e-5
    )
    assert model.positions == 10


def test_class_shares_distances_and_coefficients() -> None:
    own = class_shares(torch.tensor([0, 0, 2, 0]), 3)
    assert own.tolist() == [0.75, 0.0, 0.25]
    everybody = torch.tensor([0.25, 0.5, 0.25])
    assert distance(own, everybody) == 1.0  # |.5| + |.5| + 0
    assert coefficient(own, everybody, 0.5) == pytest.approx(math.sqrt(0.5))
    assert coefficient(own, everybody, 1.0) == 0.5
    assert coefficient(own, own, 0.5) == 0.0
    apart = coefficient(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 0.125)
    assert apart == 1.0
    # a small exponent pushes towards the global layers
    assert coefficient(own, everybody, 0.125) > coefficient(own, everybody, 0.875)


def test_mean_shares_are_a_distribution_whatever_was_missing_or_added() -> None:
    soft = torch.tensor([[[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]], [[1.0, -0.5, 0.0], [0.0, 0.0, 0.0]]])
    shares = mean_shares(soft)
    assert shares.tolist() == pytest.approx([1.5 / 1.75, 0.0, 0.25 / 1.75])
    assert mean_shares(torch.zeros(1, 2, 4)).tolist() == [0.25] * 4


def test_widths_that_are_none_are_refused() -> None:
    with pytest.raises(BadInput, match="give numbers from 1"):
        EgoSage(4, 2, width=0)
    with pytest.raises(BadInput, match="give numbers from 1"):
        EgoSage(4, 2, fanout=())
