"""Molecules: the generator, the vocabularies, and the networks with a pooled head."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils.smiles import e_map, x_map

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.datasets import KINDS, load
from secure_fedgraph.graph.data.molecules import ATOMS, BONDS, MOTIFS, generate, schema_of
from secure_fedgraph.graph.kinds import GraphSetDataset
from secure_fedgraph.graph.sample.packing import pack, select_graphs
from secure_fedgraph.models.molecules import Embedded, GraphConvolution, GraphNet, dropped
from secure_fedgraph.models.parameters import glorot


def test_the_vocabularies_are_pygs():
    assert tuple(len(values) for values in x_map.values()) == ATOMS
    assert tuple(len(values) for values in e_map.values()) == BONDS


class TestGenerator:
    def test_the_same_seed_gives_the_same(self):
        assert generate(graphs=20).digest == generate(graphs=20).digest != generate(graphs=20, seed=1).digest

    def test_the_columns_say_what_the_bonds_say(self):
        for graph in generate(graphs=60, seed=2).graphs:
            source, target = graph.edge_index
            assert graph.x[:, 2].equal(torch.bincount(source, minlength=len(graph.x)).float())
            pairs = set(map(tuple, graph.edge_index.T.tolist()))
            assert pairs == {(b, a) for a, b in pairs}
            assert (source != target).all()
            ring = graph.x[:, 8] == 1
            inside = torch.bincount(source[ring[source] & ring[target]], minlength=len(ring))
            assert (inside[ring] == 2).all()  # a ring's atom has two neighbours on rings
            aromatic = graph.edge_attr[:, 0] == 12
            assert graph.x[source[aromatic], 7].eq(1).all()
            assert (graph.x[:, 4] <= 3).all() and (graph.x >= 0).all()

    def test_no_atom_has_more_bonds_than_it_can(self):
        valence = {6: 4, 7: 3, 8: 2, 17: 1}
        for graph in generate(graphs=60, seed=4, mean_motifs=5).graphs:
            order = {1.0: 1.0, 2.0: 2.0, 12.0: 1.5}
            weight = torch.tensor([order[float(kind)] for kind in graph.edge_attr[:, 0]])
            used = torch.zeros(len(graph.x)).index_add(0, graph.edge_index[0], weight)
            room = torch.tensor([valence[int(element)] for element in graph.x[:, 0]])
            assert (used + graph.x[:, 4] <= room).all()

    def test_the_class_follows_the_motifs(self):
        """Counted again from the graph alone: aromatic and saturated rings, Cl, NH2 and C=O."""
        for graph in generate(graphs=80, seed=5, noise=0.0).graphs:
            x = graph.x
            rings = [int(((x[:, 8] == 1) & (x[:, 7] == a)).sum()) // 6 for a in (1, 0)]
            counts = {
                "benzene": rings[0],
                "cyclohexane": rings[1],
                "chlorine": int((x[:, 0] == 17).sum()),
                "amine": int((x[:, 0] == 7).sum()),
                "carboxyl": int((graph.edge_attr[:, 0] == 2).sum()) // 2,
            }
            assert int(graph.y) == int(sum(MOTIFS[k].weight * n for k, n in counts.items()) > 0)

    def test_noise_turns_classes_over(self):
        clean, noisy = generate(graphs=300, noise=0.0), generate(graphs=300, noise=0.5)
        turned = sum(int(a.y) != int(b.y) for a, b in zip(clean.graphs, noisy.graphs, strict=True))
        assert 100 < turned < 200  # same draws, and each of 300 turned with probability one half

    @pytest.mark.parametrize(
        "settings",
        [{"graphs": 0}, {"mean_motifs": 0.5}, {"chain": 0}, {"noise": 0.6}, {"noise": float("nan")}],
    )
    def test_refused(self, settings):
        with pytest.raises(
            BadInput, match=rf"dataset.{next(iter(settings))} of synthetic-molecules is out of"
        ):
            generate(**settings)

    def test_by_name(self):
        found = load("synthetic-molecules", graphs=12, seed=5)
        assert found.digest == generate(graphs=12, seed=5).digest
        assert KINDS["synthetic-molecules"] == found.kind == "graph"
        with pytest.raises(BadInput, match="'nodes'"):
            load("synthetic-molecules", nodes=3)


class TestSchema:
    def test_a_value_out_of_its_vocabulary(self):
        graphs = generate(graphs=3).graphs
        graphs[1].x[0, 0] = 200
        with pytest.raises(BadInput, match="x is not in the columns that PyG reads molecules into"):
            schema_of(GraphSetDataset("bbbp", graphs, "", "", 9, 2))

    def test_other_sets_of_graphs_have_numbers(self):
        schema = schema_of(GraphSetDataset("proteins", generate(graphs=3).graphs, "", "", 9, 2))
        assert (schema.features, schema.classes, schema.kind, schema.atoms) == (9, 2, "graph", ())


@pytest.fixture(scope="module")
def packed() -> Data:
    return pack(generate(graphs=12, seed=6).graphs)


def net(convolution: str = "gcn", **settings) -> GraphNet:
    model = GraphNet(9, 2, (8, 8), convolution, ATOMS, BONDS, **settings)  # type: ignore[arg-type]
    glorot(model, 1)
    return model


class TestNetwork:
    @pytest.mark.parametrize("convolution", ["gcn", "gat", "sage"])
    def test_a_graphs_scores_do_not_depend_on_its_company(self, packed, convolution):
        model = net(convolution)
        together = model(packed)
        for graph in range(12):
            assert torch.allclose(
                model(select_graphs(packed, torch.tensor([graph])))[0], together[graph], atol=1e-5
            )

    @pytest.mark.parametrize("convolution", ["gcn", "gat", "sage"])
    def test_nor_on_the_order_of_its_atoms(self, convolution):
        (graph,) = generate(graphs=1, seed=8).graphs
        order = torch.randperm(len(graph.x), generator=torch.Generator().manual_seed(0))
        place = order.argsort()
        turned = Data(
            x=graph.x[order], edge_index=place[graph.edge_index], edge_attr=graph.edge_attr, y=graph.y
        )
        assert torch.allclose(net(convolution)(pack([graph])), net(convolution)(pack([turned])), atol=1e-5)

    def test_bonds_matter(self, packed):
        changed = packed.clone()
        changed.edge_attr = torch.ones_like(packed.edge_attr)
        assert not torch.allclose(net()(packed), net()(changed), atol=1e-4)

    def test_embedding_is_a_linear_layer_on_one_hot_columns(self):
        layer = Embedded((3, 2), 4)
        glorot(layer, 0)
        one_hot = torch.tensor([[0, 0, 1, 0, 1.0], [1, 0, 0, 1, 0]])
        assert torch.allclose(layer(torch.tensor([[2.0, 1.0], [0.0, 0.0]])), one_hot @ layer.table)

    def test_dropout_is_drawn_from_what_is_given(self, packed):
        model = net(dropout=0.5)
        assert model(packed).equal(model(packed))
        first, again = (model(packed, torch.Generator().manual_seed(3)) for _ in range(2))
        assert first.equal(again) and not torch.allclose(first, model(packed))
        x = dropped(torch.ones(20000), 0.25, torch.Generator().manual_seed(0))
        assert x.mean() == pytest.approx(1, abs=0.02) and x.unique().tolist() == [0, pytest.approx(4 / 3)]

    def test_gat_needs_even_widths(self):
        with pytest.raises(BadInput, match="gat has 2 heads"):
            GraphConvolution("gat", 4, 5)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_each_layer_without_bonds_is_pygs_own(kind: str):
    layer = GraphConvolution(kind, 5, 6)
    glorot(layer, 2)
    x = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])  # node 4 is isolated
    sent, none = layer.sent.weight, torch.zeros(6)
    if kind == "gcn":
        other, weights = GCNConv(5, 6), {"lin.weight": sent, "bias": none}
    elif kind == "sage":
        other = SAGEConv(5, 6)
        weights = {"lin_l.weight": sent, "lin_l.bias": none, "lin_r.weight": layer.own.weight}
    else:
        other, (dst, src) = GATConv(5, 3, heads=2), layer.attend[None].split(2, dim=1)
        weights = {"lin.weight": sent, "att_dst": dst, "att_src": src, "bias": none}
    other.load_state_dict(weights)
    expected = nn.functional.elu(other(x, edges)) if kind == "gat" else other(x, edges)
    assert torch.allclose(layer(x, edges, None), expected, atol=1e-6)


@pytest.mark.needs_data("molecule_net")
def test_bbbp_fits_the_vocabularies():
    pytest.importorskip("rdkit")
    schema = schema_of(load("bbbp", allow_download=False))
    assert (schema.atoms, schema.bonds, schema.classes) == (ATOMS, BONDS, 2)
