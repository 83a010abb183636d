"""Requests that clients must refuse and replies that servers must not take: changes of recorded ones.

The keys of a record are fixed, so a changed message can be signed and sealed by those whose it would be: it
is then refused for the one thing that its reason names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fixed_draws import fixed
from vector_runs import FIVE, Vectors

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers import history, key_agreement, sealed
from secure_fedgraph.core.carriers.history import Exchange
from secure_fedgraph.core.carriers.secagg import advertisements
from secure_fedgraph.core.crypto import AgreementKey, Identity, seal
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.parcel import OFFER
from secure_fedgraph.core.protection.contracts import Party, Scope

LATER = 1000
"""An exchange number above all of a record."""


class Record:
    """A recorded run, and what is changed in it."""

    def __init__(self, record: Vectors) -> None:
        self.messages = record["messages"]
        self.requests = [Message.from_bytes(bytes.fromhex(one["request"])) for one in self.messages]
        drawn = {
            name: [bytes.fromhex(one["value"]) for one in rows] for name, rows in record["drawn"].items()
        }
        self.identities = {
            name: Identity(Ed25519PrivateKey.from_private_bytes(rows[0])) for name, rows in drawn.items()
        }
        keys = {
            name: AgreementKey(X25519PrivateKey.from_private_bytes(rows[1])) for name, rows in drawn.items()
        }
        roster = {name: identity.public for name, identity in self.identities.items()}
        peers = {name: key.public for name, key in keys.items()}
        self.parties = {
            name: Party(name, identity, roster, {"agreement": keys[name], "peers": peers})
            for name, identity in self.identities.items()
        }
        self.requests_refused: list[Vectors] = []
        self.replies_refused: list[Vectors] = []

    def at(self, name: str, channel: str, step: str, round: int) -> int:
        """The place of a request."""
        for place, request in enumerate(self.requests):
            found = (request.recipient, request.channel, request.step, request.round)
            if found == (name, channel, step, round):
                return place
        raise LookupError((name, channel, step, round))

    def tree(self, place: int) -> wire.Tree:
        """The body of a request."""
        return wire.decode(bytes(self.requests[place].body))

    def reply_tree(self, place: int) -> wire.Tree:
        """The body of a reply."""
        reply = Message.from_bytes(bytes.fromhex(self.messages[place]["reply"]))
        return wire.decode(bytes(reply.body))

    def refuse(
        self,
        why: str,
        place: int,
        tree: Mapping[str, Any] | None = None,
        later: int | None = None,
        **fields: Any,
    ) -> None:
        """A request in the place of a recorded one, or after it under the number ``later``."""
        request = self.requests[place]
        if tree is not None:
            fields["body"] = _encoded(self.tree(place), tree)
        if later is not None:
            fields["exchange"] = later
        octets = replace(request, **fields).to_bytes()
        self.requests_refused.append(
            {
                "why": why,
                "after": place + (later is not None),
                "like": place,
                **_difference(octets, bytes.fromhex(self.messages[place]["request"])),
            }
        )

    def leave_out(
        self,
        why: str,
        place: int,
        tree: Mapping[str, Any] | None = None,
        left_out: tuple[str, ...] | None = None,
        **fields: Any,
    ) -> None:
        """A reply in the place of a recorded one. ``left_out``: by default who sent it; empty: an error."""
        recorded = bytes.fromhex(self.messages[place]["reply"])
        reply = Message.from_bytes(recorded)
        if tree is not None:
            fields["body"] = _encoded(self.reply_tree(place), tree)
        gone = (self.messages[place]["to"],) if left_out is None else left_out
        octets = replace(reply, **fields).to_bytes()
        self.replies_refused.append(
            {"why": why, "like": place, **_difference(octets, recorded), "left_out": list(gone)}
        )


def _encoded(tree: wire.Tree, changes: Mapping[str, Any]) -> bytes:
    return wire.encode({key: value for key, value in {**tree, **changes}.items() if value is not None})


def _difference(octets: bytes, recorded: bytes) -> Vectors:
    """How to make the bytes from the recorded ones: so many first ones, others, so many last ones."""
    most = min(len(octets), len(recorded))
    first = next((n for n in range(most) if octets[n] != recorded[n]), most)
    rest = most - first
    last = next((n for n in range(rest) if octets[-1 - n] != recorded[-1 - n]), rest)
    return {"first": first, "bytes": octets[first : len(octets) - last].hex(), "last": last}


def applied(change: Mapping[str, Any], recorded: str) -> bytes:
    """The bytes that a change makes of recorded ones."""
    octets = bytes.fromhex(recorded)
    return octets[: change["first"]] + bytes.fromhex(change["bytes"]) + octets[len(octets) - change["last"] :]


def _flipped(rows: np.ndarray, *place: int) -> np.ndarray:
    changed = np.array(rows)
    changed[place] ^= 1
    return changed


def refused_of_sums(record: Vectors) -> list[Vectors]:
    """What a client refuses in a run of masked sums."""
    made = Record(record)
    for change in (_envelopes, _reports, _decks, _shares, _survivors, _signatures):
        change(made)
    return made.requests_refused


def _envelopes(made: Record) -> None:
    tell, upload = made.at("west", "tell", "answer", 1), made.at("west", "update", "advertise", 2)
    made.refuse("another run", tell, run="run-2")
    made.refuse("another recipient", tell, recipient="east")
    made.refuse("a cohort that repeats a client", tell, cohort=("west", "east", "North", "east"))
    made.refuse("a cohort without the client", tell, cohort=("east", "North", "south"))
    made.refuse("a cohort with a stranger", tell, cohort=("west", "east", "North", "stranger"))
    made.refuse("an empty cohort", tell, cohort=())
    made.refuse("a client as the sender", tell, sender="east")
    made.refuse("the referee as the sender", tell, sender="referee")
    made.refuse("the referee as the sender of a set-up", 0, sender="referee")
    made.refuse("a channel that the run has not", tell, channel="other")
    made.refuse("a carrier that the run has not", 0, channel="carrier/other")
    made.refuse("a step that the set-up has not", 0, step="answer")
    made.refuse("a step that the carrier has not", tell, step="read")
    made.refuse("a body that is none", tell, body=b"not a body")
    made.refuse("missed: bytes that are no body", tell, missed=b"not a body")
    answered = made.requests[tell].exchange
    made.refuse("an exchange number that was answered", tell, later=answered, body=wire.encode({}))
    made.refuse("a lower exchange number", tell, later=answered - 1)
    again = made.requests[upload].exchange
    made.refuse("a number that was answered, at a step of no history", upload, {"other": 1}, later=again)
    made.refuse("a round below the last", upload, round=0)
    made.refuse("a second key agreement", made.at("west", "carrier/keys", "introduce", 0), later=LATER)
    made.refuse("a second key for the run", 0, later=LATER)
    made.refuse(
        "an introduction before the client advertised", 0, step="introduce", body=made.requests[5].body
    )
    made.refuse("a sum of a cohort below the quorum", upload, cohort=("west", "east"))


def _reports(made: Record) -> None:
    place = made.at("far-east", "update", "answer", 2)
    (one,) = history.from_bytes(made.requests[place].missed)
    for why, listed in {
        "missed: the number of the request": [replace(one, number=made.requests[place].exchange)],
        "missed: a channel that the run has not": [replace(one, channel="other")],
        "missed: a round above the request's": [replace(one, round=3)],
        "missed: rounds that fall": [one, Exchange(one.number + 1, one.round - 1, "tell", one.digest)],
    }.items():
        made.refuse(why, place, missed=history.to_bytes(listed))


def _decks(made: Record) -> None:
    place = made.at("west", "update", "share", 2)
    deck = made.tree(place)
    names = deck["names"].split("\n")
    first = made.requests[made.at("west", "update", "advertise", 2)]
    scope = Scope(first.run, first.round, first.exchange, first.channel, first.cohort)

    def rows(order: list[int], **other: Any) -> wire.Tree:
        kept = {key: deck[key][order] for key in advertisements.FIELDS}
        return {"names": "\n".join(names[i] for i in order), **kept, **other}

    def signed(name: str, public: bytes, scope: Scope = scope, by: str = "") -> wire.Tree:
        row, changed = names.index(name), {key: np.array(deck[key]) for key in advertisements.FIELDS}
        commitment = changed["commitment"][row].tobytes()
        statement = advertisements.statement(scope, name, public, commitment)
        changed["public"][row] = np.frombuffer(public, np.uint8)
        changed["signature"][row] = np.frombuffer(made.identities[by or name].sign(statement), np.uint8)
        return changed

    north, west = names.index("North"), names.index("west")
    keys = {name: deck["public"][row].tobytes() for row, name in enumerate(names)}
    made.refuse("a deck that is not sorted", place, rows([1, 0, 2, 3, 4]))
    made.refuse("a deck without the client", place, rows([i for i in range(5) if i != west]))
    made.refuse("a deck of two clients", place, rows(sorted([north, west])))
    made.refuse("a deck that repeats a name", place, {"names": "\n".join([names[0], *names[:-1]])})
    made.refuse("a deck with a stranger", place, {"names": "\n".join(["A", *names[1:]])})
    made.refuse("a deck with a name too many", place, {"names": "\n".join([*names, "zzz"])})
    made.refuse("a deck with another entry", place, {"other": 1})
    made.refuse("a deck of 31 bytes a commitment", place, {"commitment": deck["commitment"][:, :31]})
    made.refuse("a deck of bytes in place of arrays", place, {"public": deck["public"].tobytes()})
    made.refuse("the client's own key is another", place, {"public": _flipped(deck["public"], west, 0)})
    made.refuse("one key twice, signed by both", place, signed("North", keys["south"]))
    made.refuse("a wrong signature", place, {"signature": _flipped(deck["signature"], north, 0)})
    made.refuse(
        "a commitment that was not signed", place, {"commitment": _flipped(deck["commitment"], north, 0)}
    )
    made.refuse("signed by another client", place, signed("North", keys["North"], by="south"))
    for why, other in {
        "signed for another run": replace(scope, run="run-2"),
        "signed for another round": replace(scope, round=3),
        "signed for another exchange": replace(scope, exchange=scope.exchange + 1),
        "signed for another channel": replace(scope, channel="tell"),
        "signed for another cohort": replace(scope, cohort=(*FIVE[1:], FIVE[0])),
    }.items():
        made.refuse(why, place, signed("North", keys["North"], other))
    made.refuse("another cohort than advertised", place, cohort=(*FIVE[1:], FIVE[0]))
    made.refuse("another round than advertised", place, round=3)
    made.refuse("out of order: agree before the upload", place, {}, step="agree")
    made.refuse("a second deck", place, later=LATER)


def _shares(made: Record) -> None:
    place = made.at("west", "update", "answer", 2)
    tree = made.tree(place)
    senders, rows = tree["carrier/senders"].split("\n"), tree["carrier/shares"]

    def part(names: list[str], shares: np.ndarray) -> wire.Tree:
        return {"carrier/senders": "\n".join(names), "carrier/shares": shares}

    made.refuse("shares of one neighbour, where two are needed", place, part(senders[:1], rows[:1]))
    twice = [0, 0, *range(2, len(rows))]
    made.refuse("a sender twice", place, part([senders[i] for i in twice], rows[twice]))
    made.refuse("the client itself as a sender", place, part(["west", *senders[1:]], rows))
    made.refuse("a stranger as a sender", place, part(["stranger", *senders[1:]], rows))
    made.refuse("a row too few", place, {"carrier/shares": rows[1:]})
    made.refuse("rows of 91 bytes", place, {"carrier/shares": rows[:, :91]})
    made.refuse("rows that are swapped", place, {"carrier/shares": rows[[1, 0, *range(2, len(rows))]]})
    made.refuse("a changed byte", place, {"carrier/shares": _flipped(rows, 0, 40)})
    made.refuse("no shares at all", place, {"carrier/shares": None, "carrier/senders": None})
    made.refuse("a second upload", place, later=LATER)
    other = made.at("west", "update", "answer", 3)
    made.refuse("shares of an earlier sum", other, part(senders, rows))


def _survivors(made: Record) -> None:
    place = made.at("west", "update", "agree", 2)
    names = made.tree(place)["survivors"].split("\n")

    def shown(*names: str) -> wire.Tree:
        return {"survivors": "\n".join(names)}

    made.refuse("survivors that are not sorted", place, shown(*reversed(names)))
    made.refuse("survivors without the client", place, shown("North", "far-east", "south"))
    made.refuse("a survivor twice", place, shown(names[0], *names))
    made.refuse("a stranger as a survivor", place, shown(*sorted([*names, "stranger"])))
    made.refuse("two survivors", place, shown(names[0], "west"))
    made.refuse("survivors as a list of texts", place, {"survivors": list(names)})
    made.refuse("no survivors", place, shown(""))
    made.refuse("survivors of another cohort", place, cohort=(*FIVE[1:], FIVE[0]))
    made.refuse("a second list", place, shown("North", "far-east", "west"), later=LATER)
    other = made.at("west", "update", "agree", 3)
    made.refuse("a survivor that never shared", other, shown("North", "east", "far-east", "south", "west"))


def _signatures(made: Record) -> None:
    place = made.at("west", "update", "unmask", 2)
    tree = made.tree(place)
    names, rows = tree["names"].split("\n"), tree["signatures"]
    answer = made.requests[made.at("west", "update", "answer", 2)]
    context = bytes.fromhex(made.reply_tree(made.at("west", "update", "answer", 2))["context"])
    assert answer.exchange == made.requests[place].exchange - 2
    others = advertisements.agreement(context, ("North", "far-east", "west"))

    def put(row: int, signature: bytes) -> wire.Tree:
        changed = np.array(rows)
        changed[row] = np.frombuffer(signature, np.uint8)
        return {"signatures": changed}

    made.refuse(
        "two signatures, where three are needed",
        place,
        {"names": "\n".join(names[:2]), "signatures": rows[:2]},
    )
    twice = {"names": "\n".join([names[0], names[0], names[2]]), "signatures": rows[[0, 0, 2]]}
    made.refuse("a signer twice", place, twice)
    survivors = tuple(made.tree(made.at("west", "update", "agree", 2))["survivors"].split("\n"))
    by_east = put(0, made.identities["east"].sign(advertisements.agreement(context, survivors)))
    made.refuse("a signer that is no survivor", place, {"names": "\n".join(["east", *names[1:]]), **by_east})
    made.refuse("a wrong signature on the survivors", place, {"signatures": _flipped(rows, 0, 0)})
    made.refuse("signatures of 63 bytes", place, {"signatures": rows[:, :63]})
    made.refuse("a true signature on another list", place, put(0, made.identities[names[0]].sign(others)))
    made.refuse("signatures that are swapped", place, {"signatures": rows[[1, 0, 2]]})
    made.refuse("no signatures", place, {"names": "", "signatures": rows[:0]})
    made.refuse("another round to unmask in", place, round=3)
    made.refuse("unmask a second time", place, later=LATER)


def refused_replies(record: Vectors) -> list[Vectors]:
    """What a server does not take in a run of masked sums."""
    made = Record(record)
    advertise = made.at("east", "update", "advertise", 2)
    request = made.requests[advertise]
    scope = Scope(request.run, request.round, request.exchange, request.channel, request.cohort)
    own = made.reply_tree(advertise)

    def signed(public: np.ndarray) -> wire.Tree:
        octets, commitment = public.tobytes(), own["commitment"].tobytes()
        signature = made.identities["east"].sign(advertisements.statement(scope, "east", octets, commitment))
        return {"public": public, "signature": np.frombuffer(signature, np.uint8)}

    south = made.reply_tree(made.at("south", "update", "advertise", 2))["public"]
    made.leave_out("a set-up key of 31 bytes", 1, {"public": made.reply_tree(1)["public"][:31]}, ())
    made.leave_out("another exchange number", advertise, exchange=LATER)
    made.leave_out("another round", advertise, round=3)
    made.leave_out("another step", advertise, step="share")
    made.leave_out("another sender", advertise, sender="south")
    made.leave_out("a reply with a cohort", advertise, cohort=FIVE)
    made.leave_out("a reply that reports missed exchanges", advertise, missed=wire.encode({}))
    made.leave_out("another run", advertise, run="run-2")
    made.leave_out("a body that is none", advertise, body=b"not a body")
    made.leave_out("a signature that is wrong", advertise, {"signature": _flipped(own["signature"], 0)})
    made.leave_out("a key of 31 bytes", advertise, {"public": own["public"][:31]})
    made.leave_out("keys as bytes", advertise, {"public": own["public"].tobytes()})
    made.leave_out("a key of low order", advertise, signed(np.zeros(32, np.uint8)))
    made.leave_out("the key of another client: both go", advertise, signed(south), ("east", "south"))
    share = made.at("east", "update", "share", 2)
    sealed_shares = made.reply_tree(share)["shares"]
    made.leave_out("shares for one neighbour too few", share, {"shares": sealed_shares[1:]})
    made.leave_out("shares of 91 bytes", share, {"shares": sealed_shares[:, :91]})
    upload = made.at("south", "update", "answer", 2)
    sent = made.reply_tree(upload)
    made.leave_out("an upload of another domain", upload, {"domain": "real"})
    made.leave_out("an upload without a layout", upload, {"layout": None})
    made.leave_out("an upload of another layout", upload, {"layout": "1\nlayer.weight:3\nlayer.bias:2"})
    made.leave_out("an upload of one word too few", upload, {"data": sent["data"][1:]})
    made.leave_out("an upload of words of another type", upload, {"data": sent["data"].astype("<i4")})
    made.leave_out("an upload under other masks", upload, {"context": "00" * 32})
    agree = made.at("far-east", "update", "agree", 2)
    signature = made.reply_tree(agree)["signature"]
    made.leave_out("a wrong signature on the survivors", agree, {"signature": _flipped(signature, 0)}, ())
    unmask = made.at("far-east", "update", "unmask", 2)
    shares = made.reply_tree(unmask)["shares"]
    made.leave_out("a share too few", unmask, {"shares": shares[1:]}, ())
    made.leave_out("shares that are no numbers of the field", unmask, {"shares": shares | 0xFF}, ())
    made.leave_out("shares of other secrets", unmask, {"shares": shares[::-1]}, ())
    return made.replies_refused


def refused_of_parcels(record: Vectors) -> list[Vectors]:
    """What a client refuses of parcels."""
    made = Record(record)
    _offers(made)
    _deliveries(made)
    return made.requests_refused


def _changed_parcel(octets: bytes, **changes: Any) -> bytes:
    return _encoded(wire.decode(octets), changes)


def _offers(made: Record) -> None:
    place, entry = made.at("North", "answers", "answer", 1), f"{OFFER}offers"
    parcel = made.tree(place)[entry]
    tree = wire.decode(wire.decode(parcel)["tree"])
    content = tree["content"]
    swapped = bytes([content[0] ^ 1]) + content[1:]

    def offer(why: str, **changes: Any) -> None:
        made.refuse(why, place, {entry: _changed_parcel(parcel, **changes)})

    def inside(why: str, **changes: Any) -> None:
        offer(why, tree=_encoded(tree, changes))

    made.refuse("an ask for a sum without an offer", place, {entry: None})
    made.refuse("an offer from inside the cohort", place, cohort=("west", "North", "east"))
    made.refuse("an offer that is no bytes", place, {entry: "text"})
    made.refuse("an offer that ends early", place, {entry: parcel[:-1]})
    made.refuse(
        "an offer under another channel's name", place, {entry: _changed_parcel(parcel, channel="answers")}
    )
    offer("an offer without its round", round=None)
    offer("an offer with another entry", other=1)
    offer("an offer of another round", round=2)
    offer("an offer made under another number", exchange=4)
    offer("an offer of another sender", sender="east")
    offer("an offer of the client itself", sender="North")
    offer("an offer to a cohort without the client", cohort="west\neast")
    offer("an offer to a cohort without its sender", cohort="North\neast")
    offer("an offer to another cohort", cohort="North\nwest\neast")
    inside("a parcel without a key for the client", **{"key/North": None})
    inside("a parcel with another reader's key", **{"key/North": tree["key/east"]})
    inside("a parcel with another content", content=swapped)
    inside("a parcel without a content", content=None)
    inside("a parcel whose content is a text", content="text")
    made.refuse("a sum of one", place, cohort=("North",))


def _resealed(made: Record, delivery: wire.Tree, pad: Callable[[bytes], bytes]) -> bytes:
    """North's reply with another padded content, sealed as North would."""
    north = made.parties["North"]
    answered = made.requests[made.at("North", "answers", "answer", 1)]
    scope = Scope(answered.run, 1, answered.exchange, "answers", answered.cohort, "west", 3)
    inner = sealed.unseal(
        *_key_and_content(made, wire.decode(delivery["reply/North"]), scope),
        sealed._binding(scope, "North"),
    )
    key = bytes(range(32))
    with fixed():
        content = seal(key, pad(inner), sealed._binding(scope, "North"))
        pair = key_agreement.shared_key(north, "west", scope, "parcel from North")
        wrapped = seal(pair, key, sealed._binding(scope, "North", "west", content))
    return wire.encode({"domain": "sealed", "content": content, "key/west": wrapped})


def _to_the_brim(padded: bytes) -> bytes:
    """A padded content that is a readable reply if nobody compares its length."""
    tree = wire.decode(padded[: int.from_bytes(padded[-8:], "little")])
    room = len(padded) - len(wire.encode({**tree, "more": b""}))
    return wire.encode({**tree, "more": bytes(room - 8) + (len(padded) + 1).to_bytes(8, "little")})


def _key_and_content(made: Record, tree: wire.Tree, scope: Scope) -> tuple[bytes, bytes]:
    pair = key_agreement.shared_key(made.parties["west"], "North", scope, "parcel from North")
    binding = sealed._binding(scope, "North", "west", tree["content"])
    return sealed.unseal(pair, tree["key/west"], binding), tree["content"]


def _deliveries(made: Record) -> None:
    place = made.at("west", "answers", "read", 1)
    tree = made.tree(place)
    north, east = tree["reply/North"], tree["reply/east"]
    made.refuse("a delivery without an exchange", place, {"exchange": None})
    made.refuse("a delivery without a cohort", place, {"cohort": None})
    made.refuse("a delivery with another entry", place, {"other": 1})
    made.refuse("a delivery that lacks a reply", place, {"reply/east": None})
    made.refuse("a delivery with a reply from outside its cohort", place, {"cohort": "North"})
    made.refuse("a delivery of one", place, {"cohort": "North", "reply/east": None})
    made.refuse("a delivery of replies that are swapped", place, {"reply/North": east, "reply/east": north})
    made.refuse("a delivery under another number", place, {"exchange": 5})
    made.refuse(
        "a delivery with the reader in the cohort",
        place,
        {"cohort": "west\nNorth\neast", "reply/west": north},
    )
    made.refuse("a delivery of a cohort in another order", place, {"cohort": "east\nNorth"})
    made.refuse(
        "a delivery of a stranger", place, {"cohort": "North\neast\nstranger", "reply/stranger": north}
    )
    made.refuse("a delivery in another round", place, round=2)
    made.refuse("a delivery by a client", place, sender="east")
    made.refuse("a second delivery", place, later=LATER)
    changed = {
        "a parcel whose length is above what it holds": lambda padded: (
            padded[:-8] + len(padded).to_bytes(8, "little")
        ),
        "a parcel that is a body up to its last byte, with a length above it": _to_the_brim,
        "a parcel whose length cuts its body": lambda padded: (
            padded[:-8] + (int.from_bytes(padded[-8:], "little") - 1).to_bytes(8, "little")
        ),
        "a parcel of no bytes": lambda padded: b"",
    }
    for why, pad in changed.items():
        made.refuse(why, place, {"reply/North": _resealed(made, tree, pad)})
    other = made.at("west", "offers", "read", 2)
    made.refuse("a delivery of uploads whose cohort lacks the reader", other, {"cohort": "North\neast"})
