"""Isolated mode: every client in a process of its own, reached over pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Any

import torch

from secure_fedgraph import errors
from secure_fedgraph.backends import frames
from secure_fedgraph.errors import HostileMessage, SecureFedGraphError
from secure_fedgraph.protocol import nested, wire
from secure_fedgraph.protocol.text import printable
from secure_fedgraph.protocol.transport import Answer, Lost

PIPE = 2**20
PATIENCE = 3600.0
"""Seconds that a client's process has for an answer."""
FAREWELL = 2.0
"""Seconds that a process gets to end by itself."""
_SET_PIPE_SIZE = 1031  # fcntl's F_SETPIPE_SZ, on Linux


class Workers:
    """A transport to clients that each run in a process of their own.

    Guarantees:
        - a process is sent its own graph, public facts and message bytes, nothing of another client;
        - identity keys are made in the processes and stay there: public keys come out, and the operator hands
          out the roster, not the server;
        - clients work side by side: all requests are written before a reply is read;
        - a refusal arrives as the error that it was, and a process that died as an error that names it;
        - a client whose process died stays gone: whoever can go on without it, does (:meth:`reach`);
        - a client that gives no answer in time has its process ended, and is gone too;
        - the processes end with this one, also when it is killed.
    Needs:
        - algorithm and policy by name; see :mod:`~secure_fedgraph.backends.enlistment`.

    Not available: what a client opened from its peers is not recorded, since nobody looks into another
    process. A client's view then holds the messages it sent and got.

    Args:
        told: client -> what its process is told before the run.
        answer_within: seconds that all clients together have for one answer each; inf waits for ever.
    """

    def __init__(self, told: Mapping[str, Mapping[str, Any]], answer_within: float = PATIENCE) -> None:
        self._orders: dict[str, IO[bytes]] = {}
        self._answers: dict[str, IO[bytes]] = {}
        self.pids: dict[str, int] = {}
        self.lost: dict[str, Lost] = {}
        self._answer_within = answer_within
        self._too_slow: set[str] = set()
        self._ended: dict[int, int] = {}
        self._nursery: subprocess.Popen[bytes] | None = None
        try:
            self._start(list(told))
            bodies = {name: bytes(nested.pack(body)) for name, body in told.items()}
            self.roster: Mapping[str, bytes] = self._order(frames.TOLD, bodies)
            self._order(frames.ROSTER, dict.fromkeys(told, bytes(nested.pack(self.roster))))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """Sends each client its request and returns the replies.

        Raises:
            SecureFedGraphError: what a client refused with, or that its process died.
        """
        return self._order(frames.ASK, requests)

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        """As :meth:`exchange`, with the error in the place of the reply where a client gives none."""
        return self._answers_to(frames.ASK, requests)

    def save(self, label: str, committed: str) -> None:
        """Has every client keep its memory in its own folder."""
        order = wire.encode({"label": label, "committed": committed})
        self._order(frames.SAVE, dict.fromkeys(self.pids, order))

    def load(self, label: str) -> None:
        """Has every client restore its memory."""
        order = wire.encode({"label": label})
        self._order(frames.LOAD, dict.fromkeys(self.pids, order))

    def close(self) -> None:
        """Ends the processes; they keep nothing."""
        for pipe in (*self._orders.values(), *self._answers.values()):
            with contextlib.suppress(OSError):
                pipe.close()  # the end of its input ends a client, and the last of them where they came from
        if self._nursery is None:
            return
        try:
            self._nursery.wait(timeout=FAREWELL)
        except subprocess.TimeoutExpired:  # one is in the middle of an answer that nobody waits for
            self._nursery.kill()
            self._nursery.wait()
        if self._nursery.stdout is not None:
            self._nursery.stdout.close()

    def _answers_to(self, kind: bytes, bodies: Mapping[str, bytes]) -> dict[str, Answer]:
        waited_for = set(bodies) - set(self.lost)
        with self._deadline(waited_for):
            for name, body in bodies.items():
                with contextlib.suppress(frames.Ended):  # reading says so, with how the process ended
                    if name not in self.lost:
                        frames.write(self._orders[name], kind, body)
            found = {}
            for name in bodies:  # all of them, so that none is left behind
                found[name] = self._answer(name)
                waited_for.discard(name)
        return found

    @contextlib.contextmanager
    def _deadline(self, waited_for: set[str]) -> Iterator[None]:
        """Ends the processes of those who are still waited for when time is up: then their pipes end too."""

        def end() -> None:
            for name in sorted(waited_for):
                self._too_slow.add(name)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[name], signal.SIGKILL)

        clock = threading.Timer(min(self._answer_within, threading.TIMEOUT_MAX), end)
        clock.daemon = True
        clock.start()
        try:
            yield
        finally:
            clock.cancel()

    def _order(self, kind: bytes, bodies: Mapping[str, bytes]) -> dict[str, bytes]:
        answers = self._answers_to(kind, bodies)
        for answer in answers.values():
            if isinstance(answer, SecureFedGraphError):
                raise answer
        return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}

    def _answer(self, name: str) -> Answer:
        if name in self.lost:
            return self.lost[name]
        try:
            kind, body = frames.read(self._answers[name])
        except frames.Ended:
            self.lost[name] = Lost(f"{self._why_gone(name)}; with a checkpoint the run can be resumed")
            return self.lost[name]
        return body if kind == frames.DONE else _failure(name, body)

    def _why_gone(self, name: str) -> str:
        ending = self._ending(name)
        if name in self._too_slow:
            return (
                f"{name} gave no answer within {self._answer_within:g} s, so its process was ended: raise "
                "answer_within if its work takes longer"
            )
        return f"{name}'s process ended ({ending}) before it answered: see above for what it said"

    def _ending(self, name: str) -> str:
        for pipe in (self._orders[name], self._answers[name]):  # so it ends, if it only talked nonsense
            with contextlib.suppress(OSError):
                pipe.close()
        mine = self.pids.get(name, 0)
        if mine not in self._ended:
            for line in (self._nursery and self._nursery.stdout) or ():
                pid, status = map(int, line.split())
                self._ended[pid] = status
                if pid == mine:
                    break
        return f"exit status {self._ended[mine]}" if mine in self._ended else "with all the others"

    def _start(self, names: list[str]) -> None:
        theirs = []
        for name in names:
            orders, ours = os.pipe()
            self._orders[name] = os.fdopen(ours, "wb")
            ours, answers = os.pipe()
            self._answers[name] = os.fdopen(ours, "rb")
            _widen(orders, answers)
            theirs.append((orders, answers))
        ends = [end for pair in theirs for end in pair]
        try:
            self._nursery = nursery = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "secure_fedgraph.backends.worker",
                    *(f"{a},{b}" for a, b in theirs),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=_environment(len(names)),
                pass_fds=ends,
            )
        finally:
            for end in ends:
                os.close(end)
        for name in names:
            line = nursery.stdout.readline() if nursery.stdout is not None else b""
            if not line:
                raise SecureFedGraphError(
                    f"clients' processes do not start (exit status {nursery.wait()}): see above for why"
                )
            self.pids[name] = int(line)


def _failure(name: str, body: bytes) -> SecureFedGraphError:
    """What a client's process failed with, as it says itself: a class of this package's, or another name."""
    try:
        told = wire.decode(body)
    except HostileMessage as error:
        return HostileMessage(f"{name}'s process failed and its frame cannot be read: {error}")
    kind, text = told.get("class"), told.get("text")
    if not isinstance(kind, str) or not isinstance(text, str):
        return HostileMessage(f"{name}'s process failed and does not say with what")
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, SecureFedGraphError):
        return known(printable(text))
    said = printable(f"{printable(kind, 100)}: {text}" if text else kind)
    return SecureFedGraphError(f"{name}'s process failed: {said}; its own output says more")


def _environment(clients: int) -> dict[str, str]:
    return {
        **os.environ,
        # what can be imported here can be imported there
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        # this process's threads, shared out; waiting ones leave the cores to the others
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // clients)),
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def _widen(*pipes: int) -> None:
    if sys.platform == "linux":
        import fcntl

        for pipe in pipes:
            with contextlib.suppress(OSError):  # the system may allow less
                fcntl.fcntl(pipe, _SET_PIPE_SIZE, PIPE)
