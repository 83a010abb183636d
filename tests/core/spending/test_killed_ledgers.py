"""kill -9 at random instants of a run under a budget: the ledger never holds less than what was sent."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.client import Client
from secure_fedgraph.core import files
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Ledger, read_ledger
from secure_fedgraph.privacy.spent import spent
from secure_fedgraph.protocol.courier import Courier

ROUNDS, EPSILON = 8, 1e4
SMALL = {"hidden": (8, 8), "fanout": (2, 2), "batch": "full"}


TO_THE_REFEREE = {one.name for one in sfg.FedAvg.examiners() if one.to == "referee"}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=60, features=16, seed=0)


def train(federation: sfg.Federation, folder: Path) -> None:
    """The run, which notes every upload that has left a client's door."""
    sent = os.open(folder / "sent", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    through = Client.handle

    def noted(self: Client, raw: bytes) -> bytes:
        reply, asked = through(self, raw), Message.from_bytes(raw)
        if (
            asked.step == ANSWER
            and not asked.channel.startswith(CARRIER)
            and asked.channel not in TO_THE_REFEREE
        ):
            os.write(sent, (json.dumps([self.name, asked.channel, asked.exchange]) + "\n").encode())
        return reply

    Client.handle = noted  # type: ignore[method-assign]
    sfg.train(
        sfg.FedAvg(**SMALL),
        federation,
        sfg.policies.distributed_dp(1.0, 2.0),
        rounds=ROUNDS,
        out=folder / "run",
        resume=(folder / "run" / "checkpoint" / "checkpoint.json").exists(),
        budget=Budget(EPSILON),
    )
    (folder / "done").touch()


def started(federation: sfg.Federation, folder: Path) -> int:
    """One process that runs, or goes on with the run."""
    child = os.fork()
    if not child:
        try:
            train(federation, folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def ended(federation: sfg.Federation, folder: Path) -> int:
    """How a process ended that nobody outside of it killed."""
    _, status = os.waitpid(started(federation, folder), 0)
    return os.waitstatus_to_exitcode(status)


def killed(federation: sfg.Federation, folder: Path, seconds: float) -> bool:
    """One process that runs, or goes on with the run, until it is done or killed."""
    child = started(federation, folder)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) != 0


def never_below(folder: Path) -> None:
    """What was sent is in the ledger, upload by upload, and so is its cost."""
    path = folder / "run" / "ledger.jsonl"
    lines = (folder / "sent").read_bytes().split(b"\n")[:-1] if (folder / "sent").exists() else []
    sent = Counter((name, channel, exchange) for name, channel, exchange in map(json.loads, lines))
    charges = read_ledger(path) if path.exists() else []
    charged = Counter((c.client, c.channel, c.exchange) for c in charges)
    assert not sent - charged, f"left a client without a charge: {sent - charged}"
    assert all(times == 1 for times in sent.values()), "an exchange number was answered twice"
    if charges:
        told = spent(charges, 1e-5)["client"]["server"].epsilon
        kept = [c for c in charges if (c.client, c.channel, c.exchange) in sent]
        assert told >= spent(kept, 1e-5)["client"]["server"].epsilon


def killed_often(federation: sfg.Federation, tmp_path: Path, kills: int) -> None:
    instants, done, number = random.Random(7), 0, 0
    started = time.perf_counter()
    while done < kills:
        folder, number = tmp_path / str(number), number + 1
        folder.mkdir()
        while done < kills and not (folder / "done").exists():
            done += killed(federation, folder, instants.uniform(0.02, 0.8))
            never_below(folder)
    print(f"{done} kills in {number} runs, {time.perf_counter() - started:.0f} s")


def test_killed_a_few_times(federation, tmp_path):
    killed_often(federation, tmp_path, 6)


@pytest.mark.slow
def test_killed_two_hundred_times(federation, tmp_path):
    killed_often(federation, tmp_path, 200)


def test_a_ledger_that_charges_behind_the_reply_is_caught(federation, tmp_path, monkeypatch):
    """The control: written after the reply, and not before, charges are missing where a kill came between."""
    written = Ledger.charge
    late: list[tuple[Ledger, object]] = []
    monkeypatch.setattr(Ledger, "charge", lambda self, charge, *_: late.append((self, charge)))
    through = Client.handle

    def behind(self: Client, raw: bytes) -> bytes:
        reply = through(self, raw)
        if len(late) > 3:  # a few are always on their way to the disk
            written(*late.pop(0))
        return reply

    monkeypatch.setattr(Client, "handle", behind)
    with pytest.raises(AssertionError, match="without a charge"):
        killed_often(federation, tmp_path, 10)


@pytest.mark.parametrize("after", [False, True], ids=["before the fsync", "after the fsync"])
def test_killed_inside_a_group_commit(federation, tmp_path, monkeypatch, after):
    """All clients of an exchange have charged and sealed, and one fsync is to put their charges on disk."""
    synced = files.sync

    def at_once(path: Path, **options: Path | None) -> None:
        if len(path.read_bytes().splitlines()) == 9:  # of the third exchange; checkpoints sync the ledger too
            if after:
                synced(path, **options)
            os.kill(os.getpid(), signal.SIGKILL)
        synced(path, **options)

    monkeypatch.setattr(files, "sync", at_once)
    assert ended(federation, tmp_path) == -signal.SIGKILL
    never_below(tmp_path)
    charges = read_ledger(tmp_path / "run" / "ledger.jsonl")
    by_exchange = Counter(charge.exchange for charge in charges)
    assert list(by_exchange.values()) == [3, 3, 3]  # every line of the exchange that was being committed
    monkeypatch.setattr(files, "sync", synced)
    assert ended(federation, tmp_path) == 0  # taken up, and run to its end
    never_below(tmp_path)


def test_no_reply_is_handed_on_before_its_charge_is_on_disk(federation, tmp_path, monkeypatch):
    """Where the disk fails, the exchange ends with an error, and the server has none of its replies."""

    def fails(path: Path, **options: Path | None) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(files, "sync", fails)
    handed_on: list[Message] = []
    opened = Courier._opened

    def noted(self: Courier, request: Message, name: str, answer: bytes) -> object:
        handed_on.append(Message.from_bytes(answer))
        return opened(self, request, name, answer)

    monkeypatch.setattr(Courier, "_opened", noted)
    with pytest.raises(OSError, match="the disk fails"):
        train(federation, tmp_path)
    assert handed_on
    assert not [one for one in handed_on if one.step == ANSWER and one.channel not in TO_THE_REFEREE]
    assert len(read_ledger(tmp_path / "run" / "ledger.jsonl")) == 3  # charged, though nothing was sent
