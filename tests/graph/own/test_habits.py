"""What PyG's users have and give as it is: taken, with a word on what was converted, or refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas
import pytest
import torch
from scipy import sparse
from small_graphs import triangles
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import RandomLinkSplit, ToSparseTensor

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.silos.alone import declared_by, owned
from secure_fedgraph.graph.silos.reading import read_one, read_silo

NODES = 90
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # of torch, about tensors that tests make


def graph(**fields: Any) -> Data:
    data = citation(NODES, 16, 3, 0)
    for key, value in fields.items():
        data[key] = value
    return data


def without(*keys: str, **fields: Any) -> Data:
    return Data(**{key: value for key, value in graph(**fields).to_dict().items() if key not in keys})


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def links(**fields: Any) -> Data:
    ends = (drawn(2, 200) * NODES).long()
    return graph(edge_label_index=ends, edge_label=(drawn(200, seed=1) < 0.4).long(), **fields)


def graphs(y: Callable[[int], Any] | None = None, **fields: Any) -> list[Data]:
    made = [one.clone() for one in triangles(40).graphs]
    for number, one in enumerate(made):
        one.y = one.y if y is None else y(number)
        for key, value in fields.items():
            one[key] = value
    return made


def splits(count: int, kind: torch.dtype = torch.bool) -> dict[str, Tensor]:
    """Masks of some random splits, column by column."""
    place = torch.stack(
        [torch.randperm(NODES, generator=torch.Generator().manual_seed(n)) for n in range(count)], 1
    )
    parts = (place < 40, (place >= 40) & (place < 60), place >= 60)
    return {key: part.to(kind) for key, part in zip(MASKS, parts, strict=True)}


class Adjacency:
    """What of torch_sparse's SparseTensor is used."""

    def __init__(self, edge_index: Tensor) -> None:
        self.links = edge_index

    def coo(self) -> tuple[Tensor, Tensor, None]:
        return self.links[1], self.links[0], None


class InMemory:
    """A data set object, as PyG's."""

    def __init__(self, *held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, place: int) -> Any:
        if not 0 <= place < len(self.held):
            raise IndexError(place)
        return self.held[place]


class Ogb(InMemory):
    """The same as OGB's, with the split as places."""

    task_type = "multiclass classification"

    def get_idx_split(self) -> dict[str, Tensor]:
        places = torch.arange(NODES)
        return {"train": places[:50], "valid": places[50:60], "test": places[60:]}


class OgbRegression(Ogb):
    task_type = "regression"


def network(**attributes: Any) -> nx.Graph:
    made = nx.karate_club_graph()
    for node in made:
        made.nodes[node].update({key: value(node) for key, value in attributes.items()})
    return made


def whole(seed: int, classes: int) -> Tensor:
    return (drawn(NODES, seed=seed) * classes).floor()


# ---- the same data in another form


SAME: dict[str, Callable[[], Any]] = {
    "x int": lambda: graph(x=graph().x.long()),
    "x uint8": lambda: graph(x=graph().x.to(torch.uint8)),
    "x bool": lambda: graph(x=graph().x.bool()),
    "x float16": lambda: graph(x=graph().x.half()),
    "x sparse": lambda: graph(x=graph().x.to_sparse()),
    "x sparse, entries twice": lambda: graph(
        x=torch.sparse_coo_tensor(
            graph().x.nonzero().t().repeat(1, 2), torch.full((2 * int(graph().x.sum()),), 0.5)
        )
    ),
    "x sparse rows": lambda: graph(x=graph().x.to_sparse_csr()),
    "x sparse columns": lambda: graph(x=graph().x.to_sparse_csc()),
    "x of scipy": lambda: graph(x=sparse.csr_matrix(graph().x.numpy())),
    "NumPy": lambda: Data(**{key: np.asarray(value) for key, value in graph().to_dict().items()}),
    "NumPy, big-endian": lambda: graph(x=graph().x.numpy().astype(">f8")),
    "NumPy, read-only": lambda: graph(x=np.broadcast_to(graph().x.numpy(), (NODES, 16))),
    "adj_t rows": lambda: ToSparseTensor(layout=torch.sparse_csr)(graph()),
    "adj_t entries": lambda: ToSparseTensor(layout=torch.sparse_coo)(graph()),
    "adj_t of torch_sparse": lambda: without("edge_index", adj_t=Adjacency(graph().edge_index)),
    "adj_t of scipy": lambda: without(
        "edge_index",
        adj_t=sparse.coo_matrix((np.ones(graph().num_edges), graph().edge_index.flip(0).numpy())),
    ),
    "y [n, 1]": lambda: graph(y=graph().y.unsqueeze(1)),
    "y floating": lambda: graph(y=graph().y.float()),
    "y float16 [n, 1]": lambda: graph(y=graph().y.half().unsqueeze(1)),
    "one graph of a data set": lambda: InMemory(graph()),
}


@pytest.mark.parametrize("form", SAME)
def test_the_same_data_in_another_form(form: str) -> None:
    given = SAME[form]()
    said = [] if form == "one graph of a data set" else [sfg.DataWarning]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", sfg.DataWarning)
        made = sfg.federate(given, 3, "random")
    assert [one.category for one in caught if one.category is sfg.DataWarning] == said  # one line
    assert made.facts["digest"] == sfg.federate(graph(), 3, "random").facts["digest"]


def test_nothing_of_what_was_given_is_changed() -> None:
    given = graph(x=graph().x.numpy(), y=graph().y.float().unsqueeze(1), **splits(2, torch.uint8))
    before = given.to_dict()
    with pytest.warns(sfg.DataWarning):
        made = sfg.federate(given, 3, "random")
    assert given.to_dict().keys() == before.keys() and all(given[key] is before[key] for key in before)
    for owner in made.owners.values():
        owner.x.fill_(7)
    assert not bool((torch.from_numpy(given.x) == 7).any())


# ---- what is learned


def taken(given: Any, **options: Any) -> tuple[sfg.Federation, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", sfg.DataWarning)
        made = sfg.federate(given, **options)
    said = [str(one.message) for one in caught if one.category is sfg.DataWarning]
    assert len(said) <= 1
    return made, "".join(said)


Case = tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any]]


def case(make: Callable[[], Any], *expected: Any, **options: Any) -> Case:
    """What is given, what is to come of it, and options of ``federate``."""
    return make, expected, options


LEARNED: dict[str, Case] = {
    # what is given, (task, outputs), a word of what is said
    "booleans": case(lambda: graph(y=graph().y > 0), ("classes", 2), "booleans"),
    "uint8": case(lambda: graph(y=graph().y.to(torch.uint8)), ("classes", 3), ""),
    "floating with NaN and -1": case(
        lambda: graph(y=torch.where(drawn(NODES) < 0.2, torch.nan, graph().y.float()).clamp(min=-1)),
        ("classes", 3),
        "became classes",
    ),
    "numbers": case(lambda: graph(y=drawn(NODES) * 33), ("number", 1), "low and high"),
    "whole numbers with gaps": case(lambda: graph(y=whole(0, 9) * 7), ("number", 1), "range 0 to 56"),
    "numbers that are said": case(
        lambda: graph(y=graph().y), ("number", 1), "NaN says that there is none", task="number"
    ),
    "numbers with a public range": case(
        lambda: graph(y=drawn(NODES), low=0, high=1.0, task="number"), ("number", 1), ""
    ),
    "several labels": case(lambda: graph(y=drawn(NODES, 4) < 0.5), ("labels", 4), ""),
    "several labels with NaN": case(
        lambda: graph(
            y=torch.where(drawn(NODES, 4) < 0.1, torch.nan, (drawn(NODES, 4, seed=1) < 0.5).float())
        ),
        ("labels", 4),
        "some of their labels only",
    ),
    "one label of several": case(
        lambda: graph(y=torch.nn.functional.one_hot(graph().y)), ("labels", 3), "argmax"
    ),
    "links": case(lambda: without("y"), ("links", 2), "", task="links"),
    "links by name": case(
        lambda: "synthetic-citation", ("links", 2), "", task="links", nodes=60, features=16
    ),
    "classes of links": case(lambda: links(), ("link-classes", 2), "y is not used"),
    "RandomLinkSplit": case(
        lambda: RandomLinkSplit(is_undirected=True)(graph())[0], ("link-classes", 2), "y is not used"
    ),
    "classes of edges": case(
        lambda: without("y", edge_label=(drawn(graph().num_edges) < 0.5).float().unsqueeze(1)),
        ("link-classes", 2),
        "edge_label_index is missing",
    ),
    "a list of graphs": case(lambda: graphs(), ("classes", 2), "", clients=3),
    "graphs with scalars": case(lambda: graphs(lambda n: n % 3), ("classes", 3), "", clients=3),
    "graphs with numbers": case(
        lambda: graphs(lambda n: torch.tensor([n / 7])), ("number", 1), "low and high", clients=3
    ),
    "graphs with labels": case(
        lambda: graphs(lambda n: torch.tensor([[n % 2, n % 3 == 0]])), ("labels", 2), "", clients=3
    ),
    "graphs with flat labels": case(
        lambda: graphs(lambda n: torch.tensor([n % 2, int(n % 3 == 0)])), ("labels", 2), "", clients=3
    ),
    "graphs without an answer": case(
        lambda: graphs(lambda n: torch.tensor([-1 if n < 4 else n % 2])),
        ("classes", 2),
        "4 of 40 graphs have no answer",
        clients=3,
    ),
    "a data set of graphs": case(lambda: InMemory(*graphs()), ("classes", 2), ""),
    "a batch": case(lambda: Batch.from_data_list(graphs()), ("classes", 2), ""),
    "graphs by shares": case(
        lambda: InMemory(*graphs(lambda n: torch.tensor([n / 7]))),
        ("number", 1),
        "",
        partition="dirichlet",
        split={"least": 3},
    ),
    "OGB's nodes": case(
        lambda: Ogb(graph(y=graph().y.unsqueeze(1))), ("classes", 3), "its own split became masks"
    ),
    "OGB's regression": case(lambda: OgbRegression(graph(y=graph().y.float())), ("number", 1), "masks"),
    "OGB's graphs": case(lambda: Ogb(*graphs()), ("classes", 2), "its split is not used"),
    "NetworkX": case(
        lambda: network(y=lambda node: node % 2, age=lambda node: node / 3, tall=lambda node: node > 9),
        ("classes", 2),
        "age, tall",
    ),
    "NetworkX with x": case(
        lambda: network(y=lambda node: node % 2, x=lambda node: [node, 1.0]),
        ("classes", 2),
        "club of nodes is not used",
    ),
}


@pytest.mark.parametrize("name", LEARNED)
def test_what_is_learned_is_seen_in_the_answers(name: str) -> None:
    make, (learned, word), options = LEARNED[name]
    made, said = taken(make(), **options)
    assert (made.schema.task, made.schema.classes) == learned and type(made.schema.task) is str
    assert word in said
    for owner in made.owners.values():
        assert bool(owner.train_mask.any()) and len(owner.train_mask) == len(owner.y)


REFUSED: dict[str, Case] = {
    "1 and -1": case(lambda: graph(y=(graph().y > 0).long() * 2 - 1), r"y = \(y \+ 1\) // 2"),
    "1.0 and -1.0": case(lambda: graph(y=(graph().y > 0).float() * 2 - 1), r"y = \(y \+ 1\) // 2"),
    "one class": case(lambda: graph(y=torch.zeros(NODES).long()), "class 0"),
    "one class to train on": case(
        lambda: graph(train_mask=graph().y == 1, test_mask=graph().y != 1),
        "training nodes of all owners together: every label is class 1",
    ),
    "one number": case(lambda: graph(y=torch.full((NODES,), 2.5)), "every answer is 2.5"),
    "no number": case(lambda: graph(y=torch.full((NODES,), torch.nan)), "label"),
    "no complete labels": case(lambda: graph(y=torch.tensor([[1, torch.nan]] * NODES)), "all of its labels"),
    "several columns of numbers": case(lambda: graph(y=drawn(NODES, 2)), "0 or 1"),
    "several columns with -1": case(lambda: graph(y=torch.randint(-1, 2, (NODES, 3))), "0 or 1"),
    "low above high": case(lambda: graph(y=drawn(NODES), low=2, high=1), "low = 2"),
    "low without high": case(lambda: graph(y=drawn(NODES), low=2), "high = None"),
    "numbers outside": case(lambda: graph(y=drawn(NODES) + 1, low=0, high=1), "outside of low"),
    "positive of three": case(lambda: graph(positive=1), "positive"),
    "positive of none": case(lambda: graph(positive="yes"), "positive"),
    "an unknown task": case(lambda: graph(), "task", task="ranks"),
    "two tasks": case(lambda: graph(task="number"), "task", task="classes"),
    "labels in one column": case(lambda: graph(), "task = 'labels'", task="labels"),
    "numbers in several": case(lambda: graph(y=drawn(NODES, 2)), "task = 'number'", task="number"),
    "classes that are none": case(lambda: graph(y=drawn(NODES)), "whole number", task="classes"),
    "numbers of a named data set": case(
        lambda: "synthetic-citation", "task", task="number", nodes=60, features=16
    ),
    "links of whole graphs": case(lambda: graphs(), "links of one graph", clients=2, task="links"),
    "labels of no links": case(lambda: graph(), "edge_label", task="link-classes"),
    "links that are no nodes": case(
        lambda: graph(edge_label_index=torch.full((2, 9), NODES), edge_label=torch.arange(9) % 2),
        "names node",
    ),
    "fewer labels than links": case(
        lambda: graph(edge_label_index=torch.zeros(2, 9).long(), edge_label=torch.arange(8) % 2),
        "edge_label has shape",
    ),
    "a third kind of link": case(
        lambda: graph(edge_label_index=torch.zeros(2, 9).long(), edge_label=torch.arange(9) % 3),
        "1 or 0",
        task="links",
    ),
    "label_skew of numbers": case(lambda: graph(y=drawn(NODES)), "label_skew", partition="label_skew"),
    "a vertical split of links": case(lambda: links(), "vertical", partition="vertical"),
    "sparse and too wide": case(
        lambda: graph(x=torch.sparse_coo_tensor([[0], [0]], [1.0], (NODES, 2**40))), "fewer columns"
    ),
    "x of words": case(lambda: graph(x=np.array([["a"]] * NODES)), "x is a NumPy array"),
    "x of objects": case(lambda: graph(x=np.array([[{}]] * NODES, dtype=object)), "x is a NumPy array"),
    "a dense adj_t": case(lambda: without("edge_index", adj_t=torch.eye(NODES)), "adj_t"),
    "weights twice": case(
        lambda: without(
            "edge_index", adj_t=torch.eye(NODES).mul(2).to_sparse(), edge_weight=torch.ones(NODES)
        ),
        "edge_weight stands beside it",
    ),
    "neither x nor a number of nodes": case(
        lambda: Data(edge_index=torch.zeros(2, 0).long(), y=torch.tensor(3)), "num_nodes"
    ),
    "a fourth split of three": case(lambda: graph(**splits(3)), "split = 3", split=3),
    "a split of none": case(lambda: graph(), "split = 1", split=1),
    "a split of a named data set": case(lambda: "synthetic-citation", "split = 1", split=1, nodes=60),
    "a mask of other places": case(lambda: graph(train_mask=torch.tensor([0, NODES])), "train_mask"),
    "kinds of nodes": case(lambda: HeteroData(), "to_homogeneous"),
    "kinds of nodes at an owner": case(lambda: {"a": HeteroData()}, "to_homogeneous"),
    "graphs of nodes": case(lambda: [graph(), graph()], "class of the whole graph", clients=2),
    "graphs of several widths": case(
        lambda: graphs(lambda n: torch.arange(1 + n // 20)), "graph 20: y is the class", clients=2
    ),
    "no graphs": case(lambda: [], "no graphs", clients=2),
    "a data set of pairs": case(lambda: InMemory((1, 2)), "data is of type InMemory"),
    "a table": case(lambda: pandas.DataFrame({"a": [1]}), "tables in CSV or parquet files"),
    "a NetworkX without y": case(
        lambda: network(club=lambda node: "odd" if node % 2 else "even", x=lambda node: [1.0]),
        "an attribute y of nodes",
    ),
    "an empty NetworkX": case(lambda: nx.Graph(), "no nodes"),
    "NetworkX with words": case(lambda: network(y=lambda node: "even" if node % 2 else "odd"), "y of nodes"),
    "NetworkX with x at some": case(
        lambda: network(y=lambda node: node % 2, x=lambda node: [1.0] if node else None),
        "x of nodes is missing",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::secure_fedgraph.DataWarning")
def test_what_cannot_be_meant_is_refused_by_name(name: str) -> None:
    make, (key,), options = REFUSED[name]
    given = make()
    with pytest.raises(BadInput, match=key) as refusal:
        sfg.federate(given, **options)
    assert "\n" not in str(refusal.value)


# ---- masks, features, links


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64])
@pytest.mark.parametrize("split", [None, 0, 2])
def test_one_of_several_splits(kind: torch.dtype, split: int | None) -> None:
    made, said = taken(graph(**splits(3, kind)), clients=2, partition="random", split=split)
    held = sorted(int(n) for one in made.owners.values() for n in one.node_id[one.train_mask])
    assert held == splits(3)["train_mask"][:, split or 0].nonzero().flatten().tolist()
    assert ("split = 0" in said) == (split is None) and ("became booleans" in said) == (
        kind is not torch.bool
    )


def test_masks_may_be_places() -> None:
    places = {"train_mask": torch.arange(40), "test_mask": torch.arange(50, NODES)}
    made, said = taken(graph(**places), clients=2, partition="random")
    assert made.facts["masks"] == {"train_mask": 40, "val_mask": 10, "test_mask": 40}
    assert "test_mask of places became booleans" in said


def test_owners_choose_the_same_split() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = sfg.federate({"a": graph(**splits(3)), "b": graph(**splits(3))}, split=1, holders=2)
    assert all(torch.equal(owner.train_mask, splits(3)["train_mask"][:, 1]) for owner in made.owners.values())


def test_without_features_nodes_have_a_constant_and_their_degree() -> None:
    made, said = taken(without("x"), owners=[0] * NODES)
    ends = torch.bincount(graph().edge_index[1], minlength=NODES)
    assert torch.allclose(made.owners["owner-0"].x, torch.stack([torch.ones(NODES), ends.float().log1p()], 1))
    assert "x is missing" in said


def test_values_of_an_adjacency_are_weights() -> None:
    weighted = graph(edge_weight=drawn(graph().num_edges) + 1)
    made, said = taken(ToSparseTensor(layout=torch.sparse_csr)(weighted.clone()), owners=[0] * NODES)
    plain = sfg.federate(weighted, owners=[0] * NODES)
    one, other = ({(*ends, w) for *ends, w in torch.cat([g.edge_index, g.edge_weight[None]]).t().tolist()}
                  for g in (made.owners["owner-0"], plain.owners["owner-0"]))  # fmt: skip
    assert one == other and "edge_weight" in said


# ---- owners with data of their own


def test_owners_answers_are_seen_together() -> None:
    owners = {"a": graph(y=graph().y.float().clamp(max=1) * 2), "b": graph(y=graph().y.clamp(max=1))}
    made, _ = taken(owners, holders=2)  # 0 and 2 here, 0 and 1 there
    assert (made.schema.task, made.schema.classes) == ("classes", 3)


@pytest.mark.parametrize(
    ("a", "b", "key"),
    [
        ({"y": drawn(NODES)}, {"task": "classes"}, "task"),
        ({"y": drawn(NODES, 2) < 0.5}, {"y": drawn(NODES, 3) < 0.5}, "labels"),
        ({"y": torch.zeros(NODES).long()}, {"y": torch.zeros(NODES).long()}, "all owners together"),
        ({"y": drawn(NODES), "low": 0, "high": 1}, {"y": drawn(NODES), "low": 0, "high": 9}, "low, high"),
        ({"y": drawn(NODES), "low": 0, "high": 1}, {"y": drawn(NODES) + 5}, "low, high"),
        ({"y": (drawn(NODES) < 0.5), "positive": 0}, {"y": (drawn(NODES) < 0.5), "positive": 1}, "positive"),
        ({"positive": 0}, {}, "positive"),
    ],
)
@pytest.mark.filterwarnings("ignore::secure_fedgraph.DataWarning")
def test_owners_that_do_not_agree(a: dict[str, Any], b: dict[str, Any], key: str) -> None:
    with pytest.raises(BadInput, match=key):
        sfg.federate({"a": graph(**a), "b": graph(**b)}, holders=2)


def test_each_owner_may_have_one_class() -> None:
    owners = {name: graph(y=torch.full((NODES,), number)) for number, name in enumerate("ab")}
    assert sfg.federate(owners, holders=2).schema.classes == 2


def test_the_positive_class_is_numbered_with_the_others() -> None:
    named = {"class_names": ["good", "bad"], "y": graph().y.clamp(max=1)}
    other = {"class_names": ["bad", "good"], "y": 1 - graph().y.clamp(max=1)}
    made = sfg.federate({"a": graph(**named, positive=0), "b": graph(**other)}, holders=2)
    assert made.facts["class_names"] == ["bad", "good"] and made.schema.positive == 1
    made = sfg.federate({"a": graph(**named), "b": graph(**other, positive=0)}, holders=2)
    assert made.schema.positive == 0


def test_the_range_of_a_number_is_that_of_all_owners() -> None:
    made, said = taken({"a": graph(y=drawn(NODES) * 10), "b": graph(y=drawn(NODES) * 10 - 100)}, holders=2)
    assert (made.schema.low, made.schema.high) == (-100, 10) and said.count("low and high") == 2
    given, said = taken({n: graph(y=drawn(NODES), low=0, high=5) for n in "ab"}, holders=2)
    assert (given.schema.low, given.schema.high) == (0, 5) and not said


def test_owners_of_columns_have_the_same_habits() -> None:
    names = [str(number) for number in range(NODES)]
    first = graph(y=graph().y.float().unsqueeze(1), id=names)
    with pytest.warns(sfg.DataWarning, match="a: y"):
        made = sfg.federate({"a": first, "b": Data(x=graph().x.numpy(), id=names)}, rows="id")
    assert made.schema.classes == 3
    with pytest.raises(BadInput, match="task"):
        sfg.federate({"a": first, "b": Data(x=graph().x, id=names)}, rows="id", task="number")


@pytest.mark.parametrize("task", ["number", "labels"])
def test_an_owner_alone_has_the_data_that_it_has_among_others(task: str) -> None:
    data = {
        "number": graph(y=drawn(NODES), low=0, high=1),
        "labels": graph(y=drawn(NODES, 3) < 0.5),
    }[task]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sfg.DataWarning)
        among = sfg.federate({"a": data, "b": data.clone()}, holders=2)
    alone, _ = owned("a", 0, data, among.schema, (), (), 0)
    assert alone.keys() == among.owners["a"].keys()
    assert all(torch.equal(alone[key], among.owners["a"][key]) for key in alone.keys())  # noqa: SIM118
    assert declared_by("a", data)[1].task == task
    other = graph(y=drawn(NODES) * 9)  # other numbers, or another task
    with pytest.raises(BadInput, match=r"federation's file|task"):
        owned("a", 0, other if task == "number" else graph(), among.schema, (), (), 0)


# ---- files


def test_a_file_of_arrays(tmp_path: Path) -> None:
    data = graph()
    once = data.edge_index[:, data.edge_index[0] < data.edge_index[1]].t().numpy()
    masks = {f"{key}s": mask.t().numpy() for key, mask in splits(3).items()}
    named = {"node_features": data.x.numpy(), "node_labels": data.y.numpy(), "edges": once}
    np.savez(tmp_path / "mine.npz", **named, **masks)
    made, said = taken(read_one(str(tmp_path / "mine.npz")), clients=2, partition="random", split=2)
    plain = sfg.federate(graph(**{key: mask[:, 2] for key, mask in splits(3).items()}), 2, "random")
    owners = zip(made.owners.values(), plain.owners.values(), strict=True)
    assert not said
    for one, other in owners:
        assert all(torch.equal(one[key], other[key]) for key in ("x", "y", *MASKS))
        assert set(map(tuple, one.edge_index.t().tolist())) == set(map(tuple, other.edge_index.t().tolist()))


@pytest.mark.parametrize(
    ("arrays", "key"),
    [
        ({"x": np.ones((3, 2))}, "edges"),
        ({"edges": np.ones((3, 3))}, "edges"),
        ({"edges": np.full((3, 2), -1)}, "edges"),
        ({"edges": np.zeros((3, 2), int), "x": np.array([["a"]])}, "x"),
        ({"edges": np.zeros((3, 2), int), "y": np.array([{}], dtype=object)}, "numpy.savez"),
        (None, "numpy.savez"),
    ],
)
def test_a_file_of_arrays_that_is_refused(tmp_path: Path, arrays: dict[str, Any] | None, key: str) -> None:
    if arrays is None:
        (tmp_path / "mine.npz").write_bytes(b"PK\3\4 no archive")
    else:
        np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(BadInput, match=rf"mine\.npz.*{key}"):
        read_silo("a", str(tmp_path / "mine.npz"))


def test_a_saved_sparse_matrix_is_checked_when_it_is_read(tmp_path: Path) -> None:
    torch.save(graph(x=graph().x.to_sparse()).to_dict(), tmp_path / "mine.pt")
    made, said = taken(read_one(str(tmp_path / "mine.pt")), clients=3, partition="random")
    assert made.facts["digest"] == sfg.federate(graph(), 3, "random").facts["digest"] and "sparse" in said
    bad = torch.sparse_coo_tensor([[0, 2**40], [0, 3]], [1.0, 1.0], (NODES, 4), check_invariants=False)
    torch.save({**graph().to_dict(), "x": bad}, tmp_path / "bad.pt")
    with pytest.raises(BadInput, match=r"bad\.pt"):
        read_one(str(tmp_path / "bad.pt"))


def test_a_function_gives_what_python_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import networkx as nx\ndef load():\n    return nx.karate_club_graph()\n"
    (tmp_path / "clubs_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(sfg.DataWarning, match=r"NetworkX"):
        made = read_silo("a", "clubs_of_a_test:load")
    assert isinstance(made, Data) and int(made.num_nodes or 0) == 34


# ---- they train


@pytest.mark.parametrize("form", ["x bool", "x sparse", "NumPy", "adj_t rows", "y [n, 1]"])
@pytest.mark.parametrize("name", ["fedavg", "local"])
@pytest.mark.filterwarnings("ignore::secure_fedgraph.DataWarning")
def test_a_round_on_converted_data_is_the_same_round(form: str, name: str) -> None:
    from secure_fedgraph.algorithms import ALGORITHMS

    runs = [
        sfg.train(ALGORITHMS[name](hidden=(8, 4)), sfg.federate(data, 3, "random"), "plaintext", rounds=1)
        for data in (SAME[form](), graph())
    ]
    assert runs[0].accuracy["global"] == runs[1].accuracy["global"]


@pytest.mark.filterwarnings("ignore::secure_fedgraph.DataWarning")
def test_graphs_that_are_split_are_trained_on() -> None:
    made = sfg.federate(graphs(), clients=2)
    run = sfg.train(sfg.FedAvg(network="gin", hidden=(8, 8)), made, "masked", rounds=1)
    assert 0 <= run.accuracy["global"] <= 1
