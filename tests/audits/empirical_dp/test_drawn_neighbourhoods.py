"""What judges of links hand over for pictures is the federation's own graph, whatever was guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import secure_fedgraph as sfg
from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES

KINDS = ("links from lists", "links by likeness", "links from answers")


@pytest.fixture(scope="module")
def case() -> FinishedRun:
    federation = sfg.federate(
        "synthetic-citation", clients=2, seed=0, partition="vertical", nodes=80, features=20
    )
    unread: Any = None
    return FinishedRun(federation, unread, unread)


def linked(case: FinishedRun, owner: str) -> np.ndarray:
    graph = case.federation.owners[owner]
    found = np.zeros((int(graph.num_nodes),) * 2, dtype=bool)
    found[tuple(graph.edge_index.numpy())] = True
    return found | found.T


def drawn(case: FinishedRun, kind: str, sign: float) -> dict[str, dict[str, Any]]:
    """The graphs after a guess that is right in every pair, or (-1) wrong in every pair."""
    values = {owner: sign * linked(case, owner).astype(np.float32) for owner in case.federation.owners}
    if kind == "links from answers":
        values = {o: v[np.triu_indices(len(v), 1)] for o, v in values.items()}
    guess = Guess(kind, values, {owner: (owner,) for owner in values}, 1)
    return {t["owner"]: t["graph"] for t in JUDGES[kind](guess, case).targets()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_drawn_links_are_the_owners(case: FinishedRun, kind: str) -> None:
    right, wrong = drawn(case, kind, 1.0), drawn(case, kind, -1.0)
    assert set(right) == set(wrong) == set(case.federation.owners)
    for owner in right:
        there = linked(case, owner)
        for graph in (right[owner], wrong[owner]):
            nodes = np.array(graph["nodes"])
            inside = {(int(a), int(b)) for a in nodes for b in nodes if a < b and there[a, b]}
            assert inside and {tuple(link) for link in graph["true"]} == inside
            assert 3 <= there[graph["centre"]].sum() <= 8
        assert right[owner]["centre"] == wrong[owner]["centre"]
        assert right[owner]["guess"] == right[owner]["true"]
        assert not {tuple(link) for link in wrong[owner]["guess"]} & inside
