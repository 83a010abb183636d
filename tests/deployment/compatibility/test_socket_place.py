"""Who may open a silo's socket: its owner, or one group, and nobody else."""

from __future__ import annotations

import grp
import os
import socket
import stat
from pathlib import Path

import pytest
from bank_folders import Echo
from click.testing import CliRunner

from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.unix_socket.listening import Listening
from secure_fedgraph.deployment.unix_socket.place import LONGEST, close_socket, open_socket

GROUP = grp.getgrgid(os.getegid()).gr_name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_but_its_owner(tmp_path: Path, umask: int) -> None:
    path, before = tmp_path / "door" / "socket", os.umask(umask)
    try:
        listener = open_socket(path)
    finally:
        os.umask(before)
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    close_socket(listener, path)
    assert not path.exists()


def test_and_one_group(tmp_path: Path) -> None:
    path = tmp_path / "door" / "socket"
    listener = open_socket(path, GROUP)
    assert (mode(path), mode(path.parent)) == (0o660, 0o710)
    assert path.stat().st_gid == path.parent.stat().st_gid == os.getegid()
    close_socket(listener, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.skipif(not Path("/tmp").stat().st_mode & 0o001, reason="no other user may enter /tmp here")
@pytest.mark.parametrize(("group", "may"), [("", False), ("nogroup", True)])
def test_another_user_opens_it_by_the_group_alone(group: str, may: bool) -> None:
    # not below pytest's own folder, which no other user may enter
    path = Path(f"/tmp/secure-fedgraph-{os.getpid()}-{may:d}/door/socket")
    path.parent.parent.mkdir(0o755)
    listener = open_socket(path, group)
    try:
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(grp.getgrnam("nogroup").gr_gid)
                os.setuid(65534)
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(str(path))
            except PermissionError:
                os._exit(1)
            except BaseException:
                os._exit(2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if may else 1)
    finally:
        close_socket(listener, path)
        path.parent.rmdir()
        path.parent.parent.rmdir()


@pytest.mark.parametrize("loose", [0o755, 0o710, 0o701, 0o777])
def test_a_folder_that_others_can_open_is_refused_and_left_as_it_is(tmp_path: Path, loose: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(loose)
    with pytest.raises(BadInput, match="run 'chmod 700") as refused:
        open_socket(folder / "socket")
    assert "\n" not in str(refused.value) and mode(folder) == loose and not any(folder.iterdir())


def test_a_folder_that_the_group_cannot_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(0o700)
    with pytest.raises(BadInput, match="'chmod 710"):
        open_socket(folder / "socket", GROUP)


def test_a_group_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--socket-group 'nobody-has-it': there is no such group"):
        open_socket(tmp_path / "door" / "socket", "nobody-has-it")


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_what_is_no_socket_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "door" / "socket"
    path.parent.mkdir(0o700)
    target = tmp_path / "target"
    target.write_text("kept")
    match kind:
        case "file":
            path.write_text("kept")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(target)
        case "pipe":
            os.mkfifo(path)
    with pytest.raises(BadInput, match="no socket stands there"):
        open_socket(path)
    assert os.path.lexists(path) and target.read_text() == "kept"


def test_a_socket_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "door" / "socket"
    open_socket(path).close()  # as a kill leaves it
    assert path.exists()
    listener = open_socket(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.connect(str(path))
    close_socket(listener, path)


def test_a_socket_that_somebody_listens_on_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "door" / "socket"
    listener = open_socket(path)
    with pytest.raises(BadInput, match="another process listens there"):
        Listening(Echo(), path)
    assert path.exists()
    close_socket(listener, path)


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"at most {LONGEST}"):
        open_socket(tmp_path / ("x" * LONGEST))


def test_a_group_without_a_socket_is_refused_in_a_line(tmp_path: Path) -> None:
    given = ["silo", "start", str(tmp_path), "--data", "x", "--socket-group", GROUP]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 2, done.output
    assert (
        done.stderr == f"secure-fedgraph: --socket-group {GROUP}: it is for a socket: give --socket too\n"
        or (
            "Flower" in done.stderr  # without Flower that is said first
        )
    )
