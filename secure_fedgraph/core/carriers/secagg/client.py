"""A client's half of one masked sum: its secrets, the shares it holds for others, the order of its steps."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.core.carriers import key_agreement
from secure_fedgraph.core.carriers.secagg import advertisements
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements, is_bytes
from secure_fedgraph.core.carriers.secagg.neighbours import (
    SumThresholds,
    circle,
    colluders_among,
    near,
    opens_whole,
    thresholds,
)
from secure_fedgraph.core.carriers.secagg.shamir import BYTES, random_secret, split
from secure_fedgraph.core.crypto import SEAL_BYTES, AgreementKey, Secret, seal, unseal
from secure_fedgraph.core.errors import HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import Party, Scope
from secure_fedgraph.core.protection.noise_components import ONE_PART, NoiseComponents
from secure_fedgraph.core.wire import Tree, pack

_SESSION, _PAIRS = "masked/session", "masked/pairs"
_SET_UPS = "masked/set-ups"
"""Channel -> the secrets of its coming sums of this round, where several were set up at once."""
_UPLOADED, _UNFINISHED = "masked/uploaded", "masked/unfinished"
ADVERTISE, SHARE, AGREE, UNMASK = "advertise", "share", "agree", "unmask"
SEALED_SHARES = 2 * BYTES + SEAL_BYTES
"""Bytes of the sealed shares for one sum; for n sums 2 n * BYTES + SEAL_BYTES."""
MOST_BYTES = 2**26
"""Of sealed shares that a server holds for the sums of one set-up."""
SUMS = "sums"
"""How many sums a request to advertise is for, where it is for more than one."""
NOISE_KEYS = "noise"
"""What the answer to unmask carries besides the shares, where a sum does not need all noise."""
SHARES, SENDERS = "carrier/shares", "carrier/senders"
"""What the request for the upload carries besides what the algorithm gives."""
SUM = "carrier/sum"
"""Which sum of several that were set up at once, from 0."""


@dataclass(frozen=True)
class ClientRequirements:
    """What a client insists on, from its own copy of the policy; nothing of it is read from the wire."""

    quorum: int
    roster: int
    """How many may ever be asked: colluders are a share of these, not of the cohort that the server picks."""
    colluders: float
    dropouts: float
    whole: Callable[[tuple[str, ...]], tuple[str, ...]]
    """Those of some clients whose batches are whole."""
    abandoned: int
    """Sums of the run that may stay unfinished, beyond the share ``dropouts`` of those uploaded for."""
    noise_components: NoiseComponents = ONE_PART
    """The parts of its share of the noise, and which sums need them."""


@dataclass
class Session(Secret):
    """The secrets of one masked sum, in the client that made them. They serve this sum and go with it."""

    scope: Scope
    mask_seed: int = field(repr=False)
    own_seed: int = field(repr=False)
    key: AgreementKey = field(repr=False)
    next: str = SHARE
    advertised: KeyAdvertisements | None = None
    thresholds: SumThresholds | None = None
    neighbours: tuple[str, ...] = ()
    held: dict[str, tuple[bytes, bytes]] = field(default_factory=dict, repr=False)
    """Client -> the shares of its two seeds (of its masks' key, of its own mask) that this client holds."""
    noise_keys: tuple[bytes, ...] = field(default=(), repr=False)
    """Of the removable parts of the noise on its upload."""
    bound_to: bytes = b""
    survivors: tuple[str, ...] = ()


@dataclass
class SetUp(Secret):
    """The secrets of several sums of one round and channel, each independent of the others.

    A sum takes its own and leaves nothing of them here, so whatever shares open of one sum says nothing about
    another: it is what as many set-ups for one sum each would have made, in one exchange.
    """

    scope: Scope
    waiting: list[Session | None] = field(repr=False)
    """By the sum's number; None once it was begun or skipped."""
    next: str = SHARE
    advertised: KeyAdvertisements | None = None
    accepted: tuple[int, bytes] | None = None
    """Of the sealed shares that it took: their bytes and a digest."""

    def begin(self, number: int) -> Session | None:
        """The secrets of a sum. Those of it and of all before it are gone from here afterwards."""
        session = self.waiting[number]
        self.waiting[: number + 1] = [None] * (number + 1)
        return session


def sealed_shares(sums: int) -> int:
    """Bytes of the shares that one client seals to another."""
    return 2 * BYTES * sums + SEAL_BYTES


def most_sums(clients: int, degree: int) -> int:
    """Sums that one set-up may be for, so that a server holds at most ``MOST_BYTES`` of sealed shares.

    Args:
        clients: of the cohort.
        degree: neighbours of each.
    """
    return max(1, min(advertisements.MOST_SUMS, MOST_BYTES // (clients * max(degree, 1) * SEALED_SHARES)))


def advertise(given: Tree, scope: Scope, party: Party, requirements: ClientRequirements) -> Tree:
    """Fresh secrets, and the signed public half of them.

    Raises:
        Refused: where too many sums of the run that this client uploaded for were never finished.
    """
    sums = _number(given.get(SUMS, 1), advertisements.MOST_SUMS + 1)
    if sums < 1 or len(given) != (sums > 1):
        raise HostileMessage(
            f"{party.name} was asked to advertise for other than 1 to {advertisements.MOST_SUMS} sums"
        )
    _large_enough(scope, party, len(scope.cohort), requirements.quorum)
    clients = len(scope.cohort)
    degree = thresholds(
        clients, clients, requirements.colluders, requirements.dropouts, requirements.roster
    ).degree
    if sums > most_sums(clients, degree):
        raise HostileMessage(f"{party.name} was asked to set up more sums than an honest server does at once")
    _check_unfinished(scope, party, requirements)
    sessions = []
    for _ in range(sums):
        mask_seed, own_seed = random_secret(), random_secret()
        sessions.append(Session(scope, mask_seed, own_seed, AgreementKey.from_seed(_bytes(mask_seed))))
    public = b"".join(session.key.public for session in sessions)
    committed = b"".join(advertisements.commitment(_bytes(session.own_seed)) for session in sessions)
    party.secrets.pop(_SESSION, None)  # the session before it is over
    set_ups: dict[str, SetUp] = party.secrets.get(_SET_UPS, {})
    set_ups = {channel: one for channel, one in set_ups.items() if one.scope.round == scope.round}
    set_ups.pop(scope.channel, None)
    if sums == 1:
        party.secrets[_SESSION] = sessions[0]
    else:
        set_ups[scope.channel] = SetUp(scope, list(sessions))
    party.secrets[_SET_UPS] = set_ups
    signed = party.identity.sign(advertisements.statement(scope, party.name, public, committed))
    return {"public": _array(public), "commitment": _array(committed), "signature": _array(signed)}


def _check_unfinished(scope: Scope, party: Party, requirements: ClientRequirements) -> None:
    uploaded, unfinished = party.secrets.get(_UPLOADED, 0), party.secrets.get(_UNFINISHED, 0)
    allowed = requirements.abandoned + math.floor(requirements.dropouts * uploaded + 1e-9)
    if unfinished > allowed:
        raise Refused(
            f"channel {scope.channel!r}: {unfinished} of the {uploaded} sums that {party.name} uploaded for "
            f"in this run were abandoned, and at most {allowed} may be: protection.abandoned allows more"
        )


def share(given: Tree, scope: Scope, party: Party, requirements: ClientRequirements) -> Tree:
    """Shares of both seeds, sealed to each neighbour, once the neighbours' signatures were checked."""
    set_up = _set_up(scope, party)
    sessions = [_next(scope, party, SHARE)] if set_up is None else _all_next(set_up, scope, party, SHARE)
    advertised = KeyAdvertisements.from_tree(given, len(sessions))
    if not set(advertised.names) <= set(scope.cohort) or party.name not in advertised.places:
        raise HostileMessage(f"{party.name} was handed keys of clients outside the cohort, or not its own")
    if advertised.row(party.name, "public") != b"".join(session.key.public for session in sessions):
        raise HostileMessage(f"{party.name}'s own key came back changed")
    numbers = thresholds(
        len(scope.cohort),
        len(advertised.names),
        requirements.colluders,
        requirements.dropouts,
        requirements.roster,
    )
    _large_enough(scope, party, len(advertised.names), max(numbers.signatures, requirements.quorum))
    order = circle(advertised.names, advertised.digest)
    neighbours = near(order, numbers.degree, order.index(party.name))
    for name in neighbours:
        public, committed = advertised.row(name, "public"), advertised.row(name, "commitment")
        signed = advertisements.statement(sessions[0].scope, name, public, committed)
        party.verify(name, advertised.row(name, "signature"), signed)
    points = {name: advertised.places[name] + 1 for name in (*neighbours, party.name)}
    secrets = [seed for session in sessions for seed in (session.mask_seed, session.own_seed)]
    shares = split(secrets, numbers.shares, list(points.values()))
    pieces = {name: tuple(_bytes(one) for one in shares[point]) for name, point in points.items()}
    sealed = np.empty((len(neighbours), sealed_shares(len(sessions))), dtype=np.uint8)
    for row, name in zip(sealed, neighbours, strict=True):
        binding = advertisements.parcel(advertised, party.name, name)
        row[:] = _array(seal(_pair(party, name, scope), b"".join(pieces[name]), binding))
    own = pieces[party.name]
    for number, session in enumerate(sessions):
        session.advertised = advertised if set_up is None else advertised.of_sum(number)
        session.thresholds, session.neighbours, session.next = numbers, neighbours, "accept"
        session.held = {party.name: (own[2 * number], own[2 * number + 1])}
    if set_up is not None:
        set_up.next, set_up.advertised = "accept", advertised
    return {"shares": sealed}


def accept(part: Tree, scope: Scope, party: Party, requirements: ClientRequirements) -> None:
    """Takes the shares that came with the request for the upload: only their senders may be survivors.

    Raises:
        Refused: as :func:`advertise`, where this sum is one of several that were set up at once.
    """
    if SUM in part:
        _check_unfinished(scope, party, requirements)
        session = _begun(part, scope, party)
    else:
        session = _next(scope, party, "accept")
        advertised, _ = _settled(session)
        _take_shares([session], advertised, part, scope, party)
    advertised, _ = _settled(session)
    session.scope, session.bound_to, session.next = scope, advertisements.context(scope, advertised), "upload"


def _begun(part: Tree, scope: Scope, party: Party) -> Session:
    """The secrets of the sum that a request names, of several that were set up at once."""
    set_up = _set_up(scope, party)
    if set_up is None or set_up.next == SHARE:
        raise HostileMessage(f"{party.name} was asked for one of several sums that it did not set up")
    _check_place(set_up.scope, scope, party, "accept")
    number = _number(part[SUM], len(set_up.waiting))
    session = set_up.waiting[number] if number >= 0 else None
    if session is None:
        raise HostileMessage(f"{party.name} was asked for a sum that is over, or that it did not set up")
    shown = {key: part[key] for key in (SENDERS, SHARES) if key in part}
    if not set_up.accepted:
        assert set_up.advertised is not None
        _take_shares(_all_next(set_up, scope, party, "accept"), set_up.advertised, part, scope, party)
        packed = pack(shown)  # its size was checked
        set_up.accepted, set_up.next = (packed.length, hashlib.sha256(bytes(packed)).digest()), "upload"
    elif shown:
        packed = pack(shown)  # not joined before its size is known
        length, digest = set_up.accepted
        if packed.length != length or hashlib.sha256(bytes(packed)).digest() != digest:
            raise HostileMessage(f"{party.name} was handed other shares than those that it took")
    party.secrets[_SESSION] = set_up.begin(number)  # the session before it is over
    return session


def _take_shares(
    sessions: list[Session], advertised: KeyAdvertisements, part: Tree, scope: Scope, party: Party
) -> None:
    """Opens what the neighbours sealed to this client: their shares for each of the sums."""
    _, numbers = _settled(sessions[0])
    senders, rows = part.get(SENDERS), part.get(SHARES)
    names = tuple(senders.split("\n")) if isinstance(senders, str) and senders else ()
    if (
        not is_bytes(rows, (len(names), sealed_shares(len(sessions))))
        or len(set(names)) != len(names)
        or not set(names) <= set(sessions[0].neighbours)
    ):
        raise HostileMessage(f"{party.name} was handed shares that are not its neighbours'")
    if len(names) + 1 < numbers.shares:
        raise HostileMessage(
            f"{party.name} uploads beside at least {numbers.shares - 1} neighbours and was handed the shares "
            f"of {len(names)}"
        )
    opened = {
        name: _unsealed(party, name, row.tobytes(), scope, advertised)
        for name, row in zip(names, rows, strict=True)
    }
    for number, session in enumerate(sessions):
        at = 2 * BYTES * number
        session.held.update(
            {name: (raw[at : at + BYTES], raw[at + BYTES : at + 2 * BYTES]) for name, raw in opened.items()}
        )


def mask_keys(scope: Scope, party: Party) -> tuple[list[bytes], list[bytes]]:
    """The keys of the streams that mask the upload, those added and those subtracted; given out once."""
    session = _next(scope, party, "upload")
    advertised, _ = _settled(session)
    if scope != session.scope:
        raise HostileMessage(f"{party.name} was asked for its upload in another sum than it prepared")
    session.next = AGREE
    party.secrets[_UPLOADED] = party.secrets.get(_UPLOADED, 0) + 1
    party.secrets[_UNFINISHED] = party.secrets.get(_UNFINISHED, 0) + 1  # until it unmasks
    plus = [advertisements.own_key(_bytes(session.own_seed), session.bound_to)]
    minus: list[bytes] = []
    info = advertisements.pair_info(session.bound_to)
    for name in session.held:
        if name != party.name:
            key = session.key.shared_with(advertised.row(name, "public"), info)
            (plus if party.name < name else minus).append(key)
    return plus, minus


def keep_noise_keys(keys: tuple[bytes, ...], party: Party) -> None:
    """Keeps the keys of the removable parts of the noise on the upload, for this one sum."""
    latest(party).noise_keys = keys


def abandon(party: Party) -> None:
    """Forgets the secrets of the latest sum, which stays unfinished: no later step of it is answered."""
    party.secrets.pop(_SESSION, None)


def latest(party: Party) -> Session:
    """The secrets of the sum that was uploaded for last, until it is unmasked."""
    session: Session = party.secrets[_SESSION]
    return session


def agree(given: Tree, scope: Scope, party: Party, requirements: ClientRequirements) -> Tree:
    """Signs the list of survivors, once, if this client accepts it."""
    session = _next(scope, party, AGREE)
    advertised, numbers = _settled(session)
    text = given.get("survivors")
    names = tuple(text.split("\n")) if isinstance(text, str) else ()
    if (
        list(names) != sorted(set(names))
        or not set(names) <= set(advertised.names)
        or party.name not in names
    ):
        raise HostileMessage(f"{party.name} was shown survivors that repeat, are strangers, or lack it")
    around = set(session.neighbours) & set(names)
    if not around <= set(session.held):
        raise HostileMessage(f"{party.name} was shown a survivor that never shared its secrets with it")
    _large_enough(scope, party, len(names), max(numbers.signatures, requirements.quorum))
    if len(around) + 1 < numbers.shares:
        raise HostileMessage(
            f"{party.name} was shown {len(around)} surviving neighbours and insists on {numbers.shares - 1}"
        )
    if requirements.whole(names) != names:
        raise HostileMessage(f"{party.name} was shown survivors that are not whole batches")
    session.survivors, session.next = names, UNMASK
    return {"signature": _array(party.identity.sign(advertisements.agreement(session.bound_to, names)))}


def unmask(given: Tree, scope: Scope, party: Party, requirements: ClientRequirements) -> Tree:
    """Reveals one of two shares for each client: of the own mask of a survivor, else of its mask key.

    Beside them it hands out the keys of those parts of its own noise that the sum over the signed list does
    not need.
    """
    session = _next(scope, party, UNMASK)
    _, numbers = _settled(session)
    signed = _check_signatures(given, session, party, numbers.signatures)
    shares = np.stack(
        [_array(session.held[name][name in session.survivors]) for name in sorted(session.held)]
    )
    party.secrets[_UNFINISHED] -= 1
    del party.secrets[_SESSION]  # once: the other share of each pair is never revealed
    keys = _unneeded_keys(session, signed, requirements)
    return (
        {"shares": shares, NOISE_KEYS: np.stack([_array(key) for key in keys])}
        if keys
        else {"shares": shares}
    )


def _unneeded_keys(session: Session, signed: int, requirements: ClientRequirements) -> tuple[bytes, ...]:
    """The keys of the parts of its noise that no sum over the list it signed needs.

    They follow from that list and the client's own policy. Signatures were verified; a server that shows
    fewer gets fewer keys.
    """
    advertised, numbers = _settled(session)
    parts, cohort = requirements.noise_components, len(session.scope.cohort)
    bad = colluders_among(cohort, requirements.colluders, requirements.roster)
    if not session.noise_keys or not opens_whole(numbers, len(advertised.names), signed, bad):
        return ()
    needed = len(session.noise_keys) - parts.unneeded(len(session.survivors))
    return session.noise_keys[needed:]


def _check_signatures(given: Tree, session: Session, party: Party, needed: int) -> int:
    """How many clients signed the list that this one signed, after the same broadcast, if they are enough."""
    text, rows = given.get("names"), given.get("signatures")
    names = tuple(text.split("\n")) if isinstance(text, str) else ()
    if (
        not is_bytes(rows, (len(names), 64))
        or len(set(names)) != len(names)
        or not set(names) <= set(session.survivors)
    ):
        raise HostileMessage(f"{party.name} was handed signatures that are not the survivors'")
    if len(names) < needed:
        raise HostileMessage(
            f"{party.name} was asked to unmask with {len(names)} signatures on the survivors; {needed} are "
            "needed, so that no two lists are answered"
        )
    signed = advertisements.agreement(session.bound_to, session.survivors)
    for name, row in zip(names, rows, strict=True):
        try:
            party.verify(name, bytes(row), signed)
        except HostileMessage:
            raise HostileMessage(
                f"{name} signed another list of survivors than {party.name}, or was given another broadcast"
            ) from None
    return len(names)


def _unsealed(party: Party, name: str, raw: bytes, scope: Scope, advertised: KeyAdvertisements) -> bytes:
    try:
        return unseal(_pair(party, name, scope), raw, advertisements.parcel(advertised, name, party.name))
    except HostileMessage:
        raise HostileMessage(f"what {name} shared with {party.name} does not open as its shares") from None


def _next(scope: Scope, party: Party, step: str) -> Session:
    session: Session | None = party.secrets.get(_SESSION)
    if session is None or session.next != step:
        raise HostileMessage(f"{party.name} was asked to {step} out of order, or a second time")
    _check_place(session.scope, scope, party, step)
    return session


def _check_place(expected: Scope, scope: Scope, party: Party, step: str) -> None:
    if (expected.run, expected.round, expected.channel, expected.cohort) != (
        scope.run,
        scope.round,
        scope.channel,
        scope.cohort,
    ):
        raise HostileMessage(f"{party.name} was asked to {step} in another sum than it advertised for")


def _set_up(scope: Scope, party: Party) -> SetUp | None:
    """The secrets of several sums of a channel that were set up at once, where there are any."""
    set_ups: dict[str, SetUp] = party.secrets.get(_SET_UPS, {})
    return set_ups.get(scope.channel)


def _all_next(set_up: SetUp, scope: Scope, party: Party, step: str) -> list[Session]:
    """The secrets of all sums of a set-up whose next step this is."""
    if set_up.next != step:
        raise HostileMessage(f"{party.name} was asked to {step} out of order, or a second time")
    _check_place(set_up.scope, scope, party, step)
    return [session for session in set_up.waiting if session is not None]


def _number(value: Any, above: int) -> int:
    """A whole number from 0 to below a limit, as a request holds it; -1 for anything else."""
    number = value.item() if isinstance(value, np.ndarray) and value.shape == () else value
    return number if type(number) is int and 0 <= number < above else -1


def _settled(session: Session) -> tuple[KeyAdvertisements, SumThresholds]:
    assert session.advertised is not None and session.thresholds is not None
    return session.advertised, session.thresholds


def _large_enough(scope: Scope, party: Party, count: int, needed: int) -> None:
    if count < needed:
        raise HostileMessage(
            f"channel {scope.channel!r}: {party.name} answers cohorts of at least {needed} and was asked in "
            f"one of {count}: ask more, or set protection.quorum or protection.colluders lower"
        )


def _pair(party: Party, peer: str, scope: Scope) -> bytes:
    """The key that seals shares between two clients: one for a run, and no shares rebuild it."""
    keys: dict[str, bytes] = party.secrets.setdefault(_PAIRS, {})
    if peer not in keys:
        once = Scope(scope.run, 0, 0, "", ())
        keys[peer] = key_agreement.shared_key(party, peer, once, "masked: shares")
    return keys[peer]


def _bytes(number: int) -> bytes:
    return number.to_bytes(BYTES, "little")


def _array(raw: bytes) -> Any:
    return np.frombuffer(raw, dtype=np.uint8)
