"""Processes that work through runs side by side; one that dies or takes too long costs its own run alone."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import torch

from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.core import errors
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.registry import PluginWarning

Work = Callable[..., Any]
NEEDED = 4_000_000_000
"""Bytes of free memory that each process is given before another is started."""
LIMIT = 2
SAFE_PATH = "PYTHONSAFEPATH"


@dataclass(frozen=True)
class Failed:
    """Why a task has no result.

    Args:
        reason: one sentence.
        kind: the error's class; empty where the process ended or was stopped.
        stopped: whether it was still running at the deadline, or never begun.
        unforeseen: whether it is no error of this package's: a mistake in the code, or a process that ended.
    """

    reason: str
    kind: str = ""
    stopped: bool = False
    unforeseen: bool = False

    def error(self, where: str = "") -> SecureFedGraphError:
        """The error to raise where nothing can go on without the task."""
        kind = getattr(errors, self.kind, None)
        if not isinstance(kind, type) or not issubclass(kind, SecureFedGraphError):
            kind = SecureFedGraphError
        return kind(f"{where}{self.reason}")


class Tasks(Protocol):
    """Where tasks are done: :class:`Pool`, :class:`Here`, or a pool on Ray."""

    @property
    def free(self) -> bool:
        """Whether a task would be started at once."""

    @property
    def working(self) -> bool:
        """Whether a task is on its way."""

    def start(self, name: Any, work: Work, *arguments: Any, of: Any = None, at: Path | None = None) -> None:
        """Starts a task.

        Args:
            of: the experiment that it runs; what decides its result must be the same where it is done.
            at: the folder that it may go on in, where it is done on a disk of its own.
        """

    def finished(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
        """Waits until a task has ended, or until the deadline: (name, result or :class:`Failed`)."""


STOPPED = Failed("it was stopped at the end of the time that it was given", stopped=True)


def default_workers(tasks: int) -> int:
    """Two processes; one where the cores, the memory or the tasks suffice for one only."""
    return max(1, min(LIMIT, os.cpu_count() or 1, tasks, free_memory() // NEEDED))


def free_memory() -> int:
    """Bytes that can be had without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Pool:
    """Spawned processes, one thread each.

    Args:
        workers: how many.
    """

    def __init__(self, workers: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._workers = workers
        self._idle: list[tuple[Any, Connection]] = []
        self._busy: dict[Connection, tuple[Any, Any]] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for process, pipe in self._idle:
            pipe.close()
            process.join(5)
        for pipe, (process, _) in self._busy.items():
            process.kill()
            process.join()
            pipe.close()

    @property
    def free(self) -> bool:
        """Whether a task would be started at once."""
        return len(self._busy) < self._workers

    @property
    def working(self) -> bool:
        """Whether a task is on its way."""
        return bool(self._busy)

    def start(self, name: Any, work: Work, *arguments: Any, of: Any = None, at: Path | None = None) -> None:
        """Gives a task to a free process."""
        process, pipe = self._idle.pop() if self._idle else self._made()
        pipe.send((work, arguments))
        self._busy[pipe] = process, name

    def finished(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
        """Waits until a task has ended, or until the deadline, at which all are stopped.

        Args:
            deadline: on :func:`time.monotonic`'s clock.

        Returns:
            (name, result or :class:`Failed`).
        """
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(self._busy), left)
        if not ready:
            return [self._stopped(pipe) for pipe in list(self._busy)]
        return [self._taken(pipe) for pipe in ready if isinstance(pipe, Connection)]

    def _taken(self, pipe: Connection) -> tuple[Any, Any]:
        process, name = self._busy.pop(pipe)
        try:
            result = pipe.recv()
        except (EOFError, OSError):
            process.join()
            pipe.close()
            code = process.exitcode
            why = ", which mostly means that memory ran out" if code == -9 else ""
            return name, Failed(f"its process ended with status {code}{why}", unforeseen=True)
        self._idle.append((process, pipe))
        return name, result

    def _stopped(self, pipe: Connection) -> tuple[Any, Any]:
        process, name = self._busy.pop(pipe)
        process.kill()
        process.join()
        pipe.close()
        return name, STOPPED

    def _made(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=False)
        with _without_working_folder():
            process.start()
        theirs.close()
        return process, ours


class Here:
    """As a pool of processes, without any: a task is done when it is started."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, Any]] = []

    @property
    def free(self) -> bool:
        """Whether a task would be started at once."""
        return not self._done

    @property
    def working(self) -> bool:
        """Whether a task's end was not told yet."""
        return bool(self._done)

    def start(self, name: Any, work: Work, *arguments: Any, of: Any = None, at: Path | None = None) -> None:
        """Does a task, in one thread as processes do: more of them would add up in another order."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            self._done.append((name, tried(work, *arguments)))
        finally:
            torch.set_num_threads(threads)

    def finished(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
        """(name, result or :class:`Failed`) of what was done."""
        done, self._done = self._done, []
        return done


@contextmanager
def _without_working_folder() -> Iterator[None]:
    """A spawned interpreter does not look for modules in the working folder first, as ``python -c`` does.

    A user's ``types.py`` there would take the place of Python's own. The process is given this one's search
    path before it imports anything of a user's.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def ready_for_tasks() -> None:
    """Makes a process ready: one thread, and nothing said that was said where the work was asked for."""
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore", PluginWarning)


def _serve(pipe: Connection) -> None:
    ready_for_tasks()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while True:
        try:
            work, arguments = pipe.recv()
            pipe.send(tried(work, *arguments))
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            return


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone: nobody waits for its result then."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def tried(work: Work, *arguments: Any) -> Any:
    """The result, or why there is none."""
    try:
        return work(*arguments)
    except SecureFedGraphError as error:
        return Failed(str(error), type(error).__name__)
    except Exception as error:
        return Failed(in_words(error), type(error).__name__, unforeseen=True)


def in_words(error: Exception) -> str:
    """A mistake in somebody's code: which it is, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
