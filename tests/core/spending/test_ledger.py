"""The ledger: exact epsilons, and what is on disk at which moment."""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parties import Toy, session
from scipy.optimize import brentq
from scipy.stats import norm

from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.core.accounting.events import (
    DiscreteRelease,
    GaussianRelease,
    OccurringGaussian,
    PureRelease,
    SampledGaussian,
    SamplingError,
    VanishingGaussian,
)
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.spending.ledger import Charge, Ledger, read_ledger
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp, plaintext
from secure_fedgraph.privacy.spent import number, report, spent


def noise(**multipliers: float) -> dict[str, tuple[GaussianRelease, ...]]:
    """Continuous noise: the releases whose exact epsilon is known."""
    return {reader: (GaussianRelease(multiplier),) for reader, multiplier in multipliers.items()}


CHARGE = Charge("a", "run", 1, 3, "update", "client", "zero-out", noise(server=1.0, peers=1.0, outsider=2.0))


@pytest.mark.parametrize("wrong", [{"exchange": 1.5}, {"round": None}], ids=str)
def test_a_charge_that_could_not_be_read_again_is_not_written(wrong: Any, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(BadInput, match="nothing is charged"):
        ledger.charge(replace(CHARGE, **wrong))
    assert not (tmp_path / "ledger.jsonl").exists()


def epsilon(multipliers: list[float], delta: float) -> float:
    return accounting.epsilon([GaussianRelease(multiplier) for multiplier in multipliers], delta).epsilon


def exact(multiplier: float, delta: float) -> float:
    """Epsilon on the exact Gaussian curve (Balle and Wang 2018, theorem 8, sensitivity 1)."""

    def excess(eps: float) -> float:
        mu = 1 / multiplier
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta

    return float(brentq(excess, 0.0, 700.0))


class TestEpsilon:
    @pytest.mark.parametrize("multiplier", [0.5, 1.0, 3.0, 20.0])
    @pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
    def test_the_exact_curve(self, multiplier, delta):
        assert epsilon([multiplier], delta) == pytest.approx(exact(multiplier, delta), rel=1e-6)

    @pytest.mark.parametrize("times", [2, 5, 50])
    def test_releases_compose_by_the_root_of_their_number(self, times):
        assert epsilon([3.0] * times, 1e-5) == pytest.approx(exact(3.0 / math.sqrt(times), 1e-5), rel=1e-6)

    def test_nothing_released_and_nothing_protected(self):
        assert epsilon([], 1e-5) == 0.0
        assert epsilon([1.0, 0.0], 1e-5) == math.inf
        with pytest.raises(BadInput, match="'gaussian'"):
            GaussianRelease(math.nan)

    def test_little_noise_costs_no_time(self):
        # mu = 50 / 0.1: sqrt(50)/0.1 = 70.7, mu**2/2 = 2500 and 4.26 mu more
        assert epsilon([0.1] * 50, 1e-5) == pytest.approx(2800.6, abs=0.1)
        assert epsilon([1e-300], 1e-5) == math.inf


def at(charges: list[Charge], unit: str, reader: str = "server", **more: Any) -> float:
    return spent(charges, 1e-5, **more)[unit][reader].epsilon


class TestSpent:
    def test_the_worst_client_by_unit_and_reader(self):
        charges = [CHARGE, CHARGE, replace(CHARGE, client="b")]
        assert at(charges, "client") == pytest.approx(exact(1 / math.sqrt(2), 1e-5), rel=1e-6)
        assert at(charges, "client", "outsider") == pytest.approx(exact(2 / math.sqrt(2), 1e-5), rel=1e-6)
        assert spent(charges, 1e-5)["client"]["server"].accountant == "exact-gaussian"

    def test_noise_speaks_for_the_unit_that_it_was_scaled_to_and_no_larger_one(self):
        node, graph = replace(CHARGE, unit="node"), replace(CHARGE, unit="graph")
        assert at([node], "node") == pytest.approx(exact(1.0, 1e-5), rel=1e-6)
        assert at([node], "client") == at([CHARGE, node], "client") == at([graph], "client") == math.inf
        assert at([node], "edge") == math.inf  # a node's row is not all that an edge touches
        assert at([], "client") == 0.0

    @pytest.mark.parametrize("unit", ["node", "edge", "graph"])
    def test_a_clients_noise_speaks_for_what_is_in_its_data(self, unit):
        # u and u' lie within the clip C: up to 2 C apart. sigma = z C, so mu = 2 / z, the curve at z / 2
        of = {"units": ("client", "graph", "node", "edge")}
        z = 4.0
        charge = replace(CHARGE, releases=noise(server=z))
        assert at([charge], unit, **of) == pytest.approx(exact(z / 2, 1e-5), rel=1e-6)
        assert at([charge], "client", **of) == pytest.approx(exact(z, 1e-5), rel=1e-6)
        # sigma = z 2 C where the sensitivity was that of replacing already
        swapped = replace(charge, relation="replace")
        assert at([swapped], unit, **of) == pytest.approx(exact(z, 1e-5), rel=1e-6)

    @pytest.mark.parametrize("holders", [1, 2, 5])
    @pytest.mark.parametrize("relation", ["zero-out", "replace"])
    def test_where_several_clients_hold_a_node_all_their_uploads_move(self, holders, relation):
        z = 20.0
        charge = replace(CHARGE, releases=noise(server=z), relation=relation)
        apart = 2.0 if relation == "zero-out" else 1.0  # of one upload, in sensitivities
        found = {unit: at([charge], unit, holders=holders) for unit in ("client", "node", "edge")}
        # in a sum the ways add up; as single uploads they are that many releases, which is less
        in_a_sum = exact(z / (apart * holders), 1e-5)
        one_by_one = epsilon([z / apart] * holders, 1e-5)
        assert found["node"] == found["edge"] == pytest.approx(in_a_sum, rel=1e-6)
        assert found["node"] >= one_by_one * (1 - 1e-6)
        assert found["client"] == pytest.approx(exact(z, 1e-5), rel=1e-6)

    @pytest.mark.parametrize("smaller", ["graph", "node"])
    def test_where_several_clients_hold_a_graph_all_their_uploads_move(self, smaller):
        charge = replace(CHARGE, unit="graph", releases=noise(server=20.0))
        apart = 6.0 if smaller == "graph" else 12.0  # a node may turn each graph's part
        assert at([charge], smaller, holders=6, units=("graph", "node")) == pytest.approx(
            exact(20.0 / apart, 1e-5), rel=1e-6
        )
        assert report([charge], 1e-5, holders=6, units=("graph",))["graph"]["holders"] == 6

    def test_a_sampled_part_of_several_holders_costs_what_their_coins_make_of_it(self):
        step = SampledGaussian(2.0, 0.1, 100, "zero-out")
        charge = replace(CHARGE, unit="node", releases={"server": (step,)})
        alone, shared = (at([charge], "node", holders=h) for h in (1, 3))
        assert alone == pytest.approx(accounting.epsilon([step], 1e-5).epsilon)
        together = VanishingGaussian(2.0, 0.1, 100, 3, vanishing=True)
        assert shared >= accounting.epsilon([together], 1e-5).epsilon > alone
        assert shared >= accounting.epsilon([step] * 3, 1e-5).epsilon

    def test_a_node_of_a_sampled_graph_changes_its_part(self):
        step = SampledGaussian(2.0, 0.1, 100, "zero-out")
        charge = replace(CHARGE, unit="graph", releases={"server": (step,)})
        replaced = accounting.epsilon([replace(step, relation="replace")], 1e-5).epsilon
        assert at([charge], "node") == at([charge], "edge") == pytest.approx(replaced)
        assert at([charge], "node") > at([charge], "graph", units=("graph",))

    @pytest.mark.parametrize("relation", ["zero-out", "replace"])
    def test_a_frozen_table_changes_no_epsilon(self, relation):
        """The relation of mashes has a longer name; a node's noise is worth the same to its label."""
        charges = [
            replace(CHARGE, unit="node", relation=name)
            for name in (relation, f"{relation} on the frozen table")
        ]
        plain, frozen = (spent([one], 1e-5, units=("label",))["label"]["server"] for one in charges)
        assert plain.epsilon == frozen.epsilon < math.inf

    def test_one_channel_without_noise_is_enough(self):
        bare = replace(CHARGE, channel="feedback", releases={})
        for unit in ("client", "node", "edge"):
            assert at([CHARGE, CHARGE, bare], unit) == math.inf

    def test_a_reader_that_no_release_names_saw_everything(self):
        charge = replace(CHARGE, releases=noise(server=1.0))
        assert at([charge], "client", "peers") == at([charge], "node", "peers") == math.inf

    def test_what_else_a_release_holds_grows_with_the_way(self):
        """Pure epsilon grows with the way, and so does the sampler's distance; neither stays as it is."""
        charge = replace(CHARGE, releases={"server": (PureRelease(0.5),)})
        assert 0.4999 < at([charge], "client") <= 0.5
        assert 0.9999 < at([charge], "node") <= 1.0
        drawn = replace(CHARGE, releases={"server": (GaussianRelease(2.0), SamplingError(1e-9))})
        cost = dict(drawn.cost.releases)["server"]
        assert drawn.cost.at("node", "server", 3) == (
            GaussianRelease(2.0 / 6),
            SamplingError(6 * 1e-9),
        )
        assert drawn.cost.at("client", "server", 3) == cost
        stepped = replace(CHARGE, releases={"server": (OccurringGaussian(60.0, 0.1, 10, 3),)}).cost
        with pytest.raises(TypeError, match="no rule for"):
            stepped.at("node", "server", 1)

    def test_noisy_steps_hold_at_their_unit_against_every_reader(self):
        step = OccurringGaussian(noise_multiplier=60.0, rate=0.1, steps=10, occurrences=3)
        charge = replace(CHARGE, releases={}, steps={"node": (step,)})
        expected = accounting.epsilon([step, step], 1e-5).epsilon
        for reader in ("server", "peers", "outsider"):
            assert 0 < at([charge, charge], "node", reader) == expected < math.inf
            assert at([charge], "client", reader) == at([charge], "edge", reader) == math.inf

    def test_discrete_noise_costs_what_its_accountant_says(self):
        fine = DiscreteRelease(2.0, 3, sigma=4000.0, width=100, total_variation=1e-20)
        charge = replace(CHARGE, releases={"server": (fine,)})
        found = spent([charge] * 4, 1e-5)["client"]["server"]
        assert found == accounting.epsilon({fine: 4}, 1e-5)
        assert found.accountant == "exact-gaussian"
        assert exact(1.0, 1e-5) <= found.epsilon <= (1 + 1e-4) * exact(1.0, 1e-5)
        halved = accounting.epsilon({replace(fine, noise_multiplier=1.0): 4}, 1e-5)
        assert spent([charge] * 4, 1e-5)["node"]["server"] == halved
        assert exact(0.5, 1e-5) <= halved.epsilon <= 1.12 * exact(0.5, 1e-5)

    def test_the_report_names_the_strictest_reader_and_whom_it_counted_for(self):
        entry = report([CHARGE], 1e-5, holders=2)
        assert entry["client"]["epsilon"] == 4.3772
        assert entry["client"]["against"] in ("server", "peers")
        assert entry["client"]["accountant"] == "exact-gaussian"
        assert [entry[unit]["holders"] for unit in ("client", "node", "edge")] == [1, 2, 2]
        assert entry["node"]["epsilon"] == entry["edge"]["epsilon"] == number(exact(1 / 4, 1e-5))
        assert entry["node"]["readers"]["outsider"] == number(exact(2 / 4, 1e-5))
        assert {e["reason"] for e in entry.values()} == {""}
        assert report([], 1e-5)["client"]["epsilon"] == 0.0

    def test_the_report_says_inf_in_words_and_names_the_channel(self):
        central = replace(CHARGE, releases=noise(peers=1.0, outsider=1.0))
        entry = report([central], 1e-5)["client"]
        assert (entry["epsilon"], entry["against"]) == ("inf", "server")
        assert entry["readers"] == {"server": "inf", "peers": 4.3772, "outsider": 4.3772}
        assert json.loads(json.dumps(entry)) == entry
        assert number(math.inf) == "inf"
        bare = replace(CHARGE, channel="feedback", releases={})
        for unit, told in report([CHARGE, bare], 1e-5).items():
            assert told["epsilon"] == "inf", unit
            assert told["reason"] == "feedback: no noise protects this unit"

    def test_the_report_tells_too_little_noise_from_none(self):
        few = replace(CHARGE, releases=noise(**dict.fromkeys(("server", "peers", "outsider"), 1e-7)))
        assert report([CHARGE], 1e-5)["node"]["reason"] == ""
        entry = report([few], 1e-5)["node"]
        assert (entry["epsilon"], entry["accountant"]) == ("inf", "exact-gaussian")
        assert entry["reason"] == "update: the noise for this unit is too little for a finite epsilon"
        bare = replace(few, client="owner-9", channel="feedback", releases={})
        entry = report([few, bare], 1e-5)["node"]
        assert (entry["epsilon"], entry["accountant"]) == ("inf", "none")
        assert entry["reason"].split("; ") == [
            "feedback: no noise protects this unit",
            "update: the noise for this unit is too little for a finite epsilon",
        ]
        zero = replace(CHARGE, releases=noise(server=0.0, peers=0.0, outsider=0.0))
        assert report([zero], 1e-5)["node"]["reason"] == "update: no noise protects this unit"

    def test_where_all_channels_together_have_too_little_noise_those_with_noise_are_named(self):
        # mu is 9.1e5 for one and 1.3e6 for both: above 1e6 nothing is counted
        few = replace(CHARGE, releases=noise(**dict.fromkeys(("server", "peers", "outsider"), 1.1e-6)))
        entry = report([few, replace(few, channel="feedback")], 1e-5)["client"]
        assert entry["epsilon"] == "inf"
        assert entry["reason"].startswith("feedback, update: the noise for this unit is too little")

    def test_the_report_says_what_rests_on_the_masks(self):
        resting = replace(CHARGE, computational=True)
        assert report([CHARGE, resting], 1e-5)["client"]["computational"] is True
        assert report([CHARGE], 1e-5)["client"]["computational"] is False
        # nothing is left to rest on anything where one channel is bare
        assert report([resting, replace(CHARGE, releases={})], 1e-5)["client"]["computational"] is False

    def test_a_printed_epsilon_is_never_below_what_was_spent(self):
        for value in (1.23456, 0.00001, 7.0, 1 / 3):
            assert value <= number(value) < value + 1e-4


def line(**changes: Any) -> bytes:
    """A charge's line with other values."""
    return json.dumps({**json.loads(CHARGE.to_line()), **changes}).encode()


class TestDisk:
    @pytest.mark.parametrize(
        "charge",
        [
            CHARGE,
            replace(CHARGE, releases={}, steps={}, data="d" * 64, computational=True),
            replace(
                CHARGE,
                releases={"server": (DiscreteRelease(1.5, 7, sigma=4096.0, width=9, total_variation=1e-20),)},
                steps={"node": (OccurringGaussian(60.0, 0.1, 10, 3), GaussianRelease(2.0))},
            ),
        ],
    )
    def test_a_line_and_back(self, charge):
        text = charge.to_line()
        assert text.count("\n") == 1
        assert Charge.from_line(text) == charge
        assert Charge.from_line(text).cost == charge.cost

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
        assert charges[1].counts_for("any run") and not charges[0].counts_for("any run")
        assert at(charges, "client") == at(charges, "node") == math.inf

    def test_nothing_is_added_to_a_torn_file(self, tmp_path):
        # Added to the torn bytes, the next charge would turn a torn last line into a damaged middle one.
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(BadInput, match=r"ends in a torn line.*resume"):
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
            line(extra=1),
            line(releases=None),
            line(releases=["server"]),
            line(releases={"server": "9"}),
            line(releases={"server": [9.0]}),
            line(releases={"server": [{"kind": "gaussian", "multiplier": "9"}]}),
            line(releases={"server": [{"kind": "gaussian", "multiplier": -1}]}),
            line(releases={"server": [{"kind": "gaussian", "multiplier": 1e999}]}),
            line(releases={"server": [{"kind": "telepathy"}]}),
            line(steps={"node": [{"kind": "gaussian"}]}),
            line(client=1),
            line(round="1"),
            line(computational=1),
            line(data=None),
        ],
    )
    def test_any_other_damage_is_refused(self, tmp_path, line):
        path = tmp_path / "ledger.jsonl"
        Ledger(path).charge(CHARGE)
        good = path.read_bytes()
        path.write_bytes(good + line + b"\n" + good)
        with pytest.raises(BadInput, match=r"line 2 is damaged \(.+\): a ledger is never repaired"):
            read_ledger(path)

    def test_the_damaged_key_is_named(self, tmp_path):
        path = tmp_path / "ledger.jsonl"
        path.write_bytes(line(round="1") + b"\n")
        with pytest.raises(BadInput, match=r"line 1 is damaged \(round: "):
            read_ledger(path)

    def test_synced_before_charge_returns(self, tmp_path, monkeypatch):
        path, synced = tmp_path / "ledger.jsonl", []

        def spy(descriptor: int) -> None:
            places = {path.stat().st_ino: path.read_bytes(), tmp_path.stat().st_ino: b"its name"}
            if (place := os.fstat(descriptor).st_ino) in places:  # else the lock's
                synced.append(places[place])

        ledger = Ledger(path)
        monkeypatch.setattr(os, "fsync", spy)
        ledger.charge(CHARGE)
        # the new file's name, or a power cut takes all lines with it; and all of the line was in it by then
        assert synced == [b"its name", CHARGE.to_line().encode()]

    @pytest.mark.parametrize("opened", [Ledger, Ledger.go_on])
    def test_a_ledger_that_may_not_be_written_is_refused_by_name(self, tmp_path, monkeypatch, opened):
        path, real = tmp_path / "ledger.jsonl", os.open
        path.write_bytes(CHARGE.to_line().encode())

        def deny(name: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):  # as in a folder that is read-only
                raise PermissionError(13, "Permission denied", name)
            return real(name, flags, *rest, **more)

        monkeypatch.setattr(os, "open", deny)
        with pytest.raises(BadInput, match=r"ledger\.jsonl cannot be opened \(Permission denied\).*--ledger"):
            opened(path)

    def test_a_folder_in_a_ledgers_place_is_refused_and_nothing_is_made(self, tmp_path):
        (tmp_path / "ledger.jsonl").mkdir()
        with pytest.raises(BadInput, match=r"the ledger .*ledger\.jsonl is .* a folder"):
            Ledger(tmp_path / "ledger.jsonl")
        assert [one.name for one in tmp_path.iterdir()] == ["ledger.jsonl"]

    def test_a_failing_disk_stops_the_reply(self, tmp_path, monkeypatch):
        made = session(local_dp(1.0, 1.0), ledger=Ledger(tmp_path / "ledger.jsonl"))

        def full(fd: int) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(os, "fsync", full)
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
        found = {reader: events[0].noise_multiplier for reader, events in charge.releases.items()}
        assert found == dict.fromkeys(("server", "peers", "outsider"), 1.5)

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


@pytest.mark.parametrize(
    ("policy", "readers", "computational"),
    [
        (plaintext(), set(), False),
        (local_dp(1.0, 3.0), {"server", "peers", "outsider"}, False),
        (central_dp(1.0, 3.0), {"peers", "outsider"}, False),
        (distributed_dp(1.0, 3.0, quorum=3), {"server", "peers", "outsider"}, True),
    ],
)
def test_the_toy_session_charges_what_it_sends(policy, readers, computational):
    made = session(policy).set_up()
    made.round().reduce(Toy.UPDATE)
    assert {c.client for c in made.ledger.charges} == set(made.clients)
    bound = made.policy["update"]
    for charge in made.ledger.charges:
        assert charge.releases.keys() == readers
        assert charge.releases == bound.releases(5)  # as many values as the upload had
        assert charge.computational is computational
        for event, *_ in charge.releases.values():
            assert event.noise_multiplier == 3.0
    for reader in ("server", "peers", "outsider"):
        found = spent(made.ledger.charges, 1e-5)["client"][reader]
        if reader in readers:
            # by one party it is a continuous Gaussian, rounded; shares sum up to discrete ones
            most = 1.15 if computational else 1.000001
            assert exact(3.0, 1e-5) * (1 - 1e-9) <= found.epsilon < most * exact(3.0, 1e-5)
        else:
            assert found.epsilon == math.inf


class TestExchange:
    """One fsync for the charges of an exchange."""

    @pytest.fixture
    def synced(self, monkeypatch):
        synced: list[int] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if stat.S_ISREG(
                os.fstat(descriptor).st_mode
            ):  # a folder is synced once, where a file is new in it
                synced.append(descriptor)
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        return synced

    def test_one_fsync_and_every_line_at_once(self, tmp_path, synced):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        synced.clear()
        with ledger.exchange():
            for count in range(1, 6):
                ledger.charge(replace(CHARGE, client=f"c{count}"))
                assert len(read_ledger(tmp_path / "ledger.jsonl")) == count  # a kill here loses none of them
            assert not synced
        assert len(synced) == 1
        ledger.charge(CHARGE)
        assert len(synced) == 2

    def test_an_exchange_without_charges_syncs_nothing(self, tmp_path, synced):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        synced.clear()
        with ledger.exchange():
            pass
        assert not synced

    def test_charges_are_synced_where_an_answer_fails_after_them(self, tmp_path, synced):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        synced.clear()
        with suppress(RuntimeError), ledger.exchange():
            ledger.charge(CHARGE)
            raise RuntimeError
        assert len(synced) == 1

    def test_another_threads_charge_is_on_disk_when_it_returns(self, tmp_path, synced):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        synced.clear()
        with ledger.exchange():
            other = threading.Thread(target=ledger.charge, args=(CHARGE,))
            other.start()
            other.join()
            assert len(synced) == 1

    def test_the_end_of_one_threads_exchange_leaves_anothers_charges_to_its_own(self, tmp_path, synced):
        ledger, charged, ended = Ledger(tmp_path / "ledger.jsonl"), threading.Event(), threading.Event()

        def other() -> None:
            with ledger.exchange():
                ledger.charge(replace(CHARGE, client="other"))
                charged.set()
                assert ended.wait(10)
                synced.clear()

        thread = threading.Thread(target=other)
        with ledger.exchange():
            ledger.charge(CHARGE)
            thread.start()
            assert charged.wait(10)
        ended.set()
        thread.join()
        assert len(synced) == 1

    def test_after_a_disk_that_failed_nothing_is_asked_or_charged_any_more(self, tmp_path, monkeypatch):
        ledger, real = Ledger(tmp_path / "ledger.jsonl"), os.fsync
        exchange = ledger.exchange()
        exchange.__enter__()
        ledger.charge(CHARGE)
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("no space")))
            with pytest.raises(OSError, match="no space"):
                exchange.__exit__(None, None, None)
        assert os.fsync is real
        with pytest.raises(
            OSError, match="may be missing"
        ):  # before a client that remembers its reply is asked
            ledger.exchange().__enter__()
        with pytest.raises(OSError, match="may be missing"):
            ledger.charge(replace(CHARGE, exchange=9))

    def test_a_checkpoint_notes_no_line_that_another_run_has_not_put_on_disk(self, tmp_path, synced):
        first, second = (Ledger(tmp_path / "ledger.jsonl") for _ in range(2))
        with first.exchange():
            first.charge(CHARGE)
            synced.clear()
            noted = second.mark()
            assert len(synced) == 1
        assert noted["bytes"] == (tmp_path / "ledger.jsonl").stat().st_size


class TestRelations:
    """An epsilon is about one neighbouring relation: costs under two are never added up."""

    other = replace(CHARGE, exchange=4, relation="replace")

    def test_a_charge_under_another_is_refused_and_not_written(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        ledger.charge(CHARGE)
        with pytest.raises(BadInput, match="--relation zero-out"):
            ledger.charge(self.other)
        assert len(read_ledger(tmp_path / "ledger.jsonl")) == 1
        for again in (ledger, Ledger(tmp_path / "ledger.jsonl")):
            with pytest.raises(BadInput, match="give another --ledger"):
                again.check_relation("replace")
            again.check_relation("zero-out")

    def test_what_left_without_noise_costs_the_same_under_each(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        ledger.charge(replace(CHARGE, releases={}))
        ledger.charge(self.other)
        assert spent(read_ledger(ledger.path), 1e-5)["client"]["server"].epsilon == math.inf

    def test_a_file_that_mixes_them_has_no_figure(self, tmp_path):
        path = tmp_path / "ledger.jsonl"
        path.write_text(CHARGE.to_line() + self.other.to_line())
        with pytest.raises(BadInput, match="relation"):
            Ledger(path)
        with pytest.raises(BadInput, match="replace and zero-out stand together"):
            spent(read_ledger(path), 1e-5)
