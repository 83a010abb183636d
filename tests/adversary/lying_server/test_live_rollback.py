"""Files that go back in time while a run goes on, or before it is resumed: what is noticed, and what is not.

Whoever restores an older file wants a round again: fresh noise on the same data averages away, and a charge
that is forgotten is budget.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parties import Session, Toy, session

import secure_fedgraph as sfg
from secure_fedgraph.client import Client
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.spending.ledger import Ledger, read_ledger
from secure_fedgraph.policies import local_dp
from secure_fedgraph.seams import RoundApi


def charged(path: Path, rounds: int = 3) -> Session:
    made = session(local_dp(1.0, 1.0), ledger=Ledger(path))
    for number in range(1, rounds + 1):
        made.round(number).reduce(Toy.UPDATE)
    return made


class TestALedgerUnderARunThatGoesOn:
    def older(self, path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3]))

    def longer_again(self, path: Path) -> None:
        """The older one, and others have charged since."""
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3]) + b"".join(line.replace(b"run-1", b"run-2") for line in lines))

    def gone(self, path: Path) -> None:
        path.unlink()

    @pytest.mark.parametrize("change", [older, longer_again, gone])
    def test_nothing_more_is_answered(
        self, tmp_path: Path, change: Callable[[TestALedgerUnderARunThatGoesOn, Path], None]
    ) -> None:
        path = tmp_path / "ledger.jsonl"
        made = charged(path)
        change(self, path)
        before = len(made.passed)
        with pytest.raises(BadInput, match="lacks charges that this process has seen"):
            made.round(4).reduce(Toy.UPDATE)
        assert len(made.passed) == before

    @pytest.mark.parametrize("anew", [False, True], ids=["in-place", "another-file"])
    def test_figures_are_not_made_of_lines_that_were_rewritten(self, tmp_path: Path, anew: bool) -> None:
        """The length and the last line, which a charge looks at, are as they were."""
        path = tmp_path / "ledger.jsonl"

        class Rewriting(sfg.FedAvg):
            def round(self, round: RoundApi, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
                tried = (
                    not path.exists() or b": 9.0" in path.read_bytes()
                )  # on made-up graphs, before it runs
                if round.number == 3 and not tried:
                    lines = path.read_bytes().splitlines(keepends=True)
                    head = b"".join(lines[:-1]).replace(b'"multiplier": 2.0', b'"multiplier": 9.0')
                    changed = tmp_path / "changed" if anew else path
                    changed.write_bytes(head + lines[-1])
                    changed.replace(path)
                return super().round(round, state)

        federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)

        def train(**more: Any) -> None:
            algorithm, policy = Rewriting(hidden=(8, 8)), local_dp(1.0, 2.0)
            out = tmp_path / "run"
            sfg.train(algorithm, federation, policy, rounds=5, seed=0, ledger=path, out=out, **more)

        with pytest.raises(BadInput, match="lacks charges that this process has seen"):
            train()
        with pytest.raises(BadInput, match="lacks charges that the checkpoint beside it was made after"):
            train(resume=True)  # no checkpoint was made that would vouch for what was rewritten

    def test_a_damaged_line_is_named_by_its_place_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.jsonl"
        made = charged(path)
        damaged = len(path.read_bytes().splitlines()) + 1
        with path.open("ab") as file:
            file.write(b"no charge\n")
        with pytest.raises(BadInput, match=f"line {damaged} is damaged"):
            made.round(4).reduce(Toy.UPDATE)

    def test_others_that_share_it_go_on(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.jsonl"
        one, other = charged(path), session(local_dp(1.0, 1.0), ledger=Ledger(path))
        other.courier._exchange = 50
        other.round(4).reduce(Toy.UPDATE)
        one.round(4).reduce(Toy.UPDATE)
        assert len(read_ledger(path)) == 15


class TestExchangesAfterARestart:
    """``exchange.json`` is the operator's. The ledger says itself which numbers were answered."""

    def again(self, path: Path) -> Session:
        """The clients of a new process, told that nothing was asked yet."""
        return session(local_dp(1.0, 1.0), ledger=Ledger(path))

    def test_a_number_that_was_charged_is_not_answered_again(self, tmp_path: Path) -> None:
        charged(tmp_path / "ledger.jsonl")
        with pytest.raises(HostileMessage, match="was already answered"):
            self.again(tmp_path / "ledger.jsonl").round(1).reduce(Toy.UPDATE)

    def test_if_the_operators_word_were_all_it_would_be(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Ledger, "answered", lambda *_: -1)
        charged(tmp_path / "ledger.jsonl")
        self.again(tmp_path / "ledger.jsonl").round(1).reduce(Toy.UPDATE)

    def test_another_run_begins_at_the_beginning(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "ledger.jsonl")
        charged(tmp_path / "ledger.jsonl")
        assert ledger.answered("owner-0", "run-2") == -1


def test_a_client_that_has_answered_does_not_take_an_older_memory(tmp_path: Path) -> None:
    made = charged(tmp_path / "ledger.jsonl", 1)
    client: Client = made.clients["owner-0"]
    with pytest.raises(HostileMessage, match="does not go back"):
        client.load("00000-0123abcd")


class TestACheckpointBeforeAResume:
    """One round, then the second one again and again from a copy of the folder."""

    OWNERS = sfg.federate("synthetic-citation", clients=2, nodes=40, features=8)

    def second_round(self, out: Path) -> torch.Tensor:
        algorithm = sfg.FedAvg(hidden=(2, 2), fanout=(1, 1))
        resume = (out / "checkpoint").exists()
        run = sfg.train(
            algorithm, self.OWNERS, sfg.policies.local_dp(1.0, 1.0), rounds=2, out=out, resume=resume
        )
        return torch.cat([value.flatten() for value in run.state.values()])

    @pytest.fixture
    def copied(self, tmp_path: Path) -> tuple[Path, Path]:
        """A run, and its folder as it was after the first round."""
        out, copy = tmp_path / "run", tmp_path / "copy"

        def keep(row: dict[str, object]) -> None:
            if row["round"] == 2 and not copy.exists():  # the second is not kept yet
                shutil.copytree(out, copy)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sfg.train(
                sfg.FedAvg(hidden=(2, 2), fanout=(1, 1)),
                self.OWNERS,
                sfg.policies.local_dp(1.0, 1.0),
                rounds=2,
                out=out,
                on_round=keep,
            )
        return out, copy

    def restore(self, out: Path, copy: Path, *parts: str) -> None:
        for part in parts:
            there, here = copy / part, out / part
            if there.is_dir():
                shutil.rmtree(here)
                shutil.copytree(there, here)
            else:
                shutil.copy(there, here)

    def test_the_checkpoint_alone_is_charged_again(self, copied: tuple[Path, Path]) -> None:
        out, copy = copied
        before = len(read_ledger(out / "ledger.jsonl"))
        noised = [self.second_round(out)]
        self.restore(out, copy, "checkpoint")
        noised.append(self.second_round(out))
        assert not torch.equal(*noised)  # the noise of the same round, drawn again, and paid for again
        assert len(read_ledger(out / "ledger.jsonl")) == before + 4

    def test_a_ledger_older_than_the_checkpoint_is_refused(self, copied: tuple[Path, Path]) -> None:
        out, copy = copied
        self.second_round(out)
        self.restore(out, copy, "ledger.jsonl")
        with pytest.raises(BadInput, match="lacks charges that the checkpoint"):
            self.second_round(out)

    def test_both_together_are_refused_by_the_record(self, copied: tuple[Path, Path]) -> None:
        out, copy = copied
        self.second_round(out)
        self.restore(out, copy, "checkpoint", "ledger.jsonl")
        with pytest.raises(BadInput, match="lacks the charge of owner-0's upload of exchange"):
            self.second_round(out)

    def test_all_together_are_not_noticed(self, copied: tuple[Path, Path]) -> None:
        """docs/sharp_edges.md says so: nothing on a disk can tell that the whole disk went back."""
        out, copy = copied
        counts = []
        for _ in range(2):
            self.restore(out, copy, "checkpoint", "ledger.jsonl", "transcript")
            self.second_round(out)
            counts.append(len(read_ledger(out / "ledger.jsonl")))
        assert counts[0] == counts[1]
