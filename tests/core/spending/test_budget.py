"""The budget in a run and over runs: what stops, what is kept, what adds up, what is no longer believed."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from parties import Toy, session
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    GaussianRelease,
    SampledGaussian,
)
from secure_fedgraph.core.errors import BadInput, BudgetExhausted
from secure_fedgraph.core.spending import budget as budgets
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Charge, Ledger, check_mark, read_ledger
from secure_fedgraph.policies import local_dp, plaintext
from secure_fedgraph.privacy.spent import spent

ROOT = Path(__file__).resolve().parents[3]
NOISE = {reader: (GaussianRelease(4.0),) for reader in ("server", "peers", "outsider")}
CHARGE = Charge("a", "run-1", 1, 3, "update", "client", "zero-out", NOISE, data="d1")


def of(times: int, multiplier: float = 4.0) -> float:
    """Epsilon of that many releases."""
    return accounting.epsilon({GaussianRelease(multiplier): times}, 1e-5).epsilon


def holding(times: int, multiplier: float = 4.0, **more) -> Budget:
    """A budget that holds that many releases and no more."""
    return Budget((of(times, multiplier) + of(times + 1, multiplier)) / 2, **more)


def charged(ledger: Ledger, charge: Charge = CHARGE) -> int:
    """How many times it can be charged until it is refused."""
    for number in range(1000):
        try:
            ledger.charge(replace(charge, exchange=number))
        except BudgetExhausted:
            return number
    raise AssertionError("it never stops")


def of_noise(multiplier: float) -> Charge:
    """The charge of one release."""
    return replace(CHARGE, releases=dict.fromkeys(NOISE, (GaussianRelease(multiplier),)))


class TestBudget:
    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
    def test_epsilons(self, epsilon):
        with pytest.raises(BadInput, match="a budget is a positive number; 8 is usual, 1 strict"):
            Budget(epsilon)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
    def test_deltas(self, delta):
        with pytest.raises(BadInput, match="must lie between 0 and 1; 1e-5 is usual"):
            Budget(1.0, delta)

    def test_the_sentence(self):
        budget = Budget(4.4, unit="node", against="peers")
        budget.check({GaussianRelease(1.0): 1}, "owner-1", "update")  # 4.377
        budget.check({}, "owner-1", "update")
        with pytest.raises(
            BudgetExhausted,
            match=r"channel 'update': owner-1's next message would exceed the budget of epsilon 4.4 at "
            r"delta 1e-05 for one node against the peers \(it comes to 6.573\): it is not sent; give a",
        ):
            budget.check({GaussianRelease(1.0): 2}, "owner-1", "update")
        with pytest.raises(BudgetExhausted, match="no noise protects it"):
            budget.check(None, "owner-1", "update")
        with pytest.raises(BudgetExhausted, match="no noise protects it"):
            budget.check({GaussianRelease(0.0): 1}, "owner-1", "update")
        with pytest.raises(BudgetExhausted, match="noise for it is too little for a finite epsilon"):
            budget.check({GaussianRelease(1e-7): 1}, "owner-1", "update")


class TestLedger:
    def test_it_holds_what_it_holds_and_writes_no_more(self, tmp_path):
        path = tmp_path / "ledger.jsonl"
        assert charged(Ledger(path, holding(5))) == 5
        assert len(read_ledger(path)) == 5
        assert charged(Ledger(None, holding(5))) == 5

    def test_many_charges_end_at_the_budget_exactly(self):
        """Answers that are found ahead come closer and closer to it, and never pass it."""
        assert charged(Ledger(None, holding(450, 60.0)), of_noise(60.0)) == 450

    def test_every_client_has_its_own(self):
        ledger = Ledger(None, holding(3))
        assert [charged(ledger, replace(CHARGE, client=name)) for name in ("a", "b")] == [3, 3]

    def test_it_is_about_its_unit_reader_and_holders(self):
        # at a node, what was scaled to the client is worth half; where two hold the node, a quarter
        assert charged(Ledger(None, holding(6, 2.0, unit="node"))) == 6
        assert charged(Ledger(None, holding(6, 1.0, unit="node", holders=2))) == 6
        far = replace(CHARGE, releases={**NOISE, "outsider": (GaussianRelease(40.0),)})
        assert charged(Ledger(None, holding(7, 40.0, against="outsider")), far) == 7
        assert charged(Ledger(None, holding(7, 40.0)), far) == 0
        # what only the server sees bare is infinite against it, and costs an outsider as before
        central = replace(CHARGE, releases={"outsider": NOISE["outsider"]})
        assert charged(Ledger(None, Budget(100.0)), central) == 0
        assert charged(Ledger(None, holding(4, against="outsider")), central) == 4

    def test_unequal_charges_compose(self):
        ledger = Ledger(None, Budget(of(4) + 1e-3))
        ledger.charge(CHARGE)
        # one release at half the multiplier costs what four do: 1 + 4 > 4
        with pytest.raises(BudgetExhausted):
            ledger.charge(replace(CHARGE, releases=dict.fromkeys(NOISE, (GaussianRelease(2.0),))))
        # after a refusal there is still room for what fits
        assert charged(ledger) == 3

    def test_two_runs_add_up(self, tmp_path):
        path = tmp_path / "shared.jsonl"
        first = Ledger(path)
        for number in range(4):
            first.charge(replace(CHARGE, exchange=number))
        assert charged(Ledger(path, holding(6)), replace(CHARGE, run="run-2")) == 2
        assert charged(Ledger(path, holding(6)), replace(CHARGE, run="run-3")) == 0
        assert charged(Ledger(path, holding(7)), replace(CHARGE, run="run-3")) == 1

    def test_each_sees_what_the_other_charges_meanwhile(self, tmp_path):
        path = tmp_path / "shared.jsonl"
        one, other = (Ledger(path, holding(5)) for _ in range(2))
        for turns in range(5):
            (one, other)[turns % 2].charge(replace(CHARGE, exchange=turns))
        for ledger in (one, other):
            with pytest.raises(BudgetExhausted):
                ledger.charge(replace(CHARGE, exchange=9))
        assert len(read_ledger(path)) == 5

    def test_two_processes_add_up(self, tmp_path):
        """Both go for what is left at once; together they get all of it, and no more."""
        path, gate = tmp_path / "shared.jsonl", tmp_path / "gate"
        done = subprocess.run(
            [sys.executable, "-c", TWO_PROCESSES, str(path), str(gate), repr(holding(40))],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=2000,
        )
        got = json.loads(done.stdout)
        charges = read_ledger(path)
        assert sum(got) == len(charges) == 40
        assert [sum(c.run == run for c in charges) for run in ("run-1", "run-2")] == got

    def test_other_data_under_the_same_name(self, tmp_path):
        path = tmp_path / "shared.jsonl"
        Ledger(path).charge(CHARGE)
        for ledger in (Ledger(path), Ledger(path, Budget(100.0))):
            with pytest.raises(BadInput, match="--ledger"):
                ledger.charge(replace(CHARGE, data="d2"))
            ledger.charge(CHARGE)
            ledger.charge(replace(CHARGE, client="b", data="d2"))
        assert len(read_ledger(path)) == 5

    def test_a_torn_line_counts_for_everybody(self, tmp_path):
        path = tmp_path / "ledger.jsonl"
        for number in range(2):
            Ledger(path).charge(replace(CHARGE, exchange=number))
        path.write_bytes(path.read_bytes()[:-9])
        ledger = Ledger.go_on(path, Budget(1000.0))
        for client in ("a", "b", "somebody-else"):
            with pytest.raises(BudgetExhausted, match=f"{client}'s next message.*spent before"):
                ledger.charge(replace(CHARGE, client=client))
        assert len(read_ledger(path)) == 2
        assert path.with_suffix(".torn").read_bytes().startswith(b'{"client": "a"')
        assert spent(read_ledger(path), 1e-5)["client"]["server"].epsilon == math.inf

    def test_raw_data_that_was_pooled_counts_for_everybody(self, tmp_path):
        """Before round 1 of a pooled baseline every owner has handed over all; a later budget knows."""
        path = tmp_path / "shared.jsonl"
        Ledger(path).charge(Charge("pool", "run-0", 0, 0, "pooled raw data", "client", "zero-out"))
        for client in ("a", "b"):
            with pytest.raises(BudgetExhausted):
                Ledger(path, Budget(1000.0)).charge(replace(CHARGE, client=client))


# Real processes; the import, which is most of their time, is shared.
TWO_PROCESSES = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from secure_fedgraph.core.errors import BudgetExhausted
from secure_fedgraph.core.accounting.epsilon import GaussianRelease
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Charge, Ledger

path, gate = Path(sys.argv[1]), Path(sys.argv[2])
budget = eval(sys.argv[3])
noise = {"server": (GaussianRelease(4.0),)}
pipes = []
for number in (1, 2):
    reading, writing = os.pipe()
    pipes.append(reading)
    if os.fork() == 0:
        ledger, count = Ledger(path, budget), 0
        Path(f"{gate}-{number}").touch()
        while not Path(f"{gate}-{3 - number}").exists():
            pass
        try:
            while True:
                ledger.charge(Charge("a", f"run-{number}", 1, count, "update", "client", "zero-out", noise))
                count += 1
        except BudgetExhausted:
            os.write(writing, str(count).encode())
        os._exit(0)
    os.close(writing)
for _ in pipes:
    os.wait()
print(json.dumps([int(os.read(one, 20)) for one in pipes]))
"""


class TestMark:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        path = tmp_path / "ledger.jsonl"
        ledger = Ledger(path)
        for number in range(3):
            ledger.charge(replace(CHARGE, exchange=number))
        return path

    def test_what_only_grew_is_believed(self, path):
        mark = Ledger(path).mark()
        check_mark(path, mark)
        Ledger(path).charge(CHARGE)
        check_mark(path, mark)
        path.write_bytes(path.read_bytes()[:-4])  # a line that was torn after the mark is another matter
        check_mark(path, mark)

    def test_rolled_back_rewritten_or_gone(self, path):
        mark, whole = Ledger(path).mark(), path.read_bytes()
        lines = whole.splitlines(keepends=True)
        for other in (
            b"".join(lines[:-1]),  # an older copy
            b"",
            b"".join([lines[1], lines[0], lines[2]]),
            whole.replace(b'"multiplier": 4.0', b'"multiplier": 9.0'),
            b"".join(lines[:-1]) + lines[-1].replace(b'"a"', b'"b"'),
        ):
            path.write_bytes(other)
            with pytest.raises(BadInput, match="lacks charges that the checkpoint beside it was made after"):
                check_mark(path, mark)
        path.unlink()
        with pytest.raises(BadInput, match="a ledger that was rolled back under-counts"):
            check_mark(path, mark)

    def test_of_nothing(self, tmp_path):
        assert Ledger().mark()["bytes"] == 0
        check_mark(tmp_path / "none", Ledger(tmp_path / "none").mark())


class TestSession:
    def test_what_would_exceed_it_is_not_even_worked_on(self):
        made = session(local_dp(1.0, 4.0), ledger=Ledger(None, Budget(1.2 * of(2)))).set_up()
        for number in (1, 2):
            made.round(number).reduce(Toy.UPDATE)
        passed = len(made.passed)
        with pytest.raises(BudgetExhausted, match="channel 'update': owner-0's next message"):
            made.round(3).reduce(Toy.UPDATE)
        assert len(made.passed) == passed  # nobody's reply left a door
        assert len(made.ledger.charges) == 6

    def test_without_noise_there_is_not_one(self):
        made = session(plaintext(), ledger=Ledger(None, Budget(1e6)))
        with pytest.raises(BudgetExhausted, match="no noise protects it"):
            made.tell(made.message("owner-0"))
        assert made.ledger.charges == ()


ROUNDS = 3


@pytest.mark.filterwarnings("ignore::secure_fedgraph.privacy.budget_warnings.EarlyStopWarning")
class TestRun:
    def train(self, federation, times: float, **more):
        """Under a budget for that many rounds, and half of one more."""
        policy = sfg.policies.local_dp(1.0, 4.0)
        events = policy.bind([sfg.FedAvg.UPDATE], federation.names)["update"].releases(10)["server"]
        room = sum(accounting.epsilon(events * (times + i), 1e-5).epsilon for i in (0, 1)) / 2
        arguments = {"rounds": ROUNDS, "budget": Budget(room), **more}
        return sfg.train(sfg.FedAvg(hidden=(8, 8)), federation, policy, **arguments)

    def test_it_stops_before_the_message_that_would_exceed_it(self, federation, tmp_path):
        seen = []
        with pytest.raises(BudgetExhausted, match=r"channel 'update': owner-\d's next message would exceed"):
            self.train(federation, 2, out=tmp_path, on_round=seen.append)
        assert [row["round"] for row in seen] == [1, 2]
        charges = read_ledger(tmp_path / "ledger.jsonl")
        assert sorted((c.client, c.round) for c in charges) == [
            (n, r) for n in federation.names for r in (1, 2)
        ]

    def test_finished_rounds_are_kept_and_a_larger_budget_goes_on_from_them(self, federation, tmp_path):
        with pytest.raises(BudgetExhausted):
            self.train(federation, 2, out=tmp_path)
        run = self.train(federation, ROUNDS, out=tmp_path, resume=True)
        assert [row["round"] for row in run.history] == [1, 2, 3]
        assert len(run.charges) == 3 * ROUNDS
        whole = self.train(federation, ROUNDS)
        assert [len(whole.charges), len(whole.history)] == [9, 3]
        with pytest.raises(BudgetExhausted):
            self.train(federation, 2, out=tmp_path / "other", ledger=tmp_path / "ledger.jsonl")

    def test_a_budget_that_is_enough_changes_nothing(self, federation):
        run = self.train(federation, ROUNDS)
        assert len(run.history) == ROUNDS
        assert run.privacy("client")["epsilon"] <= run.budget.epsilon

    def test_a_ledger_that_two_runs_share(self, federation, tmp_path):
        path = tmp_path / "shared.jsonl"
        first = self.train(federation, 4, out=tmp_path / "a", ledger=path, rounds=2)
        assert not (tmp_path / "a" / "ledger.jsonl").exists()
        with pytest.raises(BudgetExhausted):
            self.train(federation, 4, out=tmp_path / "b", ledger=path, rounds=3)
        charges = read_ledger(path)
        assert len(charges) == 12
        assert len({c.run for c in charges}) == 2
        assert len(first.charges) == 6  # its own
        again = self.train(federation, 6, out=tmp_path / "c", ledger=path, rounds=2)
        assert len(again.charges) == 6

    def test_other_data_under_the_same_names(self, federation, tmp_path):
        other = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=1)
        path = tmp_path / "shared.jsonl"
        self.train(federation, 9, ledger=path, rounds=1)
        with pytest.raises(BadInput, match=r"knows owner-\d with other data"):
            self.train(other, 9, ledger=path, rounds=1)
        self.train(federation, 9, ledger=path, rounds=1, seed=5)  # another run over the same

    def test_the_same_data_under_other_names(self, federation, tmp_path):
        graphs = [Data(x=g.x, y=g.y, edge_index=g.edge_index) for g in federation.owners.values()]
        path = tmp_path / "shared.jsonl"
        first = sfg.federate(dict(zip("abc", [*graphs[:2], graphs[0].clone()], strict=True)), holders=2)
        self.train(first, 9, ledger=path, rounds=1)  # two owners of one run may hold the same
        self.train(first, 9, ledger=path, rounds=1)
        renamed = sfg.federate(
            dict(zip(["a", "b2", "c"], [*graphs[:2], graphs[0].clone()], strict=True)), holders=2
        )
        before = path.read_bytes()
        with pytest.raises(BadInput, match="the data of b2 as b's"):
            self.train(renamed, 9, ledger=path, rounds=1)
        assert path.read_bytes() == before

    def test_a_ledger_that_was_rolled_back_behind_the_checkpoint(self, federation, tmp_path):
        with pytest.raises(BudgetExhausted):
            self.train(federation, 2, out=tmp_path / "run")
        path = tmp_path / "run" / "ledger.jsonl"
        whole = path.read_bytes()
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
        with pytest.raises(BadInput, match="lacks charges that the checkpoint beside it was made after"):
            self.train(federation, ROUNDS, out=tmp_path / "run", resume=True)
        path.unlink()
        with pytest.raises(BadInput, match="lacks charges"):
            self.train(federation, ROUNDS, out=tmp_path / "run", resume=True)
        path.write_bytes(whole)
        assert len(self.train(federation, ROUNDS, out=tmp_path / "run", resume=True).history) == ROUNDS

    def test_resumed_behind_a_torn_line_it_has_nothing_left(self, federation, tmp_path):
        with pytest.raises(BudgetExhausted):
            self.train(federation, 2, out=tmp_path)
        path = tmp_path / "ledger.jsonl"
        with path.open("ab") as file:
            file.write(b'{"client": "own')  # died in the middle of a line
        with pytest.raises(BudgetExhausted, match="spent before"):
            self.train(federation, ROUNDS, out=tmp_path, resume=True)

    def test_raw_data_in_one_place_has_no_budget(self, federation, tmp_path):
        with pytest.raises(BudgetExhausted, match="channel 'pooled raw data'"):
            sfg.train(
                sfg.GlobSage(hidden=(8, 8)), federation, sfg.policies.local_dp(1.0, 4.0), rounds=1,
                budget=Budget(100.0),
            )  # fmt: skip


def test_a_copy_of_a_folder_is_not_a_second_budget(tmp_path):
    """What a copied run charges goes to its own copy: said here, since no file can know of its copies."""
    path = tmp_path / "a" / "ledger.jsonl"
    assert charged(Ledger(path, holding(2))) == 2
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert charged(Ledger(tmp_path / "b" / "ledger.jsonl", holding(3))) == 1


def test_a_part_of_what_is_within_a_budget_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    epsilon = budgets.accounting.epsilon
    monkeypatch.setattr(
        budgets.accounting, "epsilon", lambda *asked: (computed.append(1), epsilon(*asked))[1]
    )
    step, sent = SampledGaussian(3.0, 0.1, 1, "zero-out"), DiscreteRelease(2.0, 2, sigma=2.0**14, width=9)
    within = budgets._Within(8.0, 1e-5)
    assert within.holds({step: 50, sent: 2})
    within._known = [{step: 50, sent: 2}]
    for events, asked in (
        ({step: 50, sent: 1}, False),
        ({sent: 3}, True),
        ({replace(sent, width=8): 1}, True),
    ):
        within._known, before = [{step: 50, sent: 2}], len(computed)
        assert within.holds(events)
        assert (len(computed) > before) is asked, events
