"""Guessed links as graphs and guessed rows as heat strips: right, missed and invented are told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from result_parts import guess, guesses

from secure_fedgraph.audits.empirical_dp.neighbourhoods import MOST, around, best
from secure_fedgraph.audits.judgement import Judgement
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.experiment.schema.audit import Target
from secure_fedgraph.report.figures import ego_graphs, feature_heatmaps
from secure_fedgraph.report.sections.reconstructed import reconstructed


def pairs(nodes: int, links: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    row, column = np.triu_indices(nodes, 1)
    linked = np.array([(a, b) in links for a, b in zip(row.tolist(), column.tolist(), strict=True)])
    return row, column, linked


def record(
    policy: str, target: dict[str, Any], kind: str = "links from lists", **changes: Any
) -> dict[str, Any]:
    value = {
        "attack": "d1-index-lists", "kind": kind, "seed": 0, "variant": "as configured", "policy": policy,
        "adversary": "server", "aim": "each owner", "targets": [target], "stopped": "",
    }  # fmt: skip
    return {**value, **changes}


GRAPH = {
    "centre": 5, "nodes": [2, 5, 7, 9], "true": [[2, 5], [5, 7]], "guess": [[5, 7], [5, 9]], "left_out": 3,
}  # fmt: skip


def test_a_neighbourhood_of_a_known_graph() -> None:
    star = [(0, 1), (0, 2), (0, 3)]
    row, column, linked = pairs(6, star)
    scores = np.where((row == 0) & np.isin(column, [1, 2, 4]), 1.0, 0.0)
    found = around(row, column, scores, linked)
    assert found["centre"] == 0 and found["nodes"] == [0, 1, 2, 3, 4] and found["left_out"] == 0
    assert found["true"] == [[0, 1], [0, 2], [0, 3]]
    assert found["guess"] == [[0, 1], [0, 2], [0, 4]]


@given(st.integers(4, 30), st.integers(0, 2**32 - 1), st.floats(0.05, 0.9))
def test_a_neighbourhood_never_depends_on_how_well_it_was_guessed(
    nodes: int, seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    row, column = np.triu_indices(nodes, 1)
    linked = rng.random(len(row)) < share
    one, other = (around(row, column, rng.random(len(row)), linked) for _ in range(2))
    if not linked.any():
        assert one == {}
        return
    assert one["centre"] == other["centre"]
    assert len(one["nodes"]) <= 2 * MOST + 1
    there = {tuple(p) for p in zip(row[linked].tolist(), column[linked].tolist(), strict=True)}
    inside = {(a, b) for a, b in there if {a, b} <= set(one["nodes"])}
    assert {tuple(p) for p in one["true"]} == inside  # no true link among them is left away


def test_as_many_pairs_are_links_as_there_are() -> None:
    assert best(np.array([0.1, 0.9, 0.5]), 2).tolist() == [False, True, True]
    assert best(np.zeros(9), 4).sum() == 4


def test_a_judgement_keeps_the_graph_beside_its_numbers() -> None:
    score = Score("f1", 1.0, 1.0, 1.0, {}, {}, kind=ScoreKind.JOINT)
    true = {"owner-0": np.ones(2), "owner-1": np.ones(2)}
    told = Judgement(score, true, true, {"owner-0": GRAPH, "owner-1": {}}).targets()
    assert told[0]["graph"] == GRAPH and "graph" not in told[1]


def test_right_missed_and_invented_links_differ_by_dash_as_well_as_by_colour() -> None:
    target = {"owner": "owner-0", "true": [], "guess": [], "graph": GRAPH}
    found = guesses([record("plaintext", target), record("masked", target)])
    (section,) = reconstructed(found, ["plaintext", "masked"])
    (drawn,) = section.drawn
    assert drawn.caption == "plaintext and masked: links that the server reads, around a random node"
    assert drawn.table.rows == [
        ["owner-0 (3 more neighbours not drawn)", "A\u2013C", "5\u20137", "right"],
        ["owner-0 (3 more neighbours not drawn)", "A\u2013B", "5\u20132", "missed"],
        ["owner-0 (3 more neighbours not drawn)", "A\u2013D", "5\u20139", "invented"],
    ]
    picture = drawn.picture
    assert "owner-0: 1 right, 1 missed, 1 invented of 2 true" in picture.alt
    dashes = {look["linestyle"] for look in ego_graphs.LOOKS.values() if look is not ego_graphs.LOOKS["true"]}
    assert (
        len(dashes) == 3 and picture.svg.count("stroke-dasharray") >= 4
    )  # two on the right, two in the legend
    assert all(f">{letter}<" in picture.svg for letter in "ABCD")


def test_both_sides_have_the_same_places() -> None:
    sample = ego_graphs.Sample(Target(owner="o", true=[], guess=[], graph=GRAPH))
    assert sample.places() == sample.places() and set(sample.places()) == {2, 5, 7, 9}


def test_a_graph_that_cannot_be_read_is_not_drawn() -> None:
    broken = [
        {"owner": "o", "true": [], "guess": [], "graph": g} for g in ({"nodes": 3}, {**GRAPH, "true": [1]})
    ]
    assert reconstructed(guesses(record("plaintext", b) for b in broken), ["plaintext"]) == []


def test_rows_are_strips_and_alike_policies_share_one() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=(2, 100)).round(3)
    exact = {"owner": "owner-1", "true": true.tolist(), "guess": true.tolist()}
    off = {**exact, "guess": (-true).tolist()}
    kind = "rows of another owner"
    found = [
        record("plaintext", exact, kind), record("masked", {**exact, "guess": (true + 1e-6).tolist()}, kind),
        record("local_dp", off, kind),
    ]  # fmt: skip
    (section,) = reconstructed(guesses(found), ["plaintext", "masked", "local_dp"])
    assert [drawn.caption.split(":")[0] for drawn in section.drawn] == ["plaintext and masked", "local_dp"]
    first, second = section.drawn
    assert "cosine 1.000" in first.picture.alt and "cosine -1.000" in second.picture.alt
    assert "the 48 largest of 100 values" in first.picture.svg
    heads, rows = first.table.heads, first.table.rows
    assert heads == ["row", "value", "true", "guessed"] and len(rows) == 2 * feature_heatmaps.MOST_LISTED
    told = true[0, int(rows[0][1]) - 1]  # the place in the whole row, from 1
    assert rows[0][2:] == [f"{told:.3g}"] * 2


def test_what_the_defence_leaves_is_drawn_once_where_it_says_the_same() -> None:
    same = {"owner": "owner-1", "true": [[1.0, 2.0]], "guess": [[1.0, 2.0]]}
    other = {**same, "guess": [[2.0, -1.0]]}
    kind, left = "rows of another owner", {"aim": "what the defence leaves"}
    found = [
        record("plaintext", same, kind), record("plaintext", same, kind, **left),
        record("masked", same, kind), record("masked", other, kind, **left),
        record("local_dp", other, kind), record("local_dp", other, kind, **left),
    ]  # fmt: skip
    (section,) = reconstructed(guesses(found), ["plaintext", "masked", "local_dp"])
    assert [drawn.caption for drawn in section.drawn] == [
        "plaintext and masked: what the server wrote down",
        "plaintext: what the server wrote down, from what the defence leaves",
        "masked and local_dp: what the server wrote down, from what the defence leaves",
        "local_dp: what the server wrote down",
    ]
    (section,) = reconstructed(guesses(found[-2:]), ["local_dp"])
    (drawn,) = section.drawn
    assert drawn.caption == "local_dp: what the server wrote down, and from what the defence leaves"


def test_what_is_no_grid_of_numbers_is_no_strip() -> None:
    for true, guessed in (
        ([["a"]], [["b"]]),
        ([[1, 2]], [[1, 2, 3]]),
        ([], []),
        ([[1.0], [2.0]], [[1.0], [2.0]]),
    ):
        assert (
            feature_heatmaps.rows_of(guess({"targets": [{"owner": "o", "true": true, "guess": guessed}]}))
            == []
        )
    missing = {"targets": [{"owner": "o", "true": [None, 1.0], "guess": [0.5, None]}]}
    (row,) = feature_heatmaps.rows_of(guess(missing))
    assert row.true.tolist() == [0, 1] and row.guess.tolist() == [0.5, 0]
