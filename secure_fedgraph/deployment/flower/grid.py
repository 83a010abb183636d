"""The server's end of the way: letters to silos, through a SuperLink in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.flower.fleet import letter_in, record_of
from secure_fedgraph.deployment.flower.releases import check_flower
from secure_fedgraph.deployment.silo_messages import ANSWERS, Letter


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Args:
        host, port: of the interface for silos.
        certificate: the server's, as a PEM file.
        key: its private key, as a PEM file.
    """

    host: str
    port: int
    certificate: Path
    key: Path


class Grid:
    """A :class:`~secure_fedgraph.deployment.silo_messages.Post` over Flower.

    Guarantees:
        - silos reach the Fleet interface alone: Flower's control interface, which starts runs and registers
          nodes without a login, is nowhere;
        - what it keeps is in memory, and bodies are deleted as soon as they were delivered: a server that was
          started again knows the same node keys, and silos sign in again.

    Args:
        address: where it listens.
        nodes: silo -> its public node key, in OpenSSH's form.
        log: a file for what Flower says.
        keep: seconds after which an unanswered letter is dropped.

    Raises:
        BadInput: where the port is taken.
    """

    def __init__(self, address: Address, nodes: Mapping[str, str], log: Path, keep: float) -> None:
        check_flower()
        from secure_fedgraph.deployment.flower.port import Port
        from secure_fedgraph.deployment.flower.private import Link

        self._keep = keep
        self._link = Link({silo: _key_in(text) for silo, text in nodes.items()})
        self._port = Port(self._link, address.host, address.port, address.certificate, address.key, log)

    def node_of(self, silo: str) -> int:
        """A silo's node id."""
        return self._link.nodes[silo]

    def send(self, letters: Mapping[str, Letter]) -> dict[str, str]:
        """As :meth:`~secure_fedgraph.deployment.silo_messages.Post.send`."""
        with _broken_way():
            tickets = {
                silo: self._link.push(self.node_of(silo), record_of(one), self._keep)
                for silo, one in letters.items()
            }
        self._port.ring()
        return tickets

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | None]:
        """As :meth:`~secure_fedgraph.deployment.silo_messages.Post.collect`."""
        wanted = [ticket for ticket in tickets if ticket]
        if not wanted:
            return {}
        self._port.wait()
        answers: dict[str, Letter | None] = {}
        with _broken_way():
            replies = self._link.pull(wanted)
        for ticket, reply in replies.items():
            try:
                answers[ticket] = None if reply is None or reply.has_error() else letter_in(reply, ANSWERS)
            except HostileMessage:
                answers[ticket] = None
        return answers

    def close(self) -> None:
        """Ends the SuperLink."""
        self._port.close()


def _key_in(text: str) -> ec.EllipticCurvePublicKey:
    key = load_ssh_public_key(text.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


@contextmanager
def _broken_way() -> Iterator[None]:
    try:
        yield
    except (LookupError, ValueError, RuntimeError) as error:  # a message that expired, or was cut
        raise ConnectionError(f"the SuperLink does not answer ({type(error).__name__})") from None
