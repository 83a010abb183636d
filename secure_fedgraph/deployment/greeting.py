"""Greetings: a silo shows who it is, and under which federation's file it answers."""

from __future__ import annotations

import logging

from secure_fedgraph.backends.failures import failure_body, failure_in
from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import Identity, verify
from secure_fedgraph.core.errors import HostileMessage, Refused, SecureFedGraphError
from secure_fedgraph.core.text import printable
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.silo_messages import DONE, FAILED, Letter

_LOG = logging.getLogger("secure_fedgraph.silo")
PROOF = b"secure-fedgraph/hello/1 "
"""What a silo's proof of its name begins with."""
NONCE = 32


def proof_of(digest: str, node: int, nonce: bytes, session: str, name: str) -> bytes:
    """What a silo signs to show who it is: for one federation, connection, question and process."""
    return PROOF + b" ".join(
        [digest.encode(), str(node).encode(), nonce.hex().encode(), session.encode(), name.encode()]
    )


def greeted(
    letter: Letter,
    node: int,
    approved: Approved,
    identity: Identity,
    session: str,
    name: str,
    more: wire.Tree,
) -> Letter:
    """The answer to a greeting: a name, a session, and a signature over the server's nonce.

    Args:
        letter: the greeting.
        node: the number under which this silo signed in.
        approved: the file that it approved; a server of another file is refused.
        identity: its key.
        session: names its process.
        name: its own.
        more: what else it says.
    """
    try:
        asked = wire.decode(letter.body)
        nonce, digest = asked.get("nonce"), asked.get("digest")
        if not isinstance(nonce, str) or len(nonce) != 2 * NONCE or not isinstance(digest, str):
            raise HostileMessage("a greeting without a nonce and a digest")
        check_digest(approved, name, digest)
        signature = identity.sign(proof_of(digest, node, bytes.fromhex(nonce), session, name))
        said: wire.Tree = {"name": name, "session": session, "signature": signature.hex(), **more}
        return Letter(DONE, wire.encode(said))
    except (SecureFedGraphError, ValueError) as error:
        _LOG.warning("refused: %s", error)
        return Letter(FAILED, failure_body(error))


def session_in(letter: Letter, node: int, nonce: bytes, approved: Approved, name: str) -> str:
    """The name of a silo's process in its answer to a greeting, once its signature was verified.

    Args:
        letter: the answer.
        node: the number of the connection that it came by; it is part of what is signed.
        nonce: the greeting's.
        approved: the federation's file.
        name: the silo that was greeted.

    Raises:
        HostileMessage: for an answer that cannot be read, another silo's, and a signature that is not that
            silo's, over this nonce, connection and file.
        SecureFedGraphError: what the silo refuses the greeting with.
    """
    if letter.kind != DONE:
        raise failure_in(letter.body, name, "its own log says more")
    said = wire.decode(letter.body)
    whose, session, signature = (said.get(key) for key in ("name", "session", "signature"))
    if not isinstance(whose, str) or not isinstance(session, str) or not isinstance(signature, str):
        raise HostileMessage(f"{name}'s greeting cannot be read")
    if whose != name:
        raise HostileMessage(f"{name}'s greeting is of one who calls itself {printable(whose, 40)!r}")
    try:
        signed = bytes.fromhex(signature)
    except ValueError:
        raise HostileMessage(f"{name}'s greeting cannot be read") from None
    verify(approved.federation.roster[name], signed, proof_of(approved.digest, node, nonce, session, name))
    return printable(session, 40)


def check_digest(approved: Approved, name: str, digest: str) -> None:
    """Refuses a server that runs another file than this silo approved.

    Raises:
        Refused: naming both digests.
    """
    if digest != approved.digest:
        raise Refused(
            f"{name} approved the federation's file {approved.digest[:16]}… and the server runs "
            f"{digest[:16]}…: give every silo and the server the same file"
        )
