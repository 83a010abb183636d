"""Isolated mode: every client in a process of its own, reached over pipes."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any

import torch

from secure_fedgraph.backends import frames
from secure_fedgraph.backends.failures import failure_in
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.protocol import nested
from secure_fedgraph.protocol.transport import Answer, Lost

PIPE = 2**20
PATIENCE = 3600.0
"""Seconds that a client's process has for one answer."""
FAREWELL = 2.0
"""Seconds that a process has to end by itself."""
LONGEST = 2.0**20
"""Seconds: a longer wait counts as endless."""
RESUME = "with a checkpoint the run can be resumed"
_SET_PIPE_SIZE = 1031  # fcntl's F_SETPIPE_SZ, on Linux


class Workers:
    """A transport to clients that each run in a process of their own.

    Guarantees:
        - a process is sent its own graph, public facts and message bytes, nothing of another client;
        - identity keys are made in the processes and stay there: public keys come out, and the operator hands
          out the roster, not the server;
        - clients work side by side: requests and answers go as fast as each client reads and writes, and one
          that reads nothing, stops in the middle or promises more than it sends delays no other;
        - a refusal arrives as the error that it was, and a process that died as an error that names it;
        - a client whose process died stays gone; :meth:`reach` goes on without it;
        - the process of a client that gives no answer in time, or sends invalid frames, is ended, and the
          client is gone too;
        - the processes end with this one, also when it is killed.
    Needs:
        - algorithm and policy by name; see :mod:`~secure_fedgraph.backends.enlistment`.

    Not available: what a client opened from its peers is not recorded, since it stays in the client's
    process. A client's view then holds the messages it sent and got.

    Args:
        settings: client -> what its process gets before the run.
        answer_within: seconds that all clients together have for one answer each; inf waits for ever.
        anew: whether each process starts as a program of its own instead of a fork. It takes an import
            more. A GPU needs it: an import before the fork may start the GPU's driver, and a fork cannot use
            a driver that its parent started.
    """

    def __init__(
        self,
        settings: Mapping[str, Mapping[str, Any]],
        answer_within: float = PATIENCE,
        anew: bool = False,
    ) -> None:
        self._orders: dict[str, IO[bytes]] = {}
        self._answers: dict[str, IO[bytes]] = {}
        self.pids: dict[str, int] = {}
        self.lost: dict[str, Lost] = {}
        self._answer_within = answer_within
        self._anew = anew
        self._too_slow: set[str] = set()
        self._ended: dict[int, int] = {}
        self._nursery: subprocess.Popen[bytes] | None = None
        try:
            self._start(list(settings))
            bodies = {name: bytes(nested.pack(body)) for name, body in settings.items()}
            self.roster: Mapping[str, bytes] = self._order(frames.TOLD, bodies)
            self._order(frames.ROSTER, dict.fromkeys(settings, bytes(nested.pack(self.roster))))
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
                pipe.close()  # a client ends with its input, and the first process after the last client
        if self._nursery is None:
            return
        try:
            self._nursery.wait(timeout=FAREWELL)
        except subprocess.TimeoutExpired:  # one is still computing an answer
            for name, pid in self.pids.items():
                self._hear_of(pid, 0)
                if (
                    pid not in self._ended
                ):  # by its number: it may have seen to it that it outlives its parent
                    self._end(name)
            self._nursery.kill()
            self._nursery.wait()
        if self._nursery.stdout is not None:
            self._nursery.stdout.close()

    def _answers_to(self, kind: bytes, bodies: Mapping[str, bytes]) -> dict[str, Answer]:
        """Each client's answer. None waits for another that does not read, or stops in the middle."""
        talks = {
            name: (frames.Outgoing(kind, body), frames.Incoming())
            for name, body in bodies.items()
            if name not in self.lost
        }
        open_: set[str] = set(talks)
        with selectors.DefaultSelector() as ready:
            for name in talks:
                ready.register(self._orders[name], selectors.EVENT_WRITE, name)
                ready.register(self._answers[name], selectors.EVENT_READ, name)
            until = time.monotonic() + self._answer_within
            while open_ and (left := until - time.monotonic()) > 0:
                for key, _ in ready.select(None if left > LONGEST else left):
                    name = key.data
                    try:
                        finished = self._go_on(name, *talks[name], ready, key.fileobj)
                    except frames.Ended:
                        self._lose(name)
                        finished = True
                    if finished and name in open_:
                        open_.discard(name)
                        for pipe in (self._orders[name], self._answers[name]):
                            with contextlib.suppress(KeyError, ValueError):
                                ready.unregister(pipe)
        self._too_slow |= open_
        for name in sorted(open_):
            self._end(name)
            self._lose(name)
        gone = self.lost
        return {n: gone[n] if n in gone else self._said(n, talks[n][1]) for n in bodies}

    def _go_on(
        self,
        name: str,
        going: frames.Outgoing,
        coming: frames.Incoming,
        ready: selectors.BaseSelector,
        pipe: Any,
    ) -> bool:
        """Reads or writes what can be read or written now; whether the answer is whole.

        Raises:
            Ended: for a client that is gone, or answers before it has the whole request.
        """
        if pipe is self._orders[name]:
            try:
                going.left(pipe.write(going.piece) or 0)
            except OSError:  # it reads no more; the other pipe shows whether it answers
                ready.unregister(pipe)
                return False
            if going.whole:
                ready.unregister(pipe)
            return False
        piece = pipe.read(coming.wants)
        if piece is None:
            return False
        if not piece:
            raise frames.Ended
        coming.take(piece)
        if coming.whole and not going.whole:
            raise frames.Ended
        return coming.whole

    def _order(self, kind: bytes, bodies: Mapping[str, bytes]) -> dict[str, bytes]:
        answers = self._answers_to(kind, bodies)
        for answer in answers.values():
            if isinstance(answer, SecureFedGraphError):
                raise answer
        return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}

    def _said(self, name: str, coming: frames.Incoming) -> Answer:
        if coming.kind == frames.DONE:
            return coming.body
        return failure_in(coming.body, f"{name}'s process", "its own output says more")

    def _lose(self, name: str) -> None:
        self.lost[name] = Lost(*self._why_gone(name))

    def _end(self, name: str) -> None:
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(self.pids[name], signal.SIGKILL)

    def _why_gone(self, name: str) -> tuple[str, str]:
        """Why a client is gone, and what to do where that ends the run."""
        ending = self._ending(name)
        if name in self._too_slow:
            why = f"{name} gave no answer within {self._answer_within:g} s, so its process was ended"
            return why, f": raise answer_within if its work takes longer; {RESUME}"
        return (
            f"{name}'s process ended ({ending}) before it answered",
            f": see its own output above; {RESUME}",
        )

    def _ending(self, name: str) -> str:
        for pipe in (
            self._orders[name],
            self._answers[name],
        ):  # so that it ends, if it only sent invalid frames
            with contextlib.suppress(OSError):
                pipe.close()
        pid = self.pids.get(name, 0)
        self._hear_of(pid, FAREWELL)
        if pid not in self._ended and pid:  # else it is killed
            self._end(name)
            self._hear_of(pid, FAREWELL)
        return f"exit status {self._ended[pid]}" if pid in self._ended else "with all the others"

    def _hear_of(self, pid: int, seconds: float) -> None:
        """Reads how processes ended until this one has, for at most so many seconds."""
        endings = self._nursery.stdout if self._nursery is not None else None
        until = time.monotonic() + seconds
        while endings is not None and pid not in self._ended:
            if not select.select([endings], [], [], max(0.0, until - time.monotonic()))[0]:
                return
            line = endings.readline()
            if not line:
                return
            ended, status = map(int, line.split())
            self._ended[ended] = status

    def _start(self, names: list[str]) -> None:
        worker_ends = []
        for name in names:
            orders, own_end = os.pipe()
            self._orders[name] = _without_waiting(own_end, "wb")
            own_end, answers = os.pipe()
            self._answers[name] = _without_waiting(own_end, "rb")
            _widen(orders, answers)
            worker_ends.append((orders, answers))
        ends = [end for pair in worker_ends for end in pair]
        try:
            self._nursery = nursery = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "secure_fedgraph.backends.worker",
                    *(["--anew"] if self._anew else []),
                    *(f"{a},{b}" for a, b in worker_ends),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=_environment(len(names)),
                pass_fds=ends,
                bufsize=0,  # select would not see lines that were read ahead
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


def _without_waiting(end: int, mode: str) -> IO[bytes]:
    os.set_blocking(end, False)
    return os.fdopen(end, mode, buffering=0)


def _environment(clients: int) -> dict[str, str]:
    return {
        **os.environ,
        # what can be imported here can be imported in the clients' processes
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        # this process's threads, divided among clients; waiting ones leave the cores to the others
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // clients)),
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def _widen(*pipes: int) -> None:
    if sys.platform == "linux":
        import fcntl

        for pipe in pipes:
            with contextlib.suppress(OSError):  # the system may allow less
                fcntl.fcntl(pipe, _SET_PIPE_SIZE, PIPE)
