"""Guesses drawn over the truth: right, missed and invented differ, and what is the same is drawn once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_parts import guesses

from secure_fedgraph.audits.empirical_dp.neighbourhoods import MOST, around, best
from secure_fedgraph.audits.judgement import Judgement
from secure_fedgraph.audits.scoring import Score, ScoreKind
from secure_fedgraph.report.figures import ego_graphs
from secure_fedgraph.report.sections.audit_page import reconstructed


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
    assert drawn.caption == "plaintext and masked: what the server wrote down"
    assert drawn.table.rows == [
        ["link A\u2013C (nodes 5 and 7)", "yes", "yes"],
        ["link B\u2013A (nodes 2 and 5)", "yes", "no"],
        ["link A\u2013D (nodes 5 and 9)", "no", "yes"],
    ]
    picture = drawn.picture
    assert "1 of 2 read, 1 invented; 3 more neighbours not drawn" in picture.alt
    assert len({look["linestyle"] for look in ego_graphs.LOOKS.values()}) == 3
    assert picture.svg.count("stroke-dasharray") >= 4  # two in the graph, two in the legend
    assert all(f">{letter}<" in picture.svg for letter in "ABCD")


def test_a_graph_that_cannot_be_read_is_not_drawn() -> None:
    broken = [
        {"owner": "o", "true": [], "guess": [], "graph": g} for g in ({"nodes": 3}, {**GRAPH, "true": [1]})
    ]
    assert reconstructed(guesses(record("plaintext", b) for b in broken), ["plaintext"]) == []


def test_policies_under_which_the_same_was_written_share_a_picture_and_their_search_is_named() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=(2, 100)).round(3)
    exact = {"owner": "owner-1", "true": true.tolist(), "guess": true.tolist()}
    near, off = {**exact, "guess": (true + 1e-6).tolist()}, {**exact, "guess": (-true).tolist()}
    kind, stopped = "rows of another owner", "search stopped after 20 s: a lower bound"
    found = [
        record("plaintext", exact, kind, stopped=stopped), record("masked", near, kind),
        record("local_dp", off, kind),
    ]  # fmt: skip
    (section,) = reconstructed(guesses(found), ["plaintext", "masked", "local_dp"])
    first, second = section.drawn
    assert first.caption == f"plaintext and masked: what the server wrote down; {stopped}"
    assert second.caption.startswith("local_dp:")
    assert "24 of 24 values read right" in first.picture.alt and "0 of 24" in second.picture.alt
    what, told, read = first.table.rows[0]
    assert told == read == f"{true[0, int(str(what).split()[-1]) - 1]:.4g}"  # the place in the whole row


@pytest.mark.parametrize(
    ("true", "guessed"),
    [([["a"]], [["b"]]), ([[1, 2]], [[1, 2, 3]]), ([], []), ([[0.0], [0.0]], [[1.0], [1.0]])],
)
def test_what_is_no_grid_of_numbers_is_not_drawn(true: Any, guessed: Any) -> None:
    target = {"owner": "o", "true": true, "guess": guessed}
    assert reconstructed(guesses([record("plaintext", target, "rows of another owner")]), []) == []
