"""Owners that lie: what is refused, and what a lie gets at the most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from aligning import NAMES, TABLES, Courier, numbered, opened_by, sides, terms

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.alignment import Hub, Letter, Member, Side
from secure_fedgraph.deployment.alignment.equality import Equality
from secure_fedgraph.deployment.alignment.hub import NOWHERE
from secure_fedgraph.deployment.alignment.points import Blinding
from secure_fedgraph.deployment.alignment.rows import digest_of_rows
from secure_fedgraph.deployment.alignment.terms import (
    ANSWER,
    CHECK,
    MANIFEST,
    PLACES,
    PROOF,
    RECEIPT,
    REQUEST,
)

Lie = Callable[[wire.Tree], wire.Tree]


def writing(kind: type[Side], step: str, lie: Lie) -> type[Side]:
    """An owner that seals something else than it should at one step."""

    class Liar(kind):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def _sealed(self, at: str, recipient: str, tree: wire.Tree) -> Letter:
            lying = at == step and "shop" in (self.name, recipient)
            letter: Letter = super()._sealed(at, recipient, lie(dict(tree)) if lying else tree)
            return letter

    return Liar


def refused(liar: str, step: str, lie: Lie, match: str, **tables: list[str]) -> dict[str, Side]:
    owners = sides({**TABLES, **tables}, liars={liar: writing(Hub if liar == "bank" else Member, step, lie)})
    with pytest.raises(HostileMessage, match=match):
        Courier(owners).run()
    return owners


POINTS = Blinding().of_texts([f"of nobody {number}" for number in range(256)])


class TestMembersThatLieAboutPoints:
    def test_answers_in_another_order_hit_an_invented_name(self) -> None:
        """It would have the hub take names for common that this member does not have."""
        refused(
            "shop",
            ANSWER,
            lambda tree: {**tree, "request": np.roll(tree["request"], 1, axis=0)},
            "shop says that it has a name that bank invented",
        )

    def test_answers_in_another_order_are_noticed_where_nothing_is_invented(self) -> None:
        rows = numbered(*range(64))
        owners = refused(
            "shop",
            ANSWER,
            lambda tree: {**tree, "request": np.roll(tree["request"], 1, axis=0)},
            "shop has other rows than bank in the common order: it answered for names that it does not have",
            bank=rows,
            phone=rows,
            shop=rows[:32],
        )
        assert all(owner.result is None for owner in owners.values())

    def test_what_it_gets_holds_no_name_and_nothing_to_try_names_against(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is sent places and the salt; neither the hub's digest of the rows nor a signature over it."""
        plain = opened_by(monkeypatch)
        rows = numbered(*range(64))
        refused(
            "shop",
            ANSWER,
            lambda tree: {**tree, "request": np.roll(tree["request"], 1, axis=0)},
            "shop has other rows",
            bank=rows,
            phone=rows,
            shop=rows[:32],
        )
        trees = [wire.decode(one) for one in plain]
        told = [tree.keys() for tree in trees if "places" in tree]
        assert told == [{"count", "salt", "point", "places"}] * 2
        assert not [tree for tree in trees if "signature" in tree or "signatures" in tree]
        assert b"customer" not in b"".join(plain)

    @pytest.mark.parametrize(
        "lie",
        [
            lambda tree: {**tree, "request": np.repeat(tree["request"][:1], len(tree["request"]), axis=0)},
            lambda tree: {**tree, "points": np.repeat(tree["points"][:1], len(tree["points"]), axis=0)},
        ],
    )
    def test_one_point_for_everything(self, lie: Lie) -> None:
        refused("shop", ANSWER, lie, "holds a point twice")

    @pytest.mark.parametrize("first", [0, 4, 5])
    def test_what_is_no_point(self, first: int) -> None:
        """The point at infinity would be equal to itself under every exponent."""

        def lie(tree: wire.Tree) -> wire.Tree:
            points = np.array(tree["points"])
            points[3] = 0
            points[3, 0] = first
            return {**tree, "points": points}

        refused("shop", ANSWER, lie, "no point of the curve")

    def test_what_is_no_point_does_not_reach_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        blinding = Blinding()
        monkeypatch.setattr(blinding, "_server", None)
        with pytest.raises(HostileMessage, match="no point of the curve"):
            blinding.of_points(np.zeros((1, 33), dtype=np.uint8))

    def test_what_is_not_on_the_curve(self) -> None:
        points = np.array(POINTS[:64])
        points[:, 1:] = 255
        points[:, -1] = np.arange(64)
        refused("shop", ANSWER, lambda tree: {**tree, "points": points}, "no point of the curve")
        refused("bank", REQUEST, lambda tree: {"points": points}, "no point of the curve")

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("points", POINTS[:65]),
            ("points", POINTS[:0]),
            ("points", POINTS[:256]),
            ("points", POINTS[:64].astype(np.int32)),
            ("points", POINTS[:64, :32]),
            ("points", POINTS[0]),
            ("points", b"bytes"),
            ("request", POINTS[:63]),
        ],
    )
    def test_other_numbers_and_types(self, key: str, value: object) -> None:
        refused(
            "shop",
            ANSWER,
            lambda tree: {**tree, key: value},
            "no size class up to 128|holds another|holds no points",
        )

    def test_answers_to_other_questions(self) -> None:
        refused(
            "shop",
            ANSWER,
            lambda tree: {**tree, "request": POINTS[:128]},
            "shop answered 128 points, and was asked 64",
        )

    def test_entries_beside(self) -> None:
        for step in (ANSWER, CHECK, RECEIPT):
            refused(
                "shop", step, lambda tree: {**tree, "more": 1}, f"{step!r} from shop to bank holds another"
            )
        for step in (REQUEST, PLACES, PROOF, MANIFEST):
            refused(
                "bank", step, lambda tree: {**tree, "more": 1}, f"{step!r} from bank to shop holds another"
            )


class TestTheBoundOnGuesses:
    """A name that an owner invents is a guess at the others' names. There are at most ``rows_at_most``."""

    @pytest.mark.parametrize(("liar", "step"), [("shop", ANSWER), ("bank", REQUEST)])
    def test_an_owner_cannot_send_more(self, liar: str, step: str) -> None:
        many = Blinding().of_texts([str(number) for number in range(129)])
        refused(liar, step, lambda tree: {**tree, "points": many}, "no size class up to 128")

    def test_a_bound_between_two_classes_holds(self) -> None:
        agreed = terms(rows_at_most=100)
        lie = writing(Member, ANSWER, lambda tree: {**tree, "points": POINTS[:128]})
        with pytest.raises(HostileMessage, match="no size class up to 100"):
            Courier(sides(TABLES, agreed, {"shop": lie})).run()


class TestAHubThatLiesAboutPlaces:
    @pytest.mark.parametrize(
        ("key", "value", "match"),
        [
            ("count", 0, "no list of its rows"),
            ("count", -1, "no list of its rows"),
            ("count", 65, "no list of its rows"),
            ("count", 2**62, "no list of its rows"),
            ("count", 1.0, "holds another 'count'"),
            ("count", True, "holds another 'count'"),
            ("places", np.zeros(64, dtype=np.uint32), "not rows of its own, each once"),
            ("places", np.full(64, NOWHERE, dtype=np.uint32), "not rows of its own, each once"),
            ("places", np.arange(64, 128, dtype=np.uint32), "not rows of its own, each once"),
            ("places", np.arange(63, dtype=np.uint32), "no list of its rows"),
            ("places", np.arange(64, dtype=np.int64), "no list of its rows"),
            ("places", np.zeros((64, 1), dtype=np.uint32), "no list of its rows"),
            ("places", b"", "holds another 'places'"),
            ("salt", b"short", "holds another 'salt'"),
            ("point", b"short", "holds another 'point'"),
            ("point", bytes(33), "no point of the curve"),
            ("point", b"\x02" + b"\xff" * 32, "no point of the curve"),
        ],
    )
    def test_forms(self, key: str, value: object, match: str) -> None:
        refused("bank", PLACES, lambda tree: {**tree, key: value}, match)

    def test_a_place_of_an_invented_name(self) -> None:
        """Shop has 27 rows in a class of 64: 40 places name one of the invented ones."""
        refused(
            "bank",
            PLACES,
            lambda tree: {**tree, "count": 40, "places": np.arange(64, dtype=np.uint32)},
            "bank told shop of 40 common rows, and they are not rows of its own",
        )

    def test_a_row_twice(self) -> None:
        """None of shop's 64 names is invented."""
        refused(
            "bank",
            PLACES,
            lambda tree: {**tree, "count": 2, "places": np.zeros(64, dtype=np.uint32)},
            "bank told shop of 2 common rows, and they are not rows of its own, each once",
            shop=numbered(*range(64)),
        )

    def test_rows_that_the_hub_does_not_have(self) -> None:
        """The member's digest of them would be something to try names against: it does not send one."""
        rows = numbered(*range(64))

        def lie(tree: wire.Tree) -> wire.Tree:
            told = set(tree["places"][: tree["count"]].tolist())
            others = [place for place in range(64) if place not in told]
            places = np.array(tree["places"])
            places[0] = others[0]
            return {**tree, "places": places}

        owners = refused("bank", PLACES, lie, "shop has other rows than bank", shop=rows, bank=rows[:40])
        assert owners["shop"].result is None

    def test_a_hub_that_goes_on_without_the_same_rows(self) -> None:
        refused(
            "bank",
            PROOF,
            lambda tree: {"tag": bytes(32)},
            "bank has other rows than shop in the common order",
        )

    def test_a_members_own_tag_sent_back(self) -> None:
        seen: list[bytes] = []

        class Echo(Hub):
            __slots__ = ()

            def _checked(self, letter: Letter, pair: object) -> list[Letter]:
                if letter.sender == "shop":
                    seen.append(self._opened(letter)["tag"])
                return super()._checked(letter, pair)  # type: ignore[arg-type]

        liar = writing(Echo, PROOF, lambda tree: {"tag": seen[0]})
        with pytest.raises(HostileMessage, match="bank has other rows than shop"):
            Courier(sides(liars={"bank": liar})).run()


class Divider(Hub):
    """Gives shop other rows than phone, as many; to each it proves that it holds the same."""

    __slots__ = ()

    def _tell_places(self) -> list[Letter]:
        super()._tell_places()
        ordered, digests = self._ordered, {}
        letters = []
        for name, pair in self._pairs.items():
            self._ordered = ordered[:5] if name == "shop" else ordered[5:10]
            rows = [self._rows[row] for row in self._ordered]
            self._digest = digests[name] = digest_of_rows(self.terms.digest, self._salt, rows)
            letters.append(self._told(name, pair))
        return letters

    def _signed(self, letter: Letter, pair: object) -> list[Letter]:
        pair.signature = self._opened(letter)["signature"]  # type: ignore[attr-defined]
        return []


class TestOneOrderForAll:
    def test_a_hub_that_gives_two_members_different_rows(self) -> None:
        owners = sides(liars={"bank": Divider})
        with pytest.raises(HostileMessage, match=r"did not sign the rows that (phone|shop) was given"):
            Courier(owners).run()
        assert owners["phone"].result is None and owners["shop"].result is None

    def test_the_other_member_refuses_too(self) -> None:
        owners = sides(liars={"bank": Divider})
        courier = Courier(owners)
        told: list[str] = []

        def change(letter: Letter) -> list[Letter]:
            if letter.step != MANIFEST:
                return [letter]
            with pytest.raises(HostileMessage, match="did not sign the rows that"):
                owners[letter.recipient].receive(letter)
            told.append(letter.recipient)
            return []

        courier.change = change
        courier.run()
        assert told == ["phone", "shop"]
        assert owners["phone"].result is None and owners["shop"].result is None

    @pytest.mark.parametrize("number", range(len(NAMES)))
    def test_every_signature_counts(self, number: int) -> None:
        def lie(tree: wire.Tree) -> wire.Tree:
            changed = bytearray(tree["signatures"])
            changed[64 * number] ^= 1
            return {"signatures": bytes(changed)}

        refused("bank", MANIFEST, lie, f"{NAMES[number]} did not sign the rows that shop was given")

    def test_a_members_signature_counts(self) -> None:
        refused(
            "shop", RECEIPT, lambda tree: {"signature": bytes(64)}, "shop did not sign the rows that bank"
        )

    def test_nobody_has_rows_before_everybody_signed(self) -> None:
        owners = sides()
        courier = Courier(owners)

        def change(letter: Letter) -> list[Letter]:
            assert all(owner.result is None for owner in owners.values()) or letter.step == MANIFEST
            return [letter] if (letter.step, letter.sender) != (RECEIPT, "phone") else []

        courier.change = change
        courier.run()
        assert all(owner.result is None for owner in owners.values())


class TestComparisons:
    def both(self, one: bytes, other: bytes) -> bool:
        hub, member = Equality(one, b"context"), Equality(other, b"context")
        return hub.fits(member.point, "shop", member.tag(hub.point, "shop"))

    def test_they_tell_equal_from_different(self) -> None:
        assert self.both(b"a" * 32, b"a" * 32)
        assert not self.both(b"a" * 32, b"b" * 32)

    def test_a_tag_tests_the_one_guess_that_was_made_before_it(self) -> None:
        """A hub that guessed wrong cannot go on guessing against what it was sent."""
        names = numbered(*range(20))
        digests = [digest_of_rows(b"", b"salt", [name]) for name in names]
        member = Equality(digests[7], b"context")
        hub = Equality(digests[3], b"context")
        tag = member.tag(hub.point, "shop")
        assert not hub.fits(member.point, "shop", tag)
        for digest in digests:
            # what it can compute of another guess: its own exponent, and the guess's point
            other = Equality(digest, b"context")
            other._blinding = hub._blinding
            other.point = hub._blinding.of_texts([digest.hex()])[0].tobytes()
            assert not other.fits(member.point, "shop", tag)
        assert Equality(digests[7], b"context").point != member.point

    def test_another_context_or_side_does_not_fit(self) -> None:
        hub, member = Equality(b"a" * 32, b"context"), Equality(b"a" * 32, b"another")
        assert not hub.fits(member.point, "shop", member.tag(hub.point, "shop"))
        member = Equality(b"a" * 32, b"context")
        assert not hub.fits(member.point, "bank", member.tag(hub.point, "shop"))

    def test_its_own_point_back_is_refused(self) -> None:
        hub = Equality(b"a" * 32, b"context")
        with pytest.raises(HostileMessage, match="its own point back"):
            hub.tag(hub.point, "shop")

    @pytest.mark.parametrize("salt", [b"one", b"two"])
    def test_digests_depend_on_order_salt_and_context(self, salt: bytes) -> None:
        reference = digest_of_rows(b"terms", b"one", ["a", "b"])
        assert (digest_of_rows(b"terms", salt, ["a", "b"]) == reference) == (salt == b"one")
        assert digest_of_rows(b"terms", b"one", ["b", "a"]) != reference
        assert digest_of_rows(b"other", b"one", ["a", "b"]) != reference
        assert digest_of_rows(b"terms", b"one", ["a"]) != reference
        assert (
            digest_of_rows(b"terms", b"one", ["ab"])
            != reference
            != digest_of_rows(b"termso", b"ne", ["a", "b"])
        )


def test_a_signature_is_written_only_after_the_hubs_proof() -> None:
    """Who has a signature over a digest of few rows tries names until it fits."""
    signed: list[str] = []

    class Noting(Member):
        __slots__ = ()

        def _receipt(self, by: str, digest: bytes, rows: int) -> bytes:
            signed.append(by)
            return super()._receipt(by, digest, rows)

    liars = {"bank": writing(Hub, PROOF, lambda tree: {"tag": bytes(32)}), "shop": Noting}
    two = {name: TABLES[name] for name in ("bank", "shop")}
    with pytest.raises(HostileMessage, match="bank has other rows than shop"):
        Courier(sides(two, liars=liars)).run()
    assert signed == []
    Courier(sides(two, liars={"shop": Noting})).run()
    assert signed == ["shop", "bank", "shop"]
