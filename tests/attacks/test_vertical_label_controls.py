"""The controls of D7 and D8: labels of a split by columns without the classifier."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from attacked import judged, score_of

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.attacks import (
    AlikeRows,
    Blind,
    BlindGroups,
    Guess,
    LeaningCompletion,
    ModelCompletion,
)
from secure_fedgraph.attacks.active.leaning_model import FASTER, playing
from secure_fedgraph.attacks.attack import LAST
from secure_fedgraph.attacks.vertical.completion import COMPLETED
from secure_fedgraph.attacks.vertical.label_groups import GROUPS
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.protocol.transcript import everything


@cache
def go(policy: str = "plaintext", rounds: int = 1, rate: float = 0.05, leans: bool = False) -> FinishedRun:
    federation = sfg.federate(
        "synthetic-citation", clients=3, seed=0, partition="vertical", split={"labels": "one"},
        nodes=200, features=60,
    )  # fmt: skip
    kind = ALGORITHMS["glasu-one-label-holder"]
    algorithm = (playing(kind) if leans else kind)(
        sampler="public", public_nodes=200, hidden=16, steps=20, learning_rate=rate, dropout=0.0
    )
    chosen = getattr(sfg.policies, policy)()
    run = sfg.train(algorithm, federation, chosen, rounds=rounds, keep=everything)
    return FinishedRun.of(run, 0)


@pytest.mark.parametrize("who", ["server", LAST])
def test_d7_positive_gradients_fall_into_as_many_groups_as_there_are_classes(who: str) -> None:
    case = go()
    score = judged(case, BlindGroups(), who)
    assert score.value > 0.99
    assert score.details["groups"] == case.federation.schema.classes
    assert score.leaks


def test_d7_negative_the_server_reads_no_gradient_under_masks() -> None:
    with pytest.raises(Blind, match="d7-blind-groups"):
        judged(go("masked"), BlindGroups(), "server")


def test_d7_and_d8_embeddings_of_an_untrained_network_say_little_and_trained_ones_more() -> None:
    untrained, trained = go(rate=1e-6), go(rounds=8)
    assert judged(untrained, BlindGroups(), LAST, "residual").value < 0.6
    assert not judged(untrained, ModelCompletion(), LAST).leaks
    groups = judged(trained, BlindGroups(), "server", "residual")
    assert groups.value > groups.baselines["groups drawn by chance"]
    labels = judged(trained, ModelCompletion(), LAST)
    assert labels.value > labels.baselines["own features"]
    with pytest.raises(Blind, match="aggregate of all owners"):
        judged(trained, ModelCompletion(), LAST, "residual")


def test_d8_leaning_positive_two_rounds_of_a_faster_owner_complete_more_labels() -> None:
    honest, leaning = (
        judged(go(rounds=2), ModelCompletion(), LAST),
        judged(go(rounds=2, leans=True), LeaningCompletion(), LAST),
    )
    assert leaning.value > honest.value
    assert leaning.value > leaning.baselines["own features"]


def test_d8_leaning_negative_a_faster_owner_gains_nothing_where_nothing_is_learned() -> None:
    assert not judged(go(rate=1e-6, leans=True), LeaningCompletion(), LAST).leaks


def test_only_the_last_owner_trains_faster() -> None:
    class Client:
        clients = ("owner-0", "owner-1")
        round = 1

        def __init__(self, name: str) -> None:
            self.name = name

    kind = ALGORITHMS["glasu-one-label-holder"]
    first, last = (playing(kind)(learning_rate=0.5).rate(Client(name)) for name in Client.clients)  # type: ignore[attr-defined]
    assert (first, last) == (0.5, 0.5 * FASTER)


def test_the_judges_leave_out_what_was_not_guessed() -> None:
    case = go()
    y = case.federation.owners["owner-0"].y.numpy()
    everybody = {"all": case.federation.names}
    trains = case.federation.owners["owner-0"].train_mask.numpy()
    shifted = np.where(trains, (y + 1) % (y.max() + 1), -1)
    assert score_of(Guess(GROUPS, {"all": shifted}, everybody, 0), case).value == 1
    assert score_of(Guess(COMPLETED, {"all": shifted}, everybody, 0), case).value == 0


@pytest.mark.parametrize("about", [GROUPS, COMPLETED])
def test_the_judges_find_nothing_right_where_nothing_was_guessed(about: str) -> None:
    case = go()
    nodes = case.federation.owners["owner-0"].num_nodes
    everybody = {"all": case.federation.names}
    for guess in (
        Guess(about, {}, {}, 0),
        Guess(about, {"all": np.zeros(0, dtype=int)}, everybody, 0),
        Guess(about, {"all": np.full(nodes, -1)}, everybody, 0),
    ):
        score = score_of(guess, case)
        assert (score.value, score.low, score.high) == (0, 0, 1)
        assert not score.leaks


@pytest.mark.parametrize("sends", ["columns", "labels", "nothing"])
def test_what_owners_who_learn_at_home_are_handed(sends: str) -> None:
    federation = sfg.federate(
        "synthetic-citation", clients=3, seed=0, partition="vertical", nodes=200, features=60
    )
    algorithm = ALGORITHMS["glasu-at-home"](sends=sends, width=60)
    case = FinishedRun.of(sfg.train(algorithm, federation, "masked", keep=everything), 0)
    if sends == "nothing":
        for attack, aim in (
            (ModelCompletion(), "run"),
            (BlindGroups(), "residual"),
            (AlikeRows(), "residual"),
        ):
            with pytest.raises(Blind):
                judged(case, attack, "server", aim)
        return
    completed = judged(case, ModelCompletion(), LAST)
    assert (completed.value > 0.95) == (sends == "labels")  # these are what travels
    # the system draws which columns a node shows: their groups are .4 to .66 right
    groups = judged(case, BlindGroups(), "server", "residual")
    assert (groups.value > 0.9) == (sends == "labels")
    alike = judged(case, AlikeRows(), "server", "residual")
    assert (alike.value > 0.75) == (sends == "labels")  # labels have travelled over links, columns have not
