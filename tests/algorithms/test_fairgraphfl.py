"""FairGraphFL: what travels, what agents become, who is paid what, and what is refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from small_graphs import LABELS, one, triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl import fairness
from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fairgraphfl.prototypes import distance_to
from secure_fedgraph.algorithms.fairgraphfl.state import (
    ALIGNMENT,
    DIVERSITY,
    KNOWN,
    PROTOTYPES,
    VALUES,
    VOCABULARY,
)
from secure_fedgraph.algorithms.training.gin_classifier import GinFedAvg, GinLocal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.graph.motifs import every_motif, places
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.parameters import parameters_of
from secure_fedgraph.privacy.policy import PlaintextWarning

SMALL = {"hidden": 8, "layers": 2, "batch": "full", "learning_rate": 0.01}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(triangles(), clients=3, partition="random", seed=0)


def run(federation, rounds: int = 2, policy=None, kind=FairGraphFL, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        return sfg.train(
            kind(**{**SMALL, **settings}),
            federation,
            policy or sfg.policies.plaintext(),
            rounds=rounds,
            allow_plaintext=True,
        )


@pytest.fixture(scope="module")
def plain(federation):
    return run(federation)


class Against(FairGraphFL):
    """The last agent sends the opposite of what it has learned."""

    name = "against"

    def _train(self, client, given):
        moved = super()._train(client, given)
        return {k: -v for k, v in moved.items()} if client.name == "owner-2" else moved


class TestRuns:
    def test_it_learns(self, federation):
        found = run(federation, 20, dropout=0.0, hidden=16, batch=4, epochs=4)
        best = [max(row["accuracy"][key] for row in found.history[10:]) for key in ("global", "local")]
        assert min(best) >= 5 / 6  # of six graphs each; a coin has that with chance 0.11
        assert set(found.history[-1]["owners"]) == set(federation.names)

    def test_its_notes_are_json_and_add_up(self, plain, federation):
        notes = json.loads(json.dumps(plain.algorithm.notes(plain.state)))
        assert notes["agents"] == list(federation.names)
        assert [sum(row) for row in notes["by_round"]["values"]] == pytest.approx([1] * 3)
        assert [sum(row) for row in notes["by_round"]["payoffs"]] == pytest.approx([1] * 2)
        assert notes["values"] == dict(zip(notes["agents"], notes["by_round"]["values"][-1], strict=True))
        assert FairGraphFL().notes(FairGraphFL(**SMALL).init(Schema(3, 2), 0)) == {}

    def test_a_budget_is_shared_and_one_of_zero_pays_nothing(self, federation):
        paid = run(federation, budget=12.0)
        assert sum(paid.algorithm.notes(paid.state)["payoffs"].values()) == pytest.approx(12)
        unpaid = run(federation, budget=0.0)
        assert set(unpaid.algorithm.notes(unpaid.state)["payoffs"].values()) == {0.0}

    def test_the_first_round_by_its_equations(self, federation):
        found = sfg.train(
            FairGraphFL(**SMALL), federation, sfg.policies.plaintext(), rounds=1, keep=lambda c, r: True
        )
        view = found.transcript.view("server")
        gradients = torch.stack(
            [
                torch.cat([torch.tensor(v).float().flatten() for v in s.values.values()])
                for s in view.uploads("update")
            ]
        )
        aggregate = gradients.mean(0)
        alignment = fairness.cosines(gradients, aggregate)
        assert torch.allclose(found.state[ALIGNMENT], alignment, atol=1e-6)
        lists = [{tuple(row) for row in s.values["codes"].tolist()} for s in view.uploads("motifs")]
        diversity = torch.tensor([len(one) / len(set().union(*lists)) for one in lists]).double()
        assert torch.allclose(found.state[DIVERSITY], diversity, atol=1e-6)
        values = 0.95 / 3 + 0.05 * (alignment + diversity)
        assert torch.allclose(found.state[VALUES][1], values / values.sum(), atol=1e-6)
        start = found.algorithm.init(federation.schema, sub_seed(0, "initialisation"))
        first = torch.cat([v.flatten() for v in found.algorithm.released(start).values()])
        last = torch.cat([v.flatten() for v in found.algorithm.released(found.state).values()])
        assert torch.allclose(last - first, aggregate, atol=1e-6)
        asked = {s.clients[0]: s.values for s in view.asked("reward")}
        earned = fairness.fractions(found.state[VALUES][1], 0.5)
        for i, name in enumerate(federation.names):
            assert len(asked[name]["places"]) == int(float(earned[i]) * len(aggregate) + 1e-9)

    def test_prototypes_are_the_same_as_a_sum_and_one_by_one(self, plain, federation):
        each = run(federation, prototypes="each")
        assert torch.equal(each.state[KNOWN], plain.state[KNOWN])
        assert torch.allclose(each.state[PROTOTYPES], plain.state[PROTOTYPES], rtol=1e-4, atol=1e-5)
        assert plain.state[PROTOTYPES].abs().max() > 0.01

    def test_a_public_vocabulary_gives_the_same_diversity(self, plain, federation):
        public = run(federation, vocabulary="public")
        assert torch.equal(public.state[VOCABULARY], every_motif(LABELS))
        assert torch.equal(public.state[DIVERSITY], plain.state[DIVERSITY])
        at = places(plain.state[VOCABULARY], public.state[VOCABULARY])
        assert torch.allclose(public.state[PROTOTYPES][at], plain.state[PROTOTYPES], rtol=1e-4, atol=1e-5)
        assert int(public.state[KNOWN].sum()) == int(plain.state[KNOWN].sum())

    def test_a_global_idf_is_the_same_by_either_vocabulary(self, federation):
        listed, public = (run(federation, 1, idf="global", vocabulary=v) for v in ("exchanged", "public"))
        assert torch.equal(listed.state[DIVERSITY], public.state[DIVERSITY])
        assert [s.step for s in listed.transcript.sent if s.channel == "motifs"] == ["answer"] * 12

    def test_encrypted_values_are_the_plain_ones(self, federation):
        # a few rounds apart, small differences may move a component over the edge of what is earned
        plain, hidden = (
            run(federation, 1, valuation=v, policy=p)
            for v, p in (("plain", None), ("encrypted", sfg.policies.strictest()))
        )
        one, two = (found.algorithm.notes(found.state) for found in (plain, hidden))
        for key in ("values", "payoffs", "alignment"):
            assert list(two[key].values()) == pytest.approx(list(one[key].values()), abs=1e-4)
        bound = {row["name"]: row["policy"] for row in hidden.policy.describe()}
        assert bound["valued_update"] == "homomorphic"
        assert bound["prototype_sums"] == "masked"

    def test_the_motifs_that_are_listed_and_those_that_stay(self, federation):
        all_of, frequent = (run(federation, 1, support=s).state[VOCABULARY] for s in (1, 6))
        assert 0 < len(frequent) < len(all_of)

    def test_weights_by_size(self, federation):
        found = run(federation, 1, weighting="size")
        sizes = [int(g.train_mask.sum()) for g in federation.owners.values()]
        assert found.state["fair.sizes"].tolist() == sizes

    @pytest.mark.parametrize(
        ("settings", "absent"),
        [
            ({"prototypes": "none"}, {"prototypes", "prototype_sums", "vocabulary"}),
            ({"prototypes": "none", "use_diversity": False}, {"motifs", "vocabulary", "prototype_sums"}),
            ({"vocabulary": "public"}, {"motifs", "vocabulary"}),
            ({"valuation": "encrypted"}, {"update"}),
        ],
    )
    def test_settings_leave_channels_out(self, settings, absent):
        names = {c.name for c in FairGraphFL(**settings).in_use}
        assert not names & absent
        assert {"reward"} <= names

    @pytest.mark.parametrize(
        "settings",
        [
            {"use_gradient": False, "optimizer": "sgd", "batch": 7, "epochs": 2},
            {"reading": "add", "tanh_arg": "Kr", "rings": 6},
        ],
        ids=str,
    )
    def test_every_ablation_and_reading_runs(self, federation, settings):
        assert len(run(federation, **settings).history) == 2

    def test_on_molecules_labels_are_elements(self):
        molecules = sfg.federate("synthetic-molecules", clients=3, partition="random", seed=0, graphs=60)
        found = run(molecules)
        codes = found.state[VOCABULARY]
        bonds = codes[codes[:, 0] == 2]
        assert set(bonds[:, 1:3].flatten().tolist()) <= {6, 7, 8, 17}  # carbon, nitrogen, oxygen, chlorine
        assert set(bonds[:, 3].tolist()) <= {1, 2, 12}  # single, double, aromatic


class TestRewards:
    def test_beta_to_infinity_is_dense(self, federation):
        sparse, dense = run(federation, beta_fair=1e9), run(federation, sparse=False)
        assert all(torch.equal(sparse.state[k], dense.state[k]) for k in dense.state)

    def test_an_agent_against_the_rest_ends_below_zero_gets_nothing_and_pays(self, federation):
        found = sfg.train(
            Against(**SMALL, value_rate=0.5, use_diversity=False, prototypes="none"),
            federation,
            sfg.policies.plaintext(),
            rounds=6,
            keep=lambda c, r: c == "reward",
        )
        notes = found.algorithm.notes(found.state)
        assert notes["values"]["owner-2"] < 0
        assert notes["payoffs"]["owner-2"] < 0
        assert sum(notes["payoffs"].values()) == pytest.approx(1)
        last = [
            s.values for s in found.transcript.view("server").asked("reward") if s.clients == ("owner-2",)
        ][-1]
        assert len(last["places"]) == 0
        assert last["value"] < 0
        # and its own gradient is not in the aggregate any more: without it the rest agrees
        assert notes["alignment"]["owner-0"] > 0.5

    @pytest.mark.parametrize(
        ("reading", "expected"),
        [("fill", [10, 2, 0, 0]), ("add", [11, 2, 0, 0]), ("revert", [10, 0, 0, 0])],
    )
    def test_readings_by_hand(self, reading, expected):
        client, algorithm, before = self._me(reading)
        algorithm.reward(client, self._given([0], [10.0]))
        moved = client.memory["model"]["reduce.bias"] - before["reduce.bias"]
        # its own update was 1, 2, 0, 0; it earned the first component of the global one, 10
        assert moved.tolist() == expected
        assert client.memory["value"] == 0.25
        assert "before" not in client.memory

    @pytest.mark.parametrize(
        "change",
        [
            {"amounts": torch.ones(2)},
            {"places": torch.zeros(2, dtype=torch.int32), "amounts": torch.ones(2)},
        ],
        ids=str,
    )
    def test_rewards_that_no_server_gives(self, change):
        client, algorithm, _ = self._me("fill")
        model = client.memory["model"]
        with pytest.raises(HostileMessage, match="a reward that is none"):
            algorithm.reward(client, {**self._given([0], [1.0]), **change})
        assert client.memory["model"] is model

    def test_a_vocabulary_before_motifs(self):
        client, algorithm, _ = self._me("fill")
        codes = every_motif(LABELS, algorithm.settings.rings)
        with pytest.raises(HostileMessage, match="before it was asked for its motifs"):
            algorithm.vocabulary(client, {"codes": codes})

    def test_a_reward_before_an_update(self):
        client, algorithm, _ = self._me("fill")
        client.memory.pop("before")
        with pytest.raises(HostileMessage, match="before it sent anything"):
            algorithm.reward(client, self._given([0], [1.0]))

    def _given(self, places, amounts):
        return {
            "places": torch.tensor(places, dtype=torch.int32),
            "amounts": torch.tensor(amounts),
            "value": 0.25,
            "payoff": 0.25,
        }

    def _me(self, reading):
        algorithm = FairGraphFL(hidden=4, layers=1, reading=reading)
        schema = Schema(LABELS, 2)
        before = {k: torch.zeros_like(v) for k, v in parameters_of(algorithm.model(schema)).items()}
        # reduce.bias is a whole tensor of its own; put it first so that its components are 0 to 3
        order = ["reduce.bias", *(k for k in before if k != "reduce.bias")]
        before = {k: before[k] for k in order}
        after = {k: v.clone() for k, v in before.items()}
        after["reduce.bias"] = torch.tensor([1.0, 2.0, 0.0, 0.0])
        client = SimpleNamespace(name="owner-0", schema=schema, memory={"model": after, "before": before})
        return client, algorithm, before


class TestRegulariser:
    incidence = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    prototypes = torch.tensor([[1.0, 1.0], [0.0, 2.0]])
    embedded = torch.tensor([[1.0, 3.0], [3.0, 1.0], [5.0, 5.0]])

    def of(self, prototypes, distance="absolute", rows=(0, 1, 2)):
        algorithm = FairGraphFL(regularisation=1.0, distance=distance)
        given = {PROTOTYPES: prototypes, KNOWN: torch.ones(len(prototypes), dtype=torch.uint8)}
        client, at = SimpleNamespace(name="owner-0"), torch.tensor([0, 1])
        term = distance_to(client, given, self.incidence, at, 2, algorithm.settings)
        return float(term(self.embedded[list(rows)], torch.tensor(rows)))

    def test_by_hand(self):
        # P_0 = (2, 2): (1 + 1) / 2 from (1, 1); P_1 = (3, 1): (9 + 1) / 2 from (0, 2); their mean is 3
        assert self.of(self.prototypes) == pytest.approx(3)
        # over a prototype's own size, the mean squares of (1, 1) and (0, 2), 1 and 2: (1 + 5 / 2) / 2
        assert self.of(self.prototypes, "relative") == pytest.approx(1.75)
        assert self.of(self.prototypes, rows=(2,)) == 0  # a batch without a known motif

    def test_prototypes_of_another_vocabulary(self):
        with pytest.raises(HostileMessage, match="given prototypes"):
            self.of(self.prototypes[:1])

    def test_it_pulls(self, federation):
        apart = {}
        for weight in (0.0, 1.0):
            found = run(federation, 8, regularisation=weight, dropout=0.0)
            apart[weight] = float(found.state[PROTOTYPES].std(0).norm())
        assert apart[0.0] != apart[1.0]


class TestBadInput:
    def test_graphs_without_links(self):
        bare = sfg.federate(triangles(linked=False), clients=3, partition="random", seed=0)
        found = run(bare)
        assert found.state[DIVERSITY].tolist() == [1, 1, 1]
        assert len(found.state[VOCABULARY]) == 0
        assert sum(found.algorithm.notes(found.state)["payoffs"].values()) == pytest.approx(1)
        run(bare, 1, vocabulary="public", idf="global")

    def test_no_motif_that_two_agents_share(self):
        # every agent has labels of its own
        data = triangles(30)
        for i, graph in enumerate(data.graphs):
            graph.x = torch.eye(LABELS)[[i // 10] * graph.num_nodes]
        split = {"global_test": 0.0}  # so that every agent has ten in a row
        found = run(sfg.federate(data, clients=3, partition="file_order", seed=0, split=split))
        assert int(found.state["fair.present"].sum(0).max()) == 1
        assert float(found.state[DIVERSITY].sum()) == pytest.approx(1)

    def test_an_agent_of_one_class(self):
        data = triangles(60)
        data.graphs.sort(key=lambda graph: int(graph.y))
        federation = sfg.federate(data, clients=3, partition="file_order", seed=0)
        assert len(federation.owners["owner-0"].y.unique()) == 1
        assert len(run(federation).history) == 2

    def test_an_agent_of_one_training_graph(self, federation):
        owner = pack([one(0, torch.Generator().manual_seed(0)), one(1, torch.Generator().manual_seed(1))])
        owner.train_mask = torch.tensor([True, False])
        owner.val_mask, owner.test_mask = torch.tensor([False, False]), torch.tensor([False, True])
        tiny = replace(federation, owners={**federation.owners, "owner-0": owner})
        assert len(run(tiny).history) == 2

    def test_data_without_labels(self):
        with pytest.raises(BadInput, match="node labels"):
            FairGraphFL(hidden=4).init(Schema(0, 2), 0)

    def test_a_public_vocabulary_that_is_too_long(self):
        with pytest.raises(BadInput, match="vocabulary=exchanged"):
            FairGraphFL(vocabulary="public").init(Schema(89, 2), 0)

    def test_other_agents_in_a_later_round(self, federation):
        def sampler(number, clients, seed):
            return clients if number == 1 else clients[:2]

        with pytest.raises(BadInput, match="same agents in every round"):
            sfg.train(FairGraphFL(**SMALL), federation, sfg.policies.plaintext(), rounds=2, sampler=sampler)

    def test_values_of_nearly_one_agent_are_not_opened(self, federation):
        class Alone(FairGraphFL):
            name = "alone"

            def round(self, round, state):
                state = self.meet(round, state)
                state[VALUES] = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
                return super().round(round, state)

        with pytest.raises(Refused, match="effective contributors"):
            run(federation, 1, sfg.policies.strictest(), Alone, valuation="encrypted", use_diversity=False)


class TestBaselines:
    def test_fedavg_adds_the_mean_update_and_alone_nothing_is_sent(self, federation):
        small = {**SMALL, "dropout": 0.0}
        averaged = sfg.train(GinFedAvg(**small), federation, sfg.policies.plaintext(), rounds=1)
        fair = run(federation, 1, dropout=0.0)
        # in the first round all values are equal, and there are no prototypes yet: the same mean
        model = fair.algorithm.released(fair.state)
        assert all(torch.allclose(averaged.state[k], v, atol=1e-6) for k, v in model.items())
        alone = sfg.train(GinLocal(**small), federation, sfg.policies.plaintext(), rounds=2)
        assert alone.charges == ()
        assert set(alone.history[-1]["owners"]) == set(federation.names)

    def test_revert_with_everything_given_is_fedavg(self, federation):
        settings = {"dropout": 0.0, "sparse": False, "reading": "revert", "prototypes": "none"}
        fair = run(federation, 3, weighting="size", **settings)  # equal sizes
        averaged = sfg.train(GinFedAvg(**SMALL, dropout=0.0), federation, sfg.policies.plaintext(), rounds=3)
        model = fair.algorithm.released(fair.state)
        assert all(torch.allclose(averaged.state[k], v, atol=1e-4) for k, v in model.items())
