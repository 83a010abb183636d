"""Isolated mode opens what the shared mode opens; a process that refuses, fails or dies says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.backends import frames
from secure_fedgraph.backends.enlistment import algorithm_of, algorithm_text, policy_of, policy_text
from secure_fedgraph.backends.isolated import Workers
from secure_fedgraph.backends.worker import ALONE
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage, SecureFedGraphError
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.protocol.transport import Lost

RUN = "run-1"


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=90, features=16, seed=0)


def opened_alike(name: str, policy: str) -> None:
    federation, recipe = small.federation(name), getattr(sfg.policies, policy)
    here = sfg.train(small.algorithm(name), federation, recipe(), rounds=2)
    there = sfg.train(small.algorithm(name), federation, recipe(), rounds=2, isolated=True)
    assert here.state.keys() == there.state.keys()
    assert all(torch.equal(value, there.state[key]) for key, value in here.state.items())
    assert here.history == there.history

    def opened(run: Any) -> list[Any]:
        return [(o.channel, o.contributors, o.digest) for o in run.transcript.opened if o.reader == "server"]

    def lines(run: Any) -> list[Any]:
        return sorted((c.client, c.exchange, c.channel) for c in run.charges)

    assert opened(here) == opened(there)
    assert lines(here) == lines(there)
    sizes = [[(s.channel, s.step, s.sender, s.bytes) for s in run.transcript.sent] for run in (here, there)]
    assert [s for s in sizes[0] if "keys" not in s[0]] == [s for s in sizes[1] if "keys" not in s[0]]


PAIRS = [
    (name, policy)
    for name in sorted(ALGORITHMS)
    for policy in ("plaintext", "masked")
    # masks refuse one client, and values that need every update
    if not (policy == "masked" and (ALGORITHMS[name].pools or name in small.BY_UPDATE))
    # secret coins, which no two runs toss alike
    if not name.startswith("fedsgd") and not name.endswith("-steps")
    # mix in secret: test_fedego has a row, and test_glasu_at_home
    if name not in ("fedego", "glasu-at-home")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), PAIRS)
def test_both_modes_open_the_same_values(name: str, policy: str) -> None:
    opened_alike(name, policy)


def test_both_modes_open_the_same_values_of_the_hardest_pattern() -> None:
    opened_alike("fedsage+", "masked")


@pytest.fixture(scope="module")
def workers(federation: sfg.Federation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("isolated")
    bound = sfg.policies.plaintext().bind(sfg.FedAvg.channels, federation.names)
    with federation.isolate(
        sfg.FedAvg(hidden=(8, 8)), bound, RUN, folder / "ledger.jsonl", 0, folder / "clients"
    ) as found:
        yield found


def request(name: str, exchange: int, **other: Any) -> bytes:
    fields: dict[str, Any] = {
        "run": RUN,
        "round": 1,
        "exchange": exchange,
        "channel": "update",
        "step": ANSWER,
        "sender": "server",
        "recipient": name,
        "cohort": ("owner-0", "owner-1", "owner-2"),
        "body": wire.encode(dict(sfg.FedAvg(hidden=(8, 8)).init(sfg.federation.Schema(16, 4), 0))),
    }
    return Message(**{**fields, **other}).to_bytes()


def test_a_refusal_is_the_refusal_that_it_was_and_the_others_go_on(workers: Workers) -> None:
    with pytest.raises(HostileMessage, match=r"^a request for 'owner-0' in run 'run-9' reached owner-0$"):
        workers.exchange({"owner-0": request("owner-0", 1, run="run-9"), "owner-1": request("owner-1", 1)})
    same = request("owner-1", 1)
    first = workers.exchange({"owner-1": same})
    assert workers.exchange({"owner-1": same}) == first  # the identical request, the identical bytes
    with pytest.raises(HostileMessage, match="was already answered by owner-1"):
        workers.exchange({"owner-1": request("owner-1", 1, round=2)})


def test_an_order_to_save_names_a_round_and_no_path(workers: Workers) -> None:
    with pytest.raises(HostileMessage, match="is no label of a round"):
        workers.save("../../somewhere", "")


def test_processes_that_start_anew_open_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secure_fedgraph.federation.Workers", partial(Workers, **{"anew": True}))
    opened_alike("fedsage", "masked")


class Broken(sfg.FedAvg):
    """Its print must not land between frames, and its error is not one of ours."""

    name = "broken"

    @sfg.FedAvg.UPDATE.answer
    def update(self, client: Any, given: Any) -> Any:
        print("on the way to a division")
        return 1 // 0


def test_a_users_own_algorithm_that_fails_names_the_client(
    federation: sfg.Federation, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SecureFedGraphError, match="owner-0's process failed: ZeroDivisionError; its own"):
        sfg.train(Broken(hidden=(8, 8)), federation, sfg.policies.masked(), rounds=1, isolated=True)
    assert "Traceback" in capfd.readouterr().err


def test_a_dying_process_is_named(federation: sfg.Federation, tmp_path: Path) -> None:
    bound = sfg.policies.plaintext().bind(sfg.FedAvg.channels, federation.names)
    algorithm = sfg.FedAvg(hidden=(8, 8))
    with federation.isolate(algorithm, bound, RUN, tmp_path / "ledger.jsonl", 0) as workers:
        pids = list(workers.pids.values())
        os.kill(workers.pids["owner-1"], signal.SIGKILL)
        with pytest.raises(SecureFedGraphError, match="owner-1's process ended"):
            workers.exchange({name: request(name, 1) for name in federation.names})
    assert not any(alive(pid) for pid in pids)


def test_a_hanging_client_is_ended_and_the_others_are_heard(
    federation: sfg.Federation, tmp_path: Path
) -> None:
    bound = sfg.policies.plaintext().bind(sfg.FedAvg.channels, federation.names)
    algorithm = sfg.FedAvg(hidden=(8, 8))
    ledger = tmp_path / "ledger.jsonl"
    with federation.isolate(algorithm, bound, RUN, ledger, 0, answer_within=5.0) as workers:
        os.kill(workers.pids["owner-1"], signal.SIGSTOP)
        found = workers.reach({name: request(name, 1) for name in federation.names})
        assert isinstance(found["owner-1"], Lost)
        assert str(found["owner-1"]).startswith("owner-1 gave no answer within 5 s, so its process was ended")
        assert isinstance(found["owner-0"], bytes)
        assert isinstance(found["owner-2"], bytes)
        assert not alive(workers.pids["owner-1"])


def test_masked_sums_go_on_without_a_client_that_hangs(federation: sfg.Federation) -> None:
    stopped: list[int] = []

    def stop(row: dict[str, Any]) -> None:
        if not stopped:
            (mine,) = (int(line.split()[0]) for line in children() if line)
            stopped.append(mine)
            os.kill(mine, signal.SIGSTOP)

    def children() -> list[str]:
        """One client's process: the last that the nursery made."""
        mine = ["pgrep", "-n", "-P", str(os.getpid()), "-f", "backends.worker"]
        nursery = subprocess.run(mine, capture_output=True)
        born = subprocess.run(["pgrep", "-P", nursery.stdout.decode().split()[0]], capture_output=True)
        return born.stdout.decode().splitlines()[-1:]

    run = sfg.train(
        sfg.FedAvg(hidden=(8, 8)),
        federation,
        sfg.policies.masked(quorum=2),
        rounds=2,
        isolated=True,
        answer_within=10.0,
        on_round=stop,
    )
    assert stopped
    assert len(run.history) == 2
    assert any("gave no answer within 10 s" in note.reason for note in run.transcript.left_out)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path, device: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import time, secure_fedgraph as sfg\nfrom pathlib import Path\n"
        "f = sfg.federate('synthetic-citation', clients=2, nodes=60, features=16)\n"
        f"a = sfg.FedAvg(hidden=(8, 8)).on({device!r})\n"
        "b = sfg.policies.plaintext().bind(a.channels, f.names)\n"
        f"w = f.isolate(a, b, 'r', Path({str(tmp_path / 'l.jsonl')!r}), 0)\n"
        "print(*w.pids.values(), flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.stdout.close()
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    # a GPU is used by programs of their own: what is imported before a fork may have woken its driver
    programs = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids]
    assert [ALONE in program for program in programs] == [device == "cuda"] * 2
    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def small_model(schema: Any) -> torch.nn.Module:
    return GraphSage(schema.features, schema.classes, (8, 8))


class Own(sfg.FedAvg):
    """A user's own algorithm, which its module names."""

    name = "own"


class Needy(sfg.FedAvg):
    def __init__(self, more: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.more = more


def test_what_can_be_named_is_made_again() -> None:
    again = algorithm_of(algorithm_text(Own(model=small_model, batch=3)))
    assert type(again) is Own
    assert again.settings.batch == 3
    assert again.made_with() == {"model": small_model}


def test_what_cannot_be_named_is_refused_before_a_process_starts(federation: sfg.Federation) -> None:
    class Inner(sfg.FedAvg):
        name = "inner"

    for algorithm, words in (
        (Inner(), "imports algorithm .*Inner' by name: put it at the top level of a module"),
        (sfg.FedAvg(model=lambda schema: small_model(schema)), "imports model .*lambda"),
        (Needy(3), r"Needy again there: with an __init__ of its own it needs a made_with\(\)"),
    ):
        with pytest.raises(BadInput, match=words):
            sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=1, isolated=True)


POLICIES = [
    sfg.policies.plaintext(),
    sfg.policies.masked(limit=4.0),
    sfg.policies.homomorphic(),
    sfg.policies.local_dp(1.0, multiplier=2.0),
    sfg.policies.strictest(sfg.policies.local_dp(1.0, 1.0), sfg.policies.plaintext()),
    sfg.policies.strictest(),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_policies_are_made_again_by_name(policy: Any) -> None:
    bound = policy.bind(sfg.FedAvg.channels, ("a", "b", "c"))
    again = policy_of(policy_text(bound, ("a", "b", "c")))
    assert again.name == policy.name
    assert again.bind(sfg.FedAvg.channels, ("a", "b", "c")).describe() == bound.describe()


def test_policies_that_have_no_name_are_refused() -> None:
    masked = sfg.policies.masked()
    exception = {"update": sfg.policies.plaintext().recipe(sfg.FedAvg.UPDATE)}
    for policy, words in (
        (replace(masked, exceptions=exception), "'masked' has named exceptions"),
        (replace(masked, made_with=None), "'masked' has a recipe of its own"),
        (replace(masked, recipe=sfg.policies.plaintext().recipe), "'masked' was changed after its recipe"),
    ):
        bound = policy.bind(sfg.FedAvg.channels, ("a", "b"))
        with pytest.raises(BadInput, match=words):
            policy_text(bound, ("a", "b"))


def test_frames_say_where_they_end() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as here, os.fdopen(write, "wb") as there:
        frames.write(there, frames.ASK, b"body")
        frames.write(there, frames.DONE)
        there.write(b"A" + (2**62).to_bytes(8, "little"))
        there.flush()
        assert frames.read(here) == (frames.ASK, b"body")
        assert frames.read(here) == (frames.DONE, b"")
        with pytest.raises(frames.Ended):  # and nothing was allocated
            frames.read(here)
        there.write(frames.ASK + (9).to_bytes(8, "little") + b"half")
        there.close()
        with pytest.raises(frames.Ended):
            frames.read(here)
