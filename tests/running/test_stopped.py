"""Runs that are stopped within an exchange: resumed, their ledger has what they sent, and audits hold."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.audits.conformance.ledger import ledger as findings_of_charges
from secure_fedgraph.audits.record import Record
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.transcript import Transcript, everything

STOPPED_IN = 3
"""The round whose replies nobody notes."""


def train(folder: Path, **more: Any) -> sfg.Run:
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=8)
    algorithm = sfg.FedAvg(hidden=(4,), fanout=(2,))
    policy = sfg.policies.local_dp(norm=1.0, multiplier=5.0)
    return sfg.train(algorithm, federation, policy, rounds=4, out=folder / "run", **more)


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """A run that is interrupted once all clients have answered, and before an answer is noted."""
    opened = Courier._opened

    def stop(self: Courier, request: Any, *rest: Any) -> Any:
        if request.round == STOPPED_IN and request.channel == "update":
            raise KeyboardInterrupt
        return opened(self, request, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Courier, "_opened", stop)
        with pytest.raises(KeyboardInterrupt):
            train(folder, **more)


def test_what_was_charged_in_the_last_exchange_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path, monkeypatch, keep=everything)
    run = train(tmp_path, keep=everything, resume=True)
    assert len(read_ledger(tmp_path / "run" / "ledger.jsonl")) == 3 * 5  # four rounds, and one of them twice
    assert list(findings_of_charges(Record(run))) == []
    assert [one.exchange for one in Transcript.load(tmp_path / "run" / "transcript").stopped] == [
        one.exchange for one in run.transcript.stopped
    ]
    (noted,) = run.transcript.stopped
    for other in ([], [replace(noted, exchange=noted.exchange + 1)]):  # nothing explains the charges then
        run.transcript.stopped[:] = other
        assert {finding.check for finding in findings_of_charges(Record(run))} == {"ledger"}


@pytest.mark.parametrize("loss", ["another", "deleted", "cut"])
def test_a_ledger_without_what_was_sent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    shared = tmp_path / "shared.jsonl"
    stopped(tmp_path, monkeypatch, ledger=shared, checkpoint_every=9)  # it knows of no charge
    lines = shared.read_bytes().splitlines(keepends=True)
    resumed = shared
    if loss == "another":
        resumed = tmp_path / "another.jsonl"
    elif loss == "deleted":
        shared.rename(tmp_path / "put away")
    else:  # the charges of the second round, and of the third, whose answers nobody noted
        shared.write_bytes(b"".join(lines[:3]))
    with pytest.raises(BadInput, match="lacks the charge of owner-0's upload of exchange"):
        train(tmp_path, resume=True, ledger=resumed, checkpoint_every=9)
    if loss == "deleted":
        shutil.copy(tmp_path / "put away", shared)
    elif loss == "cut":
        shared.write_bytes(b"".join(lines))
    train(tmp_path, resume=True, ledger=shared, checkpoint_every=9)


@pytest.mark.parametrize("left", [[], [0, 1, 2], [0, 1, 2, 3, *range(5, 99)], [*range(5, 99)]], ids=str)
def test_a_record_without_some_of_its_notes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    """What was sent would be missing in every view, and nobody would know."""
    stopped(tmp_path, monkeypatch, keep=everything)
    notes = tmp_path / "run" / "transcript" / "notes.jsonl"
    whole = notes.read_bytes()
    lines = [line for at, line in enumerate(whole.splitlines(keepends=True)) if at in left]
    notes.write_bytes(b"".join(lines))
    if not lines:
        notes.unlink()
    with pytest.raises(BadInput, match=r"notes\.jsonl is damaged"):
        train(tmp_path, keep=everything, resume=True)
    notes.write_bytes(whole)
    train(tmp_path, keep=everything, resume=True)
