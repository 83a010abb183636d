"""Labels and features randomised: biases, what they cost, and that a client's own are not read again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from rich.table import Table
from scipy.stats import binom
from small_graphs import triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training.gin_classifier import GinFedAvg
from secure_fedgraph.cli.tables import run_tables
from secure_fedgraph.core.accounting.events import PureRelease
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Cost, read_ledger
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute, run_result
from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.policies import local_dp
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.features import MultiBitFeatures
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer, flip_threshold
from secure_fedgraph.privacy.input_dp.registry import RANDOMIZERS
from secure_fedgraph.privacy.planning import plan

SMALL = {
    "data": "synthetic-citation",
    "rounds": 2,
    "dataset": {"nodes": 60, "features": 16},
    "training": {"hidden": [8, 4], "fanout": [2, 2]},
    "policy": "masked",
}
KINDS = {
    "labels": (RandomisedLabels(3.0), "label"),
    "features": (MultiBitFeatures(3.0), "feature"),
    "links": (RandomisedLinks(3.0), "edge"),
}


def experiment(**changes: Any) -> Experiment:
    return Experiment(**{**SMALL, **changes})


class TestCoins:
    @pytest.mark.parametrize("others", [1, 2, 6, 999])
    @pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 8.0, 20.0, 700.0])
    def test_the_lie_is_never_rarer_than_claimed(self, epsilon, others):
        """Exactly, in fractions: the truth against the other answer that a remainder gives most rarely."""
        lie = Fraction(flip_threshold(epsilon, others), 2**64)
        truth, other = 1 - lie, lie * Fraction(2**64 // others, 2**64)
        assert truth / other <= Fraction(math.nextafter(math.exp(min(epsilon, 709)), 0))
        assert truth / other >= 1 - Fraction(1, 2**40)
        if epsilon <= 20:  # and hardly more often
            assert truth / other >= Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**15))

    @pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
    def test_each_class_is_told_as_often_as_it_may(self, epsilon):
        classes, many = 5, 60_000
        said = RandomisedLabels(epsilon).randomized(torch.full((many,), 3), classes)
        truth = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
        for label in range(classes):
            p = truth if label == 3 else (1 - truth) / (classes - 1)
            low, high = binom.interval(1 - 1e-7, many, p)
            assert low <= int((said == label).sum()) <= high

    def test_who_has_no_label_gets_none(self):
        y = torch.tensor([0, -1, 2, -1])
        said = RandomisedLabels(0.1).randomized(y, 3)
        assert said[[1, 3]].tolist() == [-1, -1]
        assert set(said[[0, 2]].tolist()) <= {0, 1, 2}
        assert RandomisedLabels(0.1).randomized(torch.zeros(4, dtype=torch.long), 1).tolist() == [0] * 4

    @pytest.mark.parametrize(("epsilon", "columns"), [(1.0, 4), (6.0, 4), (40.0, 3)])
    def test_features_are_estimated_without_bias(self, epsilon, columns):
        own = torch.linspace(-1.0, 3.0, columns).repeat(60_000, 1)
        how = MultiBitFeatures(epsilon, -1.0, 3.0)
        said, m = how.randomized(own).double(), how.bits(columns)
        shown = said != 1.0  # the middle
        assert (shown.sum(1) == m).all()
        far = 2.0 * columns / m / math.tanh(epsilon / m / 2)
        assert (said[shown] - 1).abs().allclose(torch.tensor(far).double(), rtol=1e-5)
        error = far * math.sqrt(m / columns / len(said))  # no column's mean varies more
        assert ((said.mean(0) - own[0]).abs() <= 5.5 * error).all()

    def test_a_bit_stays_as_far_from_certain_as_its_epsilon_says(self):
        """At the ends of the range, and beyond it: what is beyond is cut."""
        how, many = MultiBitFeatures(2.0), 100_000
        low, high = binom.interval(1 - 1e-7, many, math.exp(2) / (1 + math.exp(2)))
        for value in (-7.0, 0.0, 1.0, 9.0):
            said = how.randomized(torch.full((many, 1), value))
            assert low <= int((said < 0.5).sum() if value <= 0 else (said > 0.5).sum()) <= high

    def test_columns_are_drawn_evenly(self):
        said = MultiBitFeatures(4.4).randomized(torch.zeros(30_000, 6))
        low, high = binom.interval(1 - 1e-7, 30_000, 2 / 6)
        assert all(low <= int(count) <= high for count in (said != 0.5).sum(0))

    def test_nothing_to_draw(self):
        assert MultiBitFeatures(1.0).randomized(torch.zeros(0, 4)).shape == (0, 4)
        assert MultiBitFeatures(1.0).randomized(torch.zeros(4, 0)).shape == (4, 0)

    @pytest.mark.parametrize("draw", [lambda: RandomisedLabels(1.0), lambda: MultiBitFeatures(1.0)])
    def test_no_seed_reproduces_it(self, draw):
        found = []
        for _ in range(2):
            torch.manual_seed(0)
            one = draw()
            found.append(
                one.randomized(torch.zeros(200, dtype=torch.long), 5)
                if one.kind == "labels"
                else one.randomized(torch.zeros(200, 5))
            )
        assert not torch.equal(*found)


class TestBadInput:
    @pytest.mark.parametrize("kind", RANDOMIZERS.values())
    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
    def test_epsilons_that_are_none(self, kind, epsilon):
        with pytest.raises(BadInput, match="give a positive number"):
            kind(epsilon)

    @pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
    def test_ranges_that_are_none(self, bounds):
        with pytest.raises(BadInput, match="smaller one first"):
            MultiBitFeatures(1.0, *bounds)

    def test_one_kind_twice(self):
        with pytest.raises(BadInput, match="name each once"):
            replace(sfg.policies.masked(), randomizers=(RandomisedLabels(1.0), RandomisedLabels(2.0)))

    @pytest.mark.parametrize("one", [RandomisedLabels(1.0), MultiBitFeatures(1.0), RandomisedLinks(1.0)])
    def test_randomised_in_sets_of_graphs(self, one):
        policy = replace(sfg.policies.plaintext(), randomizers=(one,))
        with pytest.raises(BadInput, match=f"{one.kind}.*kind .graph."):
            sfg.train(
                GinFedAvg(),
                sfg.federate(triangles(), clients=3, partition="random", seed=0),
                policy,
                rounds=1,
            )

    def test_a_policy_whose_noise_covers_no_label(self):
        """Rows that are clipped one by one protect nobody, and the mend is named."""
        rows = Channel("rows", Reveal.EACH, Unit.NODE)
        with pytest.raises(BudgetExhausted, match="as masked: the labels are then randomised"):
            plan(
                Budget(8.0, unit="label"),
                lambda z: local_dp(1.0, z, rows=True),
                (rows,),
                ("a", "b"),
                {"rows": 1},
            )


@pytest.mark.parametrize(("one", "unit"), KINDS.values(), ids=list(KINDS))
class TestRuns:
    def run(self, one: InputRandomizer, federation: sfg.Federation, **arguments: Any) -> sfg.Run:
        policy = replace(sfg.policies.plaintext(), randomizers=(one,))
        return sfg.train(sfg.FedAvg(hidden=(8, 8), fanout=(2, 2)), federation, policy, **arguments)

    def test_it_is_paid_once_and_nothing_else_is_covered(self, one, unit, federation):
        made = self.run(one, federation, rounds=3)
        assert [c.channel for c in made.charges].count(one.kind) == 3
        shown = made.privacy()
        assert shown[unit]["epsilon"] == pytest.approx(3.0, abs=1e-3)
        assert {other: entry["epsilon"] for other, entry in shown.items() if other != unit} == dict.fromkeys(
            set(shown) - {unit}, "inf"
        )
        assert shown[unit]["relation"] == ("zero-out" if unit == "edge" else "replace")

    def test_resumed_it_is_the_same_and_costs_nothing_more(self, one, unit, federation, tmp_path):
        class Stop(Exception):
            pass

        def stop(row: Mapping[str, Any]) -> None:
            if row["round"] == 2:
                raise Stop

        with pytest.raises(Stop):
            self.run(one, federation, rounds=4, out=tmp_path, on_round=stop)
        made = self.run(one, federation, rounds=4, out=tmp_path, resume=True)
        charges = [c for c in read_ledger(tmp_path / "ledger.jsonl") if c.channel == one.kind]
        assert len(charges) == 3
        assert charges[0].steps[unit] == (PureRelease(3.0),)
        assert made.privacy(unit)["epsilon"] == pytest.approx(3.0, abs=1e-3)

    def test_resumed_with_another_it_is_refused(self, one, unit, federation, tmp_path):
        self.run(one, federation, rounds=2, out=tmp_path)
        ledger = (tmp_path / "ledger.jsonl").read_bytes()
        for other in (replace(one, epsilon=4.0), RandomisedLabels(1.0)):
            with pytest.raises(BadInput, match="randomizers"):
                self.run(other, federation, rounds=2, out=tmp_path, resume=True)
        assert (tmp_path / "ledger.jsonl").read_bytes() == ledger

    def test_training_never_sees_the_clients_own(self, one, unit, federation, monkeypatch):
        trained = []

        def look(self: Any, client: Any) -> Any:
            trained.append((client.name, client.graph[one.place]))
            return client.graph

        monkeypatch.setattr(sfg.FedAvg, "training_graph", look)
        # so little is kept that all sixteen labels of the smallest owner are with a chance of 6e-8
        self.run(replace(one, epsilon=0.5), federation, rounds=2)
        assert len(trained) == 6
        first = dict(trained[:3])
        for name, seen in trained:
            assert torch.equal(seen, first[name])
        assert not any(torch.equal(first[n], g[one.place]) for n, g in federation.owners.items())

    @pytest.mark.parametrize("epsilon", [0.5, 4.0])
    def test_a_budget_for_it_plans_it(self, one, unit, federation, epsilon):
        asked = experiment(unit=unit, epsilon=epsilon)
        made = execute(asked, None)
        shown = run_result(made, asked)
        (row,) = shown["plan"]
        assert (row["channel"], row["unit"], row["uses"], row["multiplier"]) == (one.kind, unit, 1, None)
        assert 0.98 * epsilon < row["epsilon"] <= epsilon + 1e-4
        assert shown["budget"]["spent"] == row["epsilon"]
        assert shown["budget"]["planned"] is True
        assert made.policy.randomizers[0].epsilon == pytest.approx(epsilon, rel=0.01)
        tables = [one for one in run_tables(as_read(RunResult, shown)) if isinstance(one, Table)]
        assert any(table.title and unit in str(table.title) for table in tables)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"randomizers": (RandomisedLabels(2.0),)}, r"randomizers.*is"),
        ({"randomizers": (RandomisedLabels(3.0), RandomisedLinks(3.0))}, "randomizers"),
        ({"steps": PrivateSteps(2.0, rate=0.5)}, "steps"),
        ({"randomizers": ()}, "randomizers"),
        ({}, ""),
    ],
)
def test_a_run_that_goes_on_keeps_its_noise(changes, words, federation, tmp_path):
    """Another epsilon, another kind, other noisy steps: half of the rounds would not be what was said."""
    policy = replace(sfg.policies.masked(), randomizers=(RandomisedLabels(3.0),))

    def run(policy: Any, **more: Any) -> sfg.Run:
        return sfg.train(
            sfg.FedSage(hidden=(8,), fanout=(2,)), federation, policy, rounds=2, out=tmp_path, **more
        )

    run(policy)
    if words:
        with pytest.raises(BadInput, match=words):
            run(replace(policy, **changes), resume=True)
    else:
        run(policy, resume=True)


def test_by_hand_it_is_held_to_the_budget():
    found = experiment(unit="label", epsilon=2.0, labels=1.5)
    made = execute(found, None)
    assert made.privacy("label")["epsilon"] == pytest.approx(1.5, abs=1e-3)
    with pytest.raises(BudgetExhausted, match="takes 3"):
        execute(experiment(unit="label", epsilon=2.0, labels=3.0), None)


def test_three_together_and_links_by_drawn_features(federation, monkeypatch):
    """Links are the most alike of the noisy ones: by drawn features, or features would not be covered."""
    seen = []
    own = RandomisedLinks.randomized

    def look(self: Any, edge_index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return own(self, edge_index, x)

    monkeypatch.setattr(RandomisedLinks, "randomized", look)
    policy = replace(sfg.policies.masked(), randomizers=tuple(one for one, _ in KINDS.values()))
    made = sfg.train(sfg.FedSage(hidden=(8,), fanout=(2,)), federation, policy, rounds=1)
    for _, unit in KINDS.values():
        assert made.privacy(unit)["epsilon"] == pytest.approx(3.0, abs=1e-3)
    assert not any(torch.equal(x, graph.x) for x in seen for graph in federation.owners.values())
    assert made.privacy("node")["epsilon"] == "inf"


@pytest.mark.parametrize(("one", "unit"), [KINDS["labels"], KINDS["links"]])
def test_each_of_three_holders_pays_for_it(one, unit):
    split = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, partition="vertical")
    policy = replace(sfg.policies.plaintext(), randomizers=(one,))
    made = sfg.train(sfg.Glasu(hidden=8, sampler="public", public_nodes=20), split, policy, rounds=1)
    assert made.privacy(unit)["epsilon"] == pytest.approx(9.0, abs=1e-3)


class TestOwnTests:
    """Labels that an owner tells the referee its score by are true ones; what it sends others never is."""

    def test_the_referee_marks_by_true_labels_and_nothing_of_it_stays(self, federation):
        seen: dict[str, list[torch.Tensor]] = {"own_tests": [], "update": []}
        left = []

        class Watched(sfg.FedAvg):
            def _marked(self, client: Any, given: Any) -> Any:
                seen["own_tests"].append(client.graph.y)
                client.memory["marks"] = client.graph.y
                return super()._marked(client, given)

            def training_graph(self, client: Any) -> Any:
                seen["update"].append(client.graph.y)
                left.append("marks" in client.memory)
                return client.graph

        policy = replace(sfg.policies.plaintext(), randomizers=(RandomisedLabels(0.1),))
        for mode in ("referee", "in_band"):
            seen["own_tests"].clear()
            sfg.train(Watched(hidden=(8, 8), fanout=(2, 2)), federation, policy, rounds=2, evaluation=mode)
            true = [any(torch.equal(y, g.y) for g in federation.owners.values()) for y in seen["own_tests"]]
            assert true == [mode == "referee"] * len(true)
            if mode == "referee":
                assert not any(left)
        assert not any(torch.equal(y, g.y) for y in seen["update"] for g in federation.owners.values())


class TestLargerUnits:
    """A node's noise covers its label, twice over: what is put to another value is gone and there again."""

    @pytest.mark.parametrize("small", ["label", "feature"])
    @pytest.mark.parametrize(
        ("unit", "relation", "holders", "apart"),
        [
            ("node", "zero-out", 1, 2),
            ("node", "replace", 1, 1),
            ("node", "zero-out", 3, 6),
            ("client", "zero-out", 3, 6),
            ("client", "replace", 1, 1),
        ],
    )
    def test_covers(self, small, unit, relation, holders, apart):
        from secure_fedgraph.core.accounting.events import GaussianRelease

        cost = Cost(unit, relation, frozenset({("server", (GaussianRelease(6.0),))}), frozenset())
        assert cost.at(small, "server", holders) == (GaussianRelease(6.0 / apart),)

    def test_a_link_covers_nothing_of_a_node(self):
        cost = Cost("edge", "zero-out", frozenset({("server", (PureRelease(1.0),))}), frozenset())
        assert cost.at("label", "server", 1) is None

    def test_noise_of_a_policy_speaks_for_labels(self):
        asked = experiment(policy="local_dp", unit="label", epsilon=8.0)
        made = execute(asked, None)
        shown = run_result(made, asked)
        assert not made.policy.randomizers
        assert 0.97 * 8 < shown["privacy"]["label"]["epsilon"] <= 8
        assert shown["plan"][0]["unit"] == "client"


def test_a_budget_at_label_stops_the_run(federation):
    policy = replace(sfg.policies.plaintext(), randomizers=(RandomisedLabels(3.0),))
    with pytest.raises(BudgetExhausted, match="labels"):
        sfg.train(sfg.FedSage(), federation, policy, rounds=1, budget=Budget(2.0, unit="label"))
