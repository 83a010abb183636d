"""train() under a budget: noise that it plans for a policy by name, and refusals where nobody plans any."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import in_form
from secure_fedgraph.privacy.policies import policy_named
from secure_fedgraph.privacy.spent import spent

HIDDEN = (8, 4)
BUDGET = sfg.Budget(8.0, unit="client")


def train(federation: sfg.Federation, policy: Any, **options: Any) -> sfg.Run:
    return sfg.train(sfg.FedAvg(hidden=HIDDEN), federation, policy, **{"rounds": 2, **options})


def noise(run: sfg.Run) -> dict[str, float]:
    made = run.policy.policy.made_with
    assert made is not None
    return dict(made["multiplier"])


@pytest.mark.parametrize("unit", ["client", "node"])
@pytest.mark.parametrize("policy", ["distributed_dp", "local_dp"])
def test_a_policy_of_noise_by_name_is_planned_as_by_the_command(
    policy: str, unit: str, federation: sfg.Federation
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sfg.FormWarning)  # for a node it takes a form
        run = train(federation, policy, budget=sfg.Budget(8.0, unit=unit))
    asked = Experiment(
        algorithm="fedavg", data="synthetic-citation", dataset={"nodes": 60, "features": 16}, rounds=2,
        policy=policy, protection={"norm": 1.0}, training={"hidden": HIDDEN}, epsilon=8.0, unit=unit,
    )  # fmt: skip
    made = protect(asked, in_form(asked, federation), federation)
    assert made.plan is not None and noise(run) == dict(made.plan.multipliers)
    assert 7.9 < run.privacy(unit)["epsilon"] <= 8


def test_what_a_shared_ledger_holds_is_planned_around(federation: sfg.Federation, tmp_path: Path) -> None:
    ledger = tmp_path / "shared.jsonl"
    train(federation, "local_dp", budget=sfg.Budget(4.0), ledger=ledger, out=tmp_path / "a")
    second = train(federation, "local_dp", budget=BUDGET, ledger=ledger, out=tmp_path / "b")
    assert noise(second)["update"] > noise(train(federation, "local_dp", budget=BUDGET))["update"]
    with pytest.raises(BadInput, match=r"policies\.local_dp\(norm=\.\.\., multiplier=\.\.\.\)"):
        train(federation, "local_dp", budget=BUDGET, ledger=ledger, out=tmp_path / "b", resume=True)


def test_it_is_resumed_with_the_noise_that_it_had(federation: sfg.Federation, tmp_path: Path) -> None:
    run = train(federation, "local_dp", budget=BUDGET, out=tmp_path)
    again = train(federation, "local_dp", budget=BUDGET, out=tmp_path, resume=True)
    assert noise(again) == noise(run) and again.history == run.history


@pytest.mark.parametrize("policy", ["masked", sfg.policies.plaintext(), None])
def test_a_budget_and_a_policy_without_noise_send_nothing(policy: Any, federation: sfg.Federation) -> None:
    started: list[bool] = []
    with pytest.raises(BadInput, match=r"adds no noise.*policies\.distributed_dp\(norm=.*run --epsilon"):
        train(federation, policy, budget=BUDGET, on_start=lambda: started.append(True))
    assert not started


def test_one_who_sends_nothing_keeps_to_any_budget(federation: sfg.Federation) -> None:
    run = sfg.train(sfg.Local(hidden=HIDDEN), federation, "plaintext", rounds=1, budget=BUDGET)
    assert run.privacy("client")["epsilon"] == 0


def test_noise_by_the_server_is_refused_for_a_budget_against_it(federation: sfg.Federation) -> None:
    with pytest.raises(BudgetExhausted, match="against outsider"):
        train(federation, "central_dp", budget=BUDGET)


def test_what_a_policy_lacks_names_the_command_that_plans_it() -> None:
    with pytest.raises(BadInput, match="secure-fedgraph budget --epsilon E --sampling-rate 1 --steps ROUNDS"):
        policy_named("local_dp")


def test_a_budget_that_is_a_number_says_how_it_is_written(federation: sfg.Federation) -> None:
    with pytest.raises(BadInput, match=r"sfg\.Budget\(8\.0, unit='client'\)"):
        train(federation, "local_dp", budget=8.0)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [("transcript", "full", "keep="), ("epsilon", 8.0, "budget="), ("round", 1, "did you mean 'rounds'")],
)
def test_options_that_train_does_not_know(
    key: str, value: Any, named: str, federation: sfg.Federation
) -> None:
    with pytest.raises(BadInput, match=f"{key}.*{named}"):
        train(federation, "masked", **{key: value})


def test_noise_by_hand_keeps_a_budget_for_units_that_several_clients_hold() -> None:
    """With as many holders as the data have; one holder would make room for several times as much."""
    split = {"local_tests": 5, "local_share": 0.4}
    shared = sfg.federate(
        "synthetic-citation", clients=3, partition="label_skew", split=split, nodes=120, features=16, seed=0
    )
    assert shared.holders > 1
    policy = sfg.policies.local_dp(norm=1.0, multiplier=4.0)
    free = train(shared, policy)
    alone = spent(free.charges, 1e-5)["node"]["server"].epsilon
    assert alone < 0.8 * float(free.privacy("node")["epsilon"])
    with pytest.raises(BudgetExhausted):
        train(shared, policy, budget=sfg.Budget(1.1 * alone, unit="node"))


def test_noise_by_hand_that_ends_a_run_early_is_announced_before_round_1(
    federation: sfg.Federation,
) -> None:
    """With a budget, noise or rounds that let it end: each of them is told, and each is enough."""

    def by_hand(multiplier: float, epsilon: float, rounds: int, **more: Any) -> sfg.Run:
        policy = sfg.policies.local_dp(norm=1.0, multiplier=multiplier)
        return train(federation, policy, budget=sfg.Budget(epsilon), rounds=rounds, **more)

    two = train(federation, sfg.policies.local_dp(norm=1.0, multiplier=4.0)).privacy("client")["epsilon"]
    epsilon, seen, sent = 1.05 * float(two), [], []
    with (
        pytest.warns(sfg.EarlyStopWarning) as told,
        pytest.raises(BudgetExhausted, match="would exceed the budget"),
    ):
        by_hand(4.0, epsilon, 6, on_round=seen.append, on_start=lambda: sent.append(len(told)))
    assert sent == [1]  # before anything was sent
    assert len(seen) == 2
    text = str(told[0].message)
    found = re.fullmatch(
        r"the budget of epsilon \S+ for one client stops this run after 2 of 6 rounds: "
        r"give epsilon (\S+), multiplier (\S+), or 2 rounds",
        text,
    )
    assert found is not None, text
    for enough in ((4.0, float(found[1]), 6), (float(found[2]), epsilon, 6), (4.0, epsilon, 2)):
        assert len(by_hand(*enough).history) == enough[2]  # and none of these warns
    with pytest.warns(sfg.EarlyStopWarning, match="after 5 of 6 rounds"), pytest.raises(BudgetExhausted):
        by_hand(float(found[2]) * 0.95, epsilon, 6)


def test_what_a_shared_ledger_holds_ends_a_run_earlier(federation: sfg.Federation, tmp_path: Path) -> None:
    policy, ledger = sfg.policies.local_dp(norm=1.0, multiplier=4.0), tmp_path / "shared.jsonl"
    room = sfg.Budget(1.05 * float(train(federation, policy, rounds=4).privacy("client")["epsilon"]))
    train(federation, policy, budget=room, ledger=ledger, out=tmp_path / "a")
    with pytest.warns(sfg.EarlyStopWarning, match="after 2 of 3 rounds"), pytest.raises(BudgetExhausted):
        train(federation, policy, budget=room, ledger=ledger, out=tmp_path / "b", rounds=3)


def test_a_torn_shared_ledger_does_not_stop_a_run_whose_noise_is_set_by_hand(
    federation: sfg.Federation, tmp_path: Path
) -> None:
    """The run itself counts the torn line when it goes on."""
    ledger = tmp_path / "shared.jsonl"
    ledger.write_text('{"client": "owner-0", "ru')
    asked = Experiment(
        algorithm="fedavg", data="synthetic-citation", dataset={"nodes": 60, "features": 16}, rounds=2,
        policy="local_dp", protection={"norm": 1.0, "multiplier": 4.0}, epsilon=8.0, ledger=str(ledger),
    )  # fmt: skip
    assert protect(asked, asked.make_algorithm(), federation).plan is None
