"""Runs on Ray, where a stand-in plays Ray: another machine has what was sent to it, and nothing else."""

from __future__ import annotations

import csv
import json
import os
import pickle
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import Result
from command_line import call

from secure_fedgraph.cli.comparing import comparing
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.experiment import ray_pool
from secure_fedgraph.experiment.config import Experiment, load
from secure_fedgraph.experiment.pool import STOPPED, Here
from secure_fedgraph.experiment.ray_pool import AGAIN, RayPool, on_ray

CLUSTER = "ray://head:10001"
WORDS = """--data synthetic-citation --clients 3 --rounds 2 --json --set dataset.nodes=60
    --set dataset.features=16 --set training.hidden=[4] --set training.fanout=[2]"""
DATA = WORDS.split()


class RayError(Exception):
    """That a process or a machine is gone."""


class RayTaskError(RayError):
    """That a task ended with an error outside of its work."""


class StandIn(ModuleType):
    """As the module ``ray``: does a task when its result is asked for, from a copy that was sent."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self.inits: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.sent = self.cancelled = self.shutdowns = 0
        self.errors: list[Exception] = []
        self.silent = self.unreachable = False
        self.elsewhere: Callable[[], AbstractContextManager[object]] = nullcontext

    def init(self, **how: Any) -> None:
        self.inits.append(how)
        if self.unreachable:
            raise ConnectionError("timeout\nand more")

    def shutdown(self) -> None:
        self.shutdowns += 1

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        self.options = options
        return lambda function: SimpleNamespace(remote=lambda task: self._send(function, task))

    def _send(self, function: Any, task: Any) -> Any:
        self.sent += 1
        sent = pickle.dumps((function, task))
        return lambda: sent

    def wait(self, refs: list[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        return ([], refs) if self.silent else (refs[:num_returns], refs[num_returns:])

    def get(self, ref: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        function, task = pickle.loads(ref())
        with self.elsewhere():
            return pickle.loads(pickle.dumps(function(task)))

    def cancel(self, ref: Any, force: bool) -> None:
        self.cancelled += force


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setattr("secure_fedgraph.cli.options.find_spec", lambda name: name == "ray")
    monkeypatch.setattr(comparing, "Pool", lambda workers: nullcontext(Here()))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return stand_in


def small(**values: Any) -> Experiment:
    return load(None, {"data": "synthetic-citation", **values}, [])


def one_of(pool: RayPool) -> Any:
    ((_, made),) = pool.finished()
    return made


def writing(ray: StandIn, out: Path, **values: Any) -> RayPool:
    """A pool that has a task."""
    pool = RayPool(ray, out)
    pool.start("a", _writes, out / "leaks.json", of=small(**values))
    return pool


def _works(folder: Path, word: str) -> str:
    """Adds to what is there, beside it too, and says what was there."""
    before = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    files.remove_folder(folder, folder.parents[1])
    files.private_folder(folder / "in", folder.parents[1])
    files.write(folder / "in" / "ours", [word.encode()], private=True)
    files.write(folder / "shared", [b"for all"], private=False)
    (folder / "link").symlink_to("/etc/passwd")
    return f"{before} {Path.cwd()}"


def _writes(path: Path) -> None:
    files.write(path, [b"leaks"], private=False)


def _fails(folder: Path) -> None:
    files.write(files.private_folder(folder) / "ledger.jsonl", [b"charged"], private=True)
    raise Refused(f"{folder} is full")


class TestATask:
    def test_takes_its_folder_along_and_brings_it_back_whole(self, ray: StandIn, tmp_path: Path) -> None:
        out, at = tmp_path / "out", tmp_path / "out" / "runs" / "a"
        files.write(files.private_folder(at, tmp_path) / "checkpoint", [b"old"], private=True)
        (at.parent / "b").mkdir()
        (at.parent / "b" / "other").write_text("stays")
        (at / "outside").symlink_to(tmp_path / "scratch")
        pool = RayPool(ray, out)
        pool.start("name", _works, at, "new", of=small(), at=at)
        assert pool.working
        assert pool.finished() == [("name", f"['checkpoint'] {Path.cwd()}")] and not pool.working
        found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir())
        assert found == ["runs/a/in/ours", "runs/a/shared", "runs/b/other"]
        assert (at / "in" / "ours").read_text() == "new"
        modes = [(at / name).stat().st_mode & 0o777 for name in ("", "in", "in/ours", "shared")]
        assert modes[:3] == [0o700, 0o700, 0o600] and modes[3] & files.OTHERS
        assert not list((tmp_path / "scratch").iterdir())
        assert ray.options == {"num_cpus": 1, "num_gpus": 0, "max_retries": 0}

    def test_that_fails_names_the_machine_and_leaves_what_it_charged(
        self, ray: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("socket.gethostname", lambda: "node-7")
        pool, at = RayPool(ray, tmp_path), tmp_path / "runs" / "a"
        pool.start("name", _fails, at, of=small(), at=at)
        made = one_of(pool)
        assert made.reason == f"{at} is full (on node-7)" and isinstance(made.error("seed 1: "), Refused)
        assert (at / "ledger.jsonl").read_bytes() == b"charged"

    @pytest.mark.parametrize("lost", [1, AGAIN, AGAIN + 1])
    def test_that_is_lost_is_sent_again(self, ray: StandIn, tmp_path: Path, lost: int) -> None:
        ray.errors = [RayError() for _ in range(lost)]
        pool = writing(ray, tmp_path)
        ended: list[Any] = []
        while pool.working:
            ended += pool.finished()
        ((_, made),) = ended
        if lost <= AGAIN:
            assert made is None and (tmp_path / "leaks.json").is_file()
        else:
            assert made.unforeseen and "lost 4 times (RayError)" in made.reason
        assert ray.sent == min(lost, AGAIN) + 1

    def test_on_a_machine_without_the_package_is_not_sent_again(self, ray: StandIn, tmp_path: Path) -> None:
        ray.errors = [RayTaskError("Traceback\n\nModuleNotFoundError: No module named 'secure_fedgraph'")]
        reason = one_of(writing(ray, tmp_path)).reason
        assert reason == "ModuleNotFoundError: No module named 'secure_fedgraph'"

    def test_stops_at_the_deadline(self, ray: StandIn, tmp_path: Path) -> None:
        ray.silent, pool = True, writing(ray, tmp_path)
        assert pool.free
        pool.start("b", _writes, tmp_path / "leaks.json", of=small())
        assert not pool.free  # two cores
        assert pool.finished(time.monotonic()) == [("a", STOPPED), ("b", STOPPED)]
        assert not pool.working and ray.cancelled == 2

    @pytest.mark.parametrize("what", ["version of torch", "code of secure-fedgraph", "code of mine:Other"])
    def test_is_refused_by_a_machine_that_has_another(
        self, ray: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("mine.py").write_text("from secure_fedgraph import FedSage\nclass Other(FedSage):\n    pass\n")
        of_all = ray_pool.made_of

        @contextmanager
        def elsewhere() -> Iterator[None]:
            with monkeypatch.context() as there:
                there.setattr(ray_pool, "made_of", lambda of: {**of_all(of), f"the {what}": "other"})
                yield

        ray.elsewhere = elsewhere
        made = one_of(writing(ray, tmp_path, algorithm="mine:Other"))
        assert made.kind == "BadInput" and made.reason.startswith(f"the {what} is not as on the machine of")
        assert not (tmp_path / "leaks.json").exists()


class TestTheEngine:
    def test_starts_quietly_and_is_left(self, ray: StandIn, tmp_path: Path) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        with on_ray("ray", tmp_path, 3, small()) as pool:
            assert pool is not None and os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
            pool.start("name", _writes, tmp_path / "x", of=small())
        with on_ray(CLUSTER, tmp_path):
            pass
        here = {"address": "local", "num_cpus": 3, "include_dashboard": False}
        assert ray.inits == [{**quiet, **here}, {**quiet, "address": CLUSTER}]
        assert ray.cancelled == 1 and ray.shutdowns == 2

    def test_says_where_nobody_answers(self, ray: StandIn, tmp_path: Path) -> None:
        ray.unreachable = True
        with pytest.raises(BadInput, match=r"no Ray answers \(timeout and more\)"), on_ray(CLUSTER, tmp_path):
            pass

    def test_that_goes_away_is_named(self, ray: StandIn, tmp_path: Path) -> None:
        with pytest.raises(SecureFedGraphError, match="start it again"), on_ray(CLUSTER, tmp_path):
            raise ConnectionError("lost")
        assert ray.shutdowns == 1

    def test_takes_no_ledger_and_no_single_seed(self, ray: StandIn, tmp_path: Path) -> None:
        ledger = small(ledger=tmp_path / "ledger.jsonl")
        with pytest.raises(BadInput, match="a file of one machine"), on_ray("ray", tmp_path, None, ledger):
            pass
        with pytest.raises(BadInput, match="--seeds 2"), on_ray("ray", tmp_path, tasks=1):
            pass
        assert not ray.inits

    @pytest.mark.parametrize("name", ["flower", "ray://", "ray://head", "ray://head:x", "ray://a b:1"])
    def test_of_another_name_is_refused(self, name: str) -> None:
        made = call("run", "--engine", name)
        assert made.exit_code == 2 and "give local, ray (this machine) or ray://HOST:PORT" in made.stderr

    def test_names_the_command_that_installs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("secure_fedgraph.cli.options.find_spec", lambda name: None)
        made = call("compare", "--engine", "ray://[::1]:10001")
        assert made.exit_code == 2 and "pip install 'secure-fedgraph[ray]'" in made.stderr


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "compare.csv").open() as file:
        return [{key: cell for key, cell in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def _json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class TestTheCommands:
    def test_compare_makes_the_table_of_one_machine(self, ray: StandIn, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        words = ["compare", "--algorithm", "fedsage", "--policy", "masked", "--seeds", "2", *DATA]
        assert call(*words, "--out", here).exit_code == 0
        ray.errors = [RayError()]
        for _ in range(2):
            assert call(*words, "--engine", CLUSTER, "--out", there).exit_code == 0
        assert ray.sent == 3 * 2 + 1  # one was lost, and the second call makes nothing
        assert rows_of(here) == rows_of(there)
        assert all((there / path.relative_to(here)).exists() for path in here.rglob("*") if path.is_file())

    def test_a_seed_that_fails_is_made_by_resume(self, ray: StandIn, tmp_path: Path) -> None:
        out = tmp_path / "out"
        words = ["run", "--algorithm", "fedsage", "--policy", "masked", "--seeds", "2", *DATA]
        ray.errors = [RayTaskError("ImportError: no such package")]
        made = call(*words, "--engine", CLUSTER, "--out", out)
        assert made.exit_code == 1 and "1 of 2 seeds failed, and 'resume" in made.stderr
        assert sorted(path.name for path in out.glob("seed-*")) == ["seed-1"]
        resumed = call("resume", out, "--engine", CLUSTER, "--json")
        assert resumed.exit_code == 0 and ray.sent == 3
        here = call(*words, "--out", tmp_path / "here")
        seeds = [[{**one, "data": 0} for one in _json(result)["seeds"]] for result in (here, resumed)]
        assert seeds[0] == seeds[1] and len(seeds[0]) == 2

    def test_an_audit_has_the_cells_of_one_machine(self, ray: StandIn, tmp_path: Path) -> None:
        words = ["audit", "--algorithm", "fedsage", "--policy", "masked", "--attack", "a4", *DATA]
        made = [call(*words, "--engine", name, "--out", tmp_path / name[:3]) for name in ("local", CLUSTER)]
        cells = [[{**cell, "seconds": 0} for cell in _json(one)["cells"]] for one in made]
        assert cells[0] == cells[1] and len(cells[0]) > 1
        assert call("audit", tmp_path / "ray", "--engine", "ray").exit_code == 2


PORT, CLIENTS = 26379, 26380


def of_ray(place: str) -> list[psutil.Process]:
    """The processes of nodes that keep their things there, the newest last."""
    found = [one for one in psutil.process_iter(["cmdline"]) if place in " ".join(one.info["cmdline"] or ())]
    return sorted(found, key=lambda one: float(one.create_time()))


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two nodes of a real Ray; the folder is not the test's own, since a socket's path must be short."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'secure-fedgraph[ray]'")
    (tmp_path / "token").write_text(secrets.token_hex(32))
    words = {"AUTH_MODE": "token", "AUTH_TOKEN_PATH": str(tmp_path / "token"), "USAGE_STATS_ENABLED": "0"}
    for name, value in words.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    start = f"{sys.executable} -m ray.scripts.scripts start --num-cpus=1 --node-ip-address=127.0.0.1".split()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        head = ["--head", f"--port={PORT}", f"--ray-client-server-port={CLIENTS}", f"--temp-dir={place}"]
        try:
            subprocess.run([*start, *head, "--include-dashboard=false"], check=True)
            subprocess.run([*start, f"--address=127.0.0.1:{PORT}"], check=True)
            yield place
        finally:
            for process in of_ray(place):
                process.kill()


def test_a_node_that_is_killed_changes_no_figure(nodes: str, tmp_path: Path) -> None:
    def compare(*words: str | Path) -> subprocess.Popen[bytes]:
        asked = f"{sys.executable} -m secure_fedgraph compare --algorithm fedsage --policy masked --seeds 3"
        return subprocess.Popen([*asked.split(), *DATA, "--set=rounds=12", "--out", *words])

    here, there = tmp_path / "here", tmp_path / "there"
    assert compare(here, "--workers", "2").wait() == 0
    asked = compare(there, "--engine", f"ray://127.0.0.1:{CLIENTS}")
    node = next(one for one in reversed(of_ray(nodes)) if "raylet/raylet" in " ".join(one.cmdline()))
    while not list(there.glob("runs/*/seed-*/result.json")):
        assert asked.poll() is None
        time.sleep(0.1)
    for process in (node, *node.children(recursive=True)):
        process.kill()
    assert asked.wait() == 0
    assert rows_of(here) == rows_of(there) and len(rows_of(here)) == 3
