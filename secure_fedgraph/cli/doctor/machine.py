"""Processors, memory, graphics processors and the folders that runs write into."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from secure_fedgraph.cli.doctor.finding import Finding, Verdict
from secure_fedgraph.graph.data import sources

GROUP = "machine"
FOLDERS = "folders"
MEMORY = 2 * 2**30
"""Bytes that a run on Cora with three owners has room in."""
ROOM = 2**30
"""Bytes of a disk under which a folder gets a note: the messages of a run that are kept in full take that."""
LEAST = 50 * 2**20
"""Bytes of a disk with which no run ends well."""


def findings() -> Iterator[Finding]:
    """Cores, memory, GPU; then the three folders that a run may write into."""
    yield _cores()
    yield _memory()
    yield _gpu()
    yield _writable("runs", Path("runs"))
    yield _writable("cache", sources.cache_folder())
    yield _writable("temporary", Path(tempfile.gettempdir()))


def _cores() -> Finding:
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS")
    there = f"{mine} for this process, " + (
        f"OMP_NUM_THREADS={threads}" if threads else "threads as torch likes"
    )
    quota = _quota()
    if quota is not None and quota < mine:
        there += f"; its group may use {quota:.3g} of them"
    return Finding(GROUP, "cores", Verdict.OK, there)


def _quota() -> float | None:
    """The processors that Linux' control group allows; None where nothing limits them."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(quota) / int(period)
    return None


def _memory() -> Finding:
    free, total = free_memory()
    if total is None:
        return Finding(GROUP, "memory", Verdict.NOTE, "this system does not say", "a run takes about 2 GB")
    if free is None:
        return Finding(GROUP, "memory", Verdict.OK, _size(total))
    there = f"{_size(free)} free of {_size(total)}"
    if free < MEMORY:
        return Finding(GROUP, "memory", Verdict.NOTE, there, "a run takes about 2 GB: end something else")
    return Finding(GROUP, "memory", Verdict.OK, there)


def free_memory(
    meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> tuple[int | None, int | None]:
    """Bytes that are free and bytes in all, for this process; None where the system does not say.

    Args:
        meminfo: where Linux says it of the machine.
        group: where it says it of this process's control group, which may have less.
    """
    free, total = _meminfo(meminfo)
    if total is None:
        with suppress(OSError, ValueError):
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        if total is None or limit < total:
            total = limit
            free = max(0, limit - used) if free is None else min(free, max(0, limit - used))
    return free, total


def _meminfo(path: Path) -> tuple[int | None, int | None]:
    values: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, rest = line.partition(":")
            if key in ("MemAvailable", "MemTotal"):
                values[key] = int(rest.split()[0]) * 1024
    return values.get("MemAvailable"), values.get("MemTotal")


def _gpu() -> Finding:
    """Whether the machine shows a GPU, and for what the installed torch was built; no run needs one."""
    drivers = sorted(path.name for path in Path("/proc/driver/nvidia/gpus").glob("*"))
    if not drivers:
        return Finding(GROUP, "GPU", Verdict.OK, "none; none is needed")
    cuda = cuda_of_torch()
    if cuda is None:
        there = f"{len(drivers)} by NVIDIA's driver; torch is built without CUDA"
        return Finding(GROUP, "GPU", Verdict.NOTE, there, "this build of torch uses none; none is needed")
    return Finding(
        GROUP, "GPU", Verdict.OK, f"{len(drivers)} by NVIDIA's driver; torch is built for CUDA {cuda}"
    )


def cuda_of_torch() -> str | None:
    """The release of CUDA that torch was built for, from its files: importing it takes seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    with suppress(OSError):
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
        stated = re.search(r"^cuda\b.*= *['\"]([0-9.]+)['\"]", text, re.MULTILINE)
        return stated and stated[1]
    return None


def _writable(name: str, folder: Path) -> Finding:
    """Whether files can be made and locked in a folder, or in the folder that it would be made in."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    there = str(folder) if place == folder.absolute() else f"{folder} (to be made in {place})"
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0")
            file.flush()
            os.fsync(file.fileno())
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the ledger's lock
        free = shutil.disk_usage(place).free
    except OSError as error:
        verdict = Verdict.NOTE if name == "cache" else Verdict.PROBLEM
        mend = {
            "runs": "go to a folder that you may write into, or give --out",
            "cache": "lists and data are made anew each time: set XDG_CACHE_HOME to a folder of your own",
            "temporary": "set TMPDIR to a folder of your own",
        }[name]
        return Finding(FOLDERS, name, verdict, f"{there}: {error.strerror or error}", mend)
    there += f", {_size(free)} free"
    if free < LEAST:
        return Finding(FOLDERS, name, Verdict.PROBLEM, there, "make room")
    if free < ROOM:
        return Finding(FOLDERS, name, Verdict.NOTE, there, "make room for runs that keep their messages")
    return Finding(FOLDERS, name, Verdict.OK, there)


def _size(count: int) -> str:
    """Bytes in words.

    >>> _size(3 * 10**9), _size(5 * 10**6)
    ('3.0 GB', '5 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"
