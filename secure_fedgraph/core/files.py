"""Files of a run: private ones are closed to other users, and no symbolic link is followed.

Private files (ledgers, clients' memories, checkpoints, transcripts) are 0600 in folders of 0700, whatever the
umask is. Files to share (results, reports, tables) have the modes that the umask gives.

A **root** is the folder that a user named. How it is reached is the user's own choice, links included. Below
it no link is followed: somebody else could have put it in the place of a folder or a file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from secure_fedgraph.core.errors import BadInput

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
OTHERS = 0o077
"""The mode bits that give access to anybody but the owner."""
DRAFT = ".draft"
"""The end of the name of a file that is still being written."""
MOST = 2**36
"""Bytes of the largest file that is read at once, where the reader names no limit."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in a file's place must not block
_LINKS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


def private_folder(path: Path, root: Path | None = None) -> Path:
    """Makes a folder that only its owner can read; one that exists is closed to others.

    Args:
        path: the folder.
        root: the folder that a user named, ``path`` itself by default. A root that exists keeps its mode.

    Raises:
        BadInput: where a link or a file stands in the place of a folder below the root.
        OSError: where the system refuses.
    """
    root = path if root is None else root
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            root.mkdir(PRIVATE_FOLDER)
    with _folder(path, root, make=True):
        return path


def write(
    path: Path,
    buffers: Iterable[Any],
    *,
    private: bool,
    root: Path | None = None,
    sync: bool = True,
    settle: bool = False,
) -> None:
    """Writes a file whole: a crash leaves the old one or the new one, never half of one.

    A draft with a random name replaces whatever has the file's name. A link is replaced, and what it pointed
    to does not change.

    Args:
        path: the file; its folder must exist.
        buffers: its content, one after the other.
        private: 0600 whatever the umask is; else what the umask gives.
        root: the folder that a user named, the file's own by default.
        sync: return only once it is on disk.
        settle: sync the folder too, and with it every rename in it so far.

    Raises:
        BadInput: where a link stands in the place of a folder below the root.
        OSError: where the system refuses.
    """
    with _folder(path.parent, root) as folder:
        draft = f".{path.name}.{secrets.token_hex(8)}{DRAFT}"
        mode = PRIVATE_FILE if private else 0o666
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, mode, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                for buffer in buffers:
                    file.write(buffer)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        if settle:
            os.fsync(folder)


def append(path: Path, content: bytes, *, root: Path | None = None, sync: bool = False) -> None:
    """Adds to the end of a private file; one that exists with a looser mode is closed to others first.

    Args:
        sync: return only once it is on disk.

    Raises:
        BadInput: where a link, or anything but a file, stands in its place.
        OSError: where the system refuses.
    """
    AppendedFile(path, root).append(content, sync=sync)


def sync(path: Path, *, root: Path | None = None) -> None:
    """Returns once all that was written to a file is on disk, by whatever descriptor it was written.

    Raises:
        BadInput: where a link, or anything but a file, stands in its place.
        OSError: where the system refuses.
    """
    with _folder(path.parent, root) as folder, open(_open_file(path, folder, os.O_RDONLY), "rb") as file:
        os.fsync(file.fileno())


def read(path: Path, *, root: Path | None = None, most: int = MOST, after: int = 0) -> bytes:
    """What a file holds.

    Args:
        most: bytes; a larger file is refused before it is read.
        after: how many bytes at the beginning are left out.

    Raises:
        BadInput: where it is larger, or a link, or anything but a file, stands in its place.
        OSError: where the file is missing, or the system refuses.
    """
    with _folder(path.parent, root) as folder, open(_open_file(path, folder, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise BadInput(f"{path} has {size} bytes, and at most {most} are read: put the right file there")
        file.seek(after)
        return file.read(max(size - after, 0))


def refuse_link(path: Path) -> None:
    """Checks that a run's folder is not a link, before files are written into it.

    Raises:
        BadInput: where a link stands in its place.
    """
    if path.is_symlink():
        raise BadInput(f"{path} is a symbolic link where a folder of a run stands: take it away")


def size_of(path: Path) -> int | None:
    """Bytes of a file; None where it is missing, or is a link.

    >>> size_of(Path("/nowhere"))
    """
    with suppress(OSError):
        status = path.lstat()
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def lock(path: Path, timeout: float = -1) -> FileLock:
    """A lock file that only its owner can open.

    Raises:
        BadInput: where a link, or anything but a file, stands in its place.
    """
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise _not_a_file(path)
        if status.st_mode & OTHERS:
            append(path, b"")
    return FileLock(path, timeout=timeout, mode=PRIVATE_FILE)


class _KeptOpen:
    """A private file that this process keeps open.

    Each use looks at what stands under the name. If another file has taken the name, that one is opened; a
    link in its place is refused. A forked process opens the file itself, since locks belong to open files.
    """

    _flags = os.O_RDWR | os.O_CREAT

    def __init__(self, path: Path, root: Path | None = None) -> None:
        self.path = path
        self._root = root
        self._name = os.fspath(path)
        self._descriptor = -1
        self._opened: tuple[int, int, int] = (0, 0, 0)
        """By which process, and on which device which file."""

    def __del__(self) -> None:
        self._close()

    def _current(self) -> int:
        """A descriptor of what stands under the name, which is closed to others."""
        if not self._is_current():
            self._close()
            with _folder(self.path.parent, self._root) as folder:
                self._descriptor = _open_file(self.path, folder, self._flags)
                os.fsync(folder)  # a name that is lost with the power takes all later lines with it
            _close_to_others(self._descriptor, PRIVATE_FILE)
            status = os.fstat(self._descriptor)
            self._opened = os.getpid(), status.st_dev, status.st_ino
        return self._descriptor

    def _is_current(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            status = os.lstat(self._name)
        except FileNotFoundError:
            return False
        same = (os.getpid(), status.st_dev, status.st_ino) == self._opened
        return same and not status.st_mode & OTHERS

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class AppendedFile(_KeptOpen):
    """A private file that is only added to. It does what :func:`append` does, and keeps the file open.

    Args:
        path: the file; its folder must exist by the first :meth:`append`.
        root: the folder that a user named, the file's own by default.
    """

    _flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT

    def append(self, content: bytes, *, sync: bool = False) -> None:
        """Adds to the end.

        Args:
            sync: return only once it is on disk.

        Raises:
            BadInput, OSError: as :func:`append`.
        """
        descriptor, left = self._current(), memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if sync:
            os.fsync(descriptor)


class KeptLock(_KeptOpen):
    """The lock of :func:`lock`, with its file kept open: it waits without a limit, and is for one thread.

    Args:
        path: the lock file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._instead: FileLock | None = None
        """Where the file system has no such locks: what stands in for them."""

    def __enter__(self) -> None:
        while self._instead is None:
            descriptor = self._current()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
                self._instead = lock(self.path)
                break
            if self._is_current():  # else it was replaced meanwhile, and this locks no name
                return
        self._instead.acquire()

    def __exit__(self, *_: object) -> None:
        if self._instead is not None:
            self._instead.release()
        else:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def remove(path: Path, root: Path | None = None) -> None:
    """Removes a file; or the link in its place, but not what it points to. A missing file is no error.

    Raises:
        BadInput: where a link stands in the place of a folder below the root.
    """
    with suppress(FileNotFoundError), _folder(path.parent, root) as folder:
        os.unlink(path.name, dir_fd=folder)


def remove_folder(path: Path, root: Path | None = None) -> None:
    """Removes a folder and all that is in it. A link in its place goes, and what it points to stays.

    What cannot be removed stays.

    Args:
        root: the folder that a user named, the one around ``path`` by default.

    Raises:
        BadInput: where a link stands in the place of a folder between the root and this one.
    """
    with suppress(FileNotFoundError), _folder(path.parent, root) as around:
        try:
            os.unlink(path.name, dir_fd=around)
        except OSError:  # a folder
            shutil.rmtree(path.name, ignore_errors=True, dir_fd=around)


def base_name(name: Any, where: str) -> str:
    """Checks a name from a file or a message that is to name a file: it must be no path.

    Args:
        where: the source of the name, for the error.

    Raises:
        BadInput: for a path, or anything but text.

    >>> base_name("owner-0", "the roster")
    'owner-0'
    """
    plain = isinstance(name, str) and 0 < len(name) <= 255 and name not in (".", "..")
    # half a character, as JSON may hold, cannot be in a file's name
    if not plain or any(sign in "/\\\0\n" or "\ud800" <= sign <= "\udfff" for sign in name):
        raise BadInput(f"{where} names {str(name)[:60]!a}, which is no name of a file: put a copy back")
    return str(name)


@contextmanager
def _folder(path: Path, root: Path | None, make: bool = False) -> Iterator[int]:
    """The folder at a path, opened; links count up to the root only.

    Args:
        make: create missing folders below the root; only this user may open any of them.
    """
    root = path if root is None else root
    folder = _open_folder(root)
    try:
        for part in path.relative_to(root).parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, PRIVATE_FOLDER, dir_fd=folder)
            below = _open_below(part, folder, path)
            os.close(folder)
            folder = below
            if make:
                _close_to_others(folder, PRIVATE_FOLDER)
        yield folder
    finally:
        os.close(folder)


def _open_folder(root: Path) -> int:
    try:
        return os.open(root, _FOLDER)
    except NotADirectoryError:
        raise BadInput(f"{root} is a file: give a folder") from None


def _open_below(part: str, folder: int, path: Path) -> int:
    if part == os.pardir:
        raise BadInput(f"{path} leaves its own folder: give a path without '..'")
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno not in _LINKS:
            raise
        raise BadInput(
            f"{path}: {part!r} is a symbolic link or a file where a folder of a run stands; take it away"
        ) from None


def _open_file(path: Path, folder: int, flags: int) -> int:
    try:
        descriptor = os.open(path.name, flags | _NO_LINK, PRIVATE_FILE, dir_fd=folder)
    except OSError as error:
        # a pipe that nobody reads, a socket or a device is no file either
        if error.errno in (*_LINKS, errno.ENXIO, errno.EISDIR):
            raise _not_a_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_a_file(path)
    return descriptor


def _not_a_file(path: Path) -> BadInput:
    return BadInput(f"{path} is a symbolic link, or no file at all: put the file itself there")


def _close_to_others(descriptor: int, mode: int) -> None:
    if os.fstat(descriptor).st_mode & OTHERS:
        with suppress(PermissionError):  # it belongs to somebody else
            os.fchmod(descriptor, mode)
