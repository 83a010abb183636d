"""Owners with data of their own go through everything that made-up owners go through."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput

SMALL = {"nodes": 120, "features": 12}


def without_numbers(graph: Data) -> Data:
    """An owner's graph as the owner knows it: a partition numbers nodes as in the whole graph."""
    of_the_whole = ("node_id", "cross_links", "home")
    return Data(**{key: value for key, value in graph.to_dict().items() if key not in of_the_whole})


@pytest.fixture(scope="module")
def split() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, **SMALL)


@pytest.fixture(scope="module")
def own(split: sfg.Federation) -> sfg.Federation:
    return sfg.federate({name: without_numbers(graph) for name, graph in split.owners.items()})


@pytest.mark.parametrize("policy", ["plaintext", "masked"])
def test_the_same_owners_train_the_same_weights(split, own, policy: str) -> None:
    states = [
        sfg.train(sfg.FedSage(hidden=[8, 4]), one, policy, rounds=2, evaluation="in_band").state
        for one in (split, own)
    ]
    assert states[0] and all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_they_are_scored_in_band_and_that_is_charged(own) -> None:
    budget = sfg.Budget(8.0, unit="client")
    run = sfg.train(sfg.FedAvg(), own, "distributed_dp", rounds=2, budget=budget)
    assert run.evaluation == "in_band"
    assert {charge.channel for charge in run.charges} == {"update", "metrics"}
    assert 7.9 < run.privacy("client")["epsilon"] <= 8


def test_no_label_of_a_test_is_with_the_referee(own) -> None:
    assert not own.referee.test_set.tests and not len(own.referee.test_set.labels)


def test_what_is_for_data_that_are_split_is_refused(own) -> None:
    graphs = {name: without_numbers(graph) for name, graph in own.owners.items()}
    for key, value in (("clients", 2), ("partition", "random"), ("split", {}), ("nodes", 5), ("owners", [0])):
        with pytest.raises(BadInput, match=f"{key} = .*nothing is split"):
            sfg.federate(graphs, **{key: value})
    with pytest.raises(BadInput, match="rows = "):
        sfg.federate("synthetic-citation", rows="id")
    with pytest.raises(BadInput, match="classes"):
        sfg.federate("cora", classes=3)
    assert sfg.federate("synthetic-citation", classes=3, **SMALL).schema.classes == 3
    with pytest.raises(BadInput, match="nobody has all owners' data"):
        sfg.train(sfg.algorithms.ALGORITHMS["globsage"](), own, "plaintext", rounds=1)


def test_a_unit_at_several_owners_is_counted_at_each(own) -> None:
    held = sfg.federate({name: without_numbers(graph) for name, graph in own.owners.items()}, holders=2)
    options = {"rounds": 1, "evaluation": "in_band"}
    policy = sfg.policies.local_dp(norm=1.0, multiplier=4.0)
    once, twice = (sfg.train(sfg.FedAvg(), one, policy, **options).privacy("node") for one in (own, held))
    assert float(twice["epsilon"]) > float(once["epsilon"])


def test_an_owner_a_node(split) -> None:
    whole = split.pooled().owners["pool"]
    graph = Data(x=whole.x, y=whole.y, edge_index=whole.edge_index)
    given = sfg.federate(graph, owners=["left" if node < 60 else "right" for node in range(120)])
    assert given.names == ("left", "right") and given.evaluation == "referee"
    assert given.facts["partition"]["sizes"] == [60, 60]
    assert "global" in sfg.train(sfg.FedSage(hidden=[8, 4]), given, "plaintext", rounds=1).accuracy


class TestColumns:
    """Owners of columns, for GLASU."""

    def tables(self, split, labels: int) -> dict[str, Data]:
        whole = split.pooled().owners["pool"]
        names = [f"row {node}" for node in range(120)]
        tables = {
            name: Data(x=whole.x[:, start::3], edge_index=whole.edge_index, id=names)
            for start, name in enumerate("abc")
        }
        for name in list(tables)[:labels]:
            tables[name].y = whole.y
        return tables

    @pytest.mark.parametrize(("algorithm", "labels"), [("glasu", 3), ("glasu-one-label-holder", 1)])
    def test_they_train_under_masks(self, split, algorithm: str, labels: int) -> None:
        federation = sfg.federate(self.tables(split, labels), rows="id")
        made = sfg.algorithms.ALGORITHMS[algorithm](sampler="public")
        run = sfg.train(made, federation, "masked", rounds=1)
        assert run.evaluation == "referee" and 0 <= run.accuracy["global"] <= 1

    def test_sides_that_do_not_fit(self, split, own) -> None:
        columns = sfg.federate(self.tables(split, 3), rows="id")
        with pytest.raises(BadInput, match="fedsage learns from owners of rows"):
            sfg.train(sfg.FedSage(), columns, "plaintext", rounds=1)
        with pytest.raises(BadInput, match="name the rows"):
            sfg.train(sfg.Glasu(), own, "plaintext", rounds=1)
        one = sfg.federate(self.tables(split, 1), rows="id")
        with pytest.raises(BadInput, match=r"one owner alone has labels.*glasu-one-label-holder"):
            sfg.train(sfg.Glasu(), one, "plaintext", rounds=1)
