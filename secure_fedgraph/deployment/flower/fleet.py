"""A silo's end of the way: letters from Flower's Fleet interface, and their answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from secure_fedgraph.core.errors import BadInput, HostileMessage, SecureFedGraphError
from secure_fedgraph.deployment.flower.releases import check_flower
from secure_fedgraph.deployment.silo_messages import KINDS, Letter, checked

if TYPE_CHECKING:
    from flwr.app import Message

RECORD, KIND, BODY = "letter", "kind", "body"


class Unreachable(SecureFedGraphError):
    """The server cannot be reached, or not any more: try again."""


class Fleet:
    """The connection of one silo.

    Guarantees:
        - the server's certificate is checked against the authority of the federation's file, and the silo
          proves its node key with every request;
        - bodies are bytes for this package: nothing in them is run or unpickled;
        - a broken connection raises :class:`Unreachable`; whatever was not answered is asked again.

    Args:
        address: ``host:port``.
        authority: the certificate that signed the server's, as PEM.
        key: the silo's private node key, as PEM.
    """

    def __init__(self, address: str, authority: bytes, key: bytes) -> None:
        check_flower()
        from secure_fedgraph.deployment.flower import private

        own = load_pem_private_key(key, None)
        if not isinstance(own, ec.EllipticCurvePrivateKey):
            raise BadInput("node.key is no key of an elliptic curve: make one with 'silo keygen'")
        self._address, self._line = address, private.Line(address, authority, own)
        self._broken, self._beat = private.BROKEN, private.BEAT
        self._signed_in, self._beaten = False, 0.0

    def connect(self) -> int:
        """Signs in.

        Returns:
            The silo's node id.

        Raises:
            Unreachable: where nobody answers.
            BadInput: where the certificate or the node key is refused, with what mends it.
        """
        with self._translated():
            node = self._line.activate()
        self._signed_in, self._beaten = True, time.monotonic()
        return node

    def receive(self) -> tuple[Message, Letter | HostileMessage] | None:
        """The next letter, with what :meth:`answer` needs; None where there is none.

        Raises:
            Unreachable: where the connection is broken.
        """
        with self._translated():
            if time.monotonic() - self._beaten > self._beat / 2:
                self._beaten = time.monotonic()
                self._line.beat()
            message = self._line.pull()
        if message is None:
            return None
        try:
            return message, letter_in(message, KINDS)
        except HostileMessage as error:
            return message, error

    def answer(self, message: Message, letter: Letter) -> None:
        """Sends the answer to a message.

        Raises:
            Unreachable: where the connection is broken; the server then asks again.
        """
        with self._translated():
            self._line.push(record_of(letter), message)

    def close(self) -> None:
        """Signs out, where the server is still there."""
        try:
            if self._signed_in:
                with self._translated():
                    self._line.deactivate()
        except SecureFedGraphError:
            pass
        self._line.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Flower's errors as this package's."""
        import httpx

        try:
            yield
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (401, 403):
                raise Refusal(self._address) from None
            raise Unreachable(f"{self._address}: status {error.response.status_code}") from None
        except httpx.TransportError as error:
            text = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in text:
                why = "expired" if "expired" in text else text.partition("failed: ")[2].partition(" (")[0]
                raise BadInput(
                    f"the certificate of {self._address} is refused ({why}): ask the operator for a new "
                    "certificate, or for a federation file that names its authority"
                ) from None
            raise Unreachable(f"{self._address}: {type(error).__name__}") from None
        except self._broken as error:
            raise Unreachable(f"{self._address}: {type(error).__name__}") from None


class Refusal(BadInput):
    """The SuperLink does not accept this silo's node key, or its clock."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address} refuses this silo's node key: ask the operator whether the server runs the "
            "federation "
            "file that you approved, and check that this machine's clock is right (within five minutes)"
        )


def record_of(letter: Letter) -> Any:
    """A letter as the content of a Flower message."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({RECORD: ConfigRecord({KIND: letter.kind, BODY: letter.body})})


def letter_in(message: Any, kinds: tuple[str, ...]) -> Letter:
    """The letter in a Flower message.

    Raises:
        HostileMessage: where there is none.
    """
    records = message.content.config_records if message.has_content() else {}
    if set(records) != {RECORD} or set(records[RECORD]) != {KIND, BODY}:
        raise HostileMessage("a Flower message without a letter")
    return checked(records[RECORD][KIND], records[RECORD][BODY], kinds)
