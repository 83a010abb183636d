"""Pairwise masks, for sums between peers: golden words, exact sums, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from parties import NAMES, introduced, people, scope

from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.core.upload import Layout

LAYOUT = Layout((("w", (4,)),))
VALUES = np.array([[1, -1, 2**29, -(2**29)]])


def no_ask(step, given):
    raise AssertionError("a masked sum asks for nothing")


def test_golden_words(monkeypatch):
    # AES-128-CTR under the zero key from counter zero starts 66 e9 4b d4 ef 8a 2c 3b (the hash key of test
    # case 1 of the GCM specification), little-endian words 0xd44be966 and 0x3b2c8aef
    monkeypatch.setattr(key_agreement, "shared_key", lambda *_: bytes(32))
    pair = people(("a", "b"))
    place = scope(cohort=("a", "b"))
    first = Pairwise().seal(np.array([[1, -1]]), place, pair["a"])
    second = Pairwise().seal(np.array([[1, -1]]), place, pair["b"])
    assert first.dtype == np.dtype("<u4")
    assert [hex(word) for word in first] == ["0xd44be967", "0x3b2c8aee"]  # the lower name adds
    assert [hex(word) for word in second] == [hex(2**32 + 1 - 0xD44BE966), hex(2**32 - 1 - 0x3B2C8AEF)]


def test_the_sum_is_exact_and_signed():
    parties, place = introduced(), scope()
    sealed = {name: Pairwise().seal(VALUES, place, party) for name, party in parties.items()}
    opened = Pairwise().open_sum(sealed, LAYOUT, place, no_ask)
    assert opened.dtype == np.int32
    assert opened.tolist() == [[3, -3, 3 * 2**29, -3 * 2**29]]


def test_one_cohort_of_several():
    parties, place = introduced(), scope(cohort=NAMES[1:])
    sealed = {name: Pairwise().seal(VALUES, place, parties[name]) for name in NAMES[1:]}
    assert Pairwise().open_sum(sealed, LAYOUT, place, no_ask)[0, 0] == 2


def test_nothing_is_added_to_the_callers_matrix():
    values = VALUES.copy()
    Pairwise().seal(values, scope(), introduced()["owner-0"])
    assert np.array_equal(values, VALUES)


def test_refusals():
    parties, place = introduced(), scope()
    sealed = {name: Pairwise().seal(VALUES, place, party) for name, party in parties.items()}
    two = {name: sealed[name] for name in NAMES[:2]}
    with pytest.raises(Refused, match=r"owner-2 dropped out.*nothing was opened"):
        Pairwise().open_sum(two, LAYOUT, place, no_ask)
    with pytest.raises(HostileMessage, match="from outside the cohort"):
        Pairwise().open_sum({**sealed, "eve": sealed["owner-0"]}, LAYOUT, place, no_ask)
    for wrong in (sealed["owner-1"][:3], sealed["owner-1"].astype("<i4"), b"", sealed["owner-1"].tobytes()):
        with pytest.raises(HostileMessage, match="owner-1's upload does not hold 1 x 4 values of uint32"):
            Pairwise().open_sum({**sealed, "owner-1": wrong}, LAYOUT, place, no_ask)


def test_excess_of_two_clients():
    channel = Channel("update", Reveal.SUM)
    differencing, subtraction = Pairwise().excess(BindContext(channel, ("a", "b"), "zero-out"))
    assert subtraction.startswith("with two clients, each learns")
    assert Pairwise().excess(BindContext(channel, NAMES, "zero-out")) == (differencing,)


def test_no_steps_of_its_own():
    with pytest.raises(HostileMessage, match="carrier 'masked' has no step 'unmask'"):
        Pairwise().answer("unmask", {}, scope(), introduced()["owner-0"])
