"""Isolated clients that are hostile, whoever writes to their pipes, and what one process sees of another.

A hostile client is a process that speaks in frames and does what its behaviour says, and no more.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import secure_fedgraph as sfg
from secure_fedgraph import federation as federation_module
from secure_fedgraph.backends import frames, isolated, worker
from secure_fedgraph.backends.enlistment import policy_text
from secure_fedgraph.backends.isolated import Workers
from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.message import Message
from secure_fedgraph.protocol import nested
from secure_fedgraph.protocol.transport import Lost

NAMES = ("owner-0", "owner-1", "owner-2")
SCRIPT = """#!{python} -S
import ctypes, fcntl, os, signal, struct, sys, time
HEAD, HOW = struct.Struct("<cQ"), {how!r}
def whole(fd, size):
    found = b""
    while len(found) < size:
        piece = os.read(fd, size - len(found))
        if not piece: os._exit(0)
        found += piece
    return found
def read(fd):
    kind, size = HEAD.unpack(whole(fd, HEAD.size))
    return kind, whole(fd, size)
def say(fd, body, kind=b"+"):
    data = HEAD.pack(kind, len(body)) + body
    while data: data = data[os.write(fd, data):]
def client(orders, answers, how):
    while True:
        if how == "reads nothing" and client.told == 2:
            fcntl.fcntl(orders, 1031, 4096)
            time.sleep(600)
        kind, body = read(orders)
        if kind in b"TR":
            client.told += 1
            say(answers, b"key" if kind == b"T" else b"")
        elif how == "hangs": time.sleep(600)
        elif how == "promises": os.write(answers, HEAD.pack(b"+", 2**34)); time.sleep(600)
        elif how == "too much": os.write(answers, HEAD.pack(b"+", 2**60)); time.sleep(600)
        elif how == "half": os.write(answers, HEAD.pack(b"+", 100) + b"half"); time.sleep(600)
        elif how == "dies": os._exit(3)
        elif how == "no failure": say(answers, b"not a failure", b"!")
        elif how == "outlives":
            say(answers, b"now")
            ctypes.CDLL(None).prctl(1, 0)
            os.setsid()
            for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE): signal.signal(one, signal.SIG_IGN)
            time.sleep(600)
        else:
            say(answers, (b"%d " % client.asked) + body[:1] * 3_000_000)
            client.asked += 1
client.told = client.asked = 0
ends = [tuple(map(int, pair.split(","))) for pair in sys.argv[4:]]
for number, pair in enumerate(ends):
    pid = os.fork()
    if not pid:
        for other in ends:
            if other != pair: [os.close(end) for end in other]
        os.dup2(2, 1)
        client(*pair, HOW[number])
    print(pid, flush=True)
for pair in ends: [os.close(end) for end in pair]
while True:
    try: pid, status = os.wait()
    except ChildProcessError: break
    print(pid, os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Workers]:
    """Workers whose clients behave as named, in order; the rest are honest."""
    made: list[Workers] = []

    def start(*how: str, within: float = 3.0) -> Workers:
        script = tmp_path / "python"
        listed = [*how, *["honest"] * (len(NAMES) - len(how))]
        script.write_text(SCRIPT.format(python=sys.executable, how=listed))
        script.chmod(0o700)
        fake = SimpleNamespace(executable=str(script), path=sys.path, platform=sys.platform)
        monkeypatch.setattr(isolated, "sys", fake)
        made.append(Workers({name: {} for name in NAMES}, answer_within=within))
        return made[0]

    yield start  # type: ignore[misc]
    for workers in made:
        workers.close()


@contextmanager
def quicker_than(seconds: float) -> Iterator[None]:
    before = time.monotonic()
    yield
    assert time.monotonic() - before < seconds


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def ask(workers: Workers, body: bytes = b"a") -> dict[str, object]:
    return dict(workers.reach(dict.fromkeys(NAMES, body)))


def heard(found: dict[str, object], asked: int = 0, letter: bytes = b"a") -> list[str]:
    """Who answered this ask, and not another one."""
    said = b"%d " % asked + letter * 3_000_000
    return [name for name, answer in found.items() if answer == said]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("how", ["hangs", "half", "promises"])
def test_one_that_stops_takes_nobody_else_along(
    hostile: Callable[..., Workers], how: str, place: int
) -> None:
    """It is one client's process that is ended: not those of all that come after it in the list."""
    workers = hostile(*["honest"] * place, how, within=1.0)
    others = [name for name in NAMES if name != NAMES[place]]
    assert heard(ask(workers)) == others
    assert isinstance(workers.lost[NAMES[place]], Lost)
    assert not alive(workers.pids[NAMES[place]])
    assert heard(ask(workers, b"b"), 1, b"b") == others  # they are still there, and say what they were asked


def test_one_that_reads_nothing_keeps_no_request_from_the_others(hostile: Callable[..., Workers]) -> None:
    workers = hostile("reads nothing", within=2.0)
    assert heard(ask(workers, b"c" * 5_000_000), 0, b"c") == ["owner-1", "owner-2"]
    assert "gave no answer within 2 s" in str(workers.lost["owner-0"])


def test_a_promise_of_sixteen_gigabytes_allocates_nothing(hostile: Callable[..., Workers]) -> None:
    workers = hostile("promises", within=1.0)
    tracemalloc.start()
    try:
        ask(workers)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_one_that_promises_too_much_and_does_not_end_is_ended(hostile: Callable[..., Workers]) -> None:
    workers = hostile("too much", within=60.0)
    with quicker_than(10):
        assert heard(ask(workers)) == ["owner-1", "owner-2"]
    assert not alive(workers.pids["owner-0"])


def test_one_that_dies_says_how(hostile: Callable[..., Workers]) -> None:
    workers = hostile("honest", "dies")
    assert heard(ask(workers)) == ["owner-0", "owner-2"]
    assert "owner-1's process ended (exit status 3)" in str(workers.lost["owner-1"])


def test_nobody_outlives_the_run(hostile: Callable[..., Workers]) -> None:
    """Whatever it does to its signals, its session and its parent."""
    workers = hostile("outlives")
    ask(workers)
    pids = list(workers.pids.values())
    assert all(map(alive, pids))
    workers.close()
    until = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


class TestAnOperatorsPipe:
    """Whoever writes to a client's process later on: another policy, another roster, an older memory."""

    @pytest.fixture
    def told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """What an operator tells the first client, under masks."""
        kept: dict[str, Any] = {}
        monkeypatch.setattr(federation_module, "Workers", lambda told, *_, **__: kept.update(told))
        owners = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16)
        algorithm = sfg.FedAvg(hidden=(4, 4))
        bound = sfg.policies.masked().bind(algorithm.channels, owners.names)
        owners.isolate(
            algorithm, bound, "run-1", tmp_path / "ledger.jsonl", 0, tmp_path / "checkpoint/clients"
        )
        found: dict[str, Any] = kept["owner-0"]
        return found

    @pytest.fixture
    def pipe(self, told: dict[str, Any]) -> Iterator[Callable[[bytes, bytes], tuple[bytes, bytes]]]:
        """Sends one frame to a client that serves, and reads what it says."""
        (orders, ours), (mine, answers) = os.pipe(), os.pipe()
        with (
            warnings.catch_warnings(),
            os.fdopen(ours, "wb") as to,
            os.fdopen(mine, "rb") as back,
            os.fdopen(orders, "rb") as its_orders,
            os.fdopen(answers, "wb") as its_answers,
        ):
            serving = threading.Thread(target=worker.serve, args=(its_orders, its_answers), daemon=True)
            serving.start()

            def tell(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
                frames.write(to, kind, body)
                return frames.read(back)

            yield tell
            to.close()
            serving.join(10)

    def started(self, pipe: Any, told: dict[str, Any]) -> dict[str, bytes]:
        kind, public = pipe(frames.TOLD, bytes(nested.pack(told)))
        assert kind == frames.DONE
        roster = {
            "owner-0": public,
            "owner-1": Identity.generate().public,
            "owner-2": Identity.generate().public,
        }
        assert pipe(frames.ROSTER, bytes(nested.pack(roster))) == (frames.DONE, b"")
        return roster

    def test_it_is_told_once_what_it_is(self, pipe: Any, told: dict[str, Any]) -> None:
        """Told again, it would be another client: in plaintext, with nothing answered yet."""
        self.started(pipe, told)
        other = policy_text(
            sfg.policies.plaintext().bind(sfg.FedAvg(hidden=(4, 4)).channels, tuple(NAMES)), NAMES
        )
        kind, said = pipe(frames.TOLD, bytes(nested.pack({**told, "policy": other})))
        assert (kind, wire.decode(said)["class"]) == (frames.FAILED, "HostileMessage")

    def test_it_is_handed_one_roster(self, pipe: Any, told: dict[str, Any]) -> None:
        """Another one would have keys in it that the pipe's new owner made."""
        roster = self.started(pipe, told)
        played = {
            name: key if name == "owner-0" else Identity.generate().public for name, key in roster.items()
        }
        kind, said = pipe(frames.ROSTER, bytes(nested.pack(played)))
        assert (kind, wire.decode(said)["class"]) == (frames.FAILED, "HostileMessage")

    def test_the_roster_has_its_own_key_in_it(self, pipe: Any, told: dict[str, Any]) -> None:
        pipe(frames.TOLD, bytes(nested.pack(told)))
        played = {name: Identity.generate().public for name in NAMES}
        kind, said = pipe(frames.ROSTER, bytes(nested.pack(played)))
        assert (kind, wire.decode(said)["class"]) == (frames.FAILED, "HostileMessage")

    @pytest.mark.parametrize("kind", [frames.ASK, frames.SAVE, frames.LOAD, frames.ROSTER, b"?"])
    def test_nothing_is_served_before_that(self, pipe: Any, kind: bytes) -> None:
        found, said = pipe(kind, b"")
        assert (found, wire.decode(said)["class"]) == (frames.FAILED, "HostileMessage")

    def test_its_memory_does_not_go_back_once_it_has_answered(self, pipe: Any, told: dict[str, Any]) -> None:
        roster, label = self.started(pipe, told), "00001-0123abcd"
        order = wire.encode({"label": label, "committed": ""})
        assert pipe(frames.SAVE, order)[0] == frames.DONE
        assert pipe(frames.LOAD, order)[0] == frames.DONE  # as a resume does
        ask = Message(
            "run-1", 0, 1, "carrier/keys", "advertise", "server", "owner-0", tuple(roster), wire.encode({})
        )
        assert pipe(frames.ASK, ask.to_bytes())[0] == frames.DONE
        kind, said = pipe(frames.LOAD, order)
        assert (kind, wire.decode(said)["class"]) == (frames.FAILED, "HostileMessage")

    @pytest.mark.parametrize("label", ["../owner-1/00001-0123abcd", "/etc/passwd", 7, ""])
    @pytest.mark.parametrize("key", ["label", "committed"])
    def test_an_order_names_no_path(self, pipe: Any, told: dict[str, Any], key: str, label: Any) -> None:
        self.started(pipe, told)
        if (key, label) == ("committed", ""):
            return  # nothing was committed yet
        order = {"label": "00001-0123abcd", "committed": "", key: label}
        kind, said = pipe(frames.SAVE, wire.encode(order))
        assert (kind, wire.decode(said)["class"]) == (frames.FAILED, "HostileMessage")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
class TestAnotherClientsProcess:
    """Processes of one user look into each other's memory and pipes, unless a process says no."""

    def looked_into(self, keeps: Callable[[], None]) -> list[str]:
        """What a process of the same user can open of one that keeps to itself."""
        ready, told = os.pipe()
        held = os.fork()
        if not held:
            if not os.getuid():
                os.setuid(65534)
            ctypes.CDLL(None).prctl(4, 1)  # as a program that anybody starts is
            keeps()
            os.write(told, str(os.pipe()[1]).encode())  # its answers, as it were
            time.sleep(60)
            os._exit(0)
        answers = os.read(ready, 10).decode()
        said, say = os.pipe()
        looks = os.fork()
        if not looks:
            if not os.getuid():
                os.setuid(65534)
            found = []
            for what in ("mem", "environ", "maps", f"fd/{answers}"):
                try:
                    os.close(os.open(f"/proc/{held}/{what}", os.O_WRONLY if "fd" in what else os.O_RDONLY))
                    found.append(what.split("/")[0])
                except OSError:
                    pass
            os.write(say, " ".join(found).encode() + b".")
            os._exit(0)
        os.waitpid(looks, 0)
        found = os.read(said, 100).decode().rstrip(".").split()
        os.kill(held, signal.SIGKILL)
        os.waitpid(held, 0)
        for end in (ready, told, said, say):
            os.close(end)
        return found

    def test_is_closed_to_it(self) -> None:
        assert self.looked_into(worker._keep_to_itself) == []

    def test_one_that_does_not_mind_is_read_and_written(self) -> None:
        assert {"mem", "fd"} <= set(self.looked_into(lambda: None))

    def test_leaves_no_core(self) -> None:
        said, say = os.pipe()
        pid = os.fork()
        if not pid:
            worker._keep_to_itself()
            os.write(say, str(resource.getrlimit(resource.RLIMIT_CORE)[0]).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(said, 20) == b"0"
        os.close(said)
        os.close(say)
