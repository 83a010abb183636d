"""Pairwise masks: golden words, exact sums, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from parties import NAMES, introduced, people, scope

from secure_fedgraph.errors import HostileMessage, Refused
from secure_fedgraph.privacy import key_agreement
from secure_fedgraph.privacy.masking import Masked
from secure_fedgraph.privacy.protection import Terms
from secure_fedgraph.protocol import Channel, Layout, Reveal

LAYOUT = Layout((("w", (4,)),))
VALUES = np.array([[1, -1, 2**29, -(2**29)]])


def no_ask(step, given):
    raise AssertionError("a masked sum asks for nothing")


def test_golden_words(monkeypatch):
    # AES-256-CTR under the zero key from counter zero starts dc 95 c0 78 (NIST CAVP, AES-256 zero key and
    # zero block: dc95c078a2408989ad48a21492842087), little-endian words 0x78c095dc and 0x898940a2
    monkeypatch.setattr(key_agreement, "shared_key", lambda *_: bytes(32))
    pair = people(("a", "b"))
    place = scope(cohort=("a", "b"))
    first = Masked().seal(np.array([[1, -1]]), place, pair["a"])
    second = Masked().seal(np.array([[1, -1]]), place, pair["b"])
    assert first.dtype == np.dtype("<u4")
    assert [hex(word) for word in first] == ["0x78c095dd", "0x898940a1"]  # the lower name adds
    assert [hex(word) for word in second] == [hex(2**32 + 1 - 0x78C095DC), hex(2**32 - 1 - 0x898940A2)]


def test_the_sum_is_exact_and_signed():
    parties, place = introduced(), scope()
    sealed = {name: Masked().seal(VALUES, place, party) for name, party in parties.items()}
    opened = Masked().open_sum(sealed, LAYOUT, place, no_ask)
    assert opened.dtype == np.int32
    assert opened.tolist() == [[3, -3, 3 * 2**29, -3 * 2**29]]


def test_one_cohort_of_several():
    parties, place = introduced(), scope(cohort=NAMES[1:])
    sealed = {name: Masked().seal(VALUES, place, parties[name]) for name in NAMES[1:]}
    assert Masked().open_sum(sealed, LAYOUT, place, no_ask)[0, 0] == 2


def test_nothing_is_added_to_the_callers_matrix():
    values = VALUES.copy()
    Masked().seal(values, scope(), introduced()["owner-0"])
    assert np.array_equal(values, VALUES)


def test_refusals():
    parties, place = introduced(), scope()
    sealed = {name: Masked().seal(VALUES, place, party) for name, party in parties.items()}
    two = {name: sealed[name] for name in NAMES[:2]}
    with pytest.raises(Refused, match=r"owner-2 dropped out.*nothing was opened"):
        Masked().open_sum(two, LAYOUT, place, no_ask)
    with pytest.raises(HostileMessage, match="from outside the cohort"):
        Masked().open_sum({**sealed, "eve": sealed["owner-0"]}, LAYOUT, place, no_ask)
    for wrong in (sealed["owner-1"][:3], sealed["owner-1"].astype("<i4"), b"", sealed["owner-1"].tobytes()):
        with pytest.raises(HostileMessage, match="owner-1's upload does not hold 1 x 4 values of uint32"):
            Masked().open_sum({**sealed, "owner-1": wrong}, LAYOUT, place, no_ask)


def test_excess_of_two_clients():
    channel = Channel("update", Reveal.SUM)
    differencing, subtraction = Masked().excess(Terms(channel, ("a", "b"), "zero-out"))
    assert subtraction.startswith("with two clients, each learns")
    assert Masked().excess(Terms(channel, NAMES, "zero-out")) == (differencing,)


def test_no_steps_of_its_own():
    with pytest.raises(HostileMessage, match="carrier 'masked' has no step 'unmask'"):
        Masked().answer("unmask", {}, scope(), introduced()["owner-0"])
