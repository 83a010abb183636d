"""Frames on a silo's socket: what is whole is answered, anything else is refused, and nobody else notices."""

from __future__ import annotations

import random
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bank_folders import Echo, asked

from secure_fedgraph.backends.failures import failure_in
from secure_fedgraph.deployment.letters import ANSWERS, ASK, DONE, FAILED, HELLO, LARGEST, Letter
from secure_fedgraph.deployment.unix_socket import listening
from secure_fedgraph.deployment.unix_socket.frames import HEAD, MAGIC, body_from, framed, head_from
from secure_fedgraph.deployment.unix_socket.listening import CONNECTIONS, LARGEST_GREETING, Listening

Started = Callable[[Echo], Path]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts silos behind sockets, and ends them."""
    running: list[tuple[Listening, threading.Thread]] = []

    def start(echo: Echo) -> Path:
        path = tmp_path / "door" / f"s{len(running)}"
        silo = Listening(echo, path)
        thread = threading.Thread(target=silo.run)
        thread.start()
        running.append((silo, thread))
        return path

    yield start
    for silo, thread in running:
        silo.stop()
        thread.join(10)
        assert not thread.is_alive()


def opened(path: Path) -> socket.socket:
    way = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    way.settimeout(10)
    way.connect(str(path))
    return way


def written(way: socket.socket, letter: Letter, node: int = 7) -> None:
    for part in framed(letter, node):
        way.sendall(part)


def read(way: socket.socket) -> Letter | None:
    head = head_from(way, ANSWERS)
    return head and body_from(way, head)


def answered(path: Path, letter: Letter, node: int = 7) -> Letter | None:
    with opened(path) as way:
        written(way, letter, node)
        return read(way)


def is_hung_up(way: socket.socket) -> bool:
    try:
        return way.recv(1) == b""
    except ConnectionResetError:  # with bytes that it did not read
        return True


def refusal(letter: Letter | None) -> str:
    assert letter is not None and letter.kind == FAILED
    return str(failure_in(letter.body, "the silo", ""))


@pytest.mark.parametrize("size", [0, 1, 3 * 2**20 + 1])
def test_a_letter_is_answered(started: Started, size: int) -> None:
    path = started(Echo())
    assert answered(path, asked(bytes(size))) == Letter(DONE, bytes(size))


def test_a_connection_may_bring_several_and_each_has_its_node(started: Started) -> None:
    with opened(started(Echo())) as way:
        for node in (7, 2**64 - 1):
            written(way, Letter(HELLO, b""), node)
            assert read(way) == Letter(DONE, f"hello {node}".encode())
        written(way, asked())
        assert read(way) == Letter(DONE, b"question")


def test_the_apps_own_frames_are_the_same(started: Started) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Flower's own files
        app = pytest.importorskip("secure_fedgraph.deployment.flower.app.client_app")
    assert app.HEAD.format == HEAD.format and app.MAGIC == MAGIC and app.LARGEST == LARGEST
    path = started(Echo())
    with opened(path) as way:
        assert app.exchange(way, 7, ASK, b"question") == (DONE, b"question")
    with opened(path) as way:
        assert app.exchange(way, 9, HELLO, b"") == (DONE, b"hello 9")


def test_greetings_are_answered_while_a_letter_is_worked_on(started: Started) -> None:
    working, go_on = threading.Event(), threading.Event()

    class Slow(Echo):
        def answer(self, letter: Letter) -> Letter:
            working.set()
            assert go_on.wait(10)
            return super().answer(letter)

    path = started(Slow())
    with opened(path) as way:
        written(way, asked())
        assert working.wait(10)
        begun = time.monotonic()
        assert answered(path, Letter(HELLO, b""), 3) == Letter(DONE, b"hello 3")
        assert time.monotonic() - begun < 2
        go_on.set()
        assert read(way) == Letter(DONE, b"question")


def test_letters_are_answered_one_after_the_other(started: Started) -> None:
    at_once, most = [0], [0]

    class Counting(Echo):
        def answer(self, letter: Letter) -> Letter:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
            time.sleep(0.02)
            at_once[0] -= 1
            return super().answer(letter)

    path = started(Counting())
    threads = [threading.Thread(target=answered, args=(path, asked())) for _ in range(CONNECTIONS - 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(10)
    assert most == [1]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: silo\r\n\r\n", "no frame of secure-fedgraph"),
        (HEAD.pack(b"SFG0", 7, 3, 0) + b"ask", "no frame of secure-fedgraph"),
        (HEAD.pack(MAGIC, 7, 0, 0), "a kind of 0 bytes"),
        (HEAD.pack(MAGIC, 7, 255, 0) + b"a" * 255, "a kind of 255 bytes"),
        (HEAD.pack(MAGIC, 7, 4, 0) + b"exec", "a letter of kind 'exec'"),
        (HEAD.pack(MAGIC, 7, 4, 0) + b"done", "a letter of kind 'done'"),
        (HEAD.pack(MAGIC, 7, 3, 0) + b"\xff\xff\xff", "a letter of kind"),
        (HEAD.pack(MAGIC, 7, 3, LARGEST + 1) + b"ask", f"a body of {LARGEST + 1} bytes"),
        (HEAD.pack(MAGIC, 7, 3, 2**64 - 1) + b"ask", f"a body of {2**64 - 1} bytes"),
        (HEAD.pack(MAGIC, 7, 5, LARGEST_GREETING + 1) + b"hello", "a greeting of"),
    ],
)
def test_anything_else_is_refused(started: Started, sent: bytes, words: str) -> None:
    path = started(Echo())
    with opened(path) as way:
        way.sendall(sent)
        assert words in refusal(read(way))
        assert is_hung_up(way)
    assert answered(path, asked()) == Letter(DONE, b"question")


WHOLE = b"".join(framed(asked(), 7))


@pytest.mark.parametrize("size", [1, HEAD.size - 1, HEAD.size, HEAD.size + 1, len(WHOLE) - 1])
def test_a_cut_frame_is_refused_and_not_worked_on(started: Started, size: int) -> None:
    seen: list[Letter] = []

    class Noting(Echo):
        def answer(self, letter: Letter) -> Letter:
            seen.append(letter)
            return super().answer(letter)

    path = started(Noting())
    with opened(path) as way:
        way.sendall(WHOLE[:size])
        way.shutdown(socket.SHUT_WR)
        assert "a frame was cut" in refusal(read(way))
    assert seen == [] and answered(path, asked()) == Letter(DONE, b"question")


def test_a_promise_of_two_gigabytes_takes_no_memory(started: Started) -> None:
    resource = pytest.importorskip("resource")
    path = started(Echo())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with opened(path) as way:
        way.sendall(HEAD.pack(MAGIC, 7, 3, LARGEST) + b"ask" + bytes(1000))
        way.shutdown(socket.SHUT_WR)
        assert "a frame was cut after 1000" in refusal(read(way))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16  # KiB


def test_one_that_says_nothing_in_the_middle_of_a_frame_is_hung_up_on(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "SILENCE", 0.2)
    path = started(Echo())
    with opened(path) as way:
        way.sendall(WHOLE[:-1])
        assert way.recv(1) == b""
    assert answered(path, asked()) == Letter(DONE, b"question")


def test_too_many_connections_are_closed_and_the_rest_goes_on(started: Started) -> None:
    path = started(Echo())
    held = [opened(path) for _ in range(CONNECTIONS)]
    for way in held:
        written(way, Letter(HELLO, b""))
        assert read(way) is not None
    with opened(path) as one_more:
        assert one_more.recv(1) == b""
    for way in held:
        way.close()
    time.sleep(0.1)
    assert answered(path, asked()) == Letter(DONE, b"question")


def test_garbage_of_all_sorts_ends_nothing(started: Started) -> None:
    path, draw = started(Echo()), random.Random(0)
    for _ in range(60):
        changed = bytearray(WHOLE)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        with opened(path) as way:
            way.sendall(bytes(changed[: draw.randint(0, len(changed))]))
            way.shutdown(socket.SHUT_WR)
            try:
                answer = read(way)
            except ConnectionResetError:  # hung up on before all was read
                continue
            assert answer is None or answer.kind in ANSWERS
    assert answered(path, asked()) == Letter(DONE, b"question")
