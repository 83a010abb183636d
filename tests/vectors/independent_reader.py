"""A silo, and a server of masked sums, written to ``docs/wire_format.md``.

It imports nothing of this package: the standard library, numpy and ``cryptography`` do. It is plain rather
than fast, and it trusts nobody's lengths.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class Refused(Exception):
    """What the page says is refused."""


def need(holds: object, why: str) -> None:
    if not holds:
        raise Refused(why)


# --- bodies -------------------------------------------------------------------------------------------------

ARRAYS = {1: "<f4", 2: "<f8", 3: "<i8", 4: "<u4", 5: "<u8", 6: "<u1", 7: "|b1", 8: "<i4"}
TEXT, BYTES, TEXTS = 100, 101, 102
U8 = np.dtype("u1")
Tree = dict[str, Any]
"""Entries by name, in order: arrays (those of no dimensions are numpy's too), str, bytes, lists of str."""


def decode(body: bytes) -> Tree:
    """The entries of a body."""
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        need(size <= len(body) - at, "the body ends too early")
        at += size
        return body[at - size : at]

    need(take(3) == b"SFG", "no body")
    version, count = struct.unpack("<BH", take(3))
    need(version == 1, "another version")
    described = []
    for _ in range(count):
        (length,) = struct.unpack("<H", take(2))
        need(1 <= length <= 256, "the length of a name")
        name = text(take(length))
        code, dimensions = take(2)
        need(dimensions <= 8, "too many dimensions")
        shape = struct.unpack(f"<{dimensions}Q", take(8 * dimensions))
        if code in (TEXT, BYTES):
            need(dimensions == 1, "text and bytes have one dimension")
            size = shape[0]
        elif code == TEXTS:
            need(dimensions == 2 and shape[0] <= 65_535, "a list of texts")
            size = 4 * shape[0] + shape[1]
        else:
            need(code in ARRAYS, "an unknown type")
            item = np.dtype(ARRAYS[code]).itemsize
            need(item * math.prod(max(n, 1) for n in shape) < 2**63, "an impossible shape")
            size = item * math.prod(shape)
        described.append((name, code, shape, size))
    need(len({name for name, *_ in described}) == count, "a name twice")
    need(sum(size for *_, size in described) == len(body) - at, "not as long as promised")
    return {name: _value(code, shape, take(size)) for name, code, shape, size in described}


def _value(code: int, shape: tuple[int, ...], payload: bytes) -> Any:
    if code == BYTES:
        return payload
    if code == TEXT:
        return text(payload)
    if code == TEXTS:
        lengths = struct.unpack(f"<{shape[0]}I", payload[: 4 * shape[0]])
        need(sum(lengths) == shape[1], "lengths that do not add up")
        ends = list(itertools.accumulate(lengths, initial=4 * shape[0]))
        return [text(payload[start:end]) for start, end in itertools.pairwise(ends)]
    need(code != 7 or set(payload) <= {0, 1}, "a bool other than 0 and 1")
    return np.frombuffer(payload, ARRAYS[code]).reshape(shape)


def text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("not UTF-8") from None


def encode(tree: Mapping[str, Any]) -> bytes:
    """The body of these entries."""
    head, payloads = b"SFG" + struct.pack("<BH", 1, len(tree)), b""
    for name, value in tree.items():
        code, shape, payload = _described(value)
        raw = name.encode()
        head += struct.pack("<H", len(raw)) + raw + bytes([code, len(shape)])
        head += struct.pack(f"<{len(shape)}Q", *shape)
        payloads += payload
    return head + payloads


def _described(value: Any) -> tuple[int, tuple[int, ...], bytes]:
    if isinstance(value, str):
        return TEXT, (len(value.encode()),), value.encode()
    if isinstance(value, bytes):
        return BYTES, (len(value),), value
    if isinstance(value, list):
        raws = [one.encode() for one in value]
        lengths = struct.pack(f"<{len(raws)}I", *map(len, raws))
        return TEXTS, (len(raws), sum(map(len, raws))), lengths + b"".join(raws)
    if isinstance(value, bool):
        value = np.array(value)
    elif isinstance(value, int):
        value = np.array(value, "<i8" if value < 2**63 else "<u8")
    elif isinstance(value, float):
        value = np.array(value, "<f8")
    (code,) = [code for code, kind in ARRAYS.items() if np.dtype(kind) == value.dtype]
    return code, value.shape, value.tobytes()


def written_anew(tree: Mapping[str, Any]) -> bytes:
    """As it enters the history: numbers of no dimensions in their widest type."""
    return encode(
        {
            name: value.item() if isinstance(value, np.ndarray) and value.shape == () else value
            for name, value in tree.items()
        }
    )


def whole(value: Any) -> int:
    """A whole number of no dimensions, of whatever integer type."""
    need(isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iu", "no whole number")
    return int(value)


def octets(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    need(isinstance(value, np.ndarray) and value.dtype == U8 and value.shape == shape, f"no octets {shape}")
    found: np.ndarray = value
    return found


def row(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, U8)


def joined(names: Sequence[str]) -> str:
    return "\n".join(names)


def parted(value: Any) -> tuple[str, ...]:
    need(isinstance(value, str), "no names")
    return tuple(value.split("\n")) if value else ()


def by_bytes(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=str.encode))


def before(one: str, other: str) -> bool:
    return one.encode() < other.encode()


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


# --- messages -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    run: str
    round: int
    exchange: int
    channel: str
    step: str
    sender: str
    recipient: str
    cohort: tuple[str, ...]
    body: bytes
    missed: bytes = b""

    @classmethod
    def parse(cls, raw: bytes) -> Message:
        tree = decode(raw)
        fields: dict[str, Any] = {}
        for name in ("run", "round", "exchange", "channel", "step", "sender", "recipient", "cohort", "body"):
            need(name in tree, f"no {name}")
            value = tree.pop(name)
            if name in ("round", "exchange"):
                fields[name] = whole(value)
                need(fields[name] >= 0, f"negative {name}")
            else:
                need(isinstance(value, bytes if name == "body" else str), f"another type of {name}")
                fields[name] = value
        need(fields["round"] <= 1_000_000_000, "the round")
        fields["cohort"] = parted(fields["cohort"])
        need(len(fields["cohort"]) <= 1_000_000, "the cohort")
        if "missed" in tree:
            fields["missed"] = tree.pop("missed")
            need(isinstance(fields["missed"], bytes) and fields["missed"], "missed")
        need(not tree, "an entry that no message has")
        return cls(**fields)

    def raw(self) -> bytes:
        tree = {**vars(self), "cohort": joined(self.cohort)}
        if not self.missed:
            del tree["missed"]
        return encode(tree)

    def reply(self, body: bytes) -> Message:
        return Message(
            self.run,
            self.round,
            self.exchange,
            self.channel,
            self.step,
            self.recipient,
            self.sender,
            (),
            body,
        )


# --- uploads ------------------------------------------------------------------------------------------------


def layout_size(layout: Any) -> int:
    """How many values a layout promises."""
    need(isinstance(layout, str), "no layout")
    number = r"(?:0|[1-9][0-9]{0,11})"
    first, *lines = layout.split("\n")
    need(re.fullmatch(number, first) and len(lines) <= 4096, "no layout")
    names, width, promised = set(), 0, 0
    for line in lines:
        found = re.fullmatch(rf"([^:\n]{{1,200}}):({number}(?:,{number}){{0,7}})?", line)
        assert found is None or found[1] is not None
        need(found, "a line of the layout")
        shape = [int(n) for n in (found[2] or "").split(",") if n] if found else []
        names.add(found[1] if found else "")
        width += math.prod(shape)
        promised += math.prod(max(n, 1) for n in shape)
    need(len(names) == len(lines), "a tensor twice")
    need(max(int(first), 1) * promised <= 2**40, "too many values")
    return int(first) * width


def grid_of(limit: float, bits: int, clients: int) -> float:
    room = 2**bits / 2 / clients - 1
    return 2.0 ** math.ceil(math.log2(limit / room))


def fixed_point(values: Sequence[float], limit: float, grid: float) -> list[int]:
    """Whole numbers, and the one that counts whether something was cut."""
    largest = np.float32(limit)
    if float(largest) > limit:
        largest = np.nextafter(largest, np.float32(0))
    numbers = [round(max(-float(largest), min(float(largest), value)) / grid) for value in values]
    return [*numbers, int(any(abs(value) > limit for value in values))]


def packed(words: Sequence[int], bits: int) -> np.ndarray:
    """The words as they travel."""
    kept = [word % 2**bits for word in words]
    if bits == 32:
        return np.array(kept, "<u4")
    low = b"".join(struct.pack("<H", word & 0xFFFF) for word in kept)
    if bits == 16:
        return row(low)
    high = [word >> 16 for word in kept] + [0] * (len(kept) % 2)
    return row(low + bytes(high[i] | high[i + 1] << 4 for i in range(0, len(high), 2)))


def unpacked(data: Any, bits: int, count: int) -> list[int]:
    """The words of an upload that promises so many."""
    need(isinstance(data, np.ndarray), "no words")
    if bits == 32:
        need(data.dtype == np.dtype("<u4") and data.shape == (count,), "another number of words")
        return [int(word) for word in data]
    halves = (count + 1) // 2 if bits == 20 else 0
    raw = octets(data, (2 * count + halves,)).tobytes()
    low = struct.unpack(f"<{count}H", raw[: 2 * count])
    if bits == 16:
        return list(low)
    high = [half for byte in raw[2 * count :] for half in (byte & 15, byte >> 4)]
    need(not any(high[count:]), "more words than promised")
    return [a | b << 16 for a, b in zip(low, high[:count], strict=True)]


def centred(word: int, bits: int) -> int:
    return (word + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def stream(key: bytes, size: int) -> bytes:
    encryptor = Cipher(algorithms.AES(key[:16]), modes.CTR(key[16:])).encryptor()
    return encryptor.update(bytes(size))


def mask_words(bits: int) -> int:
    """Bytes of a word that masks are added to."""
    return 2 if bits == 16 else 4


def masked(words: Sequence[int], bits: int, keys: Sequence[tuple[bytes, int]]) -> list[int]:
    """The words with streams added (1) and subtracted (-1), modulo the words that masks are added to."""
    size, total = mask_words(bits), list(words)
    for key, sign in keys:
        mask = np.frombuffer(stream(key, size * len(words)), f"<u{size}")
        total = [a + sign * int(b) for a, b in zip(total, mask, strict=True)]
    return [word % 2 ** (8 * size) for word in total]


# --- the history of a run -----------------------------------------------------------------------------------


class History:
    def __init__(self, run: str, once: Sequence[str] = ()) -> None:
        self.head = sha(b"history of the run ", run.encode())
        self.once, self.used = once, frozenset[str]()
        self.last, self.round = -1, 0

    def add(self, exchange: int, round: int, channel: str, digest: bytes) -> None:
        need(exchange > self.last and round >= self.round, "exchanges rise, rounds do not fall")
        used = self.used if round == self.round else frozenset[str]()
        need(channel not in used, "twice in a round")
        self.used = used | ({channel} & set(self.once))
        place = sha(encode({"exchange": exchange, "round": round, "channel": channel}))
        self.head, self.last, self.round = sha(self.head, place, digest), exchange, round

    def catch_up(self, missed: bytes, before: int, alike: Sequence[str]) -> list[tuple[int, bytes, bytes]]:
        """What was added: exchange, digest, head."""
        added = []
        for exchange, round, channel, digest in read_missed(missed):
            if exchange > self.last:
                need(exchange < before and channel in alike, "not to be reported as missed")
                self.add(exchange, round, channel, digest)
                added.append((exchange, digest, self.head))
        return added


def read_missed(raw: bytes) -> Iterator[tuple[int, int, str, bytes]]:
    tree = decode(raw)
    need(set(tree) == {"numbers", "rounds", "channels", "digests"}, "entries of missed")
    numbers, rounds = tree["numbers"], tree["rounds"]
    channels = parted(tree["channels"])
    count = len(channels)
    need(1 <= count <= 65_536, "how many were missed")
    for one in (numbers, rounds):
        need(isinstance(one, np.ndarray) and one.dtype == np.dtype("<i8") and one.shape == (count,), "missed")
    digests = octets(tree["digests"], (count, 32))
    for number, round, channel, digest in zip(numbers, rounds, channels, digests, strict=True):
        yield int(number), int(round), channel, digest.tobytes()


def given_digest(cohort: Sequence[str], given: Mapping[str, Any]) -> bytes:
    return sha(sha(joined(cohort).encode()), sha(written_anew(given)))


# --- keys, each step noted ----------------------------------------------------------------------------------


class Crypto:
    """The primitives of the page; what was computed stands in ``steps``."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def note(self, step: str, **values: Any) -> None:
        hexed = {key: value.hex() if isinstance(value, bytes) else value for key, value in values.items()}
        self.steps.append({"step": step, **hexed})

    def hkdf(self, secret: bytes, info: bytes) -> bytes:
        key = HKDF(SHA256(), 32, salt=None, info=info).derive(secret)
        self.note("hkdf", secret=secret, info=info, key=key)
        return key

    def shared(self, own: X25519PrivateKey, peer: bytes, info: bytes) -> bytes:
        public = own.public_key().public_bytes_raw()
        need(peer != public, "the own key")
        try:
            secret = own.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:
            raise Refused("no usable public key") from None
        return self.hkdf(secret, min(public, peer) + max(public, peer) + info)

    def sign(self, key: Ed25519PrivateKey, statement: bytes) -> bytes:
        signature = key.sign(statement)
        self.note("sign", message=statement, signature=signature)
        return signature

    def seal(self, key: bytes, nonce: bytes, plaintext: bytes, bound: bytes) -> bytes:
        self.note("seal", key=key, nonce=nonce, associated_data=bound, **_short(plaintext))
        return nonce + AESGCM(key).encrypt(nonce, plaintext, bound)

    def unseal(self, key: bytes, sealed: bytes, bound: bytes) -> bytes:
        need(len(sealed) >= 28, "no room for nonce and tag")
        try:
            plaintext = AESGCM(key).decrypt(sealed[:12], sealed[12:], bound)
        except InvalidTag:
            raise Refused("does not open") from None
        self.note("unseal", key=key, associated_data=bound, **_short(plaintext))
        return plaintext

    def mask(self, words: Sequence[int], bits: int, keys: Sequence[tuple[bytes, int]]) -> list[int]:
        size = mask_words(bits)
        result = masked(words, bits, keys)
        self.note(
            "mask",
            words=_raw_words(words, size),
            streams=[
                {"key": key.hex(), "sign": sign, "stream": stream(key, size * len(words)).hex()}
                for key, sign in keys
            ],
            result=_raw_words(result, size),
        )
        return result


def _raw_words(words: Sequence[int], size: int) -> bytes:
    return b"".join((word % 2 ** (8 * size)).to_bytes(size, "little") for word in words)


def _short(plaintext: bytes) -> dict[str, bytes]:
    return {"plaintext": plaintext} if len(plaintext) <= 256 else {"sha256_of_plaintext": sha(plaintext)}


def verify(public: bytes, signature: bytes, statement: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        raise Refused("a wrong signature") from None


def key_statement(run: str, exchange: int, name: str, public: bytes) -> bytes:
    return encode({"purpose": "advertise", "run": run, "exchange": exchange, "name": name, "public": public})


def pair_info(purpose: str, run: str, low: str, high: str, **where: Any) -> bytes:
    facts = {"exchange": 0, "channel": "", "cohort": "", "reader": "", "offer": 0, "given": "", **where}
    low, high = by_bytes([low, high])
    return encode({"purpose": purpose, "run": run, **facts, "low": low, "high": high})


# --- what a masked sum is made of ---------------------------------------------------------------------------

PRIME = 2**255 - 19


def thresholds(
    cohort: int, present: int, colluders: float, dropouts: float, roster: int
) -> tuple[int, int, int]:
    """Signatures, shares, degree."""
    bad = min(math.floor(colluders * max(cohort, roster) + 1e-9), cohort)
    signatures = (cohort + bad) // 2 + 1
    if present > 32:
        bad, gone = min(bad, present - 1), math.ceil(dropouts * present - 1e-9)
        for degree in range(2, present - 1, 2):
            holders = degree + 1
            g = max(
                g
                for g in range(min(holders, gone) + 1)
                if _tail(present, gone, holders, g) * present * 2**20 > 1
            )
            shares = holders - g
            least = min(2 * shares - degree - 1, shares - 1)
            if least > 0 and _tail(present - 1, bad, degree, least) * present * 2**80 <= 1:
                return signatures, shares, degree
    return signatures, signatures, present - 1


def _tail(population: int, marked: int, draws: int, least: int) -> Fraction:
    ways = sum(
        math.comb(marked, hit) * math.comb(population - marked, draws - hit)
        for hit in range(least, min(marked, draws) + 1)
    )
    return Fraction(ways, math.comb(population, draws))


def circle(names: Sequence[str], deck: bytes) -> list[str]:
    return sorted(names, key=lambda name: sha(deck, name.encode()))


def neighbours(order: Sequence[str], degree: int, name: str) -> tuple[str, ...]:
    if degree >= len(order) - 1:
        return by_bytes([other for other in order if other != name])
    at = order.index(name)
    steps = [step for reach in range(1, degree // 2 + 1) for step in (-reach, reach)]
    return by_bytes([order[(at + step) % len(order)] for step in steps])


def share(secret: int, coefficients: Sequence[int], point: int) -> int:
    """Coefficients from the highest power down."""
    total = 0
    for coefficient in (*coefficients, secret):
        total = (total * point + coefficient) % PRIME
    return total


def at_zero(shares: Mapping[int, int]) -> int:
    total = 0
    for point, value in shares.items():
        weight = 1
        for other in shares:
            if other != point:
                weight = weight * other * pow(other - point, -1, PRIME) % PRIME
        total += value * weight
    return total % PRIME


def rebuilt(shares: Mapping[int, int], threshold: int) -> Iterator[int]:
    """Secrets that so many of the shares give; somebody knows which is right."""
    for points in itertools.combinations(shares, threshold):
        yield at_zero({point: shares[point] for point in points})


def number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def advertise_statement(request: Message, name: str, public: bytes, commitment: bytes) -> bytes:
    facts = {"run": request.run, "round": request.round, "exchange": request.exchange}
    cohort = sha(joined(request.cohort).encode())
    place = sha(encode({**facts, "channel": request.channel, "cohort": cohort}))
    return b"masked: advertise" + place + public + commitment + name.encode()


def context_of(request: Message, head: bytes, deck: bytes) -> bytes:
    facts = {
        "run": request.run,
        "round": request.round,
        "exchange": request.exchange,
        "channel": request.channel,
        "cohort": sha(joined(request.cohort).encode()),
        "given": head.hex(),
        "deck": deck,
    }
    return sha(encode(facts))


def survivors_statement(context: bytes, survivors: Sequence[str]) -> bytes:
    return b"masked: survivors" + context + sha(joined(survivors).encode())


def share_bound(deck: bytes, sender: str, reader: str) -> bytes:
    return b"masked: shares" + deck + sha(joined([sender, reader]).encode())


@dataclass(frozen=True)
class Deck:
    names: tuple[str, ...]
    public: np.ndarray
    commitment: np.ndarray
    signature: np.ndarray

    @classmethod
    def read(cls, tree: Tree) -> Deck:
        need(set(tree) == {"names", "public", "commitment", "signature"}, "entries of the deck")
        names = parted(tree["names"])
        for key, size in (("public", 32), ("commitment", 32), ("signature", 64)):
            octets(tree[key], (len(names), size))
        need(names == by_bytes(sorted(set(names))), "the deck's names")
        need(len({one.tobytes() for one in tree["public"]}) == len(names), "a public key twice")
        return cls(names, tree["public"], tree["commitment"], tree["signature"])

    def tree(self) -> Tree:
        return {**vars(self), "names": joined(self.names)}

    @property
    def digest(self) -> bytes:
        return sha(encode(self.tree()))

    def of(self, name: str) -> tuple[bytes, bytes, bytes]:
        at = self.names.index(name)
        return self.public[at].tobytes(), self.commitment[at].tobytes(), self.signature[at].tobytes()


# --- a silo -------------------------------------------------------------------------------------------------


class Silo:
    """One client of a recorded run, with what it drew given.

    Args:
        record: the run, as its file has it.
        name: of the client.
    """

    def __init__(self, record: Mapping[str, Any], name: str) -> None:
        self.name, self.run = name, record["run"]
        self.policy, self.channels = record["policy"], record["channels"]
        self.alike = record["channels_that_give_alike"]
        self.roster = {other: bytes.fromhex(key) for other, key in record["roster"].items()}
        self.record = record
        self.drawn = iter(record["drawn"][name])
        self.crypto = Crypto()
        self.identity = Ed25519PrivateKey.from_private_bytes(self.draw("identity key"))
        self.history = History(self.run)
        self.asked, self.round = -1, 0
        self.last: tuple[bytes, bytes] = (b"", b"")
        self.agreement: X25519PrivateKey | None = None
        self.advertised = 0
        self.peers: dict[str, bytes] = {}
        self.pairs: dict[str, bytes] = {}
        self.sum: dict[str, Any] = {}
        self.uploads = self.unfinished = 0
        self.undo: tuple[str, History] | None = None
        self.offered = 0
        self.delivered = -1
        self.opened: list[dict[str, Any]] = []

    def draw(self, what: str) -> bytes:
        drawn = next(self.drawn)
        assert drawn["what"] == what, f"{drawn['what']} is drawn here, not {what}"
        return bytes.fromhex(drawn["value"])

    def handle(self, raw: bytes) -> bytes:
        """The reply to a request."""
        self.crypto.steps.clear()
        request = Message.parse(raw)
        need(request.run == self.run and request.recipient == self.name, "for somebody else")
        cohort = request.cohort
        need(len(set(cohort)) == len(cohort) and self.name in cohort, "the cohort")
        need(set(cohort) <= set(self.roster), "a stranger")
        if self.last[0] == sha(raw):
            return self.last[1]
        need(request.exchange > self.asked and request.round >= self.round, "numbers go up")
        self.asked = request.exchange
        if self.undo and (request.channel != self.undo[0] or request.step not in ("agree", "unmask")):
            self.history, self.undo = self.undo[1], None
        kept = copy.copy(self.history)
        try:
            body = self.answered(request)
        except Refused:
            self.history = kept
            raise
        if request.step == "answer" and self.channels.get(request.channel) == "masked sum":
            self.undo = request.channel, kept
        if request.step == "unmask":
            self.undo = None
        reply = request.reply(encode(body)).raw()
        self.last, self.round = (sha(raw), reply), request.round
        return reply

    def answered(self, request: Message) -> Tree:
        tree = decode(request.body)
        need(request.sender == "server", "another sender")
        if request.channel == "carrier/keys":
            return self.key_step(request, tree)
        kind = self.channels.get(request.channel)
        need(kind, "no such channel")
        if request.step == "read" and kind.startswith("sealed"):
            return self.read(request, tree, kind)
        if request.step != "answer":
            steps = {
                "advertise": self.advertise,
                "share": self.share,
                "agree": self.agree,
                "unmask": self.unmask,
            }
            need(kind == "masked sum" and request.step in steps, "no such step")
            return steps[request.step](request, tree)
        shares: Tree = {}
        if kind == "masked sum":
            shares = {name: tree.pop(name) for name in list(tree) if name.startswith("carrier/")}
        self.follow(request, tree)
        need(len(request.cohort) >= self.quorum(request.channel), "below the quorum")
        if kind == "masked sum":
            return self.upload(request, shares)
        return {} if kind == "nothing" else self.parcel(request, tree, kind)

    def quorum(self, channel: str) -> int:
        return int(self.policy["quorum"].get(channel, 1))

    def follow(self, request: Message, given: Tree) -> None:
        """Adds what was missed, and this exchange."""
        if request.missed:
            for exchange, digest, head in self.history.catch_up(request.missed, request.exchange, self.alike):
                self.crypto.note("history", exchange=exchange, digest=digest, head=head.hex())
        if request.channel in self.alike:
            digest = given_digest(request.cohort, given)
            self.history.add(request.exchange, request.round, request.channel, digest)
            head = self.history.head.hex()
            self.crypto.note("history", exchange=request.exchange, digest=digest, head=head)

    def values(self, channel: str, round: int) -> tuple[str, list[float]]:
        """What this client's algorithm uploads: the record says it."""
        (found,) = [
            one["by"][self.name]
            for one in self.record["uploads"]
            if (one["channel"], one["round"]) == (channel, round)
        ]
        return found["layout"], found["values"]

    # key agreement

    def key_step(self, request: Message, tree: Tree) -> Tree:
        if request.step == "advertise":
            need(self.agreement is None, "a second key")
            self.agreement = X25519PrivateKey.from_private_bytes(self.draw("agreement key"))
            public = self.agreement.public_key().public_bytes_raw()
            self.advertised = request.exchange
            statement = key_statement(self.run, request.exchange, self.name, public)
            return {"public": public, "signature": self.crypto.sign(self.identity, statement)}
        need(request.step == "introduce", "no such step")
        need(self.agreement is not None and not self.peers, "out of order")
        assert self.agreement is not None
        peers = {}
        for name in request.cohort:
            public, signature = tree.get(f"public/{name}"), tree.get(f"signature/{name}")
            need(isinstance(public, bytes) and isinstance(signature, bytes), "no signed key")
            assert isinstance(public, bytes) and isinstance(signature, bytes)
            verify(self.roster[name], signature, key_statement(self.run, self.advertised, name, public))
            peers[name] = public
        need(peers[self.name] == self.agreement.public_key().public_bytes_raw(), "the own key is another")
        self.peers = peers
        return {}

    def pair(self, peer: str, purpose: str, **where: Any) -> bytes:
        need(peer in self.peers and self.agreement is not None, "never introduced")
        assert self.agreement is not None
        info = pair_info(purpose, self.run, self.name, peer, **where)
        return self.crypto.shared(self.agreement, self.peers[peer], info)

    def share_key(self, peer: str) -> bytes:
        if peer not in self.pairs:
            self.pairs[peer] = self.pair(peer, "masked: shares")
        return self.pairs[peer]

    # a masked sum

    def next(self, request: Message, step: str) -> dict[str, Any]:
        need(self.sum.get("next") == step, "out of order")
        place = (request.run, request.round, request.channel, request.cohort)
        need(place == self.sum["place"], "another sum")
        return self.sum

    def advertise(self, request: Message, tree: Tree) -> Tree:
        need(len(request.cohort) >= self.quorum(request.channel), "below the quorum")
        allowed = self.policy["abandoned"] + math.floor(self.policy["dropouts"] * self.uploads + 1e-9)
        need(self.unfinished <= allowed, "too many sums were abandoned")
        m, b = self.draw("seed"), self.draw("seed")
        key = X25519PrivateKey.from_private_bytes(self.crypto.hkdf(m, b"agreement key"))
        public = key.public_key().public_bytes_raw()
        commitment = self.crypto.hkdf(b, b"masked: commitment")
        statement = advertise_statement(request, self.name, public, commitment)
        signature = self.crypto.sign(self.identity, statement)
        place = (request.run, request.round, request.channel, request.cohort)
        self.sum = {
            "next": "share", "place": place, "advertise": request, "m": m, "b": b, "key": key,
            "public": public,
        }  # fmt: skip
        return {"public": row(public), "commitment": row(commitment), "signature": row(signature)}

    def share(self, request: Message, tree: Tree) -> Tree:
        state = self.next(request, "share")
        deck = Deck.read(tree)
        need(set(deck.names) <= set(request.cohort) and self.name in deck.names, "who is in the deck")
        need(deck.of(self.name)[0] == state["public"], "the own key is another")
        policy = self.policy
        signatures, needed, degree = thresholds(
            len(request.cohort), len(deck.names), policy["colluders"], policy["dropouts"], len(self.roster)
        )
        need(len(deck.names) >= max(signatures, self.quorum(request.channel)), "too few advertised")
        digest = deck.digest
        around = neighbours(circle(deck.names, digest), degree, self.name)
        for name in around:
            public, commitment, signature = deck.of(name)
            statement = advertise_statement(state["advertise"], name, public, commitment)
            verify(self.roster[name], signature, statement)
        polynomials = [[number(self.draw("coefficient")) for _ in range(needed - 1)] for _ in "mb"]

        def pieces(name: str) -> list[bytes]:
            point = deck.names.index(name) + 1
            seeds = (number(state["m"]), number(state["b"]))
            return [
                share(seed, polynomial, point).to_bytes(32, "little")
                for seed, polynomial in zip(seeds, polynomials, strict=True)
            ]

        rows = []
        for name in around:
            key, bound = self.share_key(name), share_bound(digest, self.name, name)
            rows.append(self.crypto.seal(key, self.draw("nonce"), b"".join(pieces(name)), bound))
        state.update(
            next="answer", deck=deck, digest=digest, around=around, signatures=signatures, needed=needed,
            held={self.name: pieces(self.name)},
        )  # fmt: skip
        return {"shares": row(b"".join(rows)).reshape(len(rows), 92)}

    def upload(self, request: Message, part: Tree) -> Tree:
        state = self.next(request, "answer")
        senders = parted(part.get("carrier/senders"))
        rows = octets(part.get("carrier/shares"), (len(senders), 92))
        need(len(set(senders)) == len(senders) and set(senders) <= set(state["around"]), "the senders")
        need(len(senders) >= state["needed"] - 1, "too few neighbours shared")
        opened = {}
        for name, sealed in zip(senders, rows, strict=True):
            bound = share_bound(state["digest"], name, self.name)
            pair = self.crypto.unseal(self.share_key(name), sealed.tobytes(), bound)
            need(len(pair) == 64, "no pair of shares")
            opened[name] = [pair[:32], pair[32:]]
        context = context_of(request, self.history.head, state["digest"])
        keys = [(self.crypto.hkdf(state["b"], b"masked: own" + context), 1)]
        for name in senders:
            public = state["deck"].of(name)[0]
            key = self.crypto.shared(state["key"], public, b"masked: pair" + context)
            keys.append((key, 1 if before(self.name, name) else -1))
        layout, values = self.values(request.channel, request.round)
        bits, grid = self.policy["bits"], self.policy["grid"]
        words = fixed_point(values, self.policy["limit"], grid)
        keys.sort(key=lambda one: -one[1])
        data = packed(self.crypto.mask(words, bits, keys), bits)
        state.update(next="agree", context=context, held={**state["held"], **opened})
        self.uploads, self.unfinished = self.uploads + 1, self.unfinished + 1
        return {"domain": "masked", "layout": layout, "grid": grid, "data": data, "context": context.hex()}

    def agree(self, request: Message, tree: Tree) -> Tree:
        state = self.next(request, "agree")
        names = parted(tree.get("survivors"))
        need(names == by_bytes(sorted(set(names))), "the list's order")
        need(set(names) <= set(state["deck"].names) and self.name in names, "who is on the list")
        around = set(state["around"]) & set(names)
        need(around <= set(state["held"]), "a survivor that never shared")
        need(len(names) >= max(state["signatures"], self.quorum(request.channel)), "too few survivors")
        need(len(around) >= state["needed"] - 1, "too few neighbours survived")
        statement = survivors_statement(state["context"], names)
        state.update(next="unmask", survivors=names)
        return {"signature": row(self.crypto.sign(self.identity, statement))}

    def unmask(self, request: Message, tree: Tree) -> Tree:
        state = self.next(request, "unmask")
        names = parted(tree.get("names"))
        rows = octets(tree.get("signatures"), (len(names), 64))
        need(len(set(names)) == len(names) and set(names) <= set(state["survivors"]), "who signed")
        need(len(names) >= state["signatures"], "too few signatures")
        statement = survivors_statement(state["context"], state["survivors"])
        for name, signature in zip(names, rows, strict=True):
            verify(self.roster[name], signature.tobytes(), statement)
        held = state["held"]
        shares = [held[name][name in state["survivors"]] for name in by_bytes(list(held))]
        self.sum, self.unfinished = {}, self.unfinished - 1
        return {"shares": row(b"".join(shares)).reshape(len(shares), 32)}

    # parcels

    def bound(
        self, where: Mapping[str, Any], round: int, sender: str, reader: str = "", content: bytes = b""
    ) -> bytes:
        return encode(
            {
                "run": self.run,
                "round": round,
                "exchange": where["exchange"],
                "channel": where["channel"],
                "cohort": where["cohort"],
                "offer": where.get("offer", 0),
                "sender": sender,
                "reader": reader,
                "content": sha(content),
            }
        )

    def parcel(self, request: Message, tree: Tree, kind: str) -> Tree:
        where: dict[str, Any] = {
            "exchange": request.exchange, "channel": request.channel, "cohort": joined(request.cohort)
        }  # fmt: skip
        layout, values = self.values(request.channel, request.round)
        for name, value in tree.items():
            if name.startswith("parcel/"):
                sender, exchange = self.open_offer(value, request)
                where = {**where, "reader": sender, "offer": exchange}
        if kind == "sealed sum":
            need(where.get("reader", request.cohort[0]) not in request.cohort, "no offer from outside")
            grid, head = self.policy["grid"], self.history.head.hex()
            keys = [
                (self.pair(name, "mask", **where, given=head), 1 if before(self.name, name) else -1)
                for name in request.cohort
                if name != self.name
            ]
            words = self.crypto.mask(fixed_point(values, self.policy["limit"], grid), 32, keys)
            context = sha(encode({"cohort": where["cohort"], "given": head})).hex()
            inner: Tree = {"domain": "masked", "layout": layout, "grid": grid, "data": packed(words, 32)}
            inner["context"] = context
        else:
            self.offered = request.exchange
            inner = {"domain": "real", "layout": layout, "data": np.array(values, "<f4")}
        raw, k = encode(inner), self.draw("content key")
        padded = raw + bytes(-(len(raw) + 8) % 4096) + struct.pack("<Q", len(raw))
        own = self.bound(where, request.round, self.name)
        content = self.crypto.seal(k, self.draw("nonce"), padded, own)
        made: Tree = {"domain": "sealed", "content": content}
        readers = [where["reader"]] if "reader" in where else [n for n in request.cohort if n != self.name]
        for reader in readers:
            pair = self.pair(reader, f"parcel from {self.name}", **where)
            bound = self.bound(where, request.round, self.name, reader, content)
            made[f"key/{reader}"] = self.crypto.seal(pair, self.draw("nonce"), k, bound)
        return made

    def open_offer(self, raw: Any, request: Message) -> tuple[str, int]:
        need(isinstance(raw, bytes), "a parcel is bytes")
        parcel = decode(raw)
        need(set(parcel) == {"channel", "sender", "round", "exchange", "cohort", "tree"}, "its entries")
        round, exchange = whole(parcel["round"]), whole(parcel["exchange"])
        sender, cohort = parcel["sender"], parted(parcel["cohort"])
        need(self.channels.get(parcel["channel"]) == "sealed" and round == request.round, "no offer")
        need(sender != self.name and {sender, self.name} <= set(cohort), "the offer's cohort")
        need(isinstance(parcel["tree"], bytes), "a parcel's body")
        where = {"exchange": exchange, "channel": parcel["channel"], "cohort": parcel["cohort"]}
        self.unwrapped(decode(parcel["tree"]), sender, round, where)
        return sender, exchange

    def unwrapped(self, tree: Tree, sender: str, round: int, where: Mapping[str, Any]) -> Tree:
        wrapped, content = tree.get(f"key/{self.name}"), tree.get("content")
        need(isinstance(wrapped, bytes) and isinstance(content, bytes), "not sealed to this client")
        assert isinstance(wrapped, bytes) and isinstance(content, bytes)
        pair = self.pair(sender, f"parcel from {sender}", **where)
        k = self.crypto.unseal(pair, wrapped, self.bound(where, round, sender, self.name, content))
        padded = self.crypto.unseal(k, content, self.bound(where, round, sender))
        need(len(padded) >= 8, "no length")
        (length,) = struct.unpack("<Q", padded[-8:])
        need(length <= len(padded) - 8, "more than it holds")
        return decode(padded[:length])

    def read(self, request: Message, tree: Tree, kind: str) -> Tree:
        need("exchange" in tree and "cohort" in tree, "which exchange")
        exchange, cohort = whole(tree.pop("exchange")), parted(tree.pop("cohort"))
        need(set(tree) <= {f"reply/{name}" for name in cohort}, "a reply from outside")
        need(len(set(cohort)) == len(cohort) and set(cohort) <= set(self.roster), "the cohort")
        is_sum = kind == "sealed sum"
        need((self.name in cohort) != is_sum, "the reader's place")
        need(len(cohort) >= self.quorum(request.channel), "below the quorum")
        need(not is_sum or len(tree) == len(cohort), "a reply is missing")
        need(tree and f"reply/{self.name}" not in tree, "no reply, or its own")
        need(exchange > self.delivered, "delivered before")
        self.delivered = exchange
        where: dict[str, Any] = {"exchange": exchange, "channel": request.channel, "cohort": joined(cohort)}
        if is_sum:
            where |= {"reader": self.name, "offer": self.offered}
        replies = {}
        for name in cohort:
            if (raw := tree.get(f"reply/{name}")) is not None:
                need(isinstance(raw, bytes), "a reply is bytes")
                replies[name] = self.unwrapped(decode(raw), name, request.round, where)
        if is_sum:
            total = self.crypto.mask(added(replies, 32)[1], 32, [])
            values = [centred(word, 32) for word in total]
            grid = self.policy["grid"]
            self.opened.append({"total": [value * grid for value in values[:-1]], "cut": values[-1]})
        else:
            for name, reply in replies.items():
                data = reply["data"]
                need(reply["domain"] == "real" and data.dtype == np.dtype("<f4"), "no plain upload")
                need(data.shape == (layout_size(reply["layout"]),), "another number of values")
                self.opened.append({"of": name, "values": data.tolist()})
        return {}


def added(replies: Mapping[str, Tree], bits: int) -> tuple[str, list[int]]:
    """The layout that uploads share, and the sum of their words."""
    need(all(one.get("domain") == "masked" for one in replies.values()), "the domain")
    sizes = {one.get("layout"): layout_size(one.get("layout")) for one in replies.values()}
    need(len({(one["layout"], one.get("context")) for one in replies.values()}) == 1, "layout or context")
    ((layout, size),) = sizes.items()
    uploads = [unpacked(one.get("data"), bits, size + 1) for one in replies.values()]
    return str(layout), [sum(words) % 2 ** (8 * mask_words(bits)) for words in zip(*uploads, strict=True)]


# --- the server of a masked sum -----------------------------------------------------------------------------


class Server:
    """The server's half of a recorded set-up (round 0) or sum: it checks every reply, and opens the sum.

    Args:
        record: the run, as its file has it.
        round: of the sum; 0 is the set-up.
        replies: other replies than the recorded ones, by their place in the record.
    """

    def __init__(
        self, record: Mapping[str, Any], round: int, replies: Mapping[int, bytes] | None = None
    ) -> None:
        self.crypto = Crypto()
        self.record, self.policy = record, record["policy"]
        self.roster = {name: bytes.fromhex(key) for name, key in record["roster"].items()}
        self.requests: dict[str, dict[str, Message]] = {}
        self.replies: dict[str, dict[str, Tree]] = {}
        for place, entry in enumerate(record["messages"]):
            request = Message.parse(bytes.fromhex(entry["request"]))
            kind = record["channels"].get(request.channel, request.channel)
            if request.round != round or kind not in ("masked sum", "carrier/keys"):
                continue
            raw = (replies or {}).get(place, bytes.fromhex(entry["reply"]))
            reply = Message.parse(raw)
            need(reply == request.reply(reply.body), "no reply to this request")
            self.requests.setdefault(request.step, {})[entry["to"]] = request
            self.replies.setdefault(request.step, {})[entry["to"]] = decode(reply.body)

    def introduce(self) -> None:
        """The set-up: everybody's signed keys, handed to everybody."""
        handed: Tree = {}
        for name, tree in self.replies["advertise"].items():
            for key, size in (("public", 32), ("signature", 64)):
                value = tree.get(key)
                need(isinstance(value, bytes) and len(value) == size, "no signed key")
                handed[f"{key}/{name}"] = value
        for request in self.requests["introduce"].values():
            need(request.body == encode(handed), "other keys were handed out")

    def open(self, head: bytes) -> dict[str, Any]:
        """The sum; ``head`` is of the history with the uploads' exchange."""
        deck = self.deck()
        digest = deck.digest
        request = next(iter(self.requests["advertise"].values()))
        signatures, needed, degree = thresholds(
            len(request.cohort), len(deck.names), self.policy["colluders"], self.policy["dropouts"],
            len(self.roster),
        )  # fmt: skip
        order = circle(deck.names, digest)
        around = {name: neighbours(order, degree, name) for name in deck.names}
        for one in self.requests["share"].values():
            need(one.body == encode(deck.tree()), "another deck was handed out")
        shares = self.replies["share"]
        for name, tree in shares.items():
            octets(tree.get("shares"), (len(around[name]), 92))
        for name, one in self.requests["answer"].items():
            tree = decode(one.body)
            senders = parted(tree["carrier/senders"])
            need(set(senders) == set(around[name]) & set(shares), "others' shares were handed out")
            for sender, sealed in zip(senders, tree["carrier/shares"], strict=True):
                sent = shares[sender]["shares"][around[sender].index(name)]
                need(sent.tobytes() == sealed.tobytes(), "a share was changed")
        bits, uploads = self.policy["bits"], self.replies["answer"]
        layout, total = added(uploads, bits)
        survivors = by_bytes(list(uploads))
        context = context_of(next(iter(self.requests["answer"].values())), head, digest)
        need(next(iter(uploads.values()))["context"] == context.hex(), "the masks' context")
        statement = survivors_statement(context, survivors)
        for name, tree in self.replies["agree"].items():
            verify(self.roster[name], octets(tree.get("signature"), (64,)).tobytes(), statement)
        need(len(self.replies["agree"]) >= signatures, "too few signatures")
        held = {name: by_bytes([name, *(set(around[name]) & set(shares))]) for name in shares}
        parts: dict[str, dict[int, int]] = {}
        for holder, tree in self.replies["unmask"].items():
            rows = octets(tree.get("shares"), (len(held[holder]), 32))
            for owner, one in zip(held[holder], rows, strict=True):
                if (value := number(one.tobytes())) < PRIME:
                    parts.setdefault(owner, {})[deck.names.index(holder) + 1] = value
        keys: list[tuple[bytes, int]] = []
        for owner in shares:
            alive = sorted(set(around[owner]) & set(survivors))
            if owner not in survivors and not alive:
                continue
            need(len(parts.get(owner, ())) >= needed, "too few shares")
            public, commitment, _ = deck.of(owner)
            for value in rebuilt(parts[owner], needed):
                seed, noted = value.to_bytes(32, "little"), len(self.crypto.steps)
                if owner in survivors:
                    if self.crypto.hkdf(seed, b"masked: commitment") == commitment:
                        keys.append((self.crypto.hkdf(seed, b"masked: own" + context), -1))
                        break
                else:
                    key = X25519PrivateKey.from_private_bytes(self.crypto.hkdf(seed, b"agreement key"))
                    if key.public_key().public_bytes_raw() == public:
                        for other in alive:
                            pair = self.crypto.shared(key, deck.of(other)[0], b"masked: pair" + context)
                            keys.append((pair, -1 if before(other, owner) else 1))
                        break
                del self.crypto.steps[noted:]
            else:
                raise Refused("the shares do not give what was advertised")
        keys.sort(key=lambda one: (one[1], one[0]))
        values = [centred(word, bits) for word in self.crypto.mask(total, bits, keys)]
        return {
            "contributors": list(survivors),
            "layout": layout,
            "total": [value * self.policy["grid"] for value in values[:-1]],
            "cut": values[-1],
        }

    def deck(self) -> Deck:
        """Of everybody's keys, each checked."""
        adverts = self.replies["advertise"]
        for name, tree in adverts.items():
            public = octets(tree.get("public"), (32,)).tobytes()
            commitment = octets(tree.get("commitment"), (32,)).tobytes()
            signature = octets(tree.get("signature"), (64,)).tobytes()
            request = self.requests["advertise"][name]
            verify(self.roster[name], signature, advertise_statement(request, name, public, commitment))
            Crypto().shared(X25519PrivateKey.generate(), public, b"any")
        names = by_bytes(list(adverts))
        columns = {key: np.stack([adverts[name][key] for name in names]) for key in FIELDS}
        return Deck.read({"names": joined(names), **columns})


FIELDS = ("public", "commitment", "signature")
