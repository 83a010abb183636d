"""Signed key agreement: the same key at both ends, another for every purpose, and every refusal."""

from __future__ import annotations

import dataclasses

import pytest
from parties import NAMES, introduced, people, scope

from secure_fedgraph.core.carriers.key_agreement import answer, shared_key
from secure_fedgraph.core.errors import HostileMessage

PLACE = scope(0, "carrier/keys")


def advertised(parties):
    offers = {name: answer("advertise", {}, PLACE, party) for name, party in parties.items()}
    return {f"{kind}/{name}": offer[kind] for name, offer in offers.items() for kind in offer}


def test_both_ends_get_the_same_key_and_nobody_else():
    parties = introduced()
    a, b, c = NAMES
    key = shared_key(parties[a], b, scope(), "mask")
    assert len(key) == 32
    assert key == shared_key(parties[b], a, scope(), "mask")
    assert key != shared_key(parties[a], c, scope(), "mask")


@pytest.mark.parametrize(
    "change", [{"run": "x"}, {"exchange": 8}, {"channel": "metrics"}, {"cohort": NAMES[:2]}]
)
def test_another_place_another_key(change):
    party = introduced()["owner-0"]
    key = shared_key(party, "owner-1", scope(), "mask")
    assert key != shared_key(party, "owner-1", dataclasses.replace(scope(), **change), "mask")
    assert key != shared_key(party, "owner-1", scope(), "seal")


def test_another_run_another_key():
    assert shared_key(introduced()["owner-0"], "owner-1", scope(), "mask") != shared_key(
        introduced()["owner-0"], "owner-1", scope(), "mask"
    )


def test_a_peer_that_was_never_introduced():
    with pytest.raises(HostileMessage, match="asked to share a key with 'eve', who was never introduced"):
        shared_key(introduced()["owner-0"], "eve", scope(), "mask")
    with pytest.raises(HostileMessage, match="never introduced"):
        shared_key(people()["owner-0"], "owner-1", scope(), "mask")


def test_out_of_order():
    parties = people()
    first = parties["owner-0"]
    with pytest.raises(HostileMessage, match="introduced to its peers out of order"):
        answer("introduce", {}, PLACE, first)
    keys = advertised(parties)
    with pytest.raises(HostileMessage, match="already advertised a key in this run"):
        answer("advertise", {}, PLACE, first)
    assert answer("introduce", keys, PLACE, first) == {}
    with pytest.raises(HostileMessage, match="out of order"):
        answer("introduce", keys, PLACE, first)
    with pytest.raises(HostileMessage, match="no step 'reveal'"):
        answer("reveal", {}, PLACE, first)


def test_a_key_of_an_earlier_session_of_the_run_is_refused():
    # the run keeps its name when it is taken up again, and so do the owners' identities
    before = people()
    old = {name: answer("advertise", {}, PLACE, party) for name, party in before.items()}
    again = {name: dataclasses.replace(party, secrets={}) for name, party in before.items()}
    later = dataclasses.replace(PLACE, exchange=PLACE.exchange + 300)
    new = {name: answer("advertise", {}, later, party) for name, party in again.items()}
    first, *others = NAMES
    mixed = {
        f"{kind}/{name}": (new if name == first else old)[name][kind] for name in NAMES for kind in old[name]
    }
    with pytest.raises(HostileMessage, match=f"{others[0]} did not sign"):
        answer("introduce", mixed, dataclasses.replace(later, exchange=later.exchange + 1), again[first])


def test_a_stranger():
    parties = people()
    keys = advertised(parties)
    eve = people(("eve",))["eve"]
    keys |= {f"{k}/eve": v for k, v in answer("advertise", {}, PLACE, eve).items()}
    with pytest.raises(HostileMessage, match="introduced to 'eve', who is not on its roster"):
        answer("introduce", keys, dataclasses.replace(PLACE, cohort=(*NAMES, "eve")), parties["owner-0"])
    assert "peers" not in parties["owner-0"].secrets  # nothing is kept of a refused introduction


def test_a_cohort_without_oneself():
    parties = people()
    keys = advertised(parties)
    with pytest.raises(HostileMessage, match="own key came back changed"):
        answer("introduce", keys, dataclasses.replace(PLACE, cohort=NAMES[1:]), parties["owner-0"])
