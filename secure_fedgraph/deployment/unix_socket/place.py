"""Where a silo's socket stands, and who may open it."""

from __future__ import annotations

import grp
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput

LONGEST = 103
"""Bytes of a socket's path that every system takes."""
ALONE, WITH_GROUP = (0o600, 0o700), (0o660, 0o710)
"""Modes of the socket and of its folder: for the silo's user alone, and for a group as well."""
WAITING = 16
"""Connections that may wait to be accepted."""


def open_socket(path: Path, group: str = "") -> socket.socket:
    """Makes a socket that listens, which nobody but its owner can open; or one group as well.

    Args:
        path: where it stands; its folder is made where it is missing.
        group: the name of a group whose members may open it.

    Returns:
        The socket.

    Raises:
        BadInput: for a folder that others can open, for anything but a socket in its place, for a socket
            that a process listens on, and for a group that this user is not in.
    """
    # a relative path would mean another place to a SuperNode in another folder
    path = path.absolute()
    if len(os.fsencode(path)) > LONGEST:
        raise BadInput(
            f"--socket {path}: it has {len(os.fsencode(path))} bytes, and a socket's path at most {LONGEST}: "
            "give a shorter one, such as /run/my-silo/socket"
        )
    mode, folder_mode = WITH_GROUP if group else ALONE
    number = _number_of(group) if group else -1
    try:
        _prepare(path.parent, folder_mode, number)
        _clear(path)
        return _listening(path, mode, number)
    except OSError as error:
        hint = f" and be in the group {group!r}" if group else ""
        raise BadInput(
            f"--socket {path}: {error.strerror or error}; give a path in a folder of your own{hint}"
        ) from None


def close_socket(listener: socket.socket, path: Path) -> None:
    """Ends listening, and takes the socket away."""
    listener.close()
    with suppress(OSError):
        path.unlink()


def _listening(path: Path, mode: int, group: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(
            OSError
        ):  # on Linux the file is made with the mode of the socket, and never stands open
            os.fchmod(listener.fileno(), ALONE[0])
        listener.bind(str(path))
        os.chmod(path, ALONE[0])
        if group >= 0:
            os.chown(path, -1, group)
            os.chmod(path, mode)
        listener.listen(WAITING)
    except BaseException:
        listener.close()
        raise
    return listener


def _prepare(folder: Path, mode: int, group: int) -> None:
    """Makes the folder; one that exists is checked and not changed, because it may hold other things."""
    new = not folder.exists()
    files.private_folder(folder)
    if new and group >= 0:
        os.chown(folder, -1, group)
        os.chmod(folder, mode)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise BadInput(f"--socket: {folder} belongs to another user: give a path in a folder of your own")
    if status.st_mode & 0o777 & ~mode:
        raise BadInput(
            f"--socket: the folder {folder} has the mode {stat.S_IMODE(status.st_mode):o}, so others could "
            f"open it: run 'chmod {mode:o} {folder}', or give a path in a folder that is not there yet"
        )
    if group >= 0 and (status.st_gid != group or not status.st_mode & 0o010):
        name = grp.getgrgid(group).gr_name
        raise BadInput(
            f"--socket-group: the folder {folder} is not open to it: run 'chgrp {name} {folder}' and "
            f"'chmod {mode:o} {folder}', or give a path in a folder that is not there yet"
        )


def _clear(path: Path) -> None:
    """Takes away a socket that a killed process left; nothing else."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise BadInput(f"--socket {path}: something that is no socket stands there: give another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(2)
        try:
            asked.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:  # it is busy, so it lives
            pass
    raise BadInput(f"--socket {path}: another process listens there: end it, or give another path")


def _number_of(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise BadInput(
            f"--socket-group {group!r}: there is no such group: make one with 'groupadd', with the silo's "
            "user and the SuperNode's in it"
        ) from None
