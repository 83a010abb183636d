"""Signed key agreement between clients, with the server as courier: masks and sealed keys derive from it.

Two steps before round 1. *Advertise*: every client makes an X25519 key for this run only and signs it, for
this exchange, with the identity key that the roster names. A run that is taken up again agrees anew, and a
key of the session before is not accepted. *Introduce*: the server hands all of them to everybody, and each
client checks each signature against its own roster. A server that hands out its own keys is caught here.
"""

from __future__ import annotations

from secure_fedgraph.core.crypto import AgreementKey
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.contracts import Ask, Party, Scope
from secure_fedgraph.core.wire import BYTES, Tree, encode

NAME = "keys"
STEPS = ("advertise", "introduce")
SIZES = {"public": 32, "signature": 64}
_OWN, _PEERS, _ADVERTISED = "agreement", "peers", "advertised"


def set_up(ask: Ask, clients: tuple[str, ...]) -> None:
    """The server's half: collects the signed keys and hands all of them to everybody."""
    offers = ask("advertise", {name: {} for name in clients})
    keys = {}
    for name, offer in offers.items():
        for kind, size in SIZES.items():
            value = offer.get(kind)
            if not isinstance(value, BYTES) or len(value) != size:
                raise HostileMessage(
                    f"{name} advertised something that is no signed key, and everybody takes part in the key "
                    "agreement: start the run without it"
                )
            keys[f"{kind}/{name}"] = value
    ask("introduce", dict.fromkeys(clients, keys))


def answer(step: str, given: Tree, scope: Scope, party: Party) -> Tree:
    """The client's half of both steps.

    Raises:
        HostileMessage: for another step, or one out of order.
    """
    if step not in STEPS:
        raise HostileMessage(f"key agreement has no step {step!r}")
    return _advertise(scope, party) if step == "advertise" else _introduce(given, scope, party)


def shared_key(party: Party, peer: str, scope: Scope, purpose: str) -> bytes:
    """A 32-byte key that only this client and a peer can derive, for one purpose in one exchange.

    Guarantees:
        - both ends get the same key; another run, exchange, channel, cohort, reader, offer,
          broadcast or purpose gives another.

    Raises:
        HostileMessage: for a peer that was never introduced.
    """
    peers: dict[str, bytes] = party.secrets.get(_PEERS, {})
    if peer not in peers:
        raise HostileMessage(f"{party.name} was asked to share a key with {peer!r}, who was never introduced")
    low, high = sorted((party.name, peer))
    info = encode(
        {
            "purpose": purpose,
            "run": scope.run,
            "exchange": scope.exchange,
            "channel": scope.channel,
            "cohort": "\n".join(scope.cohort),
            "reader": scope.reader,
            "offer": scope.offer,
            "given": scope.history_head,
            "low": low,
            "high": high,
        }
    )
    own: AgreementKey = party.secrets[_OWN]
    return own.shared_with(peers[peer], info)


def _advertise(scope: Scope, party: Party) -> Tree:
    if _OWN in party.secrets:
        raise HostileMessage(f"{party.name} has already advertised a key in this run")
    key = party.secrets[_OWN] = AgreementKey.generate()
    party.secrets[_ADVERTISED] = scope.exchange
    statement = _statement(scope, scope.exchange, party.name, key.public)
    return {"public": key.public, "signature": party.identity.sign(statement)}


def _introduce(given: Tree, scope: Scope, party: Party) -> Tree:
    if _OWN not in party.secrets or _PEERS in party.secrets:
        raise HostileMessage(f"{party.name} was introduced to its peers out of order")
    peers: dict[str, bytes] = {}
    exchange: int = party.secrets[_ADVERTISED]
    for name in scope.cohort:
        public, signature = given.get(f"public/{name}"), given.get(f"signature/{name}")
        if name not in party.roster:
            raise HostileMessage(f"{party.name} was introduced to {name!r}, who is not on its roster")
        if not isinstance(public, BYTES) or not isinstance(signature, BYTES):
            raise HostileMessage(f"{party.name} was introduced to {name!r} without a signed key")
        public, signature = bytes(public), bytes(signature)
        try:
            party.verify(name, signature, _statement(scope, exchange, name, public))
        except HostileMessage as error:
            raise HostileMessage(
                f"{party.name} was introduced to {name!r} with a key that {name} did not sign: {error}"
            ) from None
        peers[name] = public
    if peers.pop(party.name, None) != party.secrets[_OWN].public:
        raise HostileMessage(f"{party.name}'s own key came back changed")
    party.secrets[_PEERS] = peers
    return {}


def _statement(scope: Scope, exchange: int, name: str, public: bytes) -> bytes:
    """What a client signs. The exchange in which all were asked keeps out a key of an earlier session."""
    return encode(
        {"purpose": "advertise", "run": scope.run, "exchange": exchange, "name": name, "public": public}
    )
