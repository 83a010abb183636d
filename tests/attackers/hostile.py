"""Malformed messages by the thousand: what is tried, and what may come of it.

A trial changes one message somewhere in an honest exchange, in either direction: its bytes, or what it says.
What may come of it is a named error that tells nothing of the data, or the exact sum of those that it names.
One thing more is nobody's to notice: a well-formed upload of other numbers is that client's word, and the sum
is then the exact one with these. Everything else is a finding, and raises :class:`Passed`.
"""

from __future__ import annotations

import contextlib
import signal
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import torch
from parties import RUN, Session, Toy, pairwise, session

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements
from secure_fedgraph.core.carriers.secagg.ring_words import centred, unpack
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused, SecureFedGraphError
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.parcel import Bundle, Parcel
from secure_fedgraph.core.protection.bound import CutWarning
from secure_fedgraph.core.upload import Layout, Upload
from secure_fedgraph.policies import homomorphic, masked, plaintext
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol import DirectCalls, nested
from secure_fedgraph.round import set_up

FIVE = tuple(f"owner-{i}" for i in range(5))
NAMED = (HostileMessage, Refused, BadInput)
PARSED = 2**20
"""Bytes that a parser may take at most, whatever a message promises, beside 20 times the message itself."""
SUMMED = 2**23
"""Bytes that a whole exchange of small vectors may take."""
SECONDS = 60
NOT_CHANGED = "not changed"
"""A trial that is none: no message was reached, or its change left it as it was."""


class Strict(Toy):
    """Looks at what it is given, as every algorithm must."""

    @Toy.UPDATE.answer
    def update(self, client: Any, given: Any) -> Upload:
        if type(given.get("times")) is not float or not np.isfinite(given["times"]):
            raise HostileMessage(f"{client.name} was given no number of times")
        return super().update(client, given)


class Peers(Algorithm):
    """Every client offers its vector; the others answer with theirs."""

    name = "peers"
    OFFERS = Channel("offers", Reveal.EACH, to="peer")
    ANSWERS = Channel("answers", Reveal.SUM, to="peer")

    @OFFERS.answer
    def offer(self, client: Any, given: Any) -> Upload:
        return Upload({"z": client.memory["w"][:3], "counts": torch.arange(2.0)})

    @ANSWERS.answer
    def respond(self, client: Any, given: Any) -> Upload:
        client.memory["offered"] = given["offers"]
        return Upload({"w": client.memory["w"]})

    @ANSWERS.read
    def take(self, client: Any, answered: Any) -> None:
        client.memory["read"] = answered


class Passed(AssertionError):
    """A malformed message that got through, or an error that says what it must not say."""


# --- damage -------------------------------------------------------------------------------------------------


def damaged(raw: bytes, rng: Random, others: list[bytes]) -> bytes:
    """Other bytes: cut, longer, bits flipped, pieces moved, lengths that promise everything, another's."""
    how = rng.choice(["cut", "flip", "append", "replace", "repeat", "lengths", "splice", "empty", "noise"])
    out = bytearray(raw)
    at = rng.randrange(len(raw) + 1)
    if how == "cut":
        return bytes(out[:at])
    if how == "flip":
        for _ in range(rng.randint(1, 4)):
            bit = rng.randrange(8 * len(out))
            out[bit // 8] ^= 1 << bit % 8
    elif how == "append":
        out += rng.randbytes(rng.randint(1, 40))
    elif how == "replace":
        out[at : at + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 12))
    elif how == "repeat":
        out[at:at] = out[at : at + rng.randint(1, 60)]
    elif how == "lengths":  # anywhere a length may stand
        size = rng.choice([1, 2, 4, 8])
        out[at : at + size] = rng.choice([2**20, 10**6, 2**31, 2**62, 2**64 - 1]).to_bytes(8, "little")[:size]
    elif how == "splice" and others:
        other = rng.choice(others)
        out[at:] = other[rng.randrange(len(other) + 1) :]
    elif how == "empty":
        return b""
    else:
        return rng.randbytes(rng.randint(0, 200))
    return bytes(out)


def spoiled(tree: wire.Tree, rng: Random) -> wire.Tree:
    """Another tree: entries missing, added, of other types, shapes and rings, not finite, or negative."""
    found = dict(tree)
    name = rng.choice([*found, "eve"])
    value = found.get(name)
    how = rng.choice(["drop", "type", "shape", "cast", "float", "bits", "add", "other", "text"])
    if how == "drop":
        found.pop(name, None)
    elif how == "add":
        found[rng.choice(["eve", "carrier/shares", "parcel/offers", "data", "names"])] = _anything(rng)
    elif how in ("shape", "cast", "float", "bits") and isinstance(value, np.ndarray):
        found[name] = _changed(value, how, rng)
    elif how == "bits" and isinstance(value, bytes | memoryview) and len(value):
        raw = bytearray(value)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        found[name] = bytes(raw)
    elif how == "text" and isinstance(value, str) and value:
        at = rng.randrange(len(value) + 1)
        found[name] = value[:at] + rng.choice(["", "\n", ":", "eve", "9" * 30, value]) + value[at + 1 :]
    elif how == "other" and len(found) > 1:
        found[name] = found[rng.choice(list(found))]
    else:
        found[name] = _anything(rng)
    return found


def _changed(value: np.ndarray, how: str, rng: Random) -> np.ndarray:
    flat = value.reshape(-1)
    if how == "shape":
        return rng.choice(
            [flat[:-1], np.repeat(flat, 2), flat[:0], flat[None], flat.reshape(1, 1, -1)]
        ).copy()
    if how == "cast":
        return value.astype(rng.choice(["<f4", "<f8", "<i8", "<u4", "<u8", "<u1", "<i4"]), copy=True)
    changed = flat.copy()
    if not len(changed):
        return np.zeros(3, value.dtype)
    at = rng.randrange(len(changed))
    if how == "float" and changed.dtype.kind == "f":
        changed[at] = rng.choice([np.nan, np.inf, -np.inf, 3e38])
    else:
        view = changed.view(np.uint8)
        view[rng.randrange(len(view))] ^= 1 << rng.randrange(8)
    return changed.reshape(value.shape)


def _anything(rng: Random) -> Any:
    choices: list[Any] = [
        "", "eve", "\n".join(FIVE[:3]), "x" * 3000, b"", b"SFG\x01", rng.randbytes(50), 0, -1, 2**40, True,
        0.5, float("nan"), float("inf"), np.zeros(0, "<f4"), np.full(5, np.nan, "<f4"),
        np.zeros((3, 64), "u1"), np.zeros((2, 92), "u1"), np.full(5, 2**32 - 1, "<u4"),
        np.zeros((1, 5)), np.zeros(2, "?"), (), FIVE[:3], ("eve",) * 3000,
    ]  # fmt: skip
    return rng.choice(choices)


# --- parsers ------------------------------------------------------------------------------------------------


PARSERS: dict[str, Callable[[bytes], Any]] = {
    "wire body": wire.decode,
    "message": lambda raw: Message.from_bytes(raw).tree(),
    "layout": lambda raw: Layout.from_text(raw.decode("utf-8", "replace")),
    "parcel": Parcel.from_bytes,
    "bundle": lambda raw: Bundle.from_tree(wire.decode(raw, views=True), "answers", "owner-0", 1),
    "nested values": nested.unpack,
    "deck": lambda raw: KeyAdvertisements.from_tree(wire.decode(raw)),
}


def honest_bodies() -> dict[str, list[bytes]]:
    """What each parser reads every day."""
    tree = {"domain": "masked", "layout": "1\nw:5", "grid": 0.5, "data": np.arange(5, dtype="<u4")}
    parcel = Parcel("offers", "owner-1", 1, 7, FIVE, {"content": b"sealed", "key/owner-0": b"k" * 60})
    bundle = Bundle("answers", "owner-0", 1, 7, FIVE[1:], {n: {"content": b"sealed"} for n in FIVE[1:]})
    advertised = KeyAdvertisements.of(
        {
            n: {k: np.full(s, i, "u1") for k, s in (("public", 32), ("commitment", 32), ("signature", 64))}
            for i, n in enumerate(FIVE)
        }
    )
    body = wire.encode(tree)
    message = Message(RUN, 1, 7, "update", ANSWER, "server", "owner-0", FIVE, body).to_bytes()
    kept = {"adam": {"0": {"step": np.float32(2.0), "m": np.zeros((2, 3))}}, "seen": [1, None, ("a", 2.0)]}
    kept["adam"]["0"]["step"] = np.array([2.0])
    return {
        "wire body": [body, wire.encode({}), wire.encode(bundle.to_tree())],
        "message": [message],
        "layout": [b"1\nw:5", b"12\nconv.weight:3,4\nb:\nc:0,7"],
        "parcel": [bytes(parcel.to_parts())],
        "bundle": [wire.encode(bundle.to_tree())],
        "nested values": [bytes(nested.pack(kept))],
        "deck": [wire.encode(advertised.to_tree())],
    }


BODIES = honest_bodies()
ALL_BODIES = [raw for bodies in BODIES.values() for raw in bodies]


def parse(name: str, raw: bytes) -> str:
    """One trial of one parser; what came of it."""
    with measured(PARSED + 20 * len(raw)):
        try:
            PARSERS[name](raw)
        except NAMED as error:
            _says_little(error, ())
            return "refused"
    return "read"


def parser_trial(name: str, rng: Random) -> str:
    """One damaged body; a million-element header on ten bytes is among them."""
    if rng.random() < 0.1:
        return parse(name, promising(rng))
    raw = damaged(rng.choice(BODIES[name]), rng, ALL_BODIES)
    for _ in range(rng.choice([0, 0, 1, 3])):
        raw = damaged(raw or b"SFG", rng, ALL_BODIES)
    return parse(name, raw)


def promising(rng: Random) -> bytes:
    """A header that promises the world, and ten bytes."""
    shape = [rng.choice([10**6, 2**31, 2**40, 2**63, 2**64 - 1, 0, 1]) for _ in range(rng.randint(1, 8))]
    head = b"SFG\x01" + rng.choice([1, 2, 65_535]).to_bytes(2, "little") + b"\x01\x00a"
    head += bytes([rng.choice([*range(1, 9), 100, 101, 0, 255]), len(shape)])
    return head + b"".join(n.to_bytes(8, "little") for n in shape) + rng.randbytes(10)


# --- exchanges ----------------------------------------------------------------------------------------------


class Middle(DirectCalls):
    """Carries messages and changes one of them.

    Args:
        made: whose doors.
    """

    def __init__(self, made: Session) -> None:
        super().__init__({name: client.handle for name, client in made.clients.items()})
        self.roster = next(iter(made.clients.values())).roster
        self.rng: Random | None = None
        self.target = (0, "", "")
        self.asked = 0
        self.seen: list[bytes] = []
        self.changed: tuple[bytes, bytes, str] | None = None

    def aim(self, rng: Random | None, asks: int, names: tuple[str, ...]) -> None:
        """The next exchange has one message changed: of a random ask, client and direction."""
        self.rng, self.asked, self.changed = rng, 0, None
        if rng is not None:
            self.target = (rng.randrange(asks), rng.choice(names), rng.choice(["request", "reply"]))

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        return self._carried(requests, super().exchange)

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Any]:
        return self._carried(requests, super().reach)

    def _carried(self, requests: Mapping[str, bytes], carry: Callable[[Any], Any]) -> dict[str, Any]:
        number, self.asked = self.asked, self.asked + 1
        requests = dict(requests)
        hit = self.rng is not None and number == self.target[0]
        if hit and self.target[2] == "request":
            self._change(requests)
        replies = dict(carry(requests))
        if hit and self.target[2] == "reply":
            self._change(replies)
        self.seen = [
            *self.seen[-40:],
            *requests.values(),
            *(r for r in replies.values() if isinstance(r, bytes)),
        ]
        return replies

    def _change(self, messages: dict[str, Any]) -> None:
        assert self.rng is not None
        rng, there = self.rng, [n for n, raw in messages.items() if isinstance(raw, bytes)]
        if not there:
            return
        name = self.target[1] if self.target[1] in there else rng.choice(there)
        raw, how = messages[name], rng.choice(["bytes", "tree", "tree", "tree", "replay", "swap", "fields"])
        if how == "bytes":
            messages[name] = damaged(raw, rng, self.seen)
        elif how == "replay" and self.seen:
            messages[name] = rng.choice(self.seen)
        elif how == "swap" and len(there) > 1:
            other = rng.choice([n for n in there if n != name])
            messages[name], messages[other] = messages[other], raw
        else:
            message = Message.from_bytes(raw)
            if how == "fields":
                message = replace(message, **_fields(message, rng))
            else:
                message = replace(message, body=wire.encode(spoiled(message.tree(), rng)))
            messages[name] = message.to_bytes()
        self.changed = (raw, messages[name], name)


def _fields(message: Message, rng: Random) -> dict[str, Any]:
    return rng.choice(
        [
            {"exchange": message.exchange + rng.choice([-1, 1, 3])},
            {"round": message.round + 1},
            {"channel": rng.choice(["metrics", "carrier/keys", "carrier/masked", "", "update"])},
            {"step": rng.choice(["advertise", "share", "answer", "agree", "unmask", "open", "read", ""])},
            {"sender": rng.choice(["eve", "referee", "server", *FIVE])},
            {"recipient": rng.choice(["eve", "server", *FIVE])},
            {"cohort": rng.choice([(), FIVE[:2], FIVE[:1], FIVE[::-1], (*FIVE, "eve"), (*FIVE, FIVE[0])])},
            {"run": "run-2"},
        ]
    )


@dataclass
class Exchange:
    """One kind of exchange with its clients, honest but for one message.

    Args:
        policy: what protects it.
        asks: how many asks it has.
        word: the steps at which a changed reply is the sender's own word, which nobody can check.
    """

    policy: Callable[[], Policy]
    asks: int
    word: tuple[str, ...] = (ANSWER,)
    bits: int = 32
    told: bool = False
    """Whether a server that tells clients different things gets what it asked for, as nothing is hidden."""
    made: Session | None = field(default=None, init=False)
    trials: int = field(default=0, init=False)

    def fresh(self) -> Session:
        """New clients, keys agreed."""
        self.made = session(self.policy(), names=FIVE, algorithm=Strict())
        self.made.courier._transport = Middle(self.made)
        return self.made.set_up()

    def trial(self, rng: Random) -> str:
        """One round with one message changed, and what came of it."""
        made = self.made or self.fresh()
        self.trials += 1
        if not self.trials % 20:
            self.honest()
            made = self.fresh()
        middle: Any = made.courier._transport
        middle.aim(rng, self.asks, FIVE)
        with measured(SUMMED, rng), limited(SECONDS), tallied():
            try:
                found = made.round(_reached(made)).reduce(Toy.UPDATE, {"times": 1.0})
            except NAMED as error:
                _says_little(error, made.clients.values())
                return "refused"
            finally:
                changed, middle.rng = middle.changed, None
        if changed is None or changed[0] == changed[1]:
            return NOT_CHANGED
        for note in made.transcript.left_out:
            _says_little(HostileMessage(note.reason), made.clients.values())
        made.transcript.left_out.clear()
        grid = _grid(made)
        total = found.total["w"].numpy()
        plain = sum(made.clients[n].memory["w"].double().numpy() for n in found.contributors)
        if np.abs(total - plain).max() <= len(found.contributors) * grid / 2 + 1e-5:
            return "the exact sum" if len(found.contributors) == len(FIVE) else "the exact sum of the others"
        if self._its_word(changed, total - plain, grid):
            return "another upload of its sender"
        raise Passed(f"{self.policy().name}: a changed message changed the sum, at {_where(changed)}")

    def _its_word(self, changed: tuple[bytes, bytes, str], apart: np.ndarray, grid: float) -> bool:
        """Whether the sum is off by what a well-formed upload says, in one client's place and no other."""
        honest, other = (_tree(raw) for raw in changed[:2])
        message = Message.from_bytes(changed[0])
        if message.sender == "server":
            return self.told
        if message.step == "open":  # whoever opens says what the sum is: honest but curious
            return "open" in self.word
        if message.step not in self.word or "data" not in other or "data" not in honest:
            return False
        one, two = honest["data"], other["data"]
        if not isinstance(one, np.ndarray):
            return True  # a ciphertext: the server adds what it is sent
        if one.dtype.kind == "f":
            return bool(np.abs(apart - (np.asarray(two, np.float64) - one)).max() < 1e-4)
        bits, layout = self.bits, Layout((("w and the tally", (len(apart) + 1,)),))
        words = [unpack(data, bits, layout, "")[:-1] for data in (one, two)]
        shift = centred(np.ascontiguousarray(words[1] - words[0]), bits) * grid
        half = 2 ** (bits - 1)
        off = np.remainder((apart - shift) / grid + half, 2 * half) - half  # in the ring
        return bool(np.abs(off).max() * grid <= len(FIVE) * grid / 2 + 1e-5)

    def honest(self) -> None:
        """An honest round opens the sum of all who were given the same, whatever came before.

        Numbers may have to be caught up with: a client that was asked under a high one answers no lower one.
        """
        made = self.made or self.fresh()
        middle: Any = made.courier._transport
        middle.aim(None, self.asks, FIVE)
        if max(client._answered for client in made.clients.values()) > made.courier._exchange + 4:
            return  # a changed byte of a number: nobody can tell it from a server that says so
        histories = {client._history.head for client in made.clients.values() if client._history}
        if len(histories) > 1 and not any(b.carrier.tolerates_dropouts for b in made.policy.bounds.values()):
            return  # one was given something else than the others: nothing of theirs opens together any more
        for _ in range(8):
            with contextlib.suppress(Refused):
                found = made.round(_reached(made)).reduce(Toy.UPDATE, {"times": 1.0})
                heads = {n: client._history and client._history.head for n, client in made.clients.items()}
                same = tuple(n for n in FIVE if [*heads.values()].count(heads[n]) > 1)
                plain = sum(made.clients[n].memory["w"].double().numpy() for n in found.contributors)
                apart = np.abs(found.total["w"].numpy() - plain).max()
                if found.contributors in (FIVE, same) and apart <= len(FIVE) * _grid(made) / 2 + 1e-5:
                    return
        raise Passed(f"{self.policy().name}: no honest round after hostile ones opened the sum of all")


EXCHANGES: dict[str, Exchange] = {
    "masked sum": Exchange(masked, 5),
    "masked sum, 20 bits": Exchange(lambda: masked(bits=20), 5, bits=20),
    "sum under pairwise masks": Exchange(pairwise, 1),
    "plaintext sum": Exchange(plaintext, 1, told=True),
    "homomorphic sum": Exchange(homomorphic, 2, word=(ANSWER, "open"), told=True),
}


def set_up_trial(policy: Callable[[], Policy], asks: int, rng: Random) -> str:
    """Key agreement and a carrier's own set-up, one message changed; and a round, where that passed."""
    made = session(policy(), names=FIVE[:3], algorithm=Strict())
    middle = made.courier._transport = Middle(made)  # type: ignore[assignment]
    middle.aim(rng, asks, FIVE[:3])
    with measured(SUMMED * 4, rng), limited(SECONDS), tallied():
        try:
            set_up(made.policy, made.courier, FIVE[:3])
            middle.rng = None
            found = made.round().reduce(Toy.UPDATE, {"times": 1.0})
        except NAMED as error:
            _says_little(error, made.clients.values())
            return "refused"
    if middle.changed is None or middle.changed[0] == middle.changed[1]:
        return NOT_CHANGED
    plain = sum(made.clients[n].memory["w"].double().numpy() for n in found.contributors)
    if np.abs(found.total["w"].numpy() - plain).max() > 1e-5:
        raise Passed(f"{policy().name}: a changed message of the set-up changed the sum")
    return "the exact sum" if len(found.contributors) == 3 else "the exact sum of the others"


def peers_trial(kept: dict[str, Any], rng: Random) -> str:
    """Offers, answers under masks and a seal, the delivery of their sum to a peer; one message changed."""
    made, kept["trials"] = kept.get("made"), kept.get("trials", 0) + 1
    if made is None or not kept["trials"] % 20:
        made = kept["made"] = session(masked(), Peers.channels, names=FIVE[:4], algorithm=Peers())
        made.courier._transport = Middle(made)
        made.set_up()
    middle: Any = made.courier._transport
    middle.aim(rng, 3, FIVE[:4])
    for client in made.clients.values():
        client.memory.pop("read", None)
        client.memory.pop("offered", None)
    round = made.round(_reached(made))
    with measured(SUMMED, rng), limited(SECONDS):
        try:
            round.reduce_for(Peers.ANSWERS, round.collect(Peers.OFFERS)["owner-0"])
        except NAMED as error:
            _says_little(error, made.clients.values())
            return "refused"
        finally:
            middle.rng = None
    if middle.changed is None or middle.changed[0] == middle.changed[1]:
        return NOT_CHANGED
    read = made.clients["owner-0"].memory["read"].total["w"].numpy()
    plain = sum(made.clients[n].memory["w"].double().numpy() for n in FIVE[1:4])
    if np.abs(read - plain).max() > 1e-5:
        raise Passed(f"sealed sums between peers: another sum was read, at {_where(middle.changed)}")
    for name in FIVE[1:4]:
        offered = made.clients[name].memory["offered"]["z"].numpy()
        if np.abs(offered - made.clients["owner-0"].memory["w"][:3].numpy()).max() > 1e-6:
            raise Passed("sealed sums between peers: a client answered another offer")
    return "the exact sum"


PEERS: dict[str, Any] = {}
TRIALS: dict[str, Callable[[Random], str]] = {
    **{f"parser: {name}": (lambda rng, name=name: parser_trial(name, rng)) for name in PARSERS},
    **{name: exchange.trial for name, exchange in EXCHANGES.items()},
    "sealed sum between peers": lambda rng: peers_trial(PEERS, rng),
    "set-up: keys": lambda rng: set_up_trial(masked, 2, rng),
    "set-up: homomorphic key": lambda rng: set_up_trial(homomorphic, 4, rng),
}


def _reached(made: Session) -> int:
    """A changed byte may have asked a client of a later round, and then it answers none before."""
    return max(1, *(client._last_round for client in made.clients.values()))


@contextlib.contextmanager
def tallied() -> Iterator[None]:
    """A client's word on how many values were cut is its own too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        yield


# --- what is watched ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def measured(limit: int, rng: Random | None = None) -> Iterator[None]:
    """That nothing large is allocated; looked at in one of ten exchanges, since looking takes its time."""
    if rng is not None and rng.randrange(10):
        yield
        return
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    if peak > limit:
        raise Passed(f"a malformed message had {peak} bytes allocated; {limit} are allowed")


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """That nothing hangs."""

    def late(number: int, frame: Any) -> None:
        raise Passed(f"a malformed message held an exchange up for more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _says_little(error: SecureFedGraphError, clients: Any) -> None:
    text = str(error)
    if len(text) > 1200:
        raise Passed(f"an error of {len(text)} characters: {text[:80]}")
    for client in clients:
        for value in client.memory["w"].tolist():
            if f"{abs(value):.4g}" in text:
                raise Passed(f"an error that says a client's value: {text[:200]}")


def _grid(made: Session) -> float:
    stages = made.policy["update"].stages
    return float(next((stage.public().get("grid", 0.0) for stage in stages if stage.public()), 0.0))


def _tree(raw: bytes) -> wire.Tree:
    try:
        return Message.from_bytes(raw).tree()
    except HostileMessage:
        return {}


def _where(changed: tuple[bytes, bytes, str] | None) -> str:
    if changed is None:
        return "no message"
    message = Message.from_bytes(changed[0])
    return f"{message.channel}/{message.step} from {message.sender} to {message.recipient}"
