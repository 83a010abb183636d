"""Graphs of pairs: rows are links, one link is one row, and no row is of another link."""

from __future__ import annotations

from typing import Any

import linked
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS
from secure_fedgraph.graph.own import pairs
from secure_fedgraph.graph.schema import Schema, Task

KINDS = [(task, directed) for task in (Task.LINKS, Task.LINK_CLASSES) for directed in (False, True)]


def one(graph: Data, task: str = Task.LINKS, seed: int = 0) -> tuple[Data, Schema, list[str]]:
    made, schema, notes = pairs.paired({"mine": graph}, linked.schema(task, graph.x.shape[1]), seed)
    return made["mine"], schema, notes


def rows(graph: Data, mask: Tensor) -> set[tuple[int, ...]]:
    return set(map(tuple, torch.cat([graph[pairs.PAIRS], graph.y[None]])[:, mask].T.tolist()))


def without(graph: Data, link: Tensor) -> Data:
    """The same graph without a link, in both directions."""
    same = (graph.edge_index == link[:, None]).all(0) | (graph.edge_index == link.flip(0)[:, None]).all(0)
    made = graph.clone()
    made.edge_index = graph.edge_index[:, ~same]
    return made


@pytest.mark.parametrize(("task", "directed"), KINDS)
def test_rows_are_links(task: str, directed: bool) -> None:
    given = linked.graph(task=task, directed=directed)
    made, schema, notes = one(given, task)
    assert notes == [] and schema.features == made.x.shape[1] and schema.ends == linked.FEATURES
    assert schema.classes == 2 and schema.own == made[pairs.OWN].shape[1] == (task == Task.LINK_CLASSES) * 2
    assert schema.directed is directed and not schema.edge_fields and made.edge_index.shape == (2, 0)
    masks = torch.stack([made[key] for key in MASKS])
    assert bool((masks.sum(0) == 1).all()) and bool(masks.any(1).all())
    there = {tuple(sorted(pair)) for pair in given.edge_index.T.tolist()}
    right = made[pairs.PAIRS][:, made.y == 1] if task == Task.LINKS else made[pairs.PAIRS]
    assert {tuple(sorted(pair)) for pair in right.T.tolist()} == there and right.shape[1] == linked.LINKS
    if task == Task.LINKS:
        assert int(made.train_mask.sum()) == 2 * int((made.y == 0).sum())
        assert made[pairs.WRONG].shape == (2, int((~made.train_mask).sum()), pairs.RANKS)
        assert bool((made[pairs.WRONG][0] != made[pairs.WRONG][1]).all())


@pytest.mark.parametrize("directed", [False, True])
def test_a_link_that_goes_takes_its_row_and_no_other(directed: bool) -> None:
    """Of the wrong ones to train on the last goes too, if how many there are follows; it is public."""
    given = linked.graph(directed=directed)
    before = one(given)[0]
    for row in (0, 5, 11):
        link = before[pairs.PAIRS][:, row]
        after = one(without(given, link))[0]
        kept = torch.arange(len(before.y)) != row
        assert rows(before, kept & (before.y == 1)) == rows(after, after.y == 1)
        for key in MASKS:
            assert rows(after, after[key] & (after.y == 1)) <= rows(before, before[key])
        false, fewer = (one[pairs.PAIRS][:, one.y == 0] for one in (before, after))
        assert torch.equal(false[:, : fewer.shape[1]], fewer)
        assert false.shape[1] - fewer.shape[1] == int(before.train_mask[row])


def test_wrong_links_to_train_on_follow_from_no_link() -> None:
    """Other links of the same nodes have the same wrong ones."""
    one_graph, other = linked.graph(), linked.graph()
    other.edge_index = (other.edge_index + 7) % linked.NODES
    first, second = (one(graph)[0] for graph in (one_graph, other))
    drawn = [graph[pairs.PAIRS][:, graph.y == 0] for graph in (first, second)]
    fewest = min(part.shape[1] for part in drawn)
    assert torch.equal(drawn[0][:, :fewest], drawn[1][:, :fewest])


@pytest.mark.parametrize(("task", "directed"), KINDS)
def test_no_network_reads_a_link_that_is_asked_about(task: str, directed: bool) -> None:
    made = one(linked.graph(task=task, directed=directed), task)[0]
    asked = made[pairs.PAIRS][:, ~made.train_mask].T.tolist()
    asked += [] if directed else [pair[::-1] for pair in asked]
    read = made[pairs.MESSAGES].T.tolist()
    assert read and not {*map(tuple, asked)} & {*map(tuple, read)}


@pytest.mark.parametrize("features", [linked.FEATURES, pairs.WIDE + 1])
def test_the_direction_of_a_link_shows_only_where_it_counts(features: int) -> None:
    given = linked.graph(features=features)
    made, schema, _ = one(given)
    asked = pairs._asked(made, made[pairs.PAIRS].flip(0), schema)
    assert torch.allclose(made.x, asked.x, atol=1e-5) and schema.features == made.x.shape[1]
    made, schema, _ = one(linked.graph(directed=True, features=features))
    asked = pairs._asked(made, made[pairs.PAIRS].flip(0), schema)
    assert not torch.allclose(made.x, asked.x, atol=1e-3) and schema.features == made.x.shape[1]


def test_cosines_are_the_same_however_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, schema, _ = one(linked.graph(features=pairs.WIDE + 1))
    wrong = made[pairs.WRONG].flatten(1)
    first = pairs._asked(made, wrong, schema).x
    monkeypatch.setattr(pairs, "FEW", 0)
    assert torch.allclose(first, pairs._asked(made, wrong, schema).x, atol=1e-5)


def test_the_right_link_is_ranked_before_the_wrong_ones() -> None:
    made, schema, _ = one(linked.graph())
    known = {tuple(pair) for pair in made[pairs.PAIRS][:, made.y == 1].T.tolist()}

    def says(graph: Data) -> Tensor:
        score = torch.tensor([float(tuple(pair) in known) for pair in graph[pairs.PAIRS].T.tolist()])
        return torch.stack([-score, score], dim=1)

    scores = pairs.ranked(says, made, schema)
    assert scores.shape == (len(made.y), 1 + pairs.RANKS) and not scores[made.train_mask].any()
    assert bool((scores[~made.train_mask, 0] == 2).all())
    # a wrong one may be a link, and most are none
    assert (scores[~made.train_mask, 1:] == 2).float().mean() < 0.3


def test_own_columns_are_those_of_the_same_link() -> None:
    given = linked.graph(task=Task.LINK_CLASSES)
    made, _, notes = one(given, Task.LINK_CLASSES)
    for row in range(0, linked.LINKS, 13):
        same = (given.edge_index == made[pairs.PAIRS][:, row : row + 1]).all(0)
        assert torch.equal(made[pairs.OWN][row], given.edge_attr[same][0])
    assert notes == []
    given.edge_index, given.edge_attr = given.edge_index[:, 1:], given.edge_attr[1:]
    assert "1 of 160" in one(given, Task.LINK_CLASSES)[2][0]


def test_links_in_both_directions_are_one_item_and_without_a_class_none() -> None:
    given = linked.graph(task=Task.LINK_CLASSES)
    given.edge_label, given.edge_label_index = given.edge_label.repeat(2), given.edge_index
    made, _, notes = one(given, Task.LINK_CLASSES)
    assert len(made.y) == linked.LINKS and f"{linked.LINKS} links" in notes[0]
    given = linked.graph(task=Task.LINK_CLASSES)
    given.edge_label[:10] = -1
    assert len(one(given, Task.LINK_CLASSES)[0].y) == linked.LINKS - 10


def test_given_masks_of_links_are_kept_to() -> None:
    given = linked.graph(task=Task.LINK_CLASSES)
    place = torch.arange(linked.LINKS) % 4
    given.train_mask, given.val_mask, given.test_mask = place < 2, place == 2, place == 3
    made = one(given, Task.LINK_CLASSES)[0]
    assert all(torch.equal(made[key], given[key]) for key in MASKS)


def changed(task: str = Task.LINKS, **fields: Any) -> Data:
    given = linked.graph(task=task)
    for key, value in fields.items():
        given[key] = value
    return given


@pytest.mark.parametrize(
    ("task", "given", "named"),
    [
        (Task.LINKS, changed(edge_index=torch.zeros(2, 0, dtype=torch.long)), "train on"),
        (Task.LINKS, changed(edge_label=torch.zeros(3)), "edge_label"),
        (Task.LINKS, Data(x=torch.ones(1, 6), edge_index=torch.zeros(2, 1, dtype=torch.long)), "one node"),
        (Task.LINK_CLASSES, linked.graph(), "edge_label"),
        (Task.LINK_CLASSES, changed(Task.LINK_CLASSES, edge_label=torch.zeros(3).long()), "edge_label"),
        (Task.LINK_CLASSES, changed(Task.LINK_CLASSES, edge_label=-torch.ones(160).long()), "train on"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(task: str, given: Data, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        one(given, task)


def test_fields_that_no_wrong_link_has_are_named() -> None:
    given = linked.graph(task=Task.LINK_CLASSES)
    del given.edge_label, given.edge_label_index
    schema = Schema(linked.FEATURES, 2, edge_attr=2, task=Task.LINKS)
    assert "edge_attr" in pairs.paired({"mine": given}, schema, 0)[2][0]
