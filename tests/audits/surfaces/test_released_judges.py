"""The judges of released models: sure lower ends, and owners that have nothing to tell apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from secure_fedgraph.attacks import Blind, Guess
from secure_fedgraph.attacks.released import LINKS, WORDS
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES

NODES, FEATURES = 40, 12


def graph(links: list[tuple[int, int]], nodes: int = NODES) -> Any:
    rng = np.random.default_rng(nodes)
    both = np.array([*links, *((b, a) for a, b in links)], dtype=np.int64).reshape(-1, 2).T
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[: nodes // 2] = True
    return SimpleNamespace(
        num_nodes=nodes,
        edge_index=torch.from_numpy(both.copy()),
        x=torch.from_numpy((rng.random((nodes, FEATURES)) < 0.4).astype(np.float32)),
        train_mask=mask,
    )


def case(**owners: Any) -> FinishedRun:
    return cast(FinishedRun, SimpleNamespace(federation=SimpleNamespace(owners=owners)))


def links_guess(owners: dict[str, Any], spread: float) -> Guess:
    """The truth with noise on it, for every pair of nodes."""
    rng, values = np.random.default_rng(3), {}
    for name, one in owners.items():
        first, second = np.triu_indices(one.num_nodes, 1)
        held = {(int(a), int(b)) for a, b in one.edge_index.T.tolist()}
        true = np.array([(a, b) in held for a, b in zip(first.tolist(), second.tolist(), strict=True)])
        values[name] = true + spread * rng.standard_normal(len(true))
    return Guess(LINKS, values, {name: (name,) for name in owners}, 0)


RING = [(k, (k + 1) % NODES) for k in range(NODES)]
EVERY = [(0, 1), (0, 2), (1, 2)]


def test_a_guess_at_links_has_a_sure_lower_end() -> None:
    owners = {"a": graph(RING), "b": graph(RING[:20])}
    score = JUDGES[LINKS](links_guess(owners, 0.7), case(**owners)).score
    assert score.surely_at_least is not None
    assert 0 <= score.surely_at_least < score.low < score.value < score.high <= 1


def test_an_exact_guess_at_few_links_is_surely_little() -> None:
    owners = {"a": graph(RING[:2])}
    score = JUDGES[LINKS](links_guess(owners, 0.0), case(**owners)).score
    assert score.value == 1 and score.surely_at_least is not None and score.surely_at_least < 0.01


@pytest.mark.parametrize("owners", [{"a": graph([])}, {"a": graph([]), "b": graph(EVERY, 3)}])
def test_links_of_owners_without_any_cannot_be_scored(owners: dict[str, Any]) -> None:
    with pytest.raises(Blind, match="linked"):
        JUDGES[LINKS](links_guess(owners, 0.5), case(**owners))


def test_an_owner_without_links_does_not_spoil_the_others() -> None:
    owners = {"a": graph(RING)}
    alone = JUDGES[LINKS](links_guess(owners, 0.5), case(**owners)).score
    more = {**owners, "b": graph([]), "c": graph(EVERY, 3)}
    score = JUDGES[LINKS](links_guess(more, 0.5), case(**more)).score
    assert score.value == alone.value and score.low == alone.low


def test_a_guess_at_words_has_a_sure_lower_end() -> None:
    owner, rng = graph(RING), np.random.default_rng(1)
    true = owner.x[owner.train_mask].double().numpy()
    guess = Guess(WORDS, {"a": true + 0.5 * rng.standard_normal(true.shape)}, {"a": ("a",)}, 0)
    score = JUDGES[WORDS](guess, case(a=owner)).score
    assert score.surely_at_least is not None
    assert -1 <= score.surely_at_least < score.low < score.value < score.high <= 1
