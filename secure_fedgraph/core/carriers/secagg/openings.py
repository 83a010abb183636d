"""Disputes: what a client signs of a masked upload, the seeds that it keeps, and to whom it opens them.

A client's keys for a sum were advertised and signed before it uploaded, so with its signature on the masked
upload the two seeds behind them give one upload and no other. They leave for one auditor, sealed to its key,
once a quorum of owners signed for that, and after the ledger was charged as for an upload without noise.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedgraph.core import files
from secure_fedgraph.core.carriers.secagg import advertisements, client
from secure_fedgraph.core.carriers.secagg.advertisements import hashed, is_bytes
from secure_fedgraph.core.carriers.secagg.shamir import BYTES
from secure_fedgraph.core.carriers.secagg.unmasking import SumSession
from secure_fedgraph.core.crypto import AgreementKey, seal, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.guarantee import Relation, Unit
from secure_fedgraph.core.protection.contracts import Party, Scope
from secure_fedgraph.core.spending.ledger import Charge, Ledger
from secure_fedgraph.core.wire import Tree, encode, pack

SIGNATURE, FILE = "signature", "openings.json"
_KEPT = "masked/openings"
_SUM = {"run": str, "round": int, "exchange": int, "channel": str, "signers": int, "seeds": str}
"""What is kept of a sum."""
EXCESS = (
    "a quorum of owners may have the single uploads of any of the last {} rounds opened to an auditor; "
    "whoever steals an owner's folder and has the server's record reads that owner's uploads of these rounds"
)
"""The excess of sums that can be disputed."""


@dataclass(frozen=True)
class Request:
    """Which uploads are to be opened and to whom: what a quorum of owners signs.

    Args:
        owners: whose uploads, sorted.
        auditor: its X25519 public key.
    """

    run: str
    round: int
    channel: str
    owners: tuple[str, ...]
    auditor: bytes

    @cached_property
    def statement(self) -> bytes:
        """What an owner's identity signs. Everything that is opened is bound to it."""
        facts = {"run": self.run, "round": self.round, "channel": self.channel}
        said = encode({**facts, "owners": "\n".join(self.owners), "auditor": self.auditor})
        return b"masked: dispute" + hashlib.sha256(said).digest()

    @property
    def place(self) -> str:
        """The round of a channel: it is opened to one auditor."""
        return f"{self.run}/{self.round}/{self.channel}"

    def bound_to(self, owner: str) -> bytes:
        """What an owner's opening is sealed and signed for."""
        return b"masked: opening" + self.statement + owner.encode()


def upload_statement(bound_to: bytes, senders: Iterable[str], reply: Tree, name: str) -> bytes:
    """What a client signs beside its upload: the sum, with whom it masked, and all that it sends."""
    digest = hashlib.sha256()
    for piece in pack({key: value for key, value in reply.items() if key != SIGNATURE}).buffers:
        digest.update(piece)
    return b"masked: upload" + bound_to + hashed(tuple(sorted(senders))) + digest.digest() + name.encode()


def signed_and_kept(reply: Tree, scope: Scope, party: Party, rounds: int, signers: int) -> Tree:
    """The upload with its signature, after the seeds that open it are in the client's own folder.

    Args:
        rounds: how many, this one counted, whose seeds are kept.
        signers: how many owners have to sign before this client opens it.
    """
    session, kept = client.latest(party), read_kept(party)
    seeds = b"".join(seed.to_bytes(BYTES, "little") for seed in (session.mask_seed, session.own_seed))
    here = {"run": scope.run, "round": scope.round, "exchange": scope.exchange, "channel": scope.channel}
    recent = [one for one in kept["sums"] if one["run"] == scope.run and one["round"] > scope.round - rounds]
    kept["sums"] = [*recent, {**here, "signers": signers, "seeds": seeds.hex()}]
    kept["roster"] = {name: public.hex() for name, public in party.roster.items()}
    _write(kept, party)
    said = upload_statement(session.bound_to, session.held.keys() - {party.name}, reply, party.name)
    return {**reply, SIGNATURE: np.frombuffer(party.identity.sign(said), dtype=np.uint8)}


def agreed(request: Request, party: Party) -> bytes:
    """This client's signature of a request, once its folder says to whom it opens that round.

    Raises:
        Refused: for a second auditor.
        HostileMessage: for a request about others.
    """
    _write(_for_one_auditor(request, party), party)
    return party.identity.sign(request.statement)


def _for_one_auditor(request: Request, party: Party) -> dict[str, Any]:
    """What a client keeps, with the auditor of a round noted."""
    kept, name = read_kept(party), party.name
    if name not in request.owners or not {*request.owners} <= party.roster.keys():
        raise HostileMessage(f"{name} was asked to open an upload for strangers, or one that is not its own")
    if kept["auditors"].setdefault(request.place, request.auditor.hex()) != request.auditor.hex():
        raise Refused(
            f"{name} has signed or opened round {request.round} for another auditor, and does for one only"
        )
    return kept


def opened(request: Request, signatures: Mapping[str, bytes], party: Party, ledger: Ledger) -> Tree:
    """This client's seeds of one round of a channel, sealed to the auditor.

    Args:
        signatures: owner -> its signature of the request.
        ledger: where it is charged before this returns, as what left without noise.

    Raises:
        Refused: for too few owners' signatures, a round whose seeds are not kept, or a second auditor.
        HostileMessage: for a wrong signature, a stranger's, or a request about others.
    """
    kept, name = _for_one_auditor(request, party), party.name
    if not signatures.keys() <= party.roster.keys():
        raise HostileMessage(f"{name} was asked to open an upload for strangers")
    for owner, signature in signatures.items():
        party.verify(owner, signature, request.statement)
    place = (request.run, request.round, request.channel)
    sums = [one for one in kept["sums"] if (one["run"], one["round"], one["channel"]) == place]
    if not sums:
        raise Refused(
            f"{name} keeps no seeds of round {request.round} of {request.channel!r}: protection.disputes "
            "says for how many rounds they are kept"
        )
    needed = max(one["signers"] for one in sums)
    if len(signatures) < needed:
        raise Refused(
            f"{len(signatures)} of {len(party.roster)} owners signed for opening round {request.round}, and "
            f"{name} opens its upload for {needed} or more: ask the others to sign"
        )
    key = AgreementKey.generate()
    shared = key.shared_with(request.auditor, request.bound_to(name))
    for one in sums:
        what = f"{request.channel}, opened to an auditor"
        of_client = (Unit.CLIENT.value, Relation.ZERO_OUT.value)
        ledger.charge(Charge(name, request.run, request.round, one["exchange"], what, *of_client))
    _write(kept, party)
    exchanges = np.array([one["exchange"] for one in sums], dtype=np.int64)
    seeds = np.stack([np.frombuffer(bytes.fromhex(one["seeds"]), dtype=np.uint8) for one in sums])
    content = seal(shared, encode({"exchanges": exchanges, "seeds": seeds}), request.bound_to(name))
    signed = party.identity.sign(request.bound_to(name) + key.public + content)
    return {"name": name, "public": key.public, "content": content, SIGNATURE: signed}


def check_signed(
    session: SumSession, scope: Scope, roster: Mapping[str, bytes], name: str, reply: Tree
) -> None:
    """Checks, in the server, that a client signed its upload: who did not is left out of the sum.

    Raises:
        HostileMessage: where it did not.
    """
    signature = reply.get(SIGNATURE)
    if not is_bytes(signature, (64,)):
        raise HostileMessage(f"{name} did not sign its upload, and this run's uploads can be disputed")
    if name in roster:
        bound_to = advertisements.context(scope, session.advertised)
        said = upload_statement(bound_to, senders_of(session, name), reply, name)
        try:
            verify(roster[name], bytes(signature), said)
        except HostileMessage:
            raise HostileMessage(f"{name} signed another upload than it sent") from None


def senders_of(session: SumSession, name: str) -> list[str]:
    """With whom a client masks its upload."""
    return [one for one in session.held[name] if one != name]


def evidence(session: SumSession, scope: Scope, replies: Mapping[str, Tree]) -> Tree:
    """What the server keeps of a sum: signed keys, signed uploads, keys of noise that was taken off."""
    whole = session.set_up or session.advertised
    assert session.place is not None
    return {
        **{"run": scope.run, "round": scope.round, "channel": scope.channel, "exchange": scope.exchange},
        **{"cohort": "\n".join(scope.cohort), "given": scope.history_head},
        **{"advertised": session.place.exchange, "sums": session.sums, "number": session.number},
        **{f"deck/{key}": value for key, value in whole.to_tree().items()},
        **{f"upload/{name}": pack(tree) for name, tree in replies.items()},
        **{f"senders/{name}": "\n".join(senders_of(session, name)) for name in replies},
        **{f"noise/{name}": b"".join(keys) for name, keys in session.noise_keys_shown.items()},
    }


def read_kept(party: Party) -> dict[str, Any]:
    """What a client keeps for disputes: its latest seeds, the roster, and to whom it opened which round."""
    nothing: dict[str, Any] = {"sums": [], "roster": {}, "auditors": {}}
    if party.folder is None:
        return {**nothing, **party.secrets.get(_KEPT, {})}
    return {**nothing, **read_file(party.folder / FILE)}


def read_file(path: Path) -> dict[str, Any]:
    """The same from its file; empty where there is none.

    Raises:
        BadInput: for a damaged file.
    """
    if files.size_of(path) is None:
        return {}
    try:
        kept = dict(json.loads(files.read(path)))
        if all(map(_is_sum, kept["sums"])) and all(
            _is_hex(one, 32) for part in ("roster", "auditors") for one in kept[part].values()
        ):
            return kept
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise BadInput(f"{path} is damaged: put a copy back, or no upload before now can be opened")


def _is_sum(one: Any) -> bool:
    right = {key: type(value) for key, value in one.items()} == _SUM and _is_hex(one["seeds"], 2 * BYTES)
    return right and all(0 <= value < 2**63 for value in one.values() if type(value) is int)


def _is_hex(value: Any, size: int) -> bool:
    return type(value) is str and re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value) is not None


def _write(kept: Mapping[str, Any], party: Party) -> None:
    if party.folder is None:
        party.secrets[_KEPT] = dict(kept)
        return
    files.write(party.folder / FILE, [json.dumps(kept).encode()], private=True, settle=True)
