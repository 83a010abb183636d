"""The ledger: exact epsilons, and what is on disk at which moment."""

from __future__ import annotations

import json
import math
import os
import threading
from dataclasses import asdict

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant
from parties import Toy, session
from scipy.optimize import brentq
from scipy.stats import norm

from secure_fedgraph.errors import BadInput
from secure_fedgraph.privacy import ledger as module
from secure_fedgraph.privacy.ledger import Charge, Ledger, epsilon, number, read_ledger, report, spent
from secure_fedgraph.privacy.policy import local_dp

CHARGE = Charge(
    "a", "run", 1, 3, "update", "client", "zero-out", {"server": 1.0, "peers": 1.0, "outsider": 2.0}
)


def exact(multiplier: float, delta: float) -> float:
    """Epsilon on the exact Gaussian curve (Balle and Wang 2018, theorem 8, sensitivity 1)."""

    def excess(eps: float) -> float:
        mu = 1 / multiplier
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta

    return float(brentq(excess, 0.0, 700.0))


class TestEpsilon:
    def test_the_textbook_number(self):
        assert epsilon([1.0], 1e-5) == pytest.approx(4.377, abs=0.001)
        assert exact(1.0, 1e-5) == pytest.approx(4.377, abs=0.001)

    @pytest.mark.parametrize("multiplier", [0.5, 1.0, 3.0, 20.0])
    @pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
    def test_the_exact_curve(self, multiplier, delta):
        assert epsilon([multiplier], delta) == pytest.approx(exact(multiplier, delta), rel=1e-6)

    def test_the_numerical_accountant_agrees_and_is_not_below(self):
        accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp.GaussianDpEvent(2.0), 3).compose(dp.GaussianDpEvent(5.0), 2)
        found = accountant.get_epsilon(1e-5)
        assert epsilon([2.0] * 3 + [5.0] * 2, 1e-5) == pytest.approx(found, abs=2e-3)

    @pytest.mark.parametrize("times", [2, 5, 50])
    def test_releases_compose_by_the_root_of_their_number(self, times):
        assert epsilon([3.0] * times, 1e-5) == pytest.approx(exact(3.0 / math.sqrt(times), 1e-5), rel=1e-6)

    def test_unequal_releases(self):
        # 1/1.5**2 + 1/2**2 = 0.69444, so one release with multiplier 1.2
        assert epsilon([1.5, 2.0], 1e-5) == pytest.approx(exact(1.2, 1e-5), rel=1e-6)

    def test_nothing_released_and_nothing_protected(self):
        assert epsilon([], 1e-5) == 0.0
        assert epsilon([1.0, 0.0], 1e-5) == math.inf
        assert epsilon([math.nan], 1e-5) == math.inf

    def test_little_noise_costs_no_time(self):
        # mu = 50 / 0.1: sqrt(50)/0.1 = 70.7, mu**2/2 = 2500 and 4.26 mu more
        assert epsilon([0.1] * 50, 1e-5) == pytest.approx(2800.6, abs=0.1)
        assert epsilon([1e-300], 1e-5) == math.inf


class TestSpent:
    def test_the_worst_client_by_unit_and_reader(self):
        charges = [CHARGE, CHARGE, Charge(**{**asdict(CHARGE), "client": "b"})]
        row = spent(charges, 1e-5)["client"]
        assert row["server"] == pytest.approx(exact(1 / math.sqrt(2), 1e-5), rel=1e-6)
        assert row["outsider"] == pytest.approx(exact(2 / math.sqrt(2), 1e-5), rel=1e-6)

    def test_noise_speaks_for_the_unit_that_it_was_scaled_to_and_no_other(self):
        node = Charge(**{**asdict(CHARGE), "unit": "node"})
        assert spent([CHARGE], 1e-5)["node"]["server"] == math.inf
        assert spent([node], 1e-5)["node"]["server"] == pytest.approx(exact(1.0, 1e-5), rel=1e-6)
        assert spent([CHARGE, node], 1e-5)["client"]["server"] == math.inf
        assert spent([], 1e-5)["client"]["server"] == 0.0

    def test_a_reader_that_no_multiplier_names_saw_everything(self):
        assert spent([Charge(**{**asdict(CHARGE), "multipliers": {"server": 1.0}})], 1e-5)["client"][
            "peers"
        ] == (math.inf)

    @pytest.mark.parametrize("delta", [0, 1, -1e-5, 2])
    def test_deltas(self, delta):
        with pytest.raises(BadInput, match="must lie between 0 and 1; 1e-5 is usual"):
            spent([], delta)

    def test_the_report_says_inf_in_words_and_names_the_strictest_reader(self):
        entry = report([CHARGE], 1e-5)
        assert entry["client"]["epsilon"] == 4.3772
        assert entry["client"]["against"] in ("server", "peers")
        assert entry["node"]["epsilon"] == entry["edge"]["epsilon"] == "inf"
        assert "update" in entry["node"]["reason"]
        central = Charge(**{**asdict(CHARGE), "multipliers": {"server": 0.0, "peers": 1.0, "outsider": 1.0}})
        entry = report([central], 1e-5)["client"]
        assert (entry["epsilon"], entry["against"]) == ("inf", "server")
        assert entry["readers"] == {"server": "inf", "peers": 4.3772, "outsider": 4.3772}
        assert report([], 1e-5)["client"]["epsilon"] == 0.0
        assert json.loads(json.dumps(entry)) == entry
        assert number(math.inf) == "inf"


class TestDisk:
    def test_a_line_a_charge(self, tmp_path):
        path = tmp_path / "deep" / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        Ledger(path).charge(CHARGE)
        assert len(path.read_text().splitlines()) == 2
        assert read_ledger(path) == [CHARGE, CHARGE]

    def test_no_file(self, tmp_path):
        with pytest.raises(BadInput, match="no ledger at"):
            read_ledger(tmp_path / "none")

    @pytest.mark.parametrize("cut", [1, 10, 60])
    def test_a_torn_last_line_counts_as_unprotected(self, tmp_path, cut):
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        Ledger(path).charge(CHARGE)
        path.write_bytes(path.read_bytes()[:-cut])
        charges = read_ledger(path)
        assert charges[0] == CHARGE
        assert charges[1].channel == "torn line"
        assert spent(charges, 1e-5)["client"]["server"] == math.inf

    def test_nothing_is_added_to_a_torn_file(self, tmp_path):
        # Added to the torn bytes, the next charge would turn a torn last line into a damaged middle one.
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(BadInput, match=r"ends in a torn line.*charge to another file"):
            Ledger(path)

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"{",
            b"\xff\xfe",
            b"[]",
            b"3",
            b'{"client": "a"}',
            b"[" * 100_000,
            json.dumps({**asdict(CHARGE), "extra": 1}).encode(),
            json.dumps({**asdict(CHARGE), "multipliers": None}).encode(),
            json.dumps({**asdict(CHARGE), "multipliers": ["server"]}).encode(),
            json.dumps({**asdict(CHARGE), "multipliers": {"server": "9"}}).encode(),
            json.dumps({**asdict(CHARGE), "client": 1}).encode(),
            json.dumps({**asdict(CHARGE), "round": "1"}).encode(),
        ],
    )
    def test_any_other_damage_is_refused(self, tmp_path, line):
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        good = path.read_bytes()
        path.write_bytes(good + line + b"\n" + good)
        with pytest.raises(BadInput, match="line 2 is damaged: a ledger is never repaired"):
            read_ledger(path)

    def test_synced_before_charge_returns(self, tmp_path, monkeypatch):
        path, synced = tmp_path / "ledger.jsonl", []

        def spy(descriptor: int) -> None:
            assert os.fstat(descriptor).st_ino == path.stat().st_ino
            synced.append(path.read_bytes())

        monkeypatch.setattr(module.os, "fsync", spy)
        Ledger(path).charge(CHARGE)
        assert synced == [(json.dumps(asdict(CHARGE)) + "\n").encode()]  # all of it was in the file by then

    def test_a_failing_disk_stops_the_reply(self, tmp_path, monkeypatch):
        made = session(local_dp(1.0, 1.0), ledger=Ledger(tmp_path / "ledger.jsonl"))

        def full(fd: int) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(module.os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            made.tell(made.message("owner-0"))

    def test_the_charge_is_on_disk_before_the_upload_is_sealed(self, tmp_path, monkeypatch):
        path = tmp_path / "ledger.jsonl"
        made = session(local_dp(1.0, 1.5), ledger=Ledger(path))

        def crash(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(type(made.policy["update"].carrier), "seal", crash)
        with pytest.raises(KeyboardInterrupt):
            made.tell(made.message("owner-0", exchange=9))
        (charge,) = read_ledger(path)
        assert (charge.client, charge.exchange, charge.channel) == ("owner-0", 9, "update")
        assert charge.multipliers == {"server": 1.5, "peers": 1.5, "outsider": 1.5}

    def test_many_writers(self, tmp_path):
        path = tmp_path / "ledger.jsonl"
        ledgers = [Ledger(path) for _ in range(4)]
        threads = [
            threading.Thread(target=lambda book=b: [book.charge(CHARGE) for _ in range(10)]) for b in ledgers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert read_ledger(path) == [CHARGE] * 40


def test_the_toy_session_charges_what_it_sends():
    made = session(local_dp(1.0, 1.0)).set_up()
    made.round().reduce(Toy.UPDATE)
    assert {c.client for c in made.ledger.charges} == set(made.clients)
