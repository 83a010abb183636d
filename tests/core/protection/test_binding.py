"""Binding, sealing and opening: the domains, the sensitivities, the sentences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from parties import NAMES, scope

from secure_fedgraph.core.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.sealed import Sealed
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Incompatible, Refused, Unbound
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.contracts import checked_array
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.upload import Layout, Upload

SUM = Channel("update", Reveal.SUM)
EACH = Channel("egos", Reveal.EACH, Unit.NODE)


def no_ask(step, given):
    raise AssertionError("nothing is asked")


class TestBinding:
    @pytest.mark.parametrize("carrier", [Masked(), Homomorphic()])
    def test_a_sum_does_not_serve_each(self, carrier):
        protection = Protection(carrier, (FixedPoint(8.0),), 2, "masked")
        with pytest.raises(Incompatible, match=r"'egos'.*local_dp"):
            protection.bind(EACH, NAMES)

    def test_too_few_clients(self):
        protection = Protection(Masked(), (FixedPoint(8.0),), 3, "masked")
        with pytest.raises(Refused, match=r"masked needs at least 3 \w+ and there are 2"):
            protection.bind(SUM, NAMES[:2])
        with pytest.raises(Refused, match=r"masked needs at least 3 \w+ and there is 1"):
            protection.bind(SUM, NAMES[:1])

    @pytest.mark.parametrize("carrier", [Masked(), Homomorphic()])
    def test_a_quorum_of_one_is_no_sum(self, carrier):
        with pytest.raises(BadInput, match="quorum 1 of masked: a sum of one upload is that upload"):
            Protection(carrier, (FixedPoint(8.0),), name="masked").bind(SUM, NAMES)

    @pytest.mark.parametrize(
        ("carrier", "stages", "sentence"),
        [
            (Masked(), (), "carrier 'masked' takes ring numbers and gets real ones: add a FixedPoint stage"),
            (Masked(), (FixedPoint(8.0), Clip(1.0)), "Clip takes real numbers and gets ring ones"),
            (
                Masked(),
                (FixedPoint(8.0), FixedPoint(8.0)),
                "FixedPoint takes real numbers and gets ring ones",
            ),
            (Plain(), (FixedPoint(8.0),), "FixedPoint needs a carrier that adds in a ring"),
        ],
    )
    def test_domains(self, carrier, stages, sentence):
        with pytest.raises(Incompatible, match=sentence):
            Protection(carrier, stages, 2).bind(SUM, NAMES)

    def test_noise_needs_a_bound(self):
        with pytest.raises(Unbound):
            Protection(Plain(), (Gaussian(1.0), Clip(1.0))).bind(SUM, NAMES)

    @pytest.mark.parametrize(("relation", "scale"), [("zero-out", 1.0), ("replace", 2.0)])
    def test_the_sensitivity_is_handed_on(self, relation, scale):
        bound = Protection(Plain(), (Clip(0.5), Gaussian(2.0))).bind(SUM, NAMES, relation)
        assert bound.stages[1].sigma * bound.stages[1].step == pytest.approx(scale, rel=1e-9)

    def test_noise_protects_nobodys_presence(self):
        """Who uploads is visible, and a client that is gone takes its share of the noise along."""
        with pytest.raises(Refused, match="add-remove"):
            Protection(Plain(), (Clip(0.5), Gaussian(2.0))).bind(SUM, NAMES, "add-remove")
        assert Protection(Plain(), (Clip(0.5),)).bind(SUM, NAMES, "add-remove").releases() == {}


READERS = ("server", "peers", "outsider")


def multipliers(bound, width: int = 4) -> dict[str, float]:
    """The one noise that each reader saw an upload with; 0 where it saw it bare."""
    found = {
        reader: [e.noise_multiplier for e in events if hasattr(e, "noise_multiplier")]
        for reader, events in bound.releases(width).items()
    }
    assert all(len(of) == 1 for of in found.values())
    return {reader: found.get(reader, [0])[0] for reader in READERS}


class TestReleases:
    def bound(self, *stages, channel=SUM, carrier=None, quorum=1):
        return Protection(carrier or Plain(), stages, quorum).bind(channel, NAMES)

    def test_by_reader(self):
        about = pytest.approx(1.5, rel=0.01)
        bare = self.bound()
        assert (bare.releases(), multipliers(bare)) == ({}, dict.fromkeys(READERS, 0))
        assert multipliers(self.bound(Clip(1))) == dict.fromkeys(READERS, 0)  # a clip alone is no noise
        assert multipliers(self.bound(Clip(1), Gaussian(1.5))) == dict.fromkeys(READERS, about)
        by_server = multipliers(self.bound(Clip(1), Gaussian(1.5, by="server")))
        assert by_server == {"server": 0, "peers": about, "outsider": about}
        shares = self.bound(Clip(1), Gaussian(1.5, by="shares"), carrier=Masked(), quorum=3)
        assert multipliers(shares) == dict.fromkeys(READERS, about)

    @pytest.mark.parametrize("reveal", [Reveal.EACH, Reveal.SUM])
    def test_a_peer_is_never_left_to_add_the_noise(self, reveal):
        offer = Channel("offer", reveal, to="peer")
        with pytest.raises(Incompatible, match="'offer'"):
            self.bound(Clip(1), Gaussian(4, by="server"), channel=offer, carrier=Sealed(Plain()))

    def test_only_noise_in_shares_rests_on_the_carrier(self):
        shares = self.bound(Clip(1), Gaussian(1.5, by="shares"), carrier=Masked(), quorum=3)
        assert shares.computational
        assert not self.bound(Clip(1), Gaussian(1.5)).computational
        assert not self.bound().computational

    def test_the_event_is_of_an_upload_of_that_many_values(self):
        bound = self.bound(Clip(1), Gaussian(1.5))
        few, many = (bound.releases(width)["server"] for width in (1, 1000))
        assert few[0].noise_multiplier == many[0].noise_multiplier
        assert many[-1].total_variation == pytest.approx(1000 * few[-1].total_variation, rel=1e-9)
        assert few[-1].total_variation > 0

    @pytest.mark.parametrize("unit", [Unit.NODE, Unit.EDGE, Unit.GRAPH])
    def test_rows_recur_so_a_clip_of_each_speaks_for_nobody(self, unit):
        channel = Channel("egos", Reveal.SUM, unit)
        bound = self.bound(Clip(1), Gaussian(1.0), channel=channel)
        assert bound.releases() == {}
        assert bound.unit is unit

    @pytest.mark.parametrize("unit", [Unit.NODE, Unit.EDGE, Unit.GRAPH])
    def test_a_clip_of_the_whole_speaks_for_the_client(self, unit):
        channel = Channel("egos", Reveal.SUM, unit)
        bound = self.bound(Clip(1, whole=True), Gaussian(1.0), channel=channel)
        assert bound.unit is Unit.CLIENT
        assert multipliers(bound) == dict.fromkeys(READERS, pytest.approx(1.0, rel=0.01))
        # that is so since no upload, whatever its rows, is longer than the clip
        rows = Upload({"w": torch.randn(50, 8) * 100})
        matrix = rows.packed(unit)[1]
        clipped, each = (c.apply(matrix, scope()) for c in (Clip(1, whole=True), Clip(1)))
        assert 0.99 < np.linalg.norm(clipped.astype(np.float64)) <= 1.0
        assert np.linalg.norm(each.astype(np.float64)) > 7  # each row clipped: 50 of them together

    def test_masks_and_rounding_behind_it_take_nothing_from_noise(self):
        bound = self.bound(Clip(1), Gaussian(1.5), FixedPoint(8.0), carrier=Masked(), quorum=2)
        assert multipliers(bound) == dict.fromkeys(READERS, pytest.approx(1.5, rel=0.01))

    def test_rounding_before_it_is_no_bound(self):
        with pytest.raises(Incompatible, match="Gaussian takes real numbers and gets ring ones"):
            self.bound(Clip(1), FixedPoint(8.0), Gaussian(1.0), carrier=Masked(), quorum=2)


class TestQuorum:
    @pytest.mark.parametrize(
        ("share", "clients", "least"), [(0.8, 10, 8), (0.8, 11, 9), (0.5, 3, 2), (0.1, 5, 2), (0.99, 3, 3)]
    )
    def test_below_one_it_is_a_share_of_the_clients(self, share, clients, least):
        protection = Protection(Masked(), (FixedPoint(8.0),), share, "masked")
        bound = protection.bind(SUM, tuple(f"c{i}" for i in range(clients)))
        assert bound.protection.quorum == bound.bind_context.quorum == bound.carrier.quorum == least

    def test_a_peer_that_reads_a_sum_does_not_contribute(self):
        protection = Protection(Pairwise(), (FixedPoint(8.0),), 0.8, "masked")
        names = tuple(f"c{i}" for i in range(11))
        assert protection.bind(Channel("feedback", Reveal.SUM, to="peer"), names).bind_context.quorum == 8
        assert protection.bind(SUM, names).bind_context.quorum == 9

    def test_a_share_of_one_client_is_still_two(self):
        with pytest.raises(Refused, match=r"masked needs at least 2 \w+ and there is 1"):
            Protection(Masked(), (FixedPoint(8.0),), 0.8, "masked").bind(SUM, NAMES[:1])


class TestOpening:
    bound = Protection(Plain()).bind(SUM, NAMES)

    def replies(self):
        uploads = {n: Upload({"w": torch.full((2,), float(i))}) for i, n in enumerate(NAMES)}
        return {n: self.bound.seal(u, scope(), None) for n, u in uploads.items()}

    def test_the_sum_and_its_mean(self):
        opened = self.bound.open_sum(self.replies(), scope(), no_ask)
        assert opened.total["w"].tolist() == [3.0, 3.0]
        assert opened.total["w"].dtype == torch.float64
        assert opened.mean["w"].tolist() == [1.0, 1.0]
        assert opened.mean["w"].dtype == torch.float32
        assert opened.contributors == NAMES

    def test_each(self):
        bound = Protection(Plain()).bind(Channel("single", Reveal.EACH), NAMES)
        opened = bound.open_each(self.replies(), scope())
        assert [opened[n]["w"].tolist() for n in NAMES] == [[0, 0], [1, 1], [2, 2]]
        broken = {**self.replies(), "owner-2": {**self.replies()["owner-2"], "data": np.zeros(3, "<f4")}}
        with pytest.raises(HostileMessage, match="owner-2's upload does not hold 1 x 2 values of float32"):
            bound.open_each(broken, scope())

    @pytest.mark.parametrize("liar", NAMES)
    def test_who_has_another_layout(self, liar):
        replies = self.replies()
        replies[liar]["layout"] = "1\nv:2"
        with pytest.raises(HostileMessage, match=f"channel 'update': {liar}'s upload has another layout"):
            self.bound.open_sum(replies, scope(), no_ask)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"domain": "ring"}, "owner-1 sent 'ring' numbers, the policy promises real"),
            ({"domain": 3}, "owner-1 sent '3' numbers"),
            ({"domain": None}, "owner-1 sent 'None' numbers"),
            ({"data": None}, "owner-1 sent 'real' numbers, the policy promises real"),
            ({"layout": None}, "owner-1's upload has no layout"),
            ({"layout": 1}, "owner-1's upload has no layout"),
            ({"data": np.zeros(2, "<f8")}, "owner-1's upload does not hold 1 x 2 values of float32"),
            ({"data": np.zeros(1, "<f4")}, "owner-1's upload does not hold 1 x 2 values"),
            ({"data": b"12345678"}, "owner-1's upload does not hold 1 x 2 values"),
            ({"data": np.array([0, np.nan], "<f4")}, "owner-1's upload holds NaN or infinity"),
            ({"data": np.array([0, -np.inf], "<f4")}, "owner-1's upload holds NaN or infinity"),
        ],
    )
    def test_what_no_honest_client_sends(self, change, sentence):
        replies = self.replies()
        replies["owner-1"] = {k: v for k, v in {**replies["owner-1"], **change}.items() if v is not None}
        with pytest.raises(HostileMessage, match=sentence):
            self.bound.open_sum(replies, scope(), no_ask)

    @pytest.mark.parametrize("carrier", [Plain(), Pairwise()])
    def test_a_promise_of_many_values_allocates_nothing(self, carrier):
        layout = Layout((("w", (2**20,)),), 2**20)  # four terabytes
        with pytest.raises(HostileMessage, match="does not hold"):
            carrier.open_sum(dict.fromkeys(NAMES, np.zeros(1, "<f4")), layout, scope(), no_ask)

    def test_a_carrier_of_sums_opens_no_upload(self):
        with pytest.raises(Incompatible, match="'masked'"):
            Masked().open_each(np.zeros(1), Layout((("w", (1,)),)), "a")


def test_checked_array_is_shaped_by_the_layout():
    layout = Layout((("w", (2,)),), 3)
    assert checked_array(np.zeros(6, "<f4"), np.dtype("<f4"), layout, "a").shape == (3, 2)


class Counts(Clip):
    """A stage of somebody else's that counts what it gets in a word of its own."""

    tallies = 1
    limit = 1.0

    def tally(self, matrix: np.ndarray) -> np.ndarray:
        return np.array([int(matrix.sum() > 0)], dtype=np.int32)


class TestWhatLeavesBesideTheNoise:
    """Words and facts of a stage, which no noise covers."""

    def test_a_word_of_what_came_before_the_noise_is_refused(self):
        with pytest.raises(Incompatible, match=r"'update': Counts counts .* after the noise"):
            Protection(Plain(), (Counts(1.0), Gaussian(4.0)), 1, "own").bind(SUM, NAMES)
        after = Protection(Masked(), (Clip(1.0), Gaussian(4.0), FixedPoint(8.0)), 2, "own").bind(SUM, NAMES)
        assert after.tallies == 1 and after.releases()

    def test_public_facts_are_asked_for_before_there_are_data(self):
        class Remembers(Clip):
            seen = 0.0

            def apply(self, matrix, scope):
                type(self).seen = float(matrix.max())
                return super().apply(matrix, scope)

            def public(self):
                return {"seen": self.seen}

        bound = Protection(Plain(), (Remembers(1.0), Gaussian(4.0)), 1, "own").bind(SUM, NAMES)
        bound.stages[0].apply(np.full((1, 2), 5.0), scope())
        assert bound.stages[0].public() == {"seen": 5.0} and bound.public["seen"] == 0.0
