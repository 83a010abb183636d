"""FedSage+ by released sums: what is released, what one node moves of it, and that nobody reads a feature."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsageplus import generation as prototypes
from secure_fedgraph.attacks import ATTACKS, Blind, Knowledge
from secure_fedgraph.core.errors import BadInput, BudgetExhausted, HostileMessage, Refused
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.moments import moment_sums
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.core.upload import ContributionMoments
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.results import execute, in_form, lead, make_federation
from secure_fedgraph.forms import fit
from secure_fedgraph.models.parameters import parameters_of
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything

SMALL: dict[str, Any] = {"feedback": "prototypes", "hidden": (8, 8), "encoder": (8, 8), "hidden_share": 0.3}
SMALL |= {"generator_epochs": 2, "federated_epochs": 1, "anonymity": 2}
CLASSES, FEATURES = 3, 24


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(
        "synthetic-citation", clients=4, seed=0, nodes=160, features=FEATURES, classes=CLASSES
    )


def go(federation: sfg.Federation, policy: Any = "plaintext", **more: Any) -> sfg.Run:
    settings = more.pop("settings", SMALL)
    return sfg.train(sfg.FedSagePlus(**settings), federation, policy, **{"rounds": 2, "seed": 0, **more})


def by_hand(
    federation: sfg.Federation, owners: tuple[str, ...], least: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean directions and counts of the classes, of the owners' training nodes, put together in one place."""
    rows, counts = torch.zeros(CLASSES, FEATURES), torch.zeros(CLASSES)
    for name in owners:
        graph = federation.owners[name]
        for label in range(CLASSES):
            mine = graph.x[graph.train_mask & (graph.y == label)]
            if len(mine) >= least:
                rows[label] += F.normalize(mine, dim=1).sum(0)
                counts[label] += len(mine)
    return rows / counts.clamp(min=1)[:, None], counts


def clients_of(federation: sfg.Federation) -> list[Any]:
    """What an answer reads of a client."""
    return [SimpleNamespace(graph=g, schema=federation.schema, memory={}) for g in federation.owners.values()]


class TestWhatIsReleased:
    @pytest.mark.parametrize(
        ("policy", "near"), [("plaintext", 1e-5), ("masked", 1e-3), ("homomorphic", 1e-2)]
    )
    def test_the_closed_form_of_all_owners_classes(self, federation, policy: str, near: float) -> None:
        run = go(federation, policy)
        rows, counts = by_hand(federation, federation.names, 2)
        assert torch.allclose(run.state[prototypes.COUNTS], counts, atol=1e3 * near)
        assert torch.allclose(run.state[prototypes.ROWS], rows, atol=near)

    def test_without_noise_a_class_of_few_nodes_of_an_owner_is_left_out(self, federation) -> None:
        held = [
            int((g.train_mask & (g.y == label)).sum())
            for g in federation.owners.values()
            for label in range(CLASSES)
        ]
        least = sorted(held)[len(held) // 2]
        assert min(held) < least  # some of an owner's classes are too small
        run = go(federation, settings={**SMALL, "anonymity": least})
        rows, counts = by_hand(federation, federation.names, least)
        assert torch.allclose(run.state[prototypes.COUNTS], counts, atol=1e-2)
        assert torch.allclose(run.state[prototypes.ROWS], rows, atol=1e-5)

    def test_with_noise_nothing_is_left_out_by_how_many_there_are(self, federation) -> None:
        """Whether a class is in the sums would depend on all its nodes together, which no noise covers."""
        settings = sfg.FedSagePlus(**{**SMALL, "anonymity": 10**6}).settings
        client = clients_of(federation)[0]
        assert len(prototypes.records_of(client, settings, noised=False).records) == 0
        many = int(client.graph.train_mask.sum())
        assert len(prototypes.records_of(client, settings, noised=True).records) == many

    def test_a_class_whose_noised_count_is_small_has_no_prototype(self, federation) -> None:
        run = go(federation, sfg.policies.local_dp(1.0, 0.2), settings={**SMALL, "anonymity": 10**6})
        assert not run.state[prototypes.ROWS].any() and not run.state[prototypes.COUNTS].any()

    @pytest.mark.parametrize(
        "policy", [sfg.policies.local_dp(1.0, 0.1), sfg.policies.distributed_dp(1.0, 0.2)]
    )
    def test_noise_that_hides_no_node_is_refused_since_no_class_would_be_left_out(
        self, federation, policy
    ) -> None:
        with pytest.raises(BadInput, match="hides no node"):
            go(federation, policy)

    def test_a_budget_for_a_link_plans_no_noise_for_nodes_and_is_refused(self) -> None:
        values = {"algorithm": "fedsage+", "data": "synthetic-citation", "policy": "local_dp", "unit": "edge"}
        asked = load(None, {**values, "epsilon": 4.0, "training": {"feedback": "prototypes"}}, ())
        with pytest.raises(BadInput, match="hides no node"):
            execute(asked, None)

    @pytest.mark.parametrize("channel", ["feature_sums", "pretrain"])
    def test_a_second_ask_and_one_of_a_later_round_are_refused(self, federation, channel: str) -> None:
        (client, *_) = clients_of(federation)
        client.name, client.round = "a", 1
        prototypes.once(client, channel)
        with pytest.raises(HostileMessage, match="once, in round 1"):
            prototypes.once(client, channel)
        client.memory.clear()
        client.round = 2
        with pytest.raises(HostileMessage, match="once, in round 1"):
            prototypes.once(client, channel)

    @pytest.mark.parametrize("twice", ["feature_sums", "pretrain"])
    def test_a_server_that_asks_twice_is_answered_once(self, federation, twice: str) -> None:
        class Asks(sfg.FedSagePlus):
            def round(self, round: Any, state: Any) -> Any:
                if round.number == 1 and twice == "feature_sums":
                    round.reduce(self._feature_sums)
                elif round.number == 1:
                    known = {name: state[name] for name in (prototypes.ROWS, prototypes.COUNTS)}
                    round.scatter(self.as_used(self.PRETRAIN), dict.fromkeys(round.cohort, known))
                return super().round(round, state)

        with pytest.raises(HostileMessage, match=f"'{twice}' in round 1"):
            sfg.train(Asks(**SMALL), federation, "masked", rounds=2, seed=0)

    def test_the_results_say_what_sums_without_noise_show(self, federation) -> None:
        said = go(federation, "masked").policy["feature_sums"].excess
        assert any("attack C7" in sentence for sentence in said)
        noised = go(federation, sfg.policies.distributed_dp(1.0, 1.0)).policy["feature_sums"].excess
        assert not any("attack C7" in sentence for sentence in noised)

    def test_rows_that_come_in_double_are_kept_as_the_generator_reads_them(self, federation) -> None:
        (client, *_) = clients_of(federation)
        rows = torch.full((CLASSES, FEATURES), 3e38)
        prototypes.keep(client, {prototypes.ROWS: rows, prototypes.COUNTS: torch.ones(CLASSES).double()})
        assert client.memory[prototypes.KEPT].norm(dim=1) == pytest.approx(torch.ones(CLASSES).numpy())
        prototypes.keep(client, {prototypes.ROWS: rows.double(), prototypes.COUNTS: torch.ones(CLASSES)})
        assert client.memory[prototypes.KEPT].dtype == torch.float32

    def test_who_drops_out_is_in_no_sum(self, federation) -> None:
        run = go(federation, "masked", dropouts=Dropouts(share=0.25, seed=1), keep=everything)
        (seen,) = run.transcript.view("server").sums("feature_sums")
        assert 2 <= len(seen.clients) <= 4
        rows, counts = by_hand(federation, tuple(seen.clients), 2)
        assert torch.allclose(run.state[prototypes.COUNTS], counts, atol=1e-2)
        assert torch.allclose(run.state[prototypes.ROWS], rows, atol=1e-3)

    def test_one_exchange_an_owner_and_no_peer_reads_anything(self, federation) -> None:
        run = go(federation, keep=everything)
        assert run.algorithm.warm_up == 1
        assert {c.name for c in run.algorithm.in_use} == {"pretrain", "feature_sums", "update"}
        sent = [s for s in run.transcript.sent if s.channel == "feature_sums" and s.recipient == "server"]
        assert sorted(s.sender for s in sent) == sorted(federation.names)

    def test_an_owner_that_was_given_nothing_generates_from_its_own_mean(self, federation) -> None:
        (client, *_) = clients_of(federation)
        assert torch.equal(prototypes.at_home(client), client.graph.x.mean(0, keepdim=True))

    def test_a_server_that_hands_out_long_rows_makes_no_long_features(self, federation) -> None:
        (client, *_) = clients_of(federation)
        given = {
            prototypes.ROWS: torch.full((CLASSES, FEATURES), 1e30),
            prototypes.COUNTS: torch.ones(CLASSES),
        }
        prototypes.keep(client, given)
        assert prototypes.at_home(client).norm(dim=1).max() <= client.graph.x.norm(dim=1).mean() * 1.001

    def test_what_is_generated_differs_with_what_others_released(self, federation) -> None:
        run, few = go(federation), go(federation, settings={**SMALL, "anonymity": 10**6})
        assert any(not torch.equal(run.state[k], few.state[k]) for k in run.algorithm.released(run.state))


class TestWhatOneNodeMoves:
    def moved(self, client: Any, without: int, change: Any = None) -> float:
        settings = sfg.FedSagePlus(**SMALL).settings
        of = prototypes.contribution(settings)
        whole = prototypes.records_of(client, settings, noised=True)
        kept = torch.ones(len(whole.records), dtype=torch.bool)
        kept[without] = False
        other = ContributionMoments(whole.records[kept], whole.targets[kept])
        if change is not None:
            other = ContributionMoments(
                *(torch.cat(pair) for pair in zip((other.records, other.targets), change, strict=True))
            )
        one, two = (moment_sums(part, of, Unit.NODE)[1] for part in (whole, other))
        return float(np.linalg.norm(one - two)) / of.norm

    def test_removing_any_node_moves_the_sums_by_the_declared_amount_and_no_more(self, federation) -> None:
        (client, *_) = clients_of(federation)
        lengths = [self.moved(client, i) for i in range(int(client.graph.train_mask.sum()))]
        assert max(lengths) <= 1 + 1e-6
        assert max(lengths) > 0.999  # the bound is reached

    @pytest.mark.parametrize("scale", [1.0, 1e3])
    def test_the_worst_replacement_stays_within_twice_of_it_whatever_an_answer_hands_in(
        self, federation, scale: float
    ) -> None:
        (client, *_) = clients_of(federation)
        records = prototypes.records_of(client, sfg.FedSagePlus(**SMALL).settings, noised=True)
        opposite = (-scale * records.records[:1], scale * records.targets[:1])
        moved = self.moved(client, 0, opposite)
        assert 1.99 < moved <= 2 + 1e-6


class TestEpsilon:
    @pytest.mark.parametrize("policy", ["local_dp", "distributed_dp"])
    def test_a_budget_for_a_node_is_planned_and_kept(self, federation, policy: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = go(federation, policy, budget=sfg.Budget(epsilon=4.0, unit="node"))
        spent = run.privacy()
        assert 3.9 < spent["node"]["epsilon"] <= 4.0
        charged = [c.client for c in run.charges if c.channel == "feature_sums"]
        assert sorted(charged) == sorted(federation.names)  # once each

    def test_strictest_spends_a_nodes_budget_without_a_generator(self) -> None:
        asked = Experiment(
            algorithm="fedsage+",
            data="synthetic-citation",
            dataset={"nodes": 160, "features": FEATURES},
            clients=4,
            policy="strictest",
            unit="node",
            epsilon=4.0,
            rounds=2,
            training={"hidden": [8, 8]},
        )
        run = execute(asked, None)
        assert run.algorithm.name == "fedsage-steps"
        assert 3.9 < run.privacy("node")["epsilon"] <= 4.0
        assert run.privacy("edge")["epsilon"] == 0

    def test_mending_is_kept_under_a_nodes_budget_and_refused_without(self, federation) -> None:
        form = sfg.FedSagePlus(mend="at_home").on_sums("node")
        assert (form.name, form.settings.mend) == ("fedsage-steps", "at_home")
        assert sfg.FedSagePlus().on_sums("node").settings.mend == "none"
        with pytest.raises(BadInput, match=r"training\.mend = at_home.*--unit node --epsilon"):
            go(federation, settings={**SMALL, "mend": "at_home"})

    def test_sums_for_nodes_hold_no_budget_for_a_client(self, federation) -> None:
        with pytest.raises(BudgetExhausted, match="give --unit node"):
            go(federation, "distributed_dp", budget=sfg.Budget(epsilon=4.0, unit="client"))

    def test_noise_on_the_sums_alone_leaves_the_classifier_under_masks(self, federation) -> None:
        noised = sfg.policies.distributed_dp(1.0, {"feature_sums": 2.0})
        run = go(federation, sfg.policies.strictest(noised, sfg.policies.masked()))
        assert run.policy["feature_sums"].protection.name == "distributed_dp"
        assert run.policy["update"].protection.name == "masked"
        assert run.privacy("node")["epsilon"] == "inf"  # of the whole run: the classifier has no noise
        assert run.policy["feature_sums"].releases()


class TestPolicies:
    def test_what_peers_alone_read_it_does_not_send(self, federation) -> None:
        with pytest.raises(Refused, match="protects peers only"):
            go(federation, "sealed")

    def test_strictest_takes_it_in_the_exchanges_place(self) -> None:
        clients = ("a", "b", "c")
        made = fit(sfg.FedSagePlus(), sfg.policies.strictest(), clients)
        assert made.form is not None and made.settings.of_prototypes
        assert fit(sfg.FedSagePlus(), sfg.policies.masked(), clients).form is None

    def test_what_was_set_by_hand_stays_and_its_leak_is_named(self) -> None:
        clients = ("a", "b", "c")
        made = fit(sfg.FedSagePlus(exchange_batch=70), sfg.policies.strictest(), clients)
        assert made.form is None
        bound = sfg.policies.strictest().bind(made.in_use, clients)
        assert bound["feedback"].leaks
        assert any("raw features" in sentence for sentence in bound["feedback"].excess)
        noised = sfg.policies.local_dp(1.0, 1.0).bind(made.in_use, clients)
        assert not noised["feedback"].leaks
        asked = Experiment(
            algorithm="fedsage+",
            data="synthetic-citation",
            policy="strictest",
            training={"alpha": 0.5},
        )
        said = lead(asked, in_form(asked, make_federation(asked)), make_federation(asked))
        assert "'feedback' leaks" in said


class TestSettings:
    def test_locsageplus_releases_nothing(self, federation) -> None:
        with pytest.raises(BadInput, match="exchanges nothing"):
            sfg.train(sfg.algorithms.LocSagePlus(feedback="prototypes"), federation, rounds=1)

    def test_more_training_nodes_than_records_are_refused_by_name(self, federation) -> None:
        with pytest.raises(BadInput, match=r"training\.records = 4: .* set training\.records=\d+ or more"):
            go(federation, settings={**SMALL, "records": 4})


def test_a_run_that_was_stopped_goes_on_to_the_same_end(federation, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        raise Stopped

    whole = go(federation, "masked")
    with pytest.raises(Stopped):
        go(federation, "masked", out=tmp_path, checkpoint_every=1, on_round=stop)
    run = go(federation, "masked", out=tmp_path, checkpoint_every=1, resume=True)
    assert all(torch.equal(value, run.state[key]) for key, value in whole.state.items())


@pytest.fixture(scope="module", params=["plaintext", "masked"])
def seen(federation, request: pytest.FixtureRequest) -> sfg.Run:
    return go(federation, request.param, keep=everything)


@pytest.mark.parametrize("reader", ["server", "owner-0"])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name[:2] in ("c1", "c2", "c3", "c5")])
def test_what_reads_the_exchange_is_blind(seen: sfg.Run, name: str, reader: str) -> None:
    view = seen.transcript.view(reader)
    for attack in (ATTACKS[name]().run, ATTACKS[name]().residual):
        with pytest.raises(Blind):
            attack(view, Knowledge())


def test_no_generator_can_be_made_to_ask(federation) -> None:
    """C3: an owner that would send crafted offers is asked for none."""
    oracle = ATTACKS["c3-neighgen-oracle"]()
    run = sfg.train(
        oracle.plays(sfg.FedSagePlus)(**SMALL), federation, "plaintext", rounds=1, keep=everything
    )
    assert not {s.channel for s in run.transcript.sent} & {"generator", "feedback"}
    with pytest.raises(Blind):
        oracle.run(run.transcript.view("owner-0"), Knowledge())


@pytest.mark.parametrize("bias", [0.2, 3.0])
def test_an_owner_whose_generator_makes_nothing_reads_so_in_its_log(
    federation: sfg.Federation, bias: float, caplog: pytest.LogCaptureFixture
) -> None:
    algorithm = sfg.LocSagePlus(hidden=(8, 8), encoder=(8, 8), generator_hidden=(8, 16), generator_epochs=0)
    bound = sfg.policies.plaintext().bind(algorithm.in_use, federation.names)
    client, *_ = federation.make_clients(algorithm, bound, "run-1", Ledger(), seed=0)
    generator = parameters_of(algorithm.own_generator(client))
    generator["dgen.weight"].zero_()
    generator["dgen.bias"].fill_(bias)
    client.memory["neighgen"] = generator
    added = len(algorithm.completed(client).x) - len(client.graph.x)
    told = [r for r in caplog.records if "generator_epochs" in r.getMessage()]
    assert (added > 0) == (bias > 1) and len(told) == (not added)
