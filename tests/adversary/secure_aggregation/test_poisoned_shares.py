"""Shares that are none, of other secrets, or spoilt for one holder: who is blamed, and does a sum survive."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parties import session
from test_secure_aggregation import CHANNEL, LAYOUT, Server

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg import client, shamir, unmasking
from secure_fedgraph.core.carriers.secagg.ring_words import accumulate, centred
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.carriers.secagg.shamir import PRIME, decoded, split
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.policies import masked

TWELVE = tuple(f"c{i:02d}" for i in range(12))
POISONER = "c04"


def summed(names: tuple[str, ...], ask_of: Callable[[Server], Any], colluders: float = 0.0) -> bool:
    """Whether the sum is that of all uploads, once it is opened."""
    server = Server(
        names=names, carrier=Masked(colluders=colluders).bind(BindContext(CHANNEL, names, "zero-out"))
    )
    server.take_uploads()
    total = server.prepared.open_sum(server.words, LAYOUT, server.place, ask_of(server))
    return np.array_equal(total, sum(server.uploads.values()))


class TestHoldersThatLie:
    """They reveal another share than they hold, to have the sum refused and its owner blamed."""

    def opened(self, liars: tuple[str, ...]) -> bool:
        def asking(server: Server) -> Any:
            def ask(step: str, given: Any) -> Any:
                replies = server.ask(step, given)
                for liar in liars if step == "unmask" else ():
                    replies[liar] = {"shares": replies[liar]["shares"] ^ np.uint8(1)}
                return replies

            return ask

        return summed(TWELVE, asking)

    @pytest.mark.parametrize("liars", [("c00",), ("c11",), ("c00", "c01"), ("c00", "c06"), ("c05", "c11")])
    def test_the_sum_survives_them_wherever_they_stand(self, liars: tuple[str, ...]) -> None:
        assert self.opened(liars)

    def test_without_decoding_one_whose_name_comes_first_ends_every_sum(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shamir, "decoded", lambda *_: None)
        with pytest.raises(HostileMessage, match="do not give what c00 advertised"):
            self.opened(("c00",))

    @pytest.mark.parametrize(("holders", "threshold"), [(6, 4), (12, 7), (19, 12), (51, 31)])
    def test_half_of_the_spare_shares_may_be_wrong(self, holders: int, threshold: int) -> None:
        shares = {p: v[0] for p, v in split((7,), threshold, range(1, holders + 1)).items()}
        for wrong in range((holders - threshold) // 2 + 1):
            for places in itertools.islice(itertools.combinations(shares, wrong), 10):
                spoilt = shares | {place: (shares[place] + place) % PRIME for place in places}
                assert decoded(spoilt, threshold) == 7

    def test_one_more_gives_no_other_secret(self) -> None:
        shares = {p: v[0] for p, v in split((7,), 7, range(1, 13)).items()}
        assert decoded(shares | {p: (shares[p] + p) % PRIME for p in (1, 5, 9)}, 7) is None


class TestDealersThatLie:
    """One client deals shares that give nothing back: seen after the uploads, too late to leave it out."""

    def dealt(self, spoil: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> bool:
        real = client.seal

        def sealing(key: bytes, text: bytes, where: bytes) -> bytes:
            return real(key, spoil(text) if dealing == [POISONER] else text, where)

        dealing: list[str] = []
        share = client.share

        def sharing(given: Any, scope: Any, party: Any, requirements: Any) -> Any:
            dealing[:] = [party.name]
            return share(given, scope, party, requirements)

        monkeypatch.setattr(client, "seal", sealing)
        monkeypatch.setattr(client, "share", sharing)
        return summed(TWELVE, lambda server: server.ask)

    def test_other_secrets_name_who_dealt_them_and_open_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(HostileMessage, match=f"do not give what {POISONER} advertised"):
            self.dealt(lambda text: bytes(64), monkeypatch)

    def test_no_numbers_of_the_field_name_who_dealt_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They would be counted against every honest client that hands on what it was dealt."""
        with pytest.raises(
            Refused, match=f"only [01] of 12 clients of those that hold shares of {POISONER}'s"
        ):
            self.dealt(lambda text: b"\xff" * 64, monkeypatch)

    def test_counted_against_those_that_hold_them_nobody_would_be_left(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def as_it_was(dealt: Any, holder: str, tree: Any, channel: str) -> None:
            if not all(shamir.are_shares(tree["shares"])):
                raise HostileMessage(f"channel {channel!r}: {holder} revealed something that is no shares")

        monkeypatch.setattr(unmasking.SumSession, "check_shares", as_it_was)
        with pytest.raises(HostileMessage, match=r"c0[0-35-9] revealed something that is no shares"):
            self.dealt(lambda text: b"\xff" * 64, monkeypatch)

    def test_a_few_spoilt_for_some_are_put_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        count = itertools.count()
        assert self.dealt(lambda text: bytes(64) if next(count) < 2 else text, monkeypatch)


class TestSelectiveFailure:
    """The courier spoils one client's shares and watches whether that one goes on."""

    def refusal(self, value: float) -> str:
        made = session(masked(), names=tuple(f"owner-{i}" for i in range(4))).set_up()
        made.clients["owner-0"].memory["w"] = made.clients["owner-0"].memory["w"] * value
        part = dict(made.prepared().carrier.upload_requests(tuple(made.clients))["owner-0"])
        part[client.SHARES] = part[client.SHARES].copy()
        part[client.SHARES][1, 7] ^= 1
        with pytest.raises(HostileMessage, match="does not open as its shares") as found:
            made.tell(made.message("owner-0", body=wire.encode(part)))
        assert not made.ledger.charges  # before anything was computed or charged
        return str(found.value)

    def test_whether_it_goes_on_says_nothing_of_its_data(self) -> None:
        assert len({self.refusal(value) for value in (0.0, 1.0, 7.0)}) == 1


class TestWhatIsOpenedOfARefusedSum:
    """The server holds all masked words and all revealed shares when it finds that one dealer lied."""

    def test_one_unknown_mask_is_still_on_it(self) -> None:
        server = Server(
            names=TWELVE, carrier=Masked(colluders=0.0).bind(BindContext(CHANNEL, TWELVE, "zero-out"))
        )
        server.take_uploads()
        revealed = server.unmask(server.sign(TWELVE))
        minus = [
            unmasking.advertisements.own_key(server.seed(name, revealed), server.bound_to)
            for name in TWELVE
            if name != POISONER
        ]
        words = np.sum([server.words[name] for name in TWELVE], axis=0, dtype="<u4")
        accumulate(words, minus=minus)
        left = centred(words, 32) - sum(server.uploads.values()).reshape(-1)
        assert np.abs(left.astype(np.int64)).max() > 2**20
