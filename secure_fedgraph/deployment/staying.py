"""The life of a silo's process: it signs in, answers, and signs in again whenever the way breaks."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

from secure_fedgraph.backends.failures import failure_body
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.deployment.aligning import Aligner
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.flower.fleet import Fleet, Refusal, Unreachable
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.silo_folder import Keys
from secure_fedgraph.deployment.silo_messages import FAILED, HELLO, Letter

_LOG = logging.getLogger("secure_fedgraph.silo")
SOON = 0.01
"""Seconds from one look for letters to the next, at least: the server itself waits for one."""
AGAIN = 1.0
"""Seconds before a broken way is tried again; doubled each time up to :data:`LONGEST`."""
LONGEST = 10.0
LINGER = 3.0
"""Seconds from the last answer to signing out: the SuperLink drops what a silo that is gone has answered."""


class Staying:
    """A silo that stays: until :meth:`stop`, or until the server refuses its keys.

    Guarantees:
        - letters are answered one after the other, and greetings at once, also while one is worked on;
        - a broken way loses letters and nothing else: what was charged stays, and the server asks again.

    Args:
        resident: who answers.
        approved: the file that says where the server is.
        keys: with which the silo signs in.
    """

    def __init__(self, resident: Resident | Aligner, approved: Approved, keys: Keys) -> None:
        self._resident, self._approved, self._keys = resident, approved, keys
        self._ended = threading.Event()
        self._letters: queue.SimpleQueue[tuple[Fleet, Any, Letter] | None] = queue.SimpleQueue()

    def stop(self) -> None:
        """Ends :meth:`run` soon."""
        self._ended.set()

    def run(self) -> None:
        """Answers until it is stopped.

        Raises:
            BadInput: where the server refuses the node key, or its certificate is refused.
        """
        worker = threading.Thread(target=self._work, daemon=True)
        worker.start()
        wait = AGAIN
        try:
            while not self._ended.is_set():
                place = self._approved.federation.server
                fleet = Fleet(place.address, place.authority.encode(), self._keys.node)
                signed_in = False
                try:
                    node = fleet.connect()
                    signed_in = True
                    _LOG.info("signed in at %s as %s", place.address, self._resident.name)
                    wait = AGAIN
                    self._stay(fleet, node)
                except (Unreachable, Refusal) as error:
                    # a SuperLink that was started again has other numbers for the same keys
                    if isinstance(error, Refusal) and not signed_in:
                        raise
                    _LOG.info("waiting for the server: %s", "it is away" if signed_in else error)
                    self._ended.wait(wait)
                    wait = min(2 * wait, LONGEST)
                finally:
                    fleet.close()
        finally:
            self._letters.put(None)
            worker.join(timeout=5)

    def _stay(self, fleet: Fleet, node: int) -> None:
        while not self._ended.is_set():
            asked = time.monotonic()
            came = fleet.receive()
            if came is None:
                self._ended.wait(max(asked + SOON - time.monotonic(), 0))
                continue
            message, letter = came
            if isinstance(letter, HostileMessage):
                _LOG.warning("refused: %s", letter)
                fleet.answer(message, Letter(FAILED, failure_body(letter)))
            elif letter.kind == HELLO:
                fleet.answer(message, self._resident.hello(letter, node))
            else:
                self._letters.put((fleet, message, letter))

    def _work(self) -> None:
        while (one := self._letters.get()) is not None:
            fleet, message, letter = one
            answer = self._resident.answer(letter)
            try:
                fleet.answer(message, answer)
            except Exception as error:  # the way broke meanwhile: the server asks again
                _LOG.info("an answer could not be sent: %s", type(error).__name__)
            if self._resident.ended:
                self._ended.wait(LINGER)
                self.stop()
