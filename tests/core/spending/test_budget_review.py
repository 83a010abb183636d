"""Epsilons that would not have been earned, or not been said right: one test for each that a review found."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from small import GENERATORS, federation

import secure_fedgraph as sfg
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.accounting.events import GaussianRelease
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import execute, make_federation, run_result
from secure_fedgraph.privacy.budget_warnings import DeltaWarning, warn_of_delta
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
from secure_fedgraph.storage.checkpoint import Checkpoint

SMALL: dict[str, Any] = {
    "algorithm": "fedsage",
    "data": "synthetic-citation",
    "rounds": 3,
    "dataset": {"nodes": 90, "features": 16},
    "training": {"hidden": [8, 8], "fanout": [2, 2], "crowd": 10},
    "epsilon": 8.0,
}

WHOLE = {"rate": 1.0}
"""Steps without sampling: cheap to account."""


def experiment(**changes: Any) -> Experiment:
    return Experiment(**{**SMALL, **changes})


def planned(asked: Experiment) -> Any:
    return protect(asked, asked.make_algorithm(), make_federation(asked))


class TestRelations:
    @pytest.mark.parametrize("relation", ["replace", "add-remove"])
    def test_noisy_steps_on_nodes_hold_under_zero_out_only(self, relation):
        """A node that is put elsewhere changes other trees too: up to twice as many records as K counts."""
        with pytest.raises(BadInput, match="noisy steps on nodes hold under zero-out only"):
            replace(sfg.policies.local_dp(1.0, 1.0, relation), steps=PrivateSteps(1.0))
        with pytest.raises(BadInput, match=f"relation '{relation}'"):
            planned(experiment(policy="masked", unit="node", relation=relation))

    def test_a_link_that_is_there_or_not_is_one_answer(self):
        found = planned(experiment(policy="masked", unit="edge", relation="add-remove"))
        assert found.policy.randomizers[0].epsilon == pytest.approx(8.0, rel=1e-3)

    def test_the_number_of_records_is_public(self):
        """A step is a whole number over rate * records: who reads one knows how many records there are."""
        graphs = PrivateSteps(1.0, unit="graph")
        with pytest.raises(BadInput, match="'add-remove'"):
            replace(sfg.policies.local_dp(1.0, 1.0, "add-remove"), steps=graphs)
        assert replace(sfg.policies.local_dp(1.0, 1.0, "replace"), steps=graphs).relation == "replace"

    def test_a_link_put_elsewhere_is_two_answers(self):
        with pytest.raises(BadInput, match="changes two pairs"):
            replace(sfg.policies.local_dp(1.0, 1.0, "replace"), randomizers=(RandomisedLinks(1.0),))
        with pytest.raises(BadInput, match="relation 'replace'"):
            planned(experiment(policy="masked", unit="edge", relation="replace"))

    def test_a_node_is_removed_with_its_links(self):
        run = execute(experiment(policy="masked", unit="node", rounds=1, steps=WHOLE), None)
        entries = run.privacy()
        assert entries["node"]["relation"] == "zero-out"
        assert entries["client"]["relation"] == "zero-out"


class TestBeforeRoundOne:
    @pytest.mark.parametrize("name", ["fedsage+", "locsage+"])
    def test_mended_graphs_have_no_records(self, name):
        policy = replace(sfg.policies.plaintext(), steps=PrivateSteps(1.0))
        algorithm = sfg.algorithms.ALGORITHMS[name](**GENERATORS)
        asked = []
        with pytest.raises(BadInput, match="completed"):
            sfg.train(algorithm, federation(name), policy, rounds=1, on_start=lambda: asked.append(1))
        assert not asked

    @pytest.mark.parametrize("network", ["gin", "gat"])
    def test_dropout_draws_for_whole_batches_of_graphs(self, network):
        policy = replace(sfg.policies.plaintext(), steps=PrivateSteps(1.0, unit="graph"))
        settings = {"hidden": (8, 8), "network": network}
        asked = []

        def trained(dropout: float) -> sfg.Run:
            algorithm = sfg.FedAvg(**settings, dropout=dropout)
            on_start = partial(asked.append, dropout)
            return sfg.train(algorithm, federation("gin-fedavg"), policy, rounds=1, on_start=on_start)

        with pytest.raises(BadInput, match="dropout"):
            trained(0.5)
        assert math.isfinite(trained(0.0).privacy("graph")["epsilon"]) and asked == [0.0]

    def test_noise_by_hand_beside_planned_steps_is_no_endless_search(self):
        by_hand = {"norm": 1.0, "multiplier": 0.05}
        asked = experiment(
            policy="local_dp", unit="node", steps=WHOLE, protection=by_hand, evaluation="in_band"
        )
        with pytest.raises(BudgetExhausted, match="set by hand"):
            planned(asked)

    def test_steps_that_do_not_pay_are_not_planned(self):
        """They got noise 1 unasked, and the plan told of multipliers that nothing was noised with."""
        asked = experiment(
            policy="local_dp",
            unit="client",
            steps=WHOLE,
            protection={"norm": 1.0, "multiplier": 50.0},
        )
        with pytest.raises(BadInput, match=r"steps\.noise"):
            planned(asked)

    def test_randomised_links_are_refused_beside_steps_on_nodes(self):
        """Which links are kept depends on all nodes: removing one changes more trees than are counted."""
        with pytest.raises(BadInput, match="links are randomised and steps"):
            planned(experiment(policy="masked", unit="edge", steps={"noise": 1.0}))


class Late(Algorithm):
    """Trains when it is told to, says something else, and sends the model afterwards."""

    name = "late"
    TELL = Channel("tell", Reveal.NOTHING)
    COUNT = Channel("count", Reveal.SUM)
    MODEL = Channel("model", Reveal.SUM, trained=True)

    def init(self, schema: Any, seed: int) -> dict[str, torch.Tensor]:
        return {"w": torch.zeros(3)}

    def occurrences(self, unit: str) -> int:
        return 1

    def round(self, round: Any, state: Any) -> Any:
        round.scatter(self.TELL, {name: {} for name in round.cohort})
        round.reduce(self.COUNT)
        return {"w": round.reduce(self.MODEL).mean["w"]}

    def predict(self, params: Any, graph: Any, schema: Any) -> torch.Tensor:
        return torch.zeros(graph.num_nodes, schema.classes)

    @TELL.answer
    def tell(self, client: Any, given: Mapping[str, Any]) -> None:
        w = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([w], lr=1.0)
        client.training.run(optimizer, {"w": w}, 5, lambda chosen: {"w": torch.ones(len(chosen), 3)})
        client.memory["w"] = w.detach()

    @COUNT.answer
    def count(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"one": torch.ones(1)})

    @MODEL.answer
    def model(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"w": client.memory["w"]})


def test_steps_stay_on_the_bill_until_the_upload_that_shows_them():
    policy = replace(sfg.policies.plaintext(), steps=PrivateSteps(2.0, steps=4))
    data = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)
    made = sfg.train(Late(), data, policy, rounds=2)
    paid = {
        channel: [c.steps for c in made.charges if c.channel == channel] for channel in ("count", "model")
    }
    assert not any(paid["count"])
    assert [steps["node"][0].steps for steps in paid["model"]] == [4] * 6


class Overheard(Algorithm):
    """One client tells, the others look at their links while they read, and send what they saw."""

    name = "overheard"
    TELL = Channel("tell", Reveal.EACH, to="peer")
    SEEN = Channel("seen", Reveal.EACH)

    def init(self, schema: Any, seed: int) -> dict[str, torch.Tensor]:
        return {"w": torch.zeros(1)}

    def round(self, round: Any, state: Any) -> Any:
        round.share(self.TELL, senders=round.cohort[:1])
        found = round.gather(self.SEEN)
        return {name: values["links"] for name, values in found.items()}

    def released(self, state: Any) -> Any:
        return {"w": torch.zeros(1)}

    def predict(self, params: Any, graph: Any, schema: Any) -> torch.Tensor:
        return torch.zeros(graph.num_nodes, schema.classes)

    @TELL.answer
    def tell(self, client: Any, given: Mapping[str, Any]) -> Upload:
        return Upload({"one": torch.ones(1)})

    @TELL.read
    def listen(self, client: Any, read: Any) -> None:
        client.memory["seen"] = client.graph.edge_index.clone()

    @SEEN.answer
    def seen(self, client: Any, given: Mapping[str, Any]) -> Upload:
        links = client.memory.get("seen", client.graph.edge_index)
        return Upload({"links": links.float()})


def test_who_reads_before_it_was_asked_reads_with_drawn_links():
    data = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)
    policy = replace(sfg.policies.plaintext(), randomizers=(RandomisedLinks(0.5),))
    made = sfg.train(Overheard(), data, policy, rounds=1)
    for name, graph in data.owners.items():
        sent = made.state[name].long()
        own = {tuple(pair) for pair in graph.edge_index.T.tolist()}
        # at 0.5 a third of all pairs lie: nobody's noisy links are its own
        assert {tuple(pair) for pair in sent.T.tolist()} != own
    assert made.privacy("edge")["epsilon"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-17, 710.0, 1e6])
def test_extreme_links_are_drawn(epsilon):
    drawn = RandomisedLinks(epsilon).randomized(torch.tensor([[0, 1], [1, 2]]), torch.eye(6))
    assert drawn.shape[0] == 2


class TestResume:
    def killed_after(self, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
        commit = Checkpoint.commit

        def kept(self: Checkpoint, number: int, *more: Any) -> None:
            commit(self, number, *more)
            if number == rounds:
                raise KeyboardInterrupt

        monkeypatch.setattr(Checkpoint, "commit", kept)

    @pytest.mark.parametrize(
        "more", [{"policy": "local_dp"}, {"policy": "masked", "unit": "node", "steps": WHOLE}]
    )
    def test_a_run_that_goes_on_keeps_the_noise_of_its_plan(self, more, tmp_path, monkeypatch):
        """What it spent itself stands in the shared ledger: planned anew, it made room for that once more."""
        asked = experiment(**more, ledger=tmp_path / "life.jsonl")
        first = planned(asked)
        with monkeypatch.context() as patch:
            self.killed_after(patch, 1)
            with pytest.raises(KeyboardInterrupt):
                execute(asked, tmp_path / "out", checkpoints=True)
        made = execute(asked, tmp_path / "out", checkpoints=True)
        assert len(made.history) == 3
        if "unit" in more:
            assert made.policy.steps == first.policy.steps
        result = run_result(made, asked)["budget"]
        assert result["spent"] == result["spent_by_all_runs"] <= 8.0

    def test_what_all_runs_spent_is_said(self, tmp_path):
        half = experiment(policy="local_dp", epsilon=4.0, ledger=tmp_path / "life.jsonl", rounds=1)
        execute(half, None)
        asked = half.model_copy(update={"epsilon": 8.0})
        result = run_result(execute(asked, None), asked)["budget"]
        assert 0 < result["spent"] < result["spent_by_all_runs"] <= 8.0
        # planned one after the other: the filter's bound is what is guaranteed, not a fixed plan's figure
        assert result["guaranteed_for_all_runs"] == 8.0

    def test_a_filter_s_no_is_not_told_with_a_smaller_number_alone(self):
        budget = Budget(8.0, adaptive=True)
        events = {GaussianRelease(10.0): 1}
        most = next(n for n in range(1, 1000) if not budget.holds({next(iter(events)): n}))
        with pytest.raises(BudgetExhausted, match=r"would exceed the budget .* earlier ones"):
            budget.check({next(iter(events)): most}, "owner-0", "update")


class TestDelta:
    def test_one_over_n(self):
        with pytest.warns(DeltaWarning, match="delta 0.01 is 1/n or more of 100 nodes"):
            warn_of_delta(0.01, {"client": 3, "graph": 0, "node": 100})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_delta(0.0099, {"client": 3, "graph": 0, "node": 100})

    def test_a_run_warns_for_the_unit_of_its_budget(self):
        with pytest.warns(DeltaWarning, match="of 90 nodes"):
            execute(experiment(policy="masked", unit="node", rounds=1, delta=0.02, steps=WHOLE), None)
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeltaWarning)
            execute(experiment(policy="local_dp", unit="client", rounds=1, delta=0.02), None)

    def test_in_one_line(self, tmp_path):
        given = ["run", "--algorithm", "fedsage", "--data", "synthetic-citation", "--policy", "local_dp"]
        given += ["--norm", "1", "--multiplier", "1", "--rounds", "1", "--delta", "0.4"]
        given += [
            "--set",
            "dataset.nodes=90",
            "--set",
            "dataset.features=16",
            "--set",
            "training.hidden=[8,8]",
        ]
        done = CliRunner().invoke(main, [*given, "--json", "--out", str(tmp_path / "out")])
        assert done.exit_code == 0, done.output
        said = [line for line in done.stderr.splitlines() if "1/n" in line]
        assert len(said) == 1 and said[0].startswith(
            "secure-fedgraph: warning: delta 0.4 is 1/n or more of 3"
        )
        assert json.loads(done.stdout)["privacy"]["client"]["delta"] == 0.4


def test_a_channel_s_epsilon_says_whose_it_is():
    """The rows of a channel may be nodes' while the clip, and so the figure, is of the whole client."""
    asked = experiment(
        algorithm="glasu",
        partition="vertical",
        policy="distributed_dp",
        protection={"quorum": 3},
        rounds=1,
        training={"hidden": 8, "steps": 1, "batch": 8, "sampler": "public", "public_nodes": 24},
    )
    row = run_result(execute(asked, None), asked)["channels"][0]
    assert (row["unit"], row["epsilon_unit"]) == ("node", "client")


def test_a_torn_shared_ledger_is_not_left_behind(tmp_path):
    path = tmp_path / "life.jsonl"
    path.write_bytes(b'{"client": "owner-0", ')
    with pytest.raises(BadInput, match="'resume'"):
        Ledger(path)
