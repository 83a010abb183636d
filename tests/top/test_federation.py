"""A graph handed out to owners: who holds what, who tests on what, and what is refused before work starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.seeds import sub_seed


def graph(nodes: int = 60, width: int = 12, classes: int = 3, isolated: int = 0, seed: int = 0) -> Data:
    """A ring with chords; the last ``isolated`` nodes have no link at all."""
    generator = torch.Generator().manual_seed(seed)
    linked = nodes - isolated
    here = torch.arange(linked)
    one_way = torch.cat([torch.stack([here, (here + step) % linked]) for step in (1, 3)], dim=1)
    return Data(
        x=torch.rand(nodes, width, generator=generator),
        y=torch.arange(nodes) % classes,
        edge_index=torch.cat([one_way, one_way.flip(0)], dim=1).unique(dim=1),
    )


@pytest.fixture(scope="module", params=["louvain", "random"])
def federation(request: pytest.FixtureRequest) -> sfg.Federation:
    return sfg.federate(graph(), clients=3, partition=request.param, seed=4)


def test_owners_cover_all_nodes_once(federation: sfg.Federation) -> None:
    nodes = torch.cat([owner.node_id for owner in federation.owners.values()])
    assert sorted(nodes.tolist()) == list(range(60))
    assert federation.names == ("owner-0", "owner-1", "owner-2")
    assert sum(federation.facts["partition"]["sizes"]) == 60


def test_masks_are_disjoint_and_cover_each_owner(federation: sfg.Federation) -> None:
    for owner in federation.owners.values():
        times = owner.train_mask.int() + owner.val_mask.int() + owner.test_mask.int()
        assert times.tolist() == [1] * owner.num_nodes
        assert owner.train_mask.any()


def test_owners_hold_their_own_nodes_values(federation: sfg.Federation) -> None:
    whole = graph()
    for owner in federation.owners.values():
        assert torch.equal(owner.x, whole.x[owner.node_id])
        assert torch.equal(owner.y, whole.y[owner.node_id])


def test_no_link_crosses_owners_and_no_inner_link_is_lost(federation: sfg.Federation) -> None:
    whole = graph().edge_index
    kept = set()
    for owner in federation.owners.values():
        ends = owner.node_id[owner.edge_index]
        kept |= {tuple(link) for link in ends.T.tolist()}
    holder = {int(n): name for name, owner in federation.owners.items() for n in owner.node_id}
    inside = {(a, b) for a, b in whole.T.tolist() if holder[a] == holder[b]}
    assert kept == inside
    crossing = {tuple(sorted(link)) for link in whole.T.tolist()} - {tuple(sorted(k)) for k in kept}
    assert len(crossing) == federation.facts["partition"]["missing_links"] > 0


def test_the_referee_tests_on_the_owners_own_test_nodes_in_global_numbers(
    federation: sfg.Federation,
) -> None:
    referee = federation.referee.test_set
    assert referee.inputs.num_nodes == 60 and referee.inputs.y is None
    for name, owner in federation.owners.items():
        for nodes, mask in (
            (referee.tests[name], owner.test_mask),
            (referee.validations[name], owner.val_mask),
            (referee.trainings[name], owner.train_mask),
        ):
            assert torch.equal(nodes, owner.node_id[mask])


def test_the_referee_by_hand(federation: sfg.Federation) -> None:
    class Constant(sfg.Algorithm):
        name = "constant"

        def released(self, state: Any) -> Any:
            return {"any": torch.zeros(1)}

        def predict(self, params: Any, graph: Data, schema: Any) -> torch.Tensor:
            assert graph.num_nodes == 60  # whole neighbourhoods of the whole graph
            assert graph.y is None  # and no answer in it
            return torch.nn.functional.one_hot(torch.zeros(60, dtype=torch.long), 3).float()

    scores = federation.referee.evaluate(Constant(), {}, None, federation.schema)
    tests = torch.cat(list(federation.referee.test_set.tests.values()))
    shares = [float((nodes % 3 == 0).double().mean()) for nodes in federation.referee.test_set.tests.values()]
    assert scores["global"] == pytest.approx(float((tests % 3 == 0).double().mean()))
    assert scores["local"] == pytest.approx(sum(shares) / 3)


def test_pooled_is_one_owner_with_the_same_split_and_every_link(federation: sfg.Federation) -> None:
    pooled = federation.pooled()
    (pool,) = pooled.owners.values()
    assert pool.num_edges == graph().num_edges
    for name, mask in (("train_mask", pool.train_mask), ("test_mask", pool.test_mask)):
        mine = torch.cat([o.node_id[o[name]] for o in federation.owners.values()])
        assert mask.nonzero().flatten().tolist() == sorted(mine.tolist())
    assert "train_mask" not in federation.referee.test_set.inputs


def test_the_seed_decides_partition_and_split_and_nothing_else_does() -> None:
    def nodes(seed: int) -> list[list[int]]:
        made = sfg.federate(graph(), 3, "random", seed)
        return [
            n.tolist()
            for n in (*made.referee.test_set.tests.values(), *made.referee.test_set.trainings.values())
        ]

    assert nodes(0) == nodes(0)
    assert nodes(0) != nodes(1)


def test_sub_seeds_differ_by_purpose_and_seed() -> None:
    seeds = {sub_seed(seed, purpose) for seed in range(3) for purpose in ("data", "partition", "split/0")}
    assert len(seeds) == 9
    assert max(seeds) < 2**32


@pytest.mark.parametrize("partition", ["louvain", "random"])
@pytest.mark.parametrize("policy", ["plaintext", "masked"])
def test_isolated_nodes_simply_work(partition: str, policy: str) -> None:
    data = graph(isolated=20)
    made = sfg.federate(data, clients=3, partition=partition, seed=0)
    assert any(
        (torch.bincount(o.edge_index[1], minlength=o.num_nodes) == 0).any() for o in made.owners.values()
    )
    recipe = getattr(sfg.policies, policy)()
    run = sfg.train(sfg.FedSage(hidden=(8, 4)), made, recipe, rounds=2)
    assert all(torch.isfinite(value).all() for value in run.state.values())
    assert 0 <= run.accuracy["global"] <= 1


def test_a_graph_without_any_link_works() -> None:
    data = graph()
    data.edge_index = torch.empty(2, 0, dtype=torch.long)
    run = sfg.train(
        sfg.FedSage(hidden=(8, 4)), sfg.federate(data, 3, "random"), sfg.policies.plaintext(), rounds=1
    )
    assert 0 <= run.accuracy["global"] <= 1


def spoiled(**changes: Any) -> Data:
    data = graph()
    for key, value in changes.items():
        data[key] = value(data[key].clone())
    return data


def put(place: Any, value: Any) -> Any:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor[place] = value
        return tensor

    return change


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (spoiled(x=put((7, 2), float("nan"))), r"x\[7, 2\] is nan"),
        (spoiled(x=put((7, 2), float("-inf"))), r"x\[7, 2\] is -inf"),
        (spoiled(x=lambda x: x.to(torch.complex64)), "x.float"),
        (spoiled(y=put(5, -2)), "node 5 has label -2"),
        (spoiled(y=lambda y: y.to(torch.complex64)), "integer class labels"),
        (spoiled(y=lambda y: y[:-1]), "one label per node"),
        (spoiled(edge_index=put((0, 0), 60)), "names node 60, but nodes run from 0 to 59"),
        (spoiled(edge_index=lambda e: e.T), r"edge_index has type torch.int64 and shape"),
        (Data(x=torch.ones(3, 2)), "edge_index is missing"),
    ],
)
def test_a_graph_that_cannot_be_used_is_refused(data: Data, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sfg.federate(data, clients=3, partition="random")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": 61, "partition": "random"}, "61"),
        ({"clients": 61, "partition": "louvain"}, "61"),
        ({"clients": 0}, "0"),
        ({"clients": -2}, "-2"),
        ({"partition": "randm"}, "'randm': did you mean 'random'?"),
    ],
)
def test_owners_that_cannot_be_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sfg.federate(graph(), **options)


def test_data_of_another_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="data of owner-0 is an int"):
        sfg.federate([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="data is of type set: give a data set's name, a PyG Data, a list"):
        sfg.federate({1, 2, 3})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"'coral'.*'cora'"):
        sfg.federate("coral")


def test_an_owner_without_training_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(y: torch.Tensor, seed: int) -> tuple[torch.Tensor, ...]:
        none = torch.zeros(len(y), dtype=torch.bool)
        return none, ~none, ~none

    monkeypatch.setattr("secure_fedgraph.graph.partition.partition.stratified", nothing)
    with pytest.raises(BadInput, match="owner-0 has no training nodes"):
        sfg.federate(graph(), 3, "random")


def test_a_federation_without_a_test_node_is_refused() -> None:
    # six nodes of six classes: every one goes to training, and nothing is left to score
    data = graph(nodes=6, classes=6)
    with pytest.raises(BadInput, match="test"):
        sfg.federate(data, clients=3, partition="random")


def test_a_given_graph_is_not_changed() -> None:
    data = graph()
    before = {key: data[key].clone() for key in ("x", "y", "edge_index")}
    made = sfg.federate(data, 3, "random")
    sfg.train(sfg.FedSage(hidden=(8, 4)), made, sfg.policies.plaintext(), rounds=1)
    assert set(data.keys()) == set(before)
    assert all(torch.equal(before[key], data[key]) for key in before)


def test_a_given_graph_has_a_digest() -> None:
    # what was computed on must be told apart from another graph when an audit rebuilds the truth
    one, other = sfg.federate(graph()).facts["digest"], sfg.federate(graph(seed=1)).facts["digest"]
    assert one and one != other
    assert one == sfg.federate(graph()).facts["digest"]


@pytest.mark.parametrize(
    ("options", "words"), [({"rounds": 0}, "rounds = 0"), ({"evaluation": "both"}, "evaluation = 'both'")]
)
def test_training_arguments_out_of_range(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sfg.train(sfg.FedSage(), sfg.federate(graph()), sfg.policies.plaintext(), **options)


def test_a_node_table_of_an_owner_sees_no_neighbour_of_another(federation: sfg.Federation) -> None:
    # changing what another owner's nodes hold changes nothing that this owner computes
    data = graph()
    first = next(iter(federation.owners))
    outside = torch.ones(60, dtype=torch.bool)
    outside[federation.owners[first].node_id] = False
    data.x[outside] += 5
    other = sfg.federate(data, clients=3, partition=federation.facts["partition"]["name"], seed=4)
    updates = [
        sfg.train(
            sfg.FedSage(hidden=(8, 4)),
            f,
            sfg.policies.plaintext(),
            rounds=1,
            keep=lambda channel, round: True,
        )
        .transcript.view("server")
        .uploads("update")[0]
        for f in (federation, other)
    ]
    assert updates[0].clients == updates[1].clients == (first,)
    for name, value in updates[0].values.items():
        assert (value == updates[1].values[name]).all()
