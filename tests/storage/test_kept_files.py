"""Private files that stay open: what comes in their place is noticed before every use."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput


def test_content_is_added_and_the_file_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"a")
    path.chmod(0o644)
    kept = files.AppendedFile(path)
    kept.append(b"b")
    kept.append(b"c", sync=True)
    assert path.read_bytes() == b"abc"
    assert stat.S_IMODE(path.stat().st_mode) == files.PRIVATE_FILE
    path.chmod(0o644)
    kept.append(b"d")
    assert stat.S_IMODE(path.stat().st_mode) == files.PRIVATE_FILE


@pytest.mark.parametrize("replaced", ["renamed", "removed"])
def test_what_is_added_is_in_the_file_of_that_name(tmp_path: Path, replaced: str) -> None:
    path = tmp_path / "notes"
    kept = files.AppendedFile(path)
    kept.append(b"old")
    if replaced == "renamed":
        files.write(path, [b"new"], private=True)
    else:
        files.remove(path)
    kept.append(b"!")
    assert path.read_bytes() == (b"new!" if replaced == "renamed" else b"!")


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "notes", tmp_path / "other"
    other.write_bytes(b"")
    kept = files.AppendedFile(path)
    kept.append(b"a")
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(BadInput, match="symbolic link"):
        kept.append(b"b")
    assert other.read_bytes() == b""


def test_a_link_in_the_place_of_a_folder_below_the_root_is_refused(tmp_path: Path) -> None:
    folder, other = tmp_path / "run" / "transcript", tmp_path / "other"
    folder.mkdir(parents=True)
    other.mkdir()
    kept = files.AppendedFile(folder / "notes", folder.parent)
    kept.append(b"a")
    (folder / "notes").unlink()
    folder.rmdir()
    folder.symlink_to(other)
    with pytest.raises(BadInput, match="symbolic link"):
        kept.append(b"b")
    assert not list(other.iterdir())


def test_a_kept_lock_and_a_lock_file_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    kept = files.KeptLock(path)
    for _ in range(2):
        with kept, pytest.raises(TimeoutError):
            files.lock(path, timeout=0).acquire()
        with files.lock(path, timeout=0):
            waiting = Thread(target=lambda: kept.__enter__() or kept.__exit__())
            waiting.start()
            waiting.join(0.1)
            assert waiting.is_alive()
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_lock_that_was_replaced_is_taken_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    kept = files.KeptLock(path)
    with kept:
        pass
    files.remove(path)
    with kept, pytest.raises(TimeoutError):
        files.lock(path, timeout=0).acquire()


def test_a_forked_process_locks_for_itself(tmp_path: Path) -> None:
    """What was opened before the fork is one lock for both."""
    path = tmp_path / "lock"
    kept, told = files.KeptLock(path), tmp_path / "told"
    with kept:
        child = os.fork()
        if not child:  # the child waits for the parent, although it has its open file
            with kept:
                told.touch()
            os._exit(0)
        waited = os.waitpid(child, os.WNOHANG)
        assert waited == (0, 0)
        assert not told.exists()
    os.waitpid(child, 0)
    assert told.exists()
