"""The life of a silo's process behind a socket: an official SuperNode's app brings it letters."""

from __future__ import annotations

import logging
import queue
import socket
import threading
from contextlib import suppress
from pathlib import Path

from secure_fedgraph.backends.failures import failure_body
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.letters import FAILED, HELLO, KINDS, Letter
from secure_fedgraph.deployment.staying import Answering
from secure_fedgraph.deployment.unix_socket.frames import body_from, framed, head_from
from secure_fedgraph.deployment.unix_socket.place import close_socket, open_socket

_LOG = logging.getLogger("secure_fedgraph.silo")
CONNECTIONS = 8
"""At once; an app opens one, and one more for a greeting meanwhile."""
SILENCE = 30.0
"""Seconds without a byte after which a connection in the middle of a frame is closed."""
TO_TAKE = 300.0
"""Seconds that the other side has to take an answer."""
LARGEST_GREETING = 2**20
"""Bytes of a greeting's body: a nonce and a federation's file."""
_LOOK = 0.25


class Listening:
    """A silo that answers what comes over a socket: until :meth:`stop`.

    Guarantees:
        - letters are answered one after the other, and greetings at once, also while one is worked on;
        - the body of one letter at a time is in memory; greetings have small ones;
        - whoever sends something else than frames, or stops in the middle of one, is told so and hung up on,
          and nobody else notices;
        - an answer that nobody waits for any more is dropped: what was charged stays, and the server
          asks again.

    Args:
        resident: who answers.
        path: where the socket stands.
        group: the name of a group whose members may open it; by default nobody but its owner.

    Raises:
        BadInput: for a path that cannot be used, with what mends it.
    """

    def __init__(self, resident: Answering, path: Path, group: str = "") -> None:
        self._resident, self._path = resident, path.absolute()
        self._listener = open_socket(path, group)
        self._ended = threading.Event()
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._letters: queue.SimpleQueue[tuple[Letter, queue.SimpleQueue[Letter]] | None] = (
            queue.SimpleQueue()
        )

    def stop(self) -> None:
        """Ends :meth:`run` soon."""
        self._ended.set()

    def run(self) -> None:
        """Answers until it is stopped, and takes the socket away."""
        # torch keeps settings by thread: one thread computes all answers
        worker = threading.Thread(target=self._work, daemon=True)
        worker.start()
        self._listener.settimeout(_LOOK)
        try:
            while not self._ended.is_set():
                try:
                    way, _ = self._listener.accept()
                except TimeoutError:
                    continue
                if not self._places.acquire(blocking=False):
                    _LOG.warning("refused: more than %d connections at once", CONNECTIONS)
                    way.close()
                    continue
                threading.Thread(target=self._serve, args=(way,), daemon=True).start()
        finally:
            close_socket(self._listener, self._path)
            self._letters.put(None)
            worker.join(timeout=5)

    def _serve(self, way: socket.socket) -> None:
        """Answers one connection's frames until it is closed."""
        way.settimeout(SILENCE)
        node = 0
        try:
            while (head := head_from(way, KINDS)) is not None:
                node = head.node
                if head.kind != HELLO:
                    with self._turn:
                        answer = self._answered(body_from(way, head))
                elif head.size > LARGEST_GREETING:
                    raise HostileMessage(
                        f"a greeting of {head.size} bytes; at most {LARGEST_GREETING} are read"
                    )
                else:
                    answer = self._resident.hello(body_from(way, head), node)
                self._send(way, answer, node)
        except HostileMessage as error:
            _LOG.warning("refused: %s", error)
            with suppress(OSError):
                self._send(way, Letter(FAILED, failure_body(error)), node)
        except OSError as error:
            _LOG.info("a connection broke: %s", type(error).__name__)
        finally:
            way.close()
            self._places.release()

    def _answered(self, letter: Letter) -> Letter:
        answer: queue.SimpleQueue[Letter] = queue.SimpleQueue()
        self._letters.put((letter, answer))
        return answer.get()

    def _send(self, way: socket.socket, letter: Letter, node: int) -> None:
        way.settimeout(TO_TAKE)
        for part in framed(letter, node):
            if part:  # the other side hangs up once it has all, and sending nothing would then break
                way.sendall(part)
        way.settimeout(SILENCE)

    def _work(self) -> None:
        while (one := self._letters.get()) is not None:
            letter, answer = one
            answer.put(self._resident.answer(letter))
            if self._resident.ended:
                self.stop()
