"""A server that changes, cuts, swaps, replays or invents letters: each is refused, and nobody gets rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from aligning import FEDERATION, IDENTITIES, NAMES, TABLES, Courier, aligned, side, sides, terms
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import AgreementKey, Identity
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.alignment import Hub, Letter, Member, Side, relay
from secure_fedgraph.deployment.alignment.side import Side as SideOfAll
from secure_fedgraph.deployment.alignment.terms import OFFER, REQUEST, STEPS

LETTERS = [("bank", "shop", OFFER), ("shop", "bank", OFFER)] + [
    (*(("bank", "shop") if number % 2 else ("shop", "bank")), step)
    for number, step in enumerate(STEPS)
    if step != OFFER
]
"""Every letter between the hub and one member: sender, recipient, step."""
Tampering = Callable[[Letter], Sequence[Letter]]


def refused(change: Tampering, match: str, owners: dict[str, Side] | None = None) -> dict[str, Side]:
    """Runs an alignment under a lying courier, which is refused in these words before the liar gains rows."""
    owners = owners or sides()
    with pytest.raises(HostileMessage, match=match):
        Courier(owners, change).run()
    return owners


def only(place: tuple[str, str, str], change: Callable[[Letter], Sequence[Letter]]) -> Tampering:
    def tampering(letter: Letter) -> Sequence[Letter]:
        return change(letter) if (letter.sender, letter.recipient, letter.step) == place else [letter]

    return tampering


def flipped(letter: Letter, at: float) -> list[Letter]:
    changed = bytearray(letter.body)
    changed[int(at * len(changed)) if at > 0 else int(at)] ^= 1
    return [replace(letter, body=bytes(changed))]


def renamed(letter: Letter) -> list[Letter]:
    """Shop's letter as phone's, and the hub's letter to shop in phone's hands."""
    other = {"shop": "phone", "bank": "bank"}
    return [replace(letter, sender=other[letter.sender], recipient=other[letter.recipient])]


UNOPENED = "does not open|did not sign|mark|holds another|at least 28 bytes|too early|promises"
NOBODY = "not between it and the roster"
TAMPERED: dict[str, tuple[Callable[[Letter], Sequence[Letter]], str]] = {
    "first byte": (lambda letter: flipped(letter, 0), UNOPENED),
    "a byte in the middle": (lambda letter: flipped(letter, 0.5), UNOPENED),
    "last byte": (lambda letter: flipped(letter, -1), UNOPENED),
    "nothing": (lambda letter: [replace(letter, body=b"")], UNOPENED),
    "cut": (lambda letter: [replace(letter, body=letter.body[:-1])], UNOPENED),
    "longer": (lambda letter: [replace(letter, body=letter.body + b"\0")], UNOPENED),
    "twice": (lambda letter: [letter, letter], "out of turn|has ended"),
    "under another name": (renamed, f"out of turn|did not sign|{NOBODY}"),
}
STRANGERS = {
    f"{end} {name!r}": (lambda letter, end=end, name=name: [replace(letter, **{end: name})], NOBODY)
    for end in ("sender", "recipient")
    for name in ("mill", "", "\x1b[31m")
}


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        pytest.param(place, *case, id=f"{'-'.join(place)}-{name}")
        for places, cases in ((LETTERS, TAMPERED), ((LETTERS[0], LETTERS[-1]), STRANGERS))
        for place in places
        for name, case in cases.items()
    ],
)
def test_a_letter_that_the_server_changes(
    place: tuple[str, str, str], change: Callable[[Letter], Sequence[Letter]], words: str
) -> None:
    owners = refused(only(place, change), words)
    assert owners["shop"].result is None or place[2] in ("receipt", "manifest")


@cache
def recorded(alignment: str) -> dict[tuple[str, str, str], Letter]:
    """The letters of one that ended well, by their places."""
    return {(one.sender, one.recipient, one.step): one for one in aligned(alignment=alignment)[1]}


@pytest.mark.parametrize(
    ("place", "alignment"),
    [*((place, "alignment-0") for place in LETTERS), *((place, "alignment-1") for place in LETTERS[2:])],
)
def test_a_letter_of_another_alignment_or_of_this_one_before_a_restart(
    place: tuple[str, str, str], alignment: str
) -> None:
    old = recorded(alignment)[place]
    refused(only(place, lambda letter: [old]), "does not open|did not sign for this alignment")


def test_an_offer_of_the_same_alignment_before_a_restart_leads_nowhere() -> None:
    """It is signed, and nobody has its key any more."""
    _, old = aligned()
    offer = next(one for one in old if (one.step, one.sender, one.recipient) == (OFFER, "shop", "bank"))
    owners = refused(only((*("shop", "bank"), OFFER), lambda letter: [offer]), "does not open")
    assert all(owner.result is None for owner in owners.values())


@pytest.mark.parametrize("place", LETTERS[1:], ids="-".join)
def test_letters_of_two_members_swapped(place: tuple[str, str, str]) -> None:
    """The hub is handed phone's letter as shop's, or shop what the hub wrote to phone. The hub's offer is the
    same for both."""
    seen: list[Letter] = []

    def swap(letter: Letter) -> Sequence[Letter]:
        seen.append(letter)
        if (letter.sender, letter.recipient, letter.step) != place:
            return [letter]
        other = next(
            one for one in seen if one.step == letter.step and "phone" in (one.sender, one.recipient)
        )
        return [replace(other, sender=letter.sender, recipient=letter.recipient)]

    refused(swap, r"does not open|did not sign")


@pytest.mark.parametrize("step", [step for step in STEPS if step != OFFER])
def test_a_sealed_letter_as_another_step(step: str) -> None:
    def change(letter: Letter) -> list[Letter]:
        return [replace(letter, step=step)] if letter.step != OFFER and letter.step != step else [letter]

    refused(change, "out of turn")


@pytest.mark.parametrize("place", LETTERS[3:], ids="-".join)
def test_an_earlier_letter_as_a_later_step(place: tuple[str, str, str]) -> None:
    """The last one of the same sender and recipient, under the name of the step that comes next."""
    seen: list[Letter] = []

    def change(letter: Letter) -> Sequence[Letter]:
        seen.append(letter)
        if (letter.sender, letter.recipient, letter.step) != place:
            return [letter]
        before = [one for one in seen if (one.sender, one.recipient) == place[:2]][-2]
        return [replace(before, step=letter.step)]

    refused(change, "does not open")


def test_a_seal_is_bound_to_its_place() -> None:
    owner, other = sides()["shop"], sides(agreed=terms(alignment="alignment-2"))["shop"]
    contexts = [
        owner._letter_context("check", "shop", "bank"),
        owner._letter_context("receipt", "shop", "bank"),
        owner._letter_context("check", "phone", "bank"),
        owner._letter_context("check", "shop", "phone"),
        other._letter_context("check", "shop", "bank"),
    ]
    assert len(set(contexts)) == len(contexts)


def test_a_name_is_another_text_in_another_alignment() -> None:
    """Points of one say nothing in another, even if an exponent were used twice."""
    owner, other = sides()["shop"], sides(agreed=terms(alignment="alignment-2"))["shop"]
    assert owner._texts([0]) == owner._texts([0]) != other._texts([0])
    assert owner._texts([-1]) != owner._texts([-1])


def test_a_key_of_the_servers_own() -> None:
    key, identity = AgreementKey.generate(), Identity.generate()
    for place in LETTERS[:2]:
        for body in (
            {"public": key.public, "signature": identity.sign(key.public)},
            {"public": key.public, "signature": bytes(64)},
            {"public": key.public},
            {"public": key.public.hex(), "signature": bytes(64)},
            {"public": key.public, "signature": bytes(64), "more": 1},
        ):
            raw = wire.encode(body)
            refused(
                only(place, lambda letter, raw=raw: [replace(letter, body=raw)]),  # type: ignore[misc]
                "did not sign for this alignment|holds another",
            )


@pytest.mark.parametrize(
    "other",
    [
        {"federation": FEDERATION[::-1]},
        {"alignment": "alignment-2"},
        {"rows_at_most": 127},
        {"parties": {name: IDENTITIES[name].public for name in ("bank", "shop")}},
        {"parties": {name: IDENTITIES[name].public for name in ("bank", "shop", "phone")}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_an_owner_under_other_terms(other: dict[str, object]) -> None:
    owners = sides()
    owners["shop"] = side("shop", TABLES["shop"], terms(**other))
    refused(
        lambda letter: [letter], "did not sign for this alignment: compare the federation's files", owners
    )


def test_an_owner_with_another_key_than_the_rosters() -> None:
    changed = {**{name: IDENTITIES[name].public for name in NAMES}, "phone": Identity.generate().public}
    owners = sides()
    owners["shop"] = side("shop", TABLES["shop"], terms(parties=changed))
    refused(lambda letter: [letter], "did not sign for this alignment", owners)


def test_the_roster_makes_the_hub() -> None:
    agreed = terms()
    with pytest.raises(BadInput, match="another identity key for phone"):
        Member(agreed, IDENTITIES["shop"], ["a"], "phone")
    with pytest.raises(BadInput, match="bank is the first of the roster and so the hub"):
        Member(agreed, IDENTITIES["bank"], ["a"], "bank")
    with pytest.raises(BadInput, match="another identity key for bank"):
        Hub(agreed, IDENTITIES["shop"], ["a"])
    with pytest.raises(BadInput, match="'mill' is not on the roster"):
        Member(agreed, IDENTITIES["shop"], ["a"], "mill")


def test_a_letter_that_is_too_large_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SideOfAll, "_take", lambda self, letter: pytest.fail("it was read"))
    member = sides()["shop"]
    body = bytes(member.terms.most_bytes + 1)
    with pytest.raises(HostileMessage, match=r"from bank to shop has \d+ bytes"):
        member.receive(Letter(OFFER, "bank", "shop", body))


def test_after_one_bad_letter_no_good_one_is_taken() -> None:
    owners = sides()
    member, good = owners["shop"], owners["bank"].start()[1]
    with pytest.raises(HostileMessage, match="did not sign"):
        member.receive(flipped(good, -1)[0])
    with pytest.raises(HostileMessage, match="shop has ended this alignment: begin a new one"):
        member.receive(good)


def test_nobody_is_ahead_of_the_slowest() -> None:
    """The hub takes no check before everybody answered: it has told nobody places yet."""
    owners = sides()
    hub = owners["bank"]
    for letter in owners["shop"].start():
        (request,) = hub.receive(letter)
    owners["shop"].receive(hub.start()[1])
    (answer,) = owners["shop"].receive(request)
    assert hub.receive(answer) == []
    with pytest.raises(HostileMessage, match="'check' from shop to bank is out of turn: nothing comes next"):
        hub.receive(Letter("check", "shop", "bank", bytes(100)))


def test_members_take_no_letters_from_each_other() -> None:
    owners = sides()
    with pytest.raises(HostileMessage, match="'offer' from phone to shop is out of turn: nothing comes next"):
        owners["shop"].receive(replace(owners["phone"].start()[0], recipient="shop"))


@pytest.mark.parametrize("name", ["bank", "shop"])
@settings(max_examples=100)
@given(
    sender=st.sampled_from(NAMES),
    step=st.sampled_from([*STEPS, "", "\x1b[31m"]),
    body=st.binary(max_size=300),
)
def test_any_bytes_are_refused(name: str, sender: str, step: str, body: bytes) -> None:
    with pytest.raises(HostileMessage):
        sides()[name].receive(Letter(step, sender, name, body))


@pytest.mark.parametrize("sender", ["phone", "shop"])
def test_a_step_without_a_name_is_no_step(sender: str) -> None:
    with pytest.raises(HostileMessage, match="out of turn"):
        sides()["shop"].receive(Letter("", sender, "shop", b""))


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_no_letter(raw: bytes) -> None:
    with pytest.raises(HostileMessage):
        Letter.from_bytes(raw)


@pytest.mark.parametrize(
    "tree",
    [
        {"step": "offer", "sender": "a", "recipient": "b"},
        {"step": 1, "sender": "a", "recipient": "b", "body": b""},
        {"step": "offer", "sender": "a", "recipient": "b", "body": "text"},
        {"step": "offer", "sender": "a", "recipient": "b", "body": b"", "more": 1},
    ],
)
def test_other_fields_are_no_letter(tree: wire.Tree) -> None:
    with pytest.raises(HostileMessage, match="a letter of an alignment cannot be read"):
        Letter.from_bytes(wire.encode(tree))


def test_the_relay_passes_on_letters_of_their_writers_alone() -> None:
    for letter in (
        Letter(REQUEST, "shop", "phone", b""),
        Letter(REQUEST, "bank", "mill", b""),
        Letter(REQUEST, "bank", "bank", b""),
    ):
        with pytest.raises(HostileMessage, match="bank wrote a letter that is not from it"):
            relay(NAMES, lambda waiting, letter=letter: {"bank": [letter]})  # type: ignore[misc]


def test_the_relay_ends_though_the_owners_do_not() -> None:
    letter = Letter(REQUEST, "bank", "shop", b"")
    with pytest.raises(HostileMessage, match="more letters than an alignment has steps"):
        relay(NAMES, lambda waiting: {"bank": [letter]})
