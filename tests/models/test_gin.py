"""The GIN by hand, and what does not change its scores."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.packing import pack, select_graphs, without_answers
from secure_fedgraph.models.gin import CONVOLUTIONS, Gin
from secure_fedgraph.models.parameters import load, parameters_of


def graphs(seed: int = 0) -> list[Data]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for nodes in (1, 4, 6):
        once = torch.combinations(torch.arange(nodes))
        once = once[torch.rand(len(once), generator=generator) < 0.6].t()
        x = torch.eye(3)[torch.randint(3, (nodes,), generator=generator)]
        found.append(Data(x=x, edge_index=torch.cat([once, once.flip(0)], 1), y=torch.tensor([nodes % 2])))
    return found


def model(**settings) -> Gin:
    made = Gin(3, 2, **settings)
    made.initialise(0)
    return made.eval()


def test_a_path_by_hand():
    gin = Gin(1, 2, hidden=1, layers=1)
    load(gin, {name: torch.ones_like(p) for name, p in parameters_of(gin).items()})
    path = Data(
        x=torch.tensor([[1.0], [2.0], [3.0]]),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        y=torch.tensor([0]),
    )
    # reduce: x + 1 = 2, 3, 4; sums with neighbours: 5, 9, 7; the MLP adds 1 twice: 7, 11, 9; pooled: 27
    packed = pack([path])
    assert gin.eval().embed(packed).tolist() == [[27.0]]
    assert gin(packed).tolist() == [[29.0, 29.0]]  # 27 + 1, then + 1


def test_sizes_are_the_papers():
    names = {name: tuple(p.shape) for name, p in Gin(3, 2).named_parameters()}
    assert len([n for n in names if n.startswith(CONVOLUTIONS)]) == 12
    # 3 -> 64, three times 64 -> 64 -> 64, 64 -> 64, 64 -> 2
    assert sum(p.numel() for p in Gin(3, 2).parameters()) == 256 + 3 * 2 * 4160 + 4160 + 130
    assert names["head.weight"] == (2, 64)


def test_a_graphs_scores_do_not_depend_on_its_company():
    gin, packed = model(), pack(graphs())
    together = gin(packed)
    alone = torch.cat([gin(select_graphs(packed, torch.tensor([i]))) for i in range(3)])
    assert torch.allclose(together, alone, atol=1e-6)
    assert torch.equal(gin(without_answers(packed)), together)


def test_renumbering_nodes_changes_nothing():
    (graph,) = graphs()[2:]
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    other = Data(x=graph.x[order], edge_index=place[graph.edge_index], y=graph.y)
    gin = model()
    assert torch.allclose(gin(pack([graph])), gin(pack([other])), atol=1e-5)


def test_embeddings_are_what_is_classified():
    gin, packed = model(), pack(graphs())
    assert gin.embed(packed).shape == (3, 64)
    assert torch.equal(gin.classify(gin.embed(packed)), gin(packed))


def test_dropout_is_drawn_from_the_generator_only():
    gin, packed = model().train(), pack(graphs())
    one, two = (gin(packed, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, gin(packed, torch.Generator().manual_seed(4)))
    with pytest.raises(BadInput, match="pass one"):
        gin(packed)
    gin.eval()
    assert torch.equal(gin(packed), gin(packed, torch.Generator().manual_seed(3)))


def test_half_of_what_is_dropped_is_made_up_for():
    gin = Gin(3, 2, dropout=0.5).train()
    dropped = gin._dropped(torch.ones(1000, 100), torch.Generator().manual_seed(0))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert float(dropped.mean()) == pytest.approx(1, abs=0.02)  # six standard errors of 0.003


def test_first_weights_follow_from_the_seed():
    one, two, other = Gin(3, 2), Gin(3, 2), Gin(3, 2)
    for made, seed in ((one, 5), (two, 5), (other, 6)):
        made.initialise(seed)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.head.weight, other.head.weight)
    assert float(one.head.weight.detach().abs().max()) <= 1 / 8


def test_no_graphs_have_no_scores():
    empty = Data(
        x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0, dtype=torch.long), graph=torch.zeros(0).long()
    )
    assert model()(empty).shape == (0, 2)


def test_a_model_of_nothing_is_refused():
    with pytest.raises(BadInput, match="at least 1"):
        Gin(0, 2)
