"""The public test vectors, one function a file; ``docs/wire_format.md`` says what is in them."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import parties
from changed_messages import refused_of_parcels, refused_of_sums, refused_replies
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from fixed_draws import fixed, stream, traced
from vector_runs import PARCELS, SUMS, THREE, Vectors

from secure_fedgraph.core import crypto, wire
from secure_fedgraph.core.carriers import history
from secure_fedgraph.core.carriers import key_agreement as agreement
from secure_fedgraph.core.carriers.history import Exchange, History
from secure_fedgraph.core.carriers.secagg import neighbours, ring_words, shamir
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import BindContext, Party, Scope, Sensitivity
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.upload import Layout

HERE = Path(__file__).resolve().parent
TYPES = {
    "float32": 1,
    "float64": 2,
    "int64": 3,
    "uint32": 4,
    "uint64": 5,
    "uint8": 6,
    "bool": 7,
    "int32": 8,
    "text": 100,
    "bytes": 101,
    "texts": 102,
}


# --- bodies, messages, layouts ------------------------------------------------------------------------------


def entry(name: str, kind: str, values: Any, shape: tuple[int, ...] = ()) -> Vectors:
    """One entry of a body as the files write it."""
    described: Vectors = {"name": name, "type": kind}
    if kind in ("text", "bytes", "texts"):
        return {**described, "value": values.hex() if kind == "bytes" else values}
    return {**described, "shape": list(shape), "values": values}


def tree_of(entries: list[Vectors]) -> wire.Tree:
    """What ``wire.encode`` takes."""
    tree: wire.Tree = {}
    for one in entries:
        if one["type"] == "bytes":
            tree[one["name"]] = bytes.fromhex(one["value"])
        elif "value" in one:
            tree[one["name"]] = one["value"]
        else:
            kind = "float64" if one["type"].startswith("float") else one["type"]
            numbers = [float(v) if kind == "float64" else int(v) for v in one["values"]]
            tree[one["name"]] = np.array(numbers, dtype=kind).astype(one["type"]).reshape(one["shape"])
    return tree


def raw(
    *entries: tuple[bytes, int, tuple[int, ...]],
    payload: bytes = b"",
    magic: bytes = b"SFG",
    version: int = 1,
    count: int | None = None,
) -> bytes:
    """A body by hand, whether it is one or not: entries are name, type and dimensions."""
    head = magic + struct.pack("<BH", version, len(entries) if count is None else count)
    for name, code, shape in entries:
        head += struct.pack("<H", len(name)) + name + struct.pack("<BB", code, len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape)
    return head + payload


def refused(*rows: tuple[str, bytes]) -> list[Vectors]:
    """Bytes that are to be refused, each with the reason."""
    return [{"why": why, "bytes": octets.hex()} for why, octets in rows]


BODIES: dict[str, list[Vectors]] = {
    "no entries": [],
    "numbers of no dimensions": [
        entry("whole", "int64", [-2]),
        entry("real", "float64", [0.1]),
        entry("true", "bool", [1]),
        entry("large", "uint64", ["18446744073709551615"]),
        entry("small", "uint8", [255]),
    ],
    "every type of array": [
        entry(
            "float32",
            "float32",
            [1.5, -0.0, "inf", "-inf", 1.401298464324817e-45, 3.4028234663852886e38],
            (2, 3),
        ),
        entry("float64", "float64", [0.1, -1e300], (2,)),
        entry("int64", "int64", ["-9223372036854775808", "9223372036854775807"], (2, 1)),
        entry("uint32", "uint32", [0, 4294967295], (2,)),
        entry("uint64", "uint64", ["9223372036854775808"], (1,)),
        entry("uint8", "uint8", [0, 1, 254, 255], (1, 2, 2)),
        entry("bool", "bool", [0, 1, 1], (3,)),
        entry("int32", "int32", [-2147483648, 2147483647], (2,)),
    ],
    "texts and bytes": [
        entry("text", "text", "graph\nüber 図 \U0001f600"),
        entry("empty text", "text", ""),
        entry("bytes", "bytes", bytes(range(5))),
        entry("no bytes", "bytes", b""),
        entry("texts", "texts", ["north", "", "süd"]),
        entry("no texts", "texts", []),
    ],
    "entries in the writer's order": [entry("b", "int64", [1]), entry("a", "int64", [2])],
    "the longest name": [entry("n" * 256, "int32", [1], (1,))],
    "a name that is no ASCII": [entry("größe", "int64", [3])],
    "eight dimensions": [entry("a", "uint8", [9], (1,) * 8)],
    "empty arrays": [entry("a", "float32", [], (0, 5)), entry("b", "uint8", [], (0, 2**31, 2**31))],
}


def wire_json() -> Vectors:
    """Bodies, messages and layouts."""
    bodies = []
    for name, entries in BODIES.items():
        body = wire.encode(tree_of(entries))
        bodies.append(
            {"name": name, "entries": entries, "body": body.hex(), "sha256": hashlib.sha256(body).hexdigest()}
        )
    whole = (b"a", 3, ())
    eight = bytes(8)
    good = raw(whole, payload=eight)
    refused_bodies = refused(
        ("no bytes", b""),
        ("the mark alone", b"SFG"),
        ("another mark", raw(whole, payload=eight, magic=b"SFH")),
        ("version 0", raw(whole, payload=eight, version=0)),
        ("version 2", raw(whole, payload=eight, version=2)),
        ("more entries than there are", raw(whole, payload=eight, count=2)),
        ("fewer entries than there are", raw(whole, whole, payload=2 * eight, count=1)),
        ("the header ends in a name", good[:8]),
        ("the payload ends a byte early", good[:-1]),
        ("a byte after the payload", good + b"\0"),
        ("a body after the body", good + good),
        ("a name of no bytes", raw((b"", 3, ()), payload=eight)),
        ("a name of 257 bytes", raw((b"n" * 257, 3, ()), payload=eight)),
        ("a name that is no UTF-8", raw((b"\xff", 3, ()), payload=eight)),
        ("two entries of one name", raw(whole, whole, payload=2 * eight)),
        ("type 0", raw((b"a", 0, ()), payload=eight)),
        ("type 9", raw((b"a", 9, ()), payload=eight)),
        ("type 103", raw((b"a", 103, (0,)))),
        ("nine dimensions", raw((b"a", 6, (1,) * 9), payload=b"\0")),
        ("text of no dimensions", raw((b"a", 100, ()), payload=b"")),
        ("text of two dimensions", raw((b"a", 100, (1, 1)), payload=b"x")),
        ("bytes of two dimensions", raw((b"a", 101, (1, 1)), payload=b"x")),
        ("a list of texts of one dimension", raw((b"a", 102, (0,)))),
        ("lengths of texts below their bytes", raw((b"a", 102, (1, 2)), payload=b"\1\0\0\0xy")),
        ("lengths of texts above their bytes", raw((b"a", 102, (1, 2)), payload=b"\3\0\0\0xy")),
        (
            "lengths of texts that wrap at 2**32",
            raw((b"a", 102, (2, 0)), payload=b"\1\0\0\0\xff\xff\xff\xff"),
        ),
        ("text that is no UTF-8", raw((b"a", 100, (1,)), payload=b"\xc3")),
        ("overlong UTF-8", raw((b"a", 100, (2,)), payload=b"\xc0\x80")),
        ("a surrogate in UTF-8", raw((b"a", 100, (3,)), payload=b"\xed\xa0\x80")),
        (
            "a character cut in two texts",
            raw((b"a", 102, (2, 2)), payload=b"\1\0\0\0\1\0\0\0\xc3\xbc"),
        ),
        ("a bool of 2", raw((b"a", 7, (2,)), payload=b"\1\2")),
        ("a terabyte on no bytes", raw((b"a", 6, (2**40,)))),
        ("dimensions whose product wraps at 2**64", raw((b"a", 6, (2**32, 2**32)))),
        ("a text of 2**64 - 1 bytes", raw((b"a", 100, (2**64 - 1,)), payload=b"x")),
        ("an empty array of impossible shape", raw((b"a", 1, (0, 2**61)))),
        ("an empty array of a larger one", raw((b"a", 6, (0, 2**32, 2**31)))),
    )
    many = raw((b"a", 102, (65_536, 0)))
    refused_bodies.append({"why": "65,536 texts", "bytes": many.hex(), "and_zeros": 4 * 65_536})
    return {
        "page": "docs/wire_format.md",
        "bodies": bodies,
        "refused_bodies": refused_bodies,
        **_messages(),
        **_layouts(),
    }


def _messages() -> Vectors:
    missed = history.to_bytes([Exchange(5, 1, "tell", bytes(range(32)))])
    request = Message(
        "run-1", 2, 7, "update", "answer", "server", "west", ("west", "North"), wire.encode({"times": 1.5}),
        missed,
    )  # fmt: skip
    set_up = Message("run-1", 0, 1, "carrier/keys", "advertise", "server", "west", ("west",), wire.encode({}))
    rows = {
        "a request": replace(request, missed=b""),
        "a request that reports what was missed": request,
        "a reply": request.reply(wire.encode({})),
        "a request of a set-up": set_up,
        "the last round": replace(set_up, round=10**9),
    }
    messages = [{"name": name, **_message(one)} for name, one in rows.items()]
    tree = wire.decode(request.to_bytes())

    def changed(**values: Any) -> bytes:
        return wire.encode({key: value for key, value in {**tree, **values}.items() if value is not None})

    return {
        "messages": messages,
        "refused_messages": refused(
            *((f"no entry {key!r}", changed(**{key: None})) for key in tree if key != "missed"),
            ("an entry that no message has", changed(other=1)),
            ("the round as a text", changed(round="2")),
            ("the round as a real number", changed(round=2.0)),
            ("the round as a truth value", changed(round=True)),
            ("the round as an array", changed(round=np.array([2]))),
            ("the cohort as a list of texts", changed(cohort=["west", "North"])),
            ("the body as an array", changed(body=np.frombuffer(wire.encode({}), np.uint8))),
            ("the body as a text", changed(body="")),
            ("the run as bytes", changed(run=b"run-1")),
            ("round -1", changed(round=-1)),
            ("exchange -1", changed(exchange=-1)),
            ("round 1,000,000,001", changed(round=10**9 + 1)),
            ("an empty list of what was missed", changed(missed=b"")),
            ("what was missed as a text", changed(missed="5")),
            ("a message with a byte behind it", request.to_bytes() + b"\0"),
        ),
    }


def _message(message: Message) -> Vectors:
    octets = message.to_bytes()
    fields = {key: getattr(message, key) for key in ("run", "round", "exchange", "channel", "step", "sender")}
    return {
        **fields,
        "recipient": message.recipient,
        "cohort": list(message.cohort),
        "body": bytes(message.body).hex(),
        "missed": bytes(message.missed).hex(),
        "bytes": octets.hex(),
        "sha256": hashlib.sha256(octets).hexdigest(),
    }


def _layouts() -> Vectors:
    fields: list[tuple[int, tuple[tuple[str, tuple[int, ...]], ...]]] = [
        (1, (("layer.weight", (2, 3)), ("layer.bias", (3,)))),
        (40, (("x", (7,)), ("count", ()))),
        (0, (("x", (7,)),)),
        (1, (("empty", (0, 5)), ("größe, in m", (1,)))),
    ]
    texts = (
        "", "one", "-1\nx:2", "1 \nx:2", "01\nx:2", "1\nx:02", "1\nx", "1\nx:2,", "1\nx:,2", "1\nx:2\n",
        "1\n:2", "1\nx:y:2", "1\nx:2\nx:3", "1\nx:1,1,1,1,1,1,1,1,1", "1\nx:1000000000000", "\u0661\nx:2",
        "1\nx:\u0662",
        "1\n" + "n" * 201 + ":2", "2\nx:549755813889", "0\nx:0,549755813889,2", "1\nx:1.0", "1\r\nx:2",
    )  # fmt: skip
    return {
        "layouts": [
            {
                "rows": rows,
                "tensors": [[name, list(shape)] for name, shape in named],
                "text": Layout(named, rows).to_text(),
            }
            for rows, named in fields
        ],
        "refused_layouts": list(texts),
    }


# --- the history of a run -----------------------------------------------------------------------------------


def history_json() -> Vectors:
    """Heads, one exchange after the other, and lists of what was missed."""
    run, alike, once = "run-1", ("tell", "update", "vocabulary"), ("vocabulary",)
    followed = History(run)
    start, steps = followed.head, []
    given: list[tuple[int, int, str, tuple[str, ...], wire.Tree]] = [
        (3, 1, "tell", ("west", "North"), {"a": 1, "b": 0.5}),
        (4, 1, "update", ("North", "west"), {}),
        (9, 2, "tell", ("west",), {"small": np.array(7, np.uint8), "half": np.array(0.5, np.float32)}),
        (10, 2, "tell", ("west",), {"array": np.array([7], np.uint8), "texts": ["a", "b"], "raw": b"\1"}),
    ]
    for number, round, channel, cohort, tree in given:
        body = wire.encode(tree)
        exchange = history.exchange_of(number, round, channel, cohort, wire.decode(body, views=True))
        followed.add(exchange)
        steps.append(
            {
                "exchange": number,
                "round": round,
                "channel": channel,
                "cohort": list(cohort),
                "given": body.hex(),
                "written_anew": wire.encode(wire.decode(body)).hex(),
                "digest": exchange.digest.hex(),
                "head": followed.head,
            }
        )
    one = Exchange(3, 1, "tell", bytes([1] * 32))
    two = Exchange(4, 1, "update", bytes([2] * 32))
    caught = History(run)
    caught.catch_up([one, two], 5, alike)
    caught.catch_up(history.from_bytes(history.to_bytes([one, two])), 6, alike)  # the second time in vain
    tree = wire.decode(history.to_bytes([one, two]))
    unreadable = {
        "no entry 'digests'": {"digests": None},
        "another entry": {"other": 1},
        "numbers of another type": {"numbers": tree["numbers"].astype("<i4")},
        "one number less": {"numbers": tree["numbers"][:1]},
        "no exchange": {
            "numbers": tree["numbers"][:0],
            "rounds": tree["rounds"][:0],
            "channels": "",
            "digests": tree["digests"][:0],
        },
        "one channel less": {"channels": "tell"},
        "channels as a list of texts": {"channels": ["tell", "update"]},
        "digests of 31 bytes": {"digests": np.ascontiguousarray(tree["digests"][:, :31])},
        "digests as bytes": {"digests": tree["digests"].tobytes()},
    }
    lists = [
        {"why": why, "missed": wire.encode({k: v for k, v in {**tree, **one}.items() if v is not None}).hex()}
        for why, one in unreadable.items()
    ]
    wrong = {
        "the number of the request itself": [replace(one, number=8)],
        "a number above the request's": [replace(one, number=9)],
        "a channel that gives each client its own": [replace(one, channel="own")],
        "a round that falls": [replace(one, round=2), two],
        "twice in a round on a channel that gives once a round": [
            replace(one, channel="vocabulary"),
            replace(two, channel="vocabulary"),
        ],
    }
    return {
        "page": "docs/wire_format.md#the-history-of-a-run",
        "run": run,
        "head": start,
        "exchanges": steps,
        "missed": {
            "channels_that_give_alike": list(alike),
            "channels_that_give_once_a_round": list(once),
            "exchanges": [{**vars(exchange), "digest": exchange.digest.hex()} for exchange in (one, two)],
            "bytes": history.to_bytes([one, two]).hex(),
            "head": caught.head,
        },
        "refused_missed": [
            *lists,
            *({"why": why, "missed": history.to_bytes(rows).hex()} for why, rows in wrong.items()),
        ],
        "refused_missed_before": 8,
    }


# --- keys ---------------------------------------------------------------------------------------------------


def key_agreement_json() -> Vectors:
    """Signed keys, pair keys, streams and seals."""
    with fixed() as draws, traced(draws) as steps:
        identities = {}
        for name in THREE:
            with draws.as_party(name):
                identities[name] = crypto.Identity.generate()
        roster = {name: identity.public for name, identity in identities.items()}
        people = {name: Party(name, identities[name], roster) for name in THREE}
        place, advertised = Scope(parties.RUN, 0, 1, "carrier/keys", THREE), {}
        for name, party in people.items():
            with draws.as_party(name):
                advertised[name] = agreement.answer("advertise", {}, place, party)
        signed = {name: dict(steps[name][-1]) for name in THREE}
        introduced = {f"{key}/{name}": tree[key] for name, tree in advertised.items() for key in tree}
        for party in people.values():
            agreement.answer("introduce", introduced, replace(place, exchange=2), party)
        pairs = _pairs(people, steps)
        private = {name: bytes.fromhex(draws.made[name][1]["value"]) for name in THREE}
        key, nonce_at = hashlib.sha256(b"a key to seal with").digest(), len(draws.made["server"])
        sealed = [
            {
                "key": key.hex(),
                "plaintext": plaintext.hex(),
                "bound": bound.hex(),
                "sealed": crypto.seal(key, plaintext, bound).hex(),
                "nonce": draws.made["server"][nonce_at + number]["value"],
            }
            for number, (plaintext, bound) in enumerate([(b"", b""), (b"a plaintext", b"bound to this")])
        ]
    whole = bytes.fromhex(sealed[1]["sealed"])
    low = X25519PrivateKey.from_private_bytes(private["west"])
    return {
        "page": "docs/wire_format.md#key-agreement",
        "run": parties.RUN,
        "exchange": place.exchange,
        "clients": list(THREE),
        "roster": {name: key.hex() for name, key in roster.items()},
        "drawn": {name: draws.made[name] for name in THREE},
        "advertised": {
            name: {**{key: value.hex() for key, value in tree.items()}, "signed": signed[name]["message"]}
            for name, tree in advertised.items()
        },
        "introduced": wire.encode(introduced).hex(),
        "raw_shared_secret": {
            "own": "west",
            "peer": "North",
            "secret": low.exchange(X25519PublicKey.from_public_bytes(advertised["North"]["public"])).hex(),
        },
        "pairs": pairs,
        "refused_public_keys": [
            {"why": why, "own": "west", "public": octets.hex()}
            for why, octets in (
                ("its own", advertised["west"]["public"]),
                ("zero, which has low order", bytes(32)),
                ("one, which has low order", bytes([1, *bytes(31)])),
                ("the prime, which is zero written otherwise", (2**255 - 19).to_bytes(32, "little")),
                ("31 bytes", advertised["North"]["public"][:31]),
            )
        ],
        "refused_introductions": _refused_introductions(introduced, identities),
        "hkdf": {
            "secret": key.hex(),
            "info": b"any purpose".hex(),
            "key": crypto.derive(key, b"any purpose").hex(),
        },
        "streams": [
            {"key": one.hex(), "stream": stream(one, 48).hex()}
            for one in (key, bytes(16) + b"\xff" * 16, bytes(31) + b"\xff")
        ],
        "seals": sealed,
        "refused_seals": [
            {"why": why, "key": key.hex(), "bound": bound.hex(), "sealed": octets.hex()}
            for why, bound, octets in (
                ("bound to something else", b"bound to that", whole),
                ("a changed nonce", b"bound to this", bytes([whole[0] ^ 1]) + whole[1:]),
                ("a changed ciphertext", b"bound to this", whole[:12] + bytes([whole[12] ^ 1]) + whole[13:]),
                ("a changed tag", b"bound to this", whole[:-1] + bytes([whole[-1] ^ 1])),
                ("a tag that is cut", b"bound to this", whole[:-1]),
                ("no room for nonce and tag", b"", whole[:27]),
            )
        ],
    }


def _pairs(people: Mapping[str, Party], steps: Any) -> list[Vectors]:
    rows: list[tuple[str, str, str, Scope]] = [
        ("west", "North", "masked: shares", Scope(parties.RUN, 0, 0, "", ())),
        ("North", "west", "mask", Scope(parties.RUN, 1, 4, "answers", THREE[1:], "west", 3, "00" * 32)),
        ("east", "west", "parcel from west", Scope(parties.RUN, 1, 3, "offers", THREE)),
    ]
    pairs = []
    for own, peer, purpose, scope in rows:
        key = agreement.shared_key(people[own], peer, scope, purpose)
        step = steps["server"][-1]
        pairs.append(
            {
                "own": own,
                "peer": peer,
                "purpose": purpose,
                "exchange": scope.exchange,
                "channel": scope.channel,
                "cohort": list(scope.cohort),
                "reader": scope.reader,
                "offer": scope.offer,
                "given": scope.history_head,
                "secret": step["secret"],
                "info": step["info"],
                "key": key.hex(),
            }
        )
    return pairs


def _refused_introductions(introduced: wire.Tree, identities: Mapping[str, crypto.Identity]) -> list[Vectors]:
    def signed(by: str, public: bytes, **values: Any) -> bytes:
        facts = {"purpose": "advertise", "run": parties.RUN, "name": "North", "public": public, **values}
        return identities[by].sign(wire.encode(facts))

    public = introduced["public/North"]
    other = introduced["public/east"]
    rows: dict[str, wire.Tree] = {
        "a key is missing": {"public/North": None},
        "a signature is missing": {"signature/North": None},
        "a signature has 63 bytes": {"signature/North": introduced["signature/North"][:63]},
        "a bit of a signature is another": {
            "signature/North": bytes([introduced["signature/North"][0] ^ 1])
            + introduced["signature/North"][1:]
        },
        "another key than was signed": {"public/North": other},
        "signed by somebody else": {"signature/North": signed("east", public)},
        "signed for another run": {"signature/North": signed("North", public, run="run-2")},
        "signed for another name": {"signature/North": signed("North", public, name="east")},
        "signed for another purpose": {"signature/North": signed("North", public, purpose="introduce")},
        "a key as an array": {"public/North": np.frombuffer(public, np.uint8)},
        "the client's own key is another": {
            "public/west": public,
            "signature/west": signed("west", public, name="west"),
        },
    }
    return [
        {
            "why": why,
            "to": "west",
            "body": wire.encode({k: v for k, v in {**introduced, **row}.items() if v is not None}).hex(),
        }
        for why, row in rows.items()
    ]


# --- sums and parcels ---------------------------------------------------------------------------------------


def masked_sum_json() -> Vectors:
    """A run of two sums, and its parts one by one."""
    record = SUMS.record()
    return {
        "page": "docs/wire_format.md#a-masked-sum",
        "thresholds": _thresholds(),
        "circle": _circle(),
        "secret_sharing": _secret_sharing(),
        "fixed_point": _fixed_point(),
        "ring": _ring(),
        **record,
        "refused_requests": refused_of_sums(record),
        "refused_replies": refused_replies(record),
    }


def _thresholds() -> list[Vectors]:
    rows = [
        (2, 2, 0.0, 0.2, 2), (3, 3, 0.1, 0.2, 3), (5, 4, 0.1, 0.2, 5), (10, 10, 0.3, 0.2, 10),
        (32, 32, 0.1, 0.2, 32), (33, 33, 0.1, 0.2, 33), (40, 36, 0.1, 0.2, 100), (100, 100, 0.1, 0.2, 100),
        (100, 90, 0.0, 0.1, 100), (100, 100, 0.4, 0.3, 100), (300, 300, 0.1, 0.2, 300), (8, 8, 0.9, 0.2, 8),
    ]  # fmt: skip
    keys = ("cohort", "present", "colluders", "dropouts", "roster")
    return [{**dict(zip(keys, row, strict=True)), **vars(neighbours.thresholds(*row))} for row in rows]


def _circle() -> Vectors:
    names = tuple(sorted(f"owner-{number}" for number in range(9)))
    seed = hashlib.sha256(b"a deck").digest()
    order = neighbours.circle(names, seed)
    around = {
        str(degree): {name: list(near) for name, near in neighbours.around(order, degree).items()}
        for degree in (2, 4, 8)
    }
    return {"deck": seed.hex(), "names": list(names), "order": list(order), "neighbours_by_degree": around}


def _number(value: int) -> str:
    return value.to_bytes(32, "little").hex()


def _secret_sharing() -> Vectors:
    with fixed() as draws:
        secrets = [draws.element("secret"), shamir.PRIME - 1]
        points = [1, 2, 3, 5, 8, 9, 11]
        before = len(draws.made["server"])
        shares = shamir.split(secrets, 3, points)
        coefficients = [row["value"] for row in draws.made["server"][before:]]
    of_first = {point: share[0] for point, share in shares.items()}
    spoilt = {**of_first, 1: of_first[2], 5: 0}  # two of seven: a surplus of four corrects both
    found = shamir.decoded(spoilt, 3)
    assert found == secrets[0] == shamir.combine({point: of_first[point] for point in (2, 8, 11)})
    return {
        "prime": str(shamir.PRIME),
        "threshold": 3,
        "secrets": [_number(one) for one in secrets],
        "coefficients_from_the_highest_power": [coefficients[:2], coefficients[2:]],
        "shares": {str(point): [_number(one) for one in pair] for point, pair in shares.items()},
        "two_wrong": {"shares": {str(k): _number(v) for k, v in spoilt.items()}, "secret": _number(found)},
        "no_shares": [_number(shamir.PRIME), _number(2**255 - 1), "ff" * 32],
        "largest_share": _number(shamir.PRIME - 1),
    }


def _fixed_point() -> list[Vectors]:
    found = []
    channel = Channel("update", Reveal.SUM)
    for limit, bits, clients, values in (
        (8.0, 32, 5, [0.0, 1.5, -8.0, 8.0, -0.3333333432674408]),
        (8.0, 32, 5, [8.000000953674316, 0.25]),
        (8.0, 32, 5, [-1e30, 2.0]),
        (8.0, 32, 5, [k * 2.0**-26 for k in (1, 3, 5, -1, -3)]),
        (0.1, 32, 3, [0.10000000149011612, 0.09999999403953552, -0.05]),
        (1.0, 20, 10, [0.5, -1.0, 0.001]),
        (1.0, 16, 4, [0.5, -1.0, 0.001]),
        (4.0, 32, 2, [4.0, -4.0, 3.9999997615814209]),
    ):
        names = tuple(f"owner-{number}" for number in range(clients))
        context = BindContext(channel, names, "zero-out", 2**bits)
        stage, _ = FixedPoint(limit).bind(Sensitivity(), context)
        matrix = np.array([values], dtype=np.float32)
        cut = stage.tally(matrix)
        numbers = stage.apply(matrix.copy(), Scope("", 0, 0, "", ()))
        words = np.concatenate([numbers.reshape(-1), cut])
        assert isinstance(stage, FixedPoint)
        found.append(
            {
                "limit": limit,
                "bits": bits,
                "clients": clients,
                "grid": stage.step,
                "values": matrix.reshape(-1).tolist(),
                "numbers": words.tolist(),
                "read": stage.undo(numbers, Scope("", 0, 0, "", ())).reshape(-1).tolist(),
                "words": ring_words.pack(_words(words, bits), bits).tobytes().hex(),
            }
        )
    return found


def _words(numbers: np.ndarray, bits: int) -> np.ndarray:
    """As :meth:`Masked.seal` makes them."""
    words = np.array(numbers, dtype=np.int32)
    return words.astype("<u2") if bits == 16 else words.view("<u4")


def _ring() -> list[Vectors]:
    """Numbers under two streams, at each width; the words of two clients and their sum."""
    found = []
    numbers = np.array([0, 1, -1, 2**15 - 1, -(2**15)], dtype=np.int32)
    plus, minus = (hashlib.sha256(text).digest() for text in (b"added", b"subtracted"))
    for bits in ring_words.WIDTHS:
        words = _words(numbers, bits)
        ring_words.accumulate(words, plus=[plus], minus=[minus])
        packed = ring_words.pack(words, bits)
        layout = Layout((("w", (len(numbers),)),))
        opened = np.array(ring_words.unpack(packed, bits, layout, "a client"))
        ring_words.accumulate(opened, plus=[minus], minus=[plus])
        assert (ring_words.centred(opened, bits) == numbers).all()
        found.append(
            {
                "bits": bits,
                "numbers": numbers.tolist(),
                "added": plus.hex(),
                "subtracted": minus.hex(),
                "words": packed.tobytes().hex(),
                "type": packed.dtype.name,
            }
        )
    return found


def parcels_json() -> Vectors:
    """A run of offers, a sum that a peer reads, and a delivery."""
    record = PARCELS.record()
    return {
        "page": "docs/wire_format.md#sealed-parcels",
        **record,
        "refused_requests": refused_of_parcels(record),
    }


MADE: dict[str, Callable[[], Vectors]] = {
    "wire": wire_json,
    "history": history_json,
    "key_agreement": key_agreement_json,
    "masked_sum": masked_sum_json,
    "parcels": parcels_json,
}


@cache
def written(name: str) -> str:
    """A file as its text."""
    return json.dumps(MADE[name](), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def stored(name: str) -> Vectors:
    """What the file of this name holds."""
    found: Vectors = json.loads((HERE / f"{name}.json").read_text(encoding="ascii"))
    return found


if __name__ == "__main__":  # PYTHONPATH=.:tests/federations python tests/vectors/vector_files.py
    for name in MADE:
        (HERE / f"{name}.json").write_text(written(name), encoding="ascii")
