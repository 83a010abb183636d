"""The controls of G4 to G7 and A7: members, classes, owners and links."""

from __future__ import annotations

from functools import cache
from typing import Any

import attacked
import numpy as np
import pytest
from attacked import guessed, judged, score_of

from secure_fedgraph.attacks import (
    Blind,
    Guess,
    Knowledge,
    LinkTeller,
    ModelClassShares,
    ModelOwner,
    NodeLikelihoodRatio,
    UpdateClassShares,
    UpdateOwner,
)
from secure_fedgraph.attacks.released.influence import SERVICE, Service
from secure_fedgraph.attacks.released.ownership import OWNERS_OF_NODES
from secure_fedgraph.attacks.weights.class_shares import CLASS_SHARES, SHADOW_OWNERS
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import MAKERS

GENERATED: dict[str, Any] = {
    "data": "synthetic-citation",
    "dataset": {"nodes": 400, "features": 100},
    "clients": 6,
}
LEARNED = ("rounds=5", "training.learning_rate=0.01")
LONG = ("rounds=20", "training.learning_rate=0.01", "clients=3")
EPOCHS = (*LEARNED, "training.epochs=5")
NOISED = ("protection.norm=0.1", "protection.multiplier=1.0")


@cache
def made(algorithm: str, policy: str = "plaintext", *changes: str) -> FinishedRun:
    return attacked.made({**GENERATED, "algorithm": algorithm}, policy, *changes)


# G4


@pytest.mark.parametrize(("algorithm", "changes"), [("fedridge", ()), ("fedsage", LONG), ("local", LONG)])
def test_g4_positive_members_are_told_from_others(algorithm: str, changes: tuple[str, ...]) -> None:
    score = judged(made(algorithm, "plaintext", *changes), NodeLikelihoodRatio())
    assert score.leaks
    assert score.low > 0.55


def test_g4_negative_before_anything_was_learned() -> None:
    case = made("fedsage", "plaintext", "rounds=1", "training.learning_rate=1e-6")
    score = judged(case, NodeLikelihoodRatio())
    assert score.low < 0.5 < score.high


def test_g4_residual_answers_without_links_still_tell() -> None:
    assert judged(made("fedridge"), NodeLikelihoodRatio(), aim="residual").leaks


# A7 and G5: class shares


@pytest.mark.parametrize(("algorithm", "changes"), [("fedridge", ()), ("fedsage", LEARNED)])
def test_a7_positive_class_shares_come_back_from_single_updates(
    algorithm: str, changes: tuple[str, ...]
) -> None:
    score = judged(made(algorithm, "plaintext", *changes), UpdateClassShares())
    assert score.leaks
    assert score.value > 0.85
    assert "the shares of nodes that nobody trained on" in score.baselines


def test_a7_negative_under_masks_it_is_blind_and_noise_leaves_nothing() -> None:
    with pytest.raises(Blind, match="masked"):
        judged(made("fedsage", "masked", *LEARNED), UpdateClassShares())
    assert not judged(made("fedsage", "local_dp", *LEARNED, *NOISED), UpdateClassShares()).leaks


def test_a7_negative_uploads_of_other_owners_say_nothing_about_these() -> None:
    case = made("fedsage", "plaintext", *LEARNED)
    guess = guessed(case, UpdateClassShares())
    names = list(guess.values)
    moved = dict(zip(names, [guess.values[n] for n in (*names[1:], names[0])], strict=True))
    assert not score_of(Guess(CLASS_SHARES, moved, guess.targets, 0), case).leaks


def test_a7_residual_the_sum_gives_the_mean_share() -> None:
    score = judged(made("fedsage", "masked", *LEARNED), UpdateClassShares(), aim="residual")
    assert score.value > 0.85


def test_a7_shadow_owners_hold_no_node_of_an_owners_training_data() -> None:
    case = made("fedsage", "plaintext", *LEARNED)
    shadows = MAKERS[SHADOW_OWNERS](case)
    assert shadows.shares.shape == (60, case.federation.schema.classes)
    assert np.allclose(shadows.shares.sum(1), 1)
    assert shadows.shares.std(0).min() > 0.05  # drawn, and not the data's own


def test_g5_positive_personal_models_say_their_owners_classes() -> None:
    score = judged(made("local", "plaintext", *LEARNED), ModelClassShares())
    assert score.leaks


def test_g5_negative_one_model_of_all_owners_says_nothing_about_one() -> None:
    case = made("fedsage", "plaintext", *LEARNED)
    with pytest.raises(Blind, match="nobody's own"):
        judged(case, ModelClassShares())
    assert not judged(case, ModelClassShares(), aim="residual").leaks


# A7 and G6: owners of nodes


@pytest.mark.parametrize(("algorithm", "changes"), [("fedridge", ()), ("fedsage", EPOCHS)])
def test_a7_positive_single_updates_say_whose_a_node_is(algorithm: str, changes: tuple[str, ...]) -> None:
    score = judged(made(algorithm, "plaintext", *changes), UpdateOwner())
    assert score.leaks
    assert score.value > 0.7


def test_a7_negative_masked_updates_and_sums_and_noise_say_nothing_of_owners() -> None:
    case = made("fedsage", "masked", *LEARNED)
    with pytest.raises(Blind, match="masked"):
        judged(case, UpdateOwner())
    with pytest.raises(Blind, match="whoever of them holds a node"):
        judged(case, UpdateOwner(), aim="residual")
    assert not judged(made("fedsage", "local_dp", *LEARNED, *NOISED), UpdateOwner()).leaks


def test_g6_positive_personal_models_say_whose_a_node_is() -> None:
    case = made("local", "plaintext", "rounds=20", "training.learning_rate=0.003", "clients=3")
    score = judged(case, ModelOwner())
    assert score.leaks
    assert judged(case, ModelOwner(), aim="residual").value < score.value


def test_g6_negative_a_model_of_all_owners_is_blind() -> None:
    with pytest.raises(Blind, match="the same whoever holds a node"):
        judged(made("fedsage", "plaintext", *LEARNED), ModelOwner())


def test_the_judge_of_owners_counts_the_right_ones() -> None:
    case = made("fedsage", "plaintext", *LEARNED)
    owners = case.federation.owners
    sizes = {name: int(graph.train_mask.sum()) for name, graph in owners.items()}
    exact = {
        name: np.concatenate([np.full(size, float(other == name)) for other, size in sizes.items()])
        for name in owners
    }
    targets = {name: (name,) for name in owners}
    assert score_of(Guess(OWNERS_OF_NODES, exact, targets, 0), case).value == 1
    names = list(owners)
    wrong = dict(zip(names, [exact[n] for n in (*names[1:], names[0])], strict=True))
    assert score_of(Guess(OWNERS_OF_NODES, wrong, targets, 0), case).value == 0


# G7


@pytest.mark.parametrize(("algorithm", "changes"), [("fedridge", ()), ("fedsage", LEARNED)])
def test_g7_positive_influence_gives_the_links(algorithm: str, changes: tuple[str, ...]) -> None:
    score = judged(made(algorithm, "plaintext", *changes), LinkTeller())
    assert score.leaks
    assert score.value > 0.95
    assert score.details["f1_at_as_many_links"] > 0.5


def test_g7_negative_a_service_without_the_owners_links_is_at_chance() -> None:
    case = made("fedsage", "plaintext", *LEARNED)
    alone = {
        owner: Service(lambda x, one=one: one.ask(x * 0) + 0 * x.sum(), one.features)
        for owner, one in MAKERS[SERVICE](case).items()
    }
    view = case.transcript.view(*case.parties("outsider"))
    guess = LinkTeller().run(view, Knowledge((), {SERVICE: alone}))
    score = score_of(guess, case)
    assert score.value == 0.5
    assert not score.leaks


def test_g7_residual_labels_alone_give_less() -> None:
    case = made("fedsage", "plaintext", *LEARNED)
    less = judged(case, LinkTeller(), aim="residual")
    assert 0.5 < less.value < judged(case, LinkTeller()).value
