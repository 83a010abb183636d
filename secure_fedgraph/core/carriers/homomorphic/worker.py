"""The parent's end of the process in which SEAL reads bytes that came from the network.

Hostile ciphertexts crash SEAL, and a crash cannot be caught. So it happens in a child that holds
nothing, and the parent turns the child's death into a refusal.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from secure_fedgraph.core.carriers.homomorphic import native
from secure_fedgraph.core.carriers.homomorphic.native import Bytes
from secure_fedgraph.core.errors import HostileMessage

_SCRIPT = Path(native.__file__)
_REPLY = struct.Struct("<cI")
_SHELVES = 16


class NativeWorker:
    """A persistent child process for native work on untrusted bytes, started when it is first needed.

    Guarantees:
        - bytes that crash, hang or exhaust the child raise :class:`HostileMessage` here, and the next
          call gets a new child; so does a call after a refusal, since that child read bad bytes;
        - the child ends with this process, also when this process is killed (its input then ends).

    Needs:
        - lengths that were checked before: this class does not know what is in the bytes.

    Args:
        seconds: that a call may take, plus one for each megabyte.
        script: what the child runs.
    """

    def __init__(self, seconds: float = 60.0, script: Path = _SCRIPT) -> None:
        self._seconds = seconds
        self._script = script
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._shelves: list[native.Scratch] = []
        atexit.register(self.close)

    def call(
        self,
        task: bytes,
        plain_bits: int,
        data_bits: int,
        parts: Sequence[Bytes],
        pieces: Sequence[Bytes] = (),
    ) -> bytes:
        """The result of one piece of work.

        Args:
            task: a key of the script's table.
            plain_bits, data_bits: the ring.
            parts: bytes that the task takes.
            pieces: bytes that it takes one after the other, as files; never a key.

        Raises:
            HostileMessage: the child refused the bytes, crashed on them or took too long.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            # A megabyte takes about 10 ms; a second is for machines that are busy.
            limit = self._seconds + (sum(map(len, parts)) + sum(map(len, pieces))) / 1e6
            alarm = threading.Timer(limit, process.kill)
            alarm.daemon = True
            alarm.start()
            try:
                native.send(process.stdin, (task, plain_bits, data_bits), parts, len(pieces))
                native.put(process.stdin, process.stdout, self._shelves, pieces)
                status, length = _REPLY.unpack(process.stdout.read(_REPLY.size))
                reply = process.stdout.read(length)
                if len(reply) < length:
                    raise EOFError
            except (OSError, EOFError, struct.error):
                self._end()
                raise HostileMessage(
                    f"A ciphertext killed the process that read it (exit status {process.returncode})."
                ) from None
            except BaseException:  # an interrupt leaves half a reply behind
                self._end()
                raise
            finally:
                alarm.cancel()
            if status != b"+":
                self._end()
                raise HostileMessage(f"A ciphertext was refused: {reply.decode(errors='replace')}.")
            return reply

    def close(self) -> None:
        """Ends the child; a later call starts a new one."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():
            self._process = None  # this is a fork: the child, and the pipes to it, are our parent's
        elif self._process is not None and self._process.poll() is not None:
            self._end()  # it died between two calls, so no client's bytes killed it
        if self._process is None:
            self._shelves = [native.Scratch() for _ in range(_SHELVES)]
            # A fresh interpreter: a fork would carry this process's keys, and spawn would run its main.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self._script), *(file.path for file in self._shelves)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[file.fd for file in self._shelves],
            )
            self._owner = os.getpid()
            assert self._process.stdout is not None
            if self._process.stdout.read(1) != b"R":
                self._end()
                raise RuntimeError(f"the worker for ciphertexts does not start: try python -P {self._script}")
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()  # it keeps no state
        process.wait()
        for file in self._shelves:
            file.close()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def refused_alone(uploads: Mapping[str, bytes], read: Callable[[bytes], object]) -> dict[str, str]:
    """Whose bytes are refused when each upload is read by itself, and why.

    Args:
        uploads: by their senders' names.
        read: reads one upload, or raises :class:`HostileMessage`.
    """
    refused = {}
    for name, upload in uploads.items():
        try:
            read(upload)
        except HostileMessage as error:
            refused[name] = str(error)
    return refused


def blame(refused: Mapping[str, str], refusal: HostileMessage) -> str:
    """A sentence that names the senders of refused uploads.

    Args:
        refused: as :func:`refused_alone` returns them.
        refusal: of all uploads together.
    """
    if not refused:
        return f"the uploads do not add up, though each can be read alone: {refusal}"
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    return f"an upload is no ciphertext. {reasons}"
