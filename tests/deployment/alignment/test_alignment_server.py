"""What the server carries: sealed bytes, whose sizes follow from public size classes alone."""

from __future__ import annotations

import pytest
from aligning import NAMES, TABLES, aligned, numbered, opened_by, sides, terms

from secure_fedgraph.core import wire
from secure_fedgraph.deployment.alignment import Hub, Letter, Member
from secure_fedgraph.deployment.alignment.terms import OFFER, STEPS

WINDOW = 8


def sizes(carried: list[Letter]) -> list[tuple[str, str, str, int]]:
    return sorted((one.step, one.sender, one.recipient, len(one.body)) for one in carried)


def windows(content: bytes) -> set[bytes]:
    return {content[at : at + WINDOW] for at in range(len(content) - WINDOW + 1)}


def test_every_step_goes_between_the_hub_and_each_member_once() -> None:
    _, carried = aligned()
    assert {(one.sender, one.recipient) for one in carried} == {
        pair for member in NAMES[1:] for pair in (("bank", member), (member, "bank"))
    }
    assert len(carried) == 2 * (len(STEPS) + 1)  # both sides offer


def test_no_letter_holds_a_name_or_anything_that_was_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = opened_by(monkeypatch)
    found, carried = aligned()
    everything = b"\0".join(one.to_bytes() for one in carried)
    assert not [row for rows in TABLES.values() for row in rows if row.encode() in everything]
    assert len(plain) == len([one for one in carried if one.step != OFFER])
    assert b"customer" not in b"".join(plain)
    sealed = set().union(*(windows(one.body) for one in carried if one.step != OFFER))
    assert not [one for one in plain if windows(one) & sealed]
    for secret in (found["bank"].salt, found["bank"].digest):
        assert bytes.fromhex(secret) not in everything


def test_an_offer_holds_a_public_key_and_its_signature_alone() -> None:
    _, carried = aligned()
    offers = [wire.decode(one.body) for one in carried if one.step == OFFER]
    assert len(offers) == 4 and all(one.keys() == {"public", "signature"} for one in offers)


@pytest.mark.parametrize(
    ("bank", "shop"),
    [(range(1), range(1)), (range(64), range(64)), (range(30), range(29, 90)), (range(2, 9), range(50))],
)
def test_sizes_depend_on_the_size_class_alone(bank: range, shop: range) -> None:
    _, reference = aligned({"bank": numbered(*range(20)), "shop": numbered(*range(10, 25))})
    _, carried = aligned({"bank": numbered(*bank), "shop": numbered(*shop)})
    assert sizes(carried) == sizes(reference)


def test_another_class_shows() -> None:
    _, reference = aligned({"bank": numbered(*range(64)), "shop": numbered(*range(64))})
    _, carried = aligned({"bank": numbered(*range(65)), "shop": numbered(*range(64))})
    assert sizes(carried) != sizes(reference)


@pytest.mark.parametrize(
    ("rows", "most", "padded"), [(1, 128, 64), (64, 128, 64), (65, 128, 128), (100, 101, 101), (3, 5, 5)]
)
def test_size_classes_are_powers_of_two_up_to_the_bound(rows: int, most: int, padded: int) -> None:
    agreed = terms(rows_at_most=most)
    assert agreed.padded(rows) == padded and agreed.is_class(padded)


def test_the_sets_are_shuffled_before_they_are_sent() -> None:
    owners = sides({name: numbered(*range(60)) for name in ("bank", "shop")})
    hub, member = owners["bank"], owners["shop"]
    assert isinstance(hub, Hub) and isinstance(member, Member)
    slots = [hub._shuffled(), hub._shuffled(), member._shuffled()]
    assert len({tuple(one) for one in slots}) == 3
    assert sorted(slots[0]) == sorted(slots[2]) == [-1] * 4 + list(range(60))


def test_each_pair_and_each_alignment_has_points_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = opened_by(monkeypatch)
    aligned()
    aligned()
    requests = [tree["points"] for tree in map(wire.decode, plain) if tree.keys() == {"points"}]
    points = [point.tobytes() for one in requests for point in one]
    assert len(requests) == 4 and len(set(points)) == len(points)


def test_nothing_carried_is_larger_than_the_terms_say() -> None:
    for most in (1, 128):
        rows = numbered(*range(most))
        _, carried = aligned({"bank": rows, "shop": rows}, rows_at_most=most)
        assert max(len(one.body) for one in carried) <= terms(("bank", "shop"), rows_at_most=most).most_bytes
