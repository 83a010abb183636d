"""Masks with some neighbours only: a server that asks until the circle suits it, and clients that copy keys.

What it wants is what no setting allows it: one upload by itself, or a sum of fewer than it was promised.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from test_secure_aggregation import CHANNEL, Server

from secure_fedgraph.core.carriers.secagg import advertisements, neighbours
from secure_fedgraph.core.carriers.secagg import client as masking_session
from secure_fedgraph.core.carriers.secagg import server as masking
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements
from secure_fedgraph.core.carriers.secagg.neighbours import SumThresholds, around, circle, thresholds
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.crypto import AgreementKey
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import BindContext

FORTY = tuple(f"n{i:02d}" for i in range(40))
PAID = FORTY[3::10]
"""One in ten, as the setting allows; evenly placed by name."""
TRIES = 60
Graph = dict[str, tuple[str, ...]]


def carrier(names: tuple[str, ...]) -> Masked:
    """One in ten may collude, and nobody drops out."""
    return Masked(dropouts=0.0).bind(BindContext(CHANNEL, names, "zero-out"))


class Grinding(Server):
    """A server that has everybody advertise again until the circle suits it.

    Args:
        suits: the neighbours -> the client whom they let it read, or None.
    """

    def __init__(self, suits: Callable[[Graph], str | None], names: tuple[str, ...], **other: Any) -> None:
        super().__init__(names=names, **other)
        self.suits, self.victim = suits, ""

    def ask(self, step: str, given: dict[str, Any]) -> dict[str, Any]:
        if step != "advertise":
            return super().ask(step, given)
        for _ in range(TRIES):
            adverts = super().ask(step, given)
            if self.suited(adverts):
                return adverts
        raise Refused("no circle suits the server")

    def suited(self, adverts: dict[str, Any]) -> bool:
        count, settings = len(self.names), self.carrier
        degree = masking.thresholds(count, count, settings.colluders, settings.dropouts).degree
        advertised = KeyAdvertisements(self.names, *(stacked(adverts, key) for key in advertisements.FIELDS))
        self.victim = self.suits(around(circle(advertised.names, advertised.digest), degree)) or ""
        return bool(self.victim)

    def read(self) -> bool:
        """Whether the victim's upload is open, once everybody has helped with the sum of all."""
        revealed = self.unmask(self.sign(self.names))
        plus, minus = [], [advertisements.own_key(self.seed(self.victim, revealed), self.bound_to)]
        info = advertisements.pair_info(self.bound_to)
        for other in set(self.session.neighbours[self.victim]) & set(self.secrets):
            key = self.secrets[other].key
            if isinstance(key, AgreementKey):  # a copied one cancels by itself
                pair = key.shared_with(self.session.advertised.row(self.victim, "public"), info)
                (minus if self.victim < other else plus).append(pair)
        return bool(self.reads(self.strip(self.victim, plus, minus), self.victim))


def stacked(adverts: dict[str, Any], key: str) -> np.ndarray:
    return np.stack([adverts[name][key] for name in sorted(adverts)])


class TestSurrounded:
    """Everybody is asked again and again, until somebody's neighbours are all in the server's pay.

    Where nobody may drop out, all of a client's neighbours have to be there, and two would do for that.
    """

    def read(self) -> bool:
        def all_paid(graph: Graph) -> str | None:
            return next((n for n, near in graph.items() if n not in PAID and set(near) <= set(PAID)), None)

        server = Grinding(all_paid, FORTY, carrier=carrier(FORTY), pays=PAID)
        return server.take_uploads().read()

    def test_nobody_is(self) -> None:
        with pytest.raises(Refused, match="no circle suits the server"):
            self.read()

    def test_two_neighbours_are_soon_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (masking, masking_session):
            monkeypatch.setattr(module, "thresholds", lambda *_: SumThresholds(23, 3, 2))
        assert self.read()

    @pytest.mark.parametrize("dropouts", [0.0, 0.02, 0.2])
    @pytest.mark.parametrize("colluders", [0.0, 0.1, 0.3, 0.6])
    @pytest.mark.parametrize("count", [33, 40, 200])
    def test_a_client_that_helps_has_an_honest_neighbour(
        self, count: int, colluders: float, dropouts: float
    ) -> None:
        made, bad = thresholds(count, count, colluders, dropouts), math.floor(colluders * count + 1e-9)
        needed = min(made.shares - 1, 2 * made.shares - made.degree - 1)
        others = math.comb(count - 1, made.degree)
        hit = sum(
            math.comb(bad, k) * math.comb(count - 1 - bad, made.degree - k)
            for k in range(needed, min(bad, made.degree) + 1)
        )
        assert needed > 0
        if made.degree < count - 1:
            assert hit * count << (neighbours.SECURITY + neighbours.GRINDING) <= others


class Copying(Grinding):
    """Paid clients with low names copy keys of honest ones with high names; one signs until it suits."""

    COPIES: ClassVar[dict[str, str]] = {"n00": "n30", "n01": "n31", "n02": "n32"}
    TRIES = 40_000

    def ask(self, step: str, given: dict[str, Any]) -> dict[str, Any]:
        if step != "advertise":
            return Server.ask(self, step, given)
        adverts = Server.ask(self, step, given)
        for paid, honest in self.COPIES.items():
            session = self.parties[paid].secrets["masked/session"]
            copied = bytes(adverts[honest]["public"])
            session.key = SimpleNamespace(public=copied, shared_with=lambda *_: os.urandom(32))
            adverts[paid] = self.signed(paid, copied, bytes(adverts[paid]["commitment"]))
        for _ in range(self.TRIES):
            if self.suited(adverts):
                return adverts
            adverts["n00"] = self.signed("n00", bytes(adverts["n00"]["public"]), os.urandom(32))
        raise Refused("no circle suits the server")

    def signed(self, name: str, public: bytes, committed: bytes) -> dict[str, Any]:
        party = self.parties[name]
        place = party.secrets["masked/session"].scope
        row = party.identity.sign(advertisements.statement(place, name, public, committed))
        fields = {"public": public, "commitment": committed, "signature": row}
        return {key: np.frombuffer(value, "u1") for key, value in fields.items()}


class TestCopiedKeys:
    """A paid client advertises an honest one's key as its own, signed by itself.

    Whoever has both for neighbours, one before it and one behind it by name, adds a key stream and subtracts
    the same one: it masks with neither. So each paid neighbour would take an honest one away, and a circle in
    which half of a client's neighbours are paid is found a thousand times sooner than one where all are.
    """

    def read(self) -> bool:
        def halved(graph: Graph) -> str | None:
            # a client that sees its own key in a neighbour's place would refuse, whoever is read
            if any(honest in graph[paid] for paid, honest in Copying.COPIES.items()):
                return None
            for name, near in graph.items():
                copied = {Copying.COPIES[paid] for paid in near if paid in Copying.COPIES}
                honest = set(near) - set(Copying.COPIES)
                if "n03" <= name <= "n29" and honest == copied:
                    return name
            return None

        server = Copying(halved, FORTY[:33], carrier=carrier(FORTY[:33]), pays=tuple(Copying.COPIES))
        return server.take_uploads().read()

    def test_copies_are_seen(self) -> None:
        with pytest.raises(HostileMessage, match="the same key as"):
            self.read()  # the server's own half looks, too

    def test_clients_look_for_themselves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(advertisements, "check_not_copied", lambda *_: None)
        with pytest.raises(HostileMessage, match="one key twice"):
            self.read()

    def test_if_nobody_looked_a_copy_would_take_each_mask_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(advertisements, "check_not_copied", lambda *_: None)
        monkeypatch.setattr(advertisements, "check_no_copies", lambda *_: None)
        assert self.read()

    def test_a_deck_with_a_key_twice_is_refused(self) -> None:
        server = Server(names=FORTY, carrier=carrier(FORTY), pays=PAID)
        adverts = server.ask("advertise", {name: {} for name in FORTY})
        adverts[PAID[0]] = {**adverts[PAID[0]], "public": adverts["n05"]["public"]}
        with pytest.raises(HostileMessage, match="one key twice"):
            server.ask("share", {"n07": deck_of(adverts)})

    def test_a_server_by_the_book_goes_on_without_both(self) -> None:
        """Nobody can tell whose it is, and no client sees another's in time if the server shows none."""
        server = Server(names=FORTY, carrier=carrier(FORTY))
        real, left = server.ask, []

        class Ask(masking.TolerantAsk):
            def __init__(self) -> None:
                super().__init__(lambda *_: None, lambda *_: None, list, {})  # type: ignore[arg-type,return-value]

            def __call__(self, step: str, given: Any) -> Any:
                found = real(step, given)
                if step == "advertise":
                    found["n01"] = {**found["n01"], "public": found["n05"]["public"]}
                return found

            scope = None  # type: ignore[assignment]

            def refuse(self, client: str, reason: str) -> None:
                left.append(client)

        prepared = server.carrier.prepare(Ask(), FORTY, "update")
        assert sorted(left) == ["n01", "n05"]
        assert not {"n01", "n05"} & set(prepared.session.advertised.names)


def deck_of(adverts: dict[str, Any]) -> dict[str, Any]:
    return {
        "names": "\n".join(sorted(adverts)),
        **{key: stacked(adverts, key) for key in advertisements.FIELDS},
    }
