"""Runs in which clients drop out at random steps: what is opened, who counts, and that they come back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import small
import torch
from small_graphs import triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.policies import homomorphic, masked, plaintext, strictest
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import LeftOutWarning
from secure_fedgraph.protocol.dropouts import STEPS, Dropouts
from secure_fedgraph.protocol.transcript import everything

CLIENTS, ROUNDS = 5, 6


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=CLIENTS, nodes=200, features=16, seed=0)


def run(federation, policy=None, dropouts=None, name="fedsage", rounds=ROUNDS, **settings):
    return sfg.train(
        ALGORITHMS[name](),
        federation,
        policy or masked(),
        rounds=rounds,
        seed=0,
        keep=everything,
        dropouts=dropouts,
        **settings,
    )


def sums(made, channel="update"):
    return made.transcript.view("server").sums(channel)


class TestSimulation:
    def test_the_share_is_rounded_down_and_seeded(self):
        cohort = tuple(f"c{i}" for i in range(10))
        for share, count in ((0.0, 0), (0.09, 0), (0.1, 1), (0.2, 2), (0.3, 3), (1.0, 10)):
            assert len(Dropouts(share=share).leaving(1, cohort)) == count
        one, again, other = (Dropouts(share=0.3, seed=seed) for seed in (1, 1, 2))
        rounds = range(1, 30)
        assert [one.leaving(r, cohort) for r in rounds] == [again.leaving(r, cohort) for r in rounds]
        assert [one.leaving(r, cohort) for r in rounds] != [other.leaving(r, cohort) for r in rounds]

    def test_clients_and_steps_are_spread(self):
        cohort = tuple(f"c{i}" for i in range(5))
        left = [Dropouts(share=0.2, seed=3).leaving(r, cohort) for r in range(1000)]
        for values, count in (([n for f in left for n in f], 5), ([s for f in left for s in f.values()], 5)):
            _, seen = np.unique(values, return_counts=True)
            assert len(seen) == count
            assert np.abs(seen / 1000 - 0.2).max() < 0.07  # five and a half standard deviations

    def test_away_for_the_rest_of_the_round_only(self):
        made = Dropouts(at={(2, "b"): "agree"})
        assert [made.gone(1, step, ("a", "b")) for step in STEPS] == [set()] * 5
        assert [sorted(made.gone(2, step, ("a", "b"))) for step in STEPS] == [[], [], [], ["b"], ["b"]]
        assert made.gone(2, "advertise", ("a", "b")) == {"b"}  # a second sum of the round
        assert made.gone(3, "advertise", ("a", "b")) == set()

    @pytest.mark.parametrize(
        ("settings", "sentence"), [({"share": 1.5}, "share 1.5"), ({"at": {(1, "a"): "open"}}, "step 'open'")]
    )
    def test_refusals(self, settings, sentence):
        with pytest.raises(BadInput, match=sentence):
            Dropouts(**settings)


@pytest.mark.parametrize("step", STEPS)
def test_a_drop_out_at_each_step(federation, step):
    made = run(federation, dropouts=Dropouts(at={(2, "owner-1"): step}), rounds=3)
    counted = [seen.clients for seen in sums(made)]
    assert [len(c) for c in counted] == [5, 5 if step in ("agree", "unmask") else 4, 5]
    assert "owner-1" in counted[2]  # it came back


def test_the_sum_is_the_one_of_the_same_clients_in_plaintext(federation):
    """Round 1 starts from the same weights, so the same cohort sums to the same in the clear."""
    left = Dropouts(at={(1, "owner-3"): "answer"})
    rest = tuple(n for n in federation.names if n != "owner-3")
    (hidden,) = sums(run(federation, dropouts=left, rounds=1))
    (plain,) = sums(run(federation, plaintext(), rounds=1, sampler=lambda *_: rest))
    step = masked().bind((ALGORITHMS["fedsage"]().UPDATE,), federation.names)["update"].stages[0].step
    assert hidden.clients == plain.clients == rest
    for name, values in plain.values.items():
        assert np.abs(values - hidden.values[name]).max() <= 4 * step / 2 + 1e-6


def test_the_mean_divides_by_the_survivors(federation):
    left = Dropouts(at={(1, "owner-3"): "answer", (1, "owner-4"): "share"})
    made = run(federation, dropouts=left, rounds=1)
    (seen,) = sums(made)
    assert seen.clients == ("owner-0", "owner-1", "owner-2")
    start = ALGORITHMS["fedsage"]().init(federation.schema, sub_seed(0, "initialisation"))
    for name, values in seen.values.items():
        moved = (made.state[name] - start[name]).numpy()
        assert np.allclose(moved, values / 3, atol=1e-6)


def test_below_the_threshold_nothing_opens(federation):
    left = Dropouts(at={(2, f"owner-{i}"): step for i, step in enumerate(("share", "answer", "unmask"))})
    with pytest.raises(Refused, match=r"only 3 of 5|needed: nothing was opened"):
        run(federation, masked(colluders=0.2), left, rounds=3)


@pytest.mark.parametrize("policy", [plaintext(), homomorphic()], ids=lambda p: p.name)
def test_where_nothing_survives_a_drop_out_they_are_refused(federation, policy):
    with pytest.raises(BadInput, match="dropouts"):
        run(federation, policy, Dropouts(share=0.4), rounds=1)


def accuracy(made):
    return max(row["accuracy"]["global"] for row in made.history)


@pytest.mark.parametrize("name", ["fedavg", "fedsage"])
def test_twenty_percent_at_random_steps_train_as_well(federation, name):
    whole = run(federation, name=name, rounds=15)
    rest = [run(federation, name=name, rounds=15, dropouts=Dropouts(share=0.2, seed=s)) for s in (1, 2)]
    for made in rest:
        counted = [len(seen.clients) for seen in sums(made)]
        assert min(counted) == 4
        # of five steps three lose an upload: some of the fifteen rounds are whole
        assert 0 < counted.count(5) < 15
        # the test set has some tens of nodes: four standard errors
        assert abs(accuracy(made) - accuracy(whole)) < 0.15


SURVIVING = (
    "fedavg", "fedprox", "fedsage", "fedego", "glasu", "glasu-simulated", "fedbcd", "apfl", "fedgate",
    "apflgate", "gin-fedavg", "fedgcn", "graphfl",
)  # fmt: skip


def five_owners(name):
    kind = ALGORITHMS[name]
    partition = kind.partitions[0]
    split = small.SPLITS.get(partition)
    if issubclass(kind, GinClassifier):
        return sfg.federate(triangles(), clients=5, partition=partition, seed=0, split=split)
    return sfg.federate(
        "synthetic-citation", clients=5, partition=partition, seed=1, split=split, nodes=150, features=20
    )


@pytest.mark.parametrize("name", SURVIVING)
def test_every_algorithm_that_binds_trains_under_drop_outs(name, tmp_path):
    algorithm, owners = small.algorithm(name), five_owners(name)
    whole, dropped = (
        sfg.train(
            algorithm, owners, masked(), rounds=4, seed=0, out=tmp_path / str(share), keep=everything,
            dropouts=Dropouts(share=share, seed=1),
        )
        for share in (0.0, 0.2)
    )  # fmt: skip
    (channel, *_) = (c.name for c in algorithm.in_use if c.reveal is Reveal.SUM)
    assert {len(seen.clients) for seen in sums(whole, channel)} == {5}
    counted = [len(seen.clients) for seen in sums(dropped, channel)]
    assert set(counted) == {4, 5}
    assert dropped.transcript.left_out == []  # who is away sent nothing wrong
    # noise of a test set of tens of nodes
    assert abs(accuracy(whole) - accuracy(dropped)) < 0.35
    assert all(torch.isfinite(v).all() for v in dropped.state.values())


def test_fairgraphfls_sums_survive_where_its_updates_are_read():
    owners = five_owners("fairgraphfl")
    with pytest.warns(PlaintextWarning):
        made = sfg.train(
            small.algorithm("fairgraphfl"), owners, strictest(), rounds=4, seed=0, keep=everything,
            dropouts=Dropouts(share=0.2, seed=1), allow_plaintext=True,
        )  # fmt: skip
    assert {len(seen.clients) for seen in sums(made, "prototype_sums")} == {4, 5}
    assert len(made.history) == 4


def test_a_vertical_mean_of_two_is_not_opened():
    """Whoever is left would have the other's rows by subtraction: the clients themselves insist on three."""
    owners = sfg.federate("synthetic-citation", 3, "vertical", seed=0, nodes=60, features=18)
    left = Dropouts(at={(1, "owner-1"): "answer"})
    with pytest.raises(Refused, match="only 2 of 3 clients had uploaded and 3 are needed"):
        sfg.train(small.algorithm("glasu"), owners, masked(), rounds=1, dropouts=left)
    accepting = small.algorithm("glasu", accept_two_clients=True)
    assert sfg.train(accepting, owners, masked(), rounds=1, dropouts=Dropouts(at=left.at)).history


def test_peers_exchanges_are_not_interrupted():
    """FedSage+: what owners ask each other has no recovery, so nobody leaves there; the model's sums do."""
    left = Dropouts(share=0.34, seed=2)
    algorithm, owners = small.algorithm("fedsage+"), small.federation("fedsage+")
    made = sfg.train(algorithm, owners, masked(), rounds=3, seed=0, keep=everything, dropouts=left)
    counted = [len(seen.clients) for seen in sums(made)]
    assert len(counted) == 3
    assert set(counted) <= {2, 3}
    assert 2 in counted


def test_batches_and_fewer_bits(federation):
    made = run(federation, masked(bits=16, batch=2), Dropouts(at={(1, "owner-0"): "answer"}), rounds=2)
    assert [s.clients for s in sums(made)] == [("owner-2", "owner-3", "owner-4"), federation.names]


class Failing(sfg.FedAvg):
    """One owner's answer fails from round 2 on."""

    name = "failing"

    @sfg.FedAvg.UPDATE.answer
    def update(self, client: Any, given: Any) -> Any:
        if client.round >= 2 and client.name == "owner-1":
            raise RuntimeError("no memory")
        return super().update(client, given)


class TestAClientThatFails:
    def run(self, federation, policy, **more):
        return sfg.train(Failing(hidden=(8, 8)), federation, policy, rounds=3, keep=everything, **more)

    def test_a_masked_round_goes_on_without_it(self, federation, tmp_path):
        made = self.run(federation, masked(), out=tmp_path)
        rest = tuple(name for name in federation.names if name != "owner-1")
        assert [seen.clients for seen in sums(made)] == [federation.names, rest, rest]
        assert len(made.history) == 3
        notes = [(note.client, note.round, note.step) for note in made.transcript.left_out]
        # asked again in the third round: it might be back
        assert notes == [("owner-1", 2, "answer"), ("owner-1", 3, "answer")]
        again = Transcript.load(tmp_path / "transcript")
        assert again.left_out == made.transcript.left_out

    def test_the_operator_is_told_once(self, federation):
        with pytest.warns(LeftOutWarning) as told:
            made = self.run(federation, masked())
        (said,) = [str(one.message) for one in told if issubclass(one.category, LeftOutWarning)]
        assert said.startswith("round 2, channel 'update': owner-1 is left out: ") and "RuntimeError" in said
        assert {note.round for note in made.transcript.left_out} == {2, 3}

    @pytest.mark.parametrize("policy", [plaintext(), homomorphic()], ids=lambda p: p.name)
    def test_where_nothing_survives_a_drop_out_the_run_ends(self, federation, policy):
        with pytest.raises(RuntimeError, match="no memory"):
            self.run(federation, policy)

    def test_a_simulated_drop_out_is_no_warning_and_in_no_list(self, federation):
        left = Dropouts(at={(1, "owner-0"): "answer"})
        with warnings.catch_warnings():
            warnings.simplefilter("error", LeftOutWarning)
            made = sfg.train(sfg.FedAvg(hidden=(8, 8)), federation, masked(), rounds=1, dropouts=left)
        assert made.transcript.left_out == []

    def test_with_two_others_gone_nothing_opens_and_the_reason_is_told(self, federation):
        left = Dropouts(at={(2, "owner-0"): "advertise", (2, "owner-2"): "answer"})
        with pytest.raises(Refused, match=r"only 2 of 5 clients had uploaded.*RuntimeError: no memory"):
            self.run(federation, masked(), dropouts=left)


def test_a_client_whose_budget_is_used_up_is_left_out_where_sums_survive_it(tmp_path) -> None:
    """No client exceeds its budget, and the others go on; where nobody is left, the run ends."""
    federation = sfg.federate(
        "synthetic-citation", clients=5, partition="random", seed=0, nodes=120, features=8
    )
    budget = sfg.Budget(1.7, unit="client")  # one round costs 1.28, two 1.87

    def train(policy: Any, **options: Any) -> sfg.Run:
        settings = {"rounds": 1, "ledger": tmp_path / "shared.jsonl", "budget": budget, **options}
        return sfg.train(sfg.FedAvg(hidden=(4,), fanout=(2,)), federation, policy, **settings)

    train(sfg.policies.local_dp(1.0, 3.0), sampler=lambda *_: ("owner-0",))
    run = train(sfg.policies.distributed_dp(1.0, 3.0))
    assert {note.client for note in run.transcript.left_out} == {"owner-0"}
    assert "next message" in run.transcript.left_out[0].reason
    assert run.privacy("client")["epsilon"] <= 1.7
    with pytest.raises(sfg.errors.BudgetExhausted):
        train(sfg.policies.distributed_dp(1.0, 3.0))
