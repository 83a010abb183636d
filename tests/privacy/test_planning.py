"""Planning: noise from a budget, as the ledger counts it afterwards; what cannot be planned, in words."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections import Counter
from dataclasses import replace

import pytest
from parties import NAMES, Toy, session
from rich.console import Console
from small import GENERATORS

from secure_fedgraph.cli.tables import run_tables
from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import DiscreteRelease, GaussianRelease
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import execute, make_federation, run_result
from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp, masked, plaintext
from secure_fedgraph.privacy.planning import check_first, plan, split
from secure_fedgraph.privacy.spent import spent
from secure_fedgraph.report.page import write_report

UPDATE, HIDDEN = Channel("update", Reveal.SUM), Channel("hidden", Reveal.SUM, Unit.NODE)
SMALL = {
    "data": "synthetic-citation",
    "rounds": 3,
    "dataset": {"nodes": 90, "features": 16},
    "training": {"hidden": [8, 4]},
}
POLICIES = {"local_dp": local_dp, "central_dp": central_dp, "distributed_dp": distributed_dp}


def make(name: str = "local_dp", **more):
    return lambda multipliers: POLICIES[name](1.0, multipliers, **more)


def planned(budget: Budget, channels=(UPDATE,), uses=None, shares=None, name: str = "local_dp", **more):
    uses = uses or {channel.name: 5 for channel in channels}
    return plan(budget, make(name, **more), channels, NAMES, uses, shares)


def experiment(**changes) -> Experiment:
    return Experiment(**{**SMALL, "policy": "local_dp", "epsilon": 8.0, "unit": "client", **changes})


class TestPlan:
    @pytest.mark.parametrize("name", POLICIES)
    @pytest.mark.parametrize(
        ("epsilon", "unit", "holders"), [(1.0, "client", 1), (8.0, "node", 1), (8.0, "edge", 3)]
    )
    def test_within_the_budget_and_hardly_less(self, name, epsilon, unit, holders):
        against = "outsider" if name == "central_dp" else "server"
        budget = Budget(epsilon, 1e-6, unit, against, holders)
        found = planned(budget, name=name)
        assert 0.98 * epsilon < found.epsilon <= epsilon
        # independently: five Gaussian releases of the multiplier that was planned, at this unit's part of it
        z = found.multipliers["update"] / (2 * holders if unit != "client" else 1)
        exactly = accounting.epsilon([GaussianRelease(z)] * 5, 1e-6).epsilon
        assert exactly <= found.epsilon * 1.002
        assert exactly > 0.85 * epsilon

    def test_more_rounds_take_more_noise_by_the_root(self):
        few, many = (planned(Budget(2.0), uses={"update": n}).multipliers["update"] for n in (4, 64))
        assert many / few == pytest.approx(4.0, rel=0.01)

    def test_channels_share_by_their_weights(self):
        """A channel's part of mu^2 = uses / multiplier^2 is its weight's part of all."""
        uses, shares = {"update": 10, "hidden": 3}, {"update": 3.0, "hidden": 1.0}
        found = planned(Budget(4.0), (UPDATE, HIDDEN), uses, shares)
        paid = {name: uses[name] / z**2 for name, z in found.multipliers.items()}
        assert paid["update"] / paid["hidden"] == pytest.approx(3.0, rel=1e-9)
        assert found.shares == {"update": 0.75, "hidden": 0.25}
        assert 0.98 * 4.0 < found.epsilon <= 4.0
        rows = split(found.budget, found.policy.bind((UPDATE, HIDDEN), NAMES), uses)
        told = {"update": "client", "hidden": "client"}
        for row in rows:
            name = row["channel"]
            assert (row["unit"], row["uses"]) == (told.pop(name), uses[name])
            assert row["multiplier"] == pytest.approx(found.multipliers[name], rel=1e-3)
            alone = accounting.epsilon([GaussianRelease(found.multipliers[name])] * uses[name], 1e-5).epsilon
            assert alone <= row["epsilon"] * 1.002 < 1.2 * alone
        assert not told
        assert max(row["epsilon"] for row in rows) < found.epsilon < sum(row["epsilon"] for row in rows)
        equal = planned(Budget(4.0), (UPDATE, HIDDEN), {"update": 5, "hidden": 5})
        assert equal.multipliers["update"] == equal.multipliers["hidden"]

    def test_the_policy_that_comes_out_is_the_one_that_was_counted(self):
        found = planned(Budget(3.0), (UPDATE, HIDDEN), {"update": 2, "hidden": 4})
        bound = found.policy.bind((UPDATE, HIDDEN), NAMES)
        for name, z in found.multipliers.items():
            assert bound[name].stages[1].multiplier == z
            assert bound[name].releases(7)["server"][0].noise_multiplier >= z
        assert check_first(Budget(3.0), bound, found.uses) == pytest.approx(found.epsilon, rel=1e-9)

    def test_a_channel_that_nobody_pays_for_takes_no_part(self):
        tell, exam = Toy.TELL, Toy.EXAM
        found = planned(Budget(3.0), (UPDATE, tell, exam), {"update": 5, "tell": 5, "exam": 5})
        assert found.shares == {"update": 1.0}

    def test_a_session_that_keeps_to_the_plan_keeps_to_the_budget(self):
        """Charges of real uploads, to the last one that the plan foresaw; one more is over."""
        budget = Budget(2.0, 1e-6)
        found = planned(budget, uses={"update": 6}, name="distributed_dp")
        made = session(found.policy).set_up()
        for number in range(6):
            made.round(number + 1).reduce(Toy.UPDATE)
        kept = spent(made.ledger.charges, 1e-6)["client"]["server"].epsilon
        assert 0.97 * 2.0 < kept <= found.epsilon <= 2.0
        made.round(7).reduce(Toy.UPDATE)
        assert spent(made.ledger.charges, 1e-6)["client"]["server"].epsilon > 2.0


class TestRuns:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"policy": "distributed_dp", "epsilon": 2.0},
            {"policy": "central_dp", "against": "outsider"},
            {"policy": "strictest"},
            {"unit": "node"},
            {"evaluation": "in_band", "budget": {"update": 4.0}},
        ],
        ids=[
            "local",
            "distributed",
            "central",
            "strictest",
            "node",
            "in-band",
        ],
    )
    def test_a_real_run_spends_what_was_planned_as_its_ledger_counts_it(self, changes):
        asked = experiment(**changes)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = execute(asked, None)
        assert len(run.history) == 3
        units = (*run.federation.units, asked.unit)
        spent_in_all = spent(run.charges, asked.delta, run.federation.holders, units)
        found = spent_in_all[asked.unit][asked.against].epsilon
        assert 0.97 * asked.epsilon < found <= asked.epsilon
        told = run_result(run, asked)
        entry, rows = told["budget"], told["plan"]
        assert (entry["epsilon"], entry["unit"], entry["against"]) == (
            asked.epsilon,
            asked.unit,
            asked.against,
        )
        assert entry["planned"] is True
        assert found <= entry["spent"] <= found + 1e-4
        assert {row["channel"] for row in rows} == {c.channel for c in run.charges}
        assert found <= sum(row["epsilon"] for row in rows) + 1e-3
        for row in rows:
            channel = row["channel"]
            assert row["uses"] == sum(c.channel == channel and c.client == "owner-0" for c in run.charges)

    def test_what_each_algorithm_says_it_uses_it_uses_and_no_more(self):
        """FedSage+ asks on four channels, each with its own number of times, and the budget holds."""
        asked = experiment(algorithm="fedsage+", training=GENERATORS, rounds=2)
        try:
            run = execute(asked, None)
        except BudgetExhausted as error:
            pytest.fail(f"the plan did not hold: {error}")
        assert spent(run.charges, 1e-5)["client"]["server"].epsilon <= 8.0
        for name in {c.channel for c in run.charges}:
            most = run.algorithm.uses(run.policy[name].channel, 2, len(run.federation.names))
            for client in run.federation.names:
                assert sum(c.channel == name and c.client == client for c in run.charges) <= most

    @pytest.mark.parametrize(
        ("settings", "channels"),
        [
            ({}, {"update", "generator", "feedback"}),
            ({"generator": "shared"}, {"update", "shared_generator"}),
        ],
    )
    def test_channels_that_the_settings_do_not_use_get_no_part(self, settings, channels):
        asked = experiment(algorithm="fedsage+", training={**GENERATORS, **settings}, rounds=2)
        run = execute(asked, None)
        told = run_result(run, asked)
        assert {row["channel"] for row in told["plan"]} == channels == {c.channel for c in run.charges}
        assert 0.9 * 8 < told["budget"]["spent"] <= 8

    def test_the_split_is_adjusted_by_weights(self):
        """As docs/budgets.md says: a channel with more weight gets less noise, and costs more."""
        found = {}
        for weight in (1.0, 9.0):
            asked = experiment(evaluation="in_band", budget={"update": weight})
            rows = run_result(execute(asked, None), asked)["plan"]
            found[weight] = {row["channel"]: row for row in rows}
        assert found[9.0]["update"]["multiplier"] < found[1.0]["update"]["multiplier"]
        assert found[9.0]["metrics"]["epsilon"] < found[1.0]["metrics"]["epsilon"]
        assert found[9.0]["metrics"]["epsilon"] < found[9.0]["update"]["epsilon"]

    def test_noisy_steps_are_a_row_with_their_own_unit(self):
        steps = {"rate": 1.0, "steps": 2}
        asked = experiment(algorithm="fedsage", policy="masked", unit="node", steps=steps)
        asked = asked.model_copy(update={"training": {"hidden": [4], "fanout": [2]}})
        run = execute(asked, None)
        (row,) = run_result(run, asked)["plan"]
        assert (row["channel"], row["unit"], row["uses"]) == ("update (training)", "node", 3)
        assert row["multiplier"] == run.policy.steps.noise
        assert row["epsilon"] == run.privacy("node")["epsilon"]

    def test_terminal_and_page_show_the_split_and_whose_noise_it_is(self, tmp_path):
        asked = experiment(unit="node", evaluation="in_band")
        told = run_result(execute(asked, None), asked)
        plain = Console(width=200, record=True, file=io.StringIO())
        for table in run_tables(as_read(RunResult, told)):
            plain.print(table)
        text = plain.export_text()
        (tmp_path / "result.json").write_text(json.dumps(told))
        page = write_report(tmp_path).read_text()
        assert "how epsilon 8 of one node is split" in text
        for row in told["plan"]:
            assert f"{row['multiplier']:.4f}" in text
            assert f"{row['multiplier']:.4g}" in page
        assert "how the budget is split" in page
        assert "alone ε = " in page

    def test_without_a_budget_nothing_is_planned(self):
        asked = Experiment(**SMALL, policy="masked")
        found = protect(asked, asked.make_algorithm(), make_federation(asked))
        assert (found.budget, found.plan) == (None, None)

    def test_noise_by_hand_is_left(self):
        asked = experiment(protection={"norm": 1.0, "multiplier": 5.0})
        found = protect(asked, asked.make_algorithm(), make_federation(asked))
        assert found.plan is None
        run = execute(asked, None)
        exactly = accounting.epsilon([GaussianRelease(5.0)] * 3, 1e-5).epsilon
        assert exactly <= 1.002 * spent(run.charges, 1e-5)["client"]["server"].epsilon < 1.15 * exactly
        assert run_result(run, asked)["budget"]["planned"] is False

    def test_the_norm_has_a_default_and_a_given_one_counts(self):
        for protection, norm in ({}, 1.0), ({"norm": 0.25}, 0.25):
            asked = experiment(protection=protection)
            found = protect(asked, asked.make_algorithm(), make_federation(asked))
            bound = found.policy.bind([UPDATE], NAMES)["update"]
            assert bound.stages[0].norm == norm
            assert bound.stages[1].l2_sensitivity == norm
            assert bound.stages[1].multiplier == found.plan.multipliers["update"]


class TestRefused:
    @pytest.mark.parametrize(
        ("policy", "words"),
        [
            (plaintext(), "channel 'update' with protection plaintext: no noise protects one client against"),
            (masked(), "channel 'update' with protection masked: .*use distributed_dp, or local_dp"),
            (central_dp(1.0, 1.0), "protection central_dp: .*give --against outsider, or use distributed_dp"),
        ],
    )
    def test_without_noise_no_budget_holds_and_the_channel_is_named(self, policy, words):
        with pytest.raises(BudgetExhausted, match=words):
            plan(Budget(8.0), lambda _: policy, (UPDATE,), NAMES, {"update": 1})
        with pytest.raises(BudgetExhausted, match=words):
            check_first(Budget(8.0), policy.bind((UPDATE,), NAMES), {"update": 1})

    def test_the_channel_that_lacks_it_is_the_one_that_is_named(self):
        with pytest.raises(
            BudgetExhausted, match=r"channel 'hidden' with protection local_dp: .*no noise protects"
        ):
            plan(
                Budget(8.0),
                lambda z: local_dp(1.0, z, rows=True),
                (UPDATE, HIDDEN),
                NAMES,
                {"update": 1, "hidden": 1},
            )

    def test_by_hand_a_budget_below_one_round_names_the_smallest_that_is_not(self):
        bound = local_dp(1.0, 1.0).bind((UPDATE, HIDDEN), NAMES)
        uses = {"update": 5, "hidden": 5}
        with pytest.raises(BudgetExhausted, match="is too small for one round with this noise") as refused:
            check_first(Budget(1.0), bound, uses)
        named = float(str(refused.value).split("which takes ")[1].split(";")[0])
        # that one holds one round, and a hundredth less does not
        assert check_first(Budget(named), bound, uses) > named
        with pytest.raises(BudgetExhausted, match="too small"):
            check_first(Budget(named - 0.011), bound, uses)
        exactly = accounting.epsilon([GaussianRelease(1.0)] * 2, 1e-5).epsilon
        assert exactly < named < 1.15 * exactly

    def test_by_hand_noise_that_is_none(self):
        """Where one upload's epsilon is infinite there is no smallest budget to name."""
        bound = local_dp(1.0, 0.05).bind((UPDATE,), NAMES)
        with pytest.raises(BudgetExhausted, match=r"too small for one round.*give a larger --multiplier"):
            check_first(Budget(8.0), bound, {"update": 5})

    def test_a_budget_that_no_noise_keeps(self):
        """The sampler's distance from its ideal alone takes a delta this small."""
        with pytest.raises(BudgetExhausted, match=r"cannot be kept with any noise: .* comes to inf"):
            planned(Budget(1.0, 1e-25))

    def test_a_filter_s_no_does_not_name_less_than_the_budget_alone(self):
        """What a sampler's distance may be shrinks with a filter's epsilon: 1e-18 is too much at 30."""
        event = DiscreteRelease(8.0, sigma=1000.0, width=1, total_variation=1e-18)
        events = {str(reader): (event,) for reader in Reader}
        before = Charge("owner-0", "earlier", 1, 0, "update", "client", "zero-out", events).cost
        budget = Budget(30.0, adaptive=True)
        with pytest.raises(BudgetExhausted, match="runs that share a ledger"):
            plan(budget, make("local_dp"), (UPDATE,), NAMES, {"update": 1}, before=[Counter([before])])

    def test_a_budget_for_links_that_nothing_reads(self):
        blind = replace(UPDATE, links=False)
        with pytest.raises(BadInput, match="unit=node"):
            planned(Budget(4.0, unit="edge"), (blind,))

    @pytest.mark.parametrize(
        ("shares", "words"),
        [
            ({"upload": 1.0}, "budget.upload: no channel of that name pays; they are update, hidden"),
            ({"update": 0.0}, "budget.update = 0.0: a channel's weight is a positive number"),
            ({"update": -1.0}, "a positive number"),
            ({"update": math.nan}, "a positive number"),
            ({"update": math.inf}, "a positive number"),
            ({"update": "much"}, "a positive number"),
        ],
    )
    def test_weights_that_are_none(self, shares, words):
        with pytest.raises(BadInput, match=words):
            planned(Budget(4.0), (UPDATE, HIDDEN), shares=shares)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"policy": "masked"}, "channel 'update' with protection masked"),
            ({"protection": {"norm": 1.0, "multiplier": 0.1}}, "too small for one round"),
        ],
    )
    def test_before_round_1(self, changes, words, tmp_path):
        with pytest.raises(BudgetExhausted, match=words):
            execute(experiment(**changes), tmp_path / "run")
        assert not (tmp_path / "run" / "ledger.jsonl").exists()

    def test_a_unit_that_the_data_do_not_have(self):
        with pytest.raises(BadInput, match="'graph'"):
            execute(experiment(unit="graph"), None)

    def test_a_pooled_baseline_hands_over_raw_data(self):
        with pytest.raises(BudgetExhausted):
            execute(experiment(algorithm="globsage"), None)
