"""The way over Flower itself: TLS, node keys, the SuperLink's process, and whole commands."""

from __future__ import annotations

import asyncio
import base64
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

pytest.importorskip("flwr")

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.certificates import AUTHORITY, CERTIFICATE, KEY, make_certificates
from secure_fedgraph.deployment.flower.fleet import Fleet, Refusal, Unreachable
from secure_fedgraph.deployment.flower.grid import Address, Grid
from secure_fedgraph.deployment.flower.port import HOLD, Bell, Receive, _at_most
from secure_fedgraph.deployment.silo_folder import Keys, SiloFolder
from secure_fedgraph.deployment.silo_messages import ASK, DONE, Letter


class Way:
    """A SuperLink for two silos, of which one is signed in and answers with what it gets."""

    def __init__(self, root: Path) -> None:
        make_certificates(root, "127.0.0.1")
        self.root, self.keys = root, {name: SiloFolder(root / name).make_keys() for name in ("a", "b")}
        self.authority = (root / AUTHORITY).read_bytes()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.grid = self.server()
        self._ended = threading.Event()
        self._echo = threading.Thread(target=self._answer, daemon=True)
        self._echo.start()

    def server(self) -> Grid:
        address = Address("127.0.0.1", self.port, self.root / CERTIFICATE, self.root / KEY)
        return Grid(
            address, {name: one.public_node for name, one in self.keys.items()}, self.root / "log", 60
        )

    def fleet(self, keys: Keys, authority: bytes | None = None) -> Fleet:
        return Fleet(f"127.0.0.1:{self.port}", authority or self.authority, keys.node)

    def _answer(self) -> None:
        while not self._ended.is_set():
            fleet = self.fleet(self.keys["a"])
            try:
                fleet.connect()
                while not self._ended.is_set():
                    if (came := fleet.receive()) is None:
                        time.sleep(0.02)
                    elif isinstance(came[1], Letter):
                        fleet.answer(came[0], Letter(DONE, came[1].body))
            except (Unreachable, Refusal):  # a server that was started again has other numbers
                time.sleep(0.2)
            finally:
                fleet.close()

    def asked(self, body: bytes, seconds: float = 20) -> bytes:
        """The answer of the silo that is signed in, asked again while letters are lost."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                ticket = self.grid.send({"a": Letter(ASK, body)})["a"]
                for _ in range(100):
                    answer = self.grid.collect([ticket]).get(ticket) if ticket else None
                    if answer is not None:
                        return answer.body
                    time.sleep(0.02)
            except ConnectionError:
                pass
            time.sleep(0.1)
        raise AssertionError("no answer came")

    def close(self) -> None:
        self._ended.set()
        self._echo.join(5)
        self.grid.close()


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    made = Way(tmp_path_factory.mktemp("way"))
    yield made
    made.close()


def test_letters_go_and_come_as_they_were(way: Way) -> None:
    for body in (b"", bytes(range(256)) * 4000):
        assert way.asked(body) == body


def test_nothing_of_a_letter_is_kept_once_it_was_answered(way: Way) -> None:
    def held() -> dict[str, int]:
        kept = {
            **vars(way.grid._link._state),
            **vars(way.grid._link._state.object_store),
            **vars(way.grid._link),
        }
        return {name: len(one) for name, one in kept.items() if isinstance(one, dict | set | list)}

    way.asked(b"first")
    before = held()
    for number in range(4):
        way.asked(bytes([number]))
    assert held() == before


def test_a_silo_that_is_not_signed_in_gives_no_ticket(way: Way) -> None:
    assert way.grid.send({"b": Letter(ASK, b"x")}) == {"b": ""}


def test_a_key_that_is_not_in_the_file_is_refused(way: Way, tmp_path: Path) -> None:
    keys = SiloFolder(tmp_path / "stranger").make_keys()
    with closing(way.fleet(keys)) as fleet, pytest.raises((Refusal, Unreachable)):
        fleet.connect()


def test_another_authority_is_refused(way: Way, tmp_path: Path) -> None:
    make_certificates(tmp_path, "127.0.0.1")
    other = (tmp_path / AUTHORITY).read_bytes()
    with closing(way.fleet(way.keys["b"], other)) as fleet, pytest.raises(BadInput, match="is refused"):
        fleet.connect()


def test_nothing_but_the_interface_for_silos_is_on_the_port(way: Way) -> None:
    context = ssl.create_default_context(cadata=way.authority.decode())
    context.check_hostname = False
    for path in ("/v1/control/start-run", "/v1/runtime/pull-messages", "/docs", "/openapi.json", "/"):
        connection = http.client.HTTPSConnection("127.0.0.1", way.port, context=context, timeout=10)
        connection.request("POST", path, b"", {"content-type": "application/x-protobuf"})
        assert connection.getresponse().status == 404, path
        connection.close()


@pytest.mark.parametrize("signed", [False, True])
def test_a_stranger_is_refused_before_its_body_is_read(way: Way, tmp_path: Path, signed: bool) -> None:
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    own, time_given = ec.generate_private_key(ec.SECP384R1()), "2026-11-23T18:00:00+00:00"
    signature = own.sign(time_given.encode(), ec.ECDSA(hashes.SHA256()))
    of_a_silo = public_key_to_bytes(load_ssh_public_key(way.keys["b"].public_node.encode()))
    headers = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(of_a_silo).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode(),
        TIMESTAMP_HEADER: time_given,
    }
    context = ssl.create_default_context(cadata=way.authority.decode())
    to_it = http.client.HTTPSConnection("127.0.0.1", way.port, timeout=20, context=context)
    with closing(to_it) as connection:
        connection.putrequest("POST", "/v1/fleet/push-object")
        for name, value in headers.items() if signed else ():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(2**30))
        connection.endheaders()
        assert connection.getresponse().status == 401


@pytest.mark.parametrize(("parts", "read"), [((6, 4), 2), ((6, 5), 1), ((11,), 0)])
def test_no_longer_body_is_kept(parts: Sequence[int], read: int) -> None:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": bytes(sizes.pop(0)), "more_body": True}

    sizes, bounded = list(parts), _at_most(receive, 10)
    kinds = [asyncio.run(_one(bounded))["type"] for _ in parts]
    assert kinds.count("http.request") == read
    assert kinds[read:] == ["http.disconnect"] * (len(parts) - read)


async def _one(receive: Receive) -> MutableMapping[str, Any]:
    return await receive()


def test_a_question_waits_for_what_was_sent_since_this_caller_asked_last() -> None:
    async def waits() -> list[float]:
        bell, seconds = Bell(), []
        loop = asyncio.get_running_loop()
        for ring in (None, None, 0.0, None, 0.05):
            start = loop.time()
            if ring == 0.0:
                bell.ring()  # between two questions
            elif ring:
                loop.call_later(ring, bell.ring)  # while one waits
            await bell.wait(b"a")
            seconds.append(loop.time() - start)
        return seconds

    first, nothing_new, sent, again, meanwhile = asyncio.run(waits())
    assert max(first, sent) < 0.04 <= meanwhile < HOLD
    assert min(nothing_new, again) >= HOLD - 0.02


def test_a_taken_port_is_named(way: Way) -> None:
    with pytest.raises(BadInput, match=rf"does not start on 127\.0\.0\.1:{way.port}.*free that port"):
        way.server()


def test_silos_sign_in_again_at_a_server_that_was_started_again(way: Way) -> None:
    way.grid.close()
    way.grid = way.server()
    assert way.asked(b"after") == b"after"
