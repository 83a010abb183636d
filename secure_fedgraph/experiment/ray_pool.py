"""As a pool of processes, on Ray: on this machine's cores, or on those of a cluster.

A machine of a cluster needs no disk in common with this one. A task takes along what its folder of results
holds, and works below a folder of its machine's own, which is removed; what it wrote comes back with its
result, and is written here.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from secure_fedgraph.algorithms.plugins import algorithm_named, is_own
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.experiment.code_digest import MAKE_NO_RESULTS, PACKAGE, of_code, of_rooms
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.pool import STOPPED, Failed, Work, ready_for_tasks, tried
from secure_fedgraph.experiment.results import versions

LOCAL, RAY = "local", "ray"
AGAIN = 3
"""How often a task is sent again after the process or the machine that had it was lost."""
Held = Mapping[str, tuple[bytes, bool]]
"""Files by their place below a folder: the content, and whether only its owner may read it."""


@dataclass(frozen=True)
class Task:
    """What goes to another machine.

    Args:
        out: the folder of results as the command names it.
        held: what the task's own folder in it holds.
        cwd: where relative places begin.
        of: the experiment that it runs.
        made_of: what must be the same on that machine, in words, and its version or digest.
    """

    work: Work
    arguments: tuple[Any, ...]
    out: Path
    held: Held
    cwd: str
    of: Experiment
    made_of: Mapping[str, str]


@contextmanager
def on_ray(
    engine: str | None,
    out: Path,
    workers: int | None = None,
    experiment: Experiment | None = None,
    tasks: int | None = None,
) -> Iterator[RayPool | None]:
    """The pool of an engine; None where that is this machine's own processes.

    Args:
        engine: ``local``, ``ray`` or ``ray://HOST:PORT``.
        out: the folder of results.
        workers: how many tasks run at once; by default as many as there are cores.
        experiment: which tasks run, with their own algorithms, policies and seeds.
        tasks: how many there are, where that is known.

    Raises:
        BadInput: where no Ray answers, for a single task, and where runs share a ledger.
        SecureFedGraphError: where it no longer answers.
    """
    if engine in (None, LOCAL):
        yield None
        return
    if experiment is not None and experiment.ledger is not None:
        raise BadInput(f"--engine {engine}: --ledger is a file of one machine: drop one of the two")
    if tasks == 1:
        raise BadInput(f"--engine {engine}: a run of one seed is one process: give --seeds 2 or more")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = import_module("ray")
    how: dict[str, Any] = {"address": engine, "log_to_driver": False, "logging_level": "ERROR"}
    if engine == RAY:
        how |= {"address": "local", "num_cpus": workers or os.cpu_count(), "include_dashboard": False}
    try:
        ray.init(**how)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())[:300]
        raise BadInput(f"--engine {engine}: no Ray answers ({why}): start it, or drop --engine") from error
    pool = RayPool(ray, out, workers, gpus=int(experiment is not None and experiment.device != "cpu"))
    try:
        yield pool
    except ConnectionError as error:
        raise SecureFedGraphError(
            f"--engine {engine} is gone ({error}): start it again, and go on"
        ) from error
    finally:
        pool.stop()
        ray.shutdown()


class RayPool:
    """Tasks of Ray, one core each.

    Args:
        ray: the library, with a connection.
        out, workers: as :func:`on_ray`'s.
        gpus: that each task takes.
    """

    def __init__(self, ray: Any, out: Path, workers: int | None = None, gpus: int = 0) -> None:
        self._ray, self._out, self._workers = ray, out, workers
        self._do = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(done)
        self._busy: dict[Any, tuple[Any, Path | None, Task, int]] = {}

    @property
    def free(self) -> bool:
        """Whether a task would be started at once."""
        return len(self._busy) < (self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1))))

    @property
    def working(self) -> bool:
        """Whether a task is on its way."""
        return bool(self._busy)

    def start(self, name: Any, work: Work, *arguments: Any, of: Any = None, at: Path | None = None) -> None:
        """Sends a task with what its folder holds."""
        held = {} if at is None else held_by(at, self._out)
        task = Task(work, arguments, self._out, held, os.getcwd(), of, made_of(of))
        self._send(name, at, task, 0)

    def finished(self, deadline: float | None = None) -> list[tuple[Any, Any]]:
        """Waits until a task has ended, or until the deadline, at which all are stopped.

        Returns:
            (name, result or :class:`Failed`); nothing of a task that was lost, since it was sent again.
        """
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=left)
        if ready:
            return [ended for ref in ready for ended in self._taken(ref)]
        names = [name for name, *_ in self._busy.values()]
        self.stop()
        return [(name, STOPPED) for name in names]

    def stop(self) -> None:
        """Stops what is on its way."""
        with suppress(ConnectionError):
            for ref in self._busy:
                self._ray.cancel(ref, force=True)
        self._busy.clear()

    def _send(self, name: Any, at: Path | None, task: Task, lost: int) -> None:
        self._busy[self._do.remote(task)] = name, at, task, lost

    def _taken(self, ref: Any) -> Iterator[tuple[Any, Any]]:
        name, at, task, lost = self._busy.pop(ref)
        try:
            held, result = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:  # outside of the work: it lacks the package
            yield name, Failed(str(error).strip().splitlines()[-1], unforeseen=True)
        except self._ray.exceptions.RayError as error:
            if lost < AGAIN:
                self._send(name, at, task, lost + 1)
                return
            why = f"its process or machine was lost {lost + 1} times ({type(error).__name__})"
            yield name, Failed(f"{why}: memory may have run out there", unforeseen=True)
        else:
            unwritten = tried(keep, held, at, self._out)
            yield name, unwritten or result


def done(task: Task) -> tuple[Held, Any]:
    """Does a task in the process where it is called.

    Returns:
        What it wrote, and its result or :class:`Failed`, which names the machine.
    """
    ready_for_tasks()
    with TemporaryDirectory() as scratch, chdir(task.cwd if Path(task.cwd).is_dir() else scratch):
        root = files.private_folder(Path(scratch) / "out")
        put(task.held, root)
        result = tried(_checked, task, root)
        if isinstance(result, Failed):
            reason = result.reason.replace(str(root), str(task.out))
            result = replace(result, reason=f"{reason} (on {socket.gethostname()})")
        return held_by(root, root), result


def _checked(task: Task, root: Path) -> Any:
    """The task's result, where its machine would make of it what every other one makes.

    Raises:
        BadInput: for a version, code or data that are not as on the machine of the command.
    """
    here = made_of(task.of)
    for what, digest in task.made_of.items():
        if here[what] != digest:
            raise BadInput(f"{what} is not as on the machine of the command: put the same there")
    return task.work(*(_moved(one, task.out, root) for one in task.arguments))


def _moved(argument: Any, out: Path, root: Path) -> Any:
    """An argument; a place in the folder of results is one below the root."""
    inside = isinstance(argument, Path) and argument.is_relative_to(out)
    return root / argument.relative_to(out) if inside else argument


def made_of(experiment: Experiment) -> dict[str, str]:
    """What decides a result and must be the same on every machine, in words, and its version or digest."""
    own = experiment.algorithm if is_own(experiment.algorithm) else None
    made = {f"the version of {name}": version for name, version in versions().items()}
    made["the code of secure-fedgraph"] = of_rooms(PACKAGE, *(PACKAGE / name for name in MAKE_NO_RESULTS))
    made["the content of own data"] = experiment.digest_of_silos
    return made if own is None else {**made, f"the code of {own}": of_code(algorithm_named(own))}


def held_by(folder: Path, root: Path) -> dict[str, tuple[bytes, bool]]:
    """The files in a folder, by their places below the root; what a link leads to is none of them."""
    found = (path for path in sorted(folder.rglob("*")) if files.size_of(path) is not None)
    private = {path: not path.stat().st_mode & files.OTHERS for path in found}
    return {str(path.relative_to(root)): (files.read(path, root=root), one) for path, one in private.items()}


def put(held: Held, root: Path) -> None:
    """Writes files below a root, in folders that only their owner may read."""
    for name, (content, private) in held.items():
        files.private_folder((root / name).parent, root)
        files.write(root / name, [content], private=private, root=root, sync=False)


def keep(held: Held, at: Path | None, out: Path) -> None:
    """Writes what came back below a folder of results; a task's own folder whole or not at all."""
    if at is None:
        put(held, out)
        return
    draft = files.private_folder(at.parent, out) / f".{at.name}{files.DRAFT}"
    files.remove_folder(draft, out)
    own = {name: one for name, one in held.items() if at in (out / name).parents}
    put(
        {str((out / name).relative_to(at)): one for name, one in own.items()},
        files.private_folder(draft, out),
    )
    files.remove_folder(at, out)
    os.replace(draft, at)
