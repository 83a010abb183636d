"""Whole processes over Flower: a server that lies to them, and ends without a word."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from lying_server import huge_at
from scripts import script
from torch_geometric.data import Data

pytest.importorskip("flwr", exc_type=ImportError)

from secure_fedgraph.cli.serving import CERTIFICATES
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.deployment.certificates import CERTIFICATE, KEY
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.flower.grid import Address, Grid
from secure_fedgraph.deployment.silos import Silos
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.graph.silos.given import OwnData
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.round import Round, set_up

silos = script("silos")
WORDS = 4
VICTIM = "silo-1"


def with_words(words: list[bool]) -> dict[str, OwnData]:
    """Three silos; each word is in all of the victim's nodes or in none of them."""
    data: dict[str, OwnData] = {}
    for name, one in silos.small_silos(nodes=30).items():
        assert isinstance(one, Data)
        rows = torch.tensor(words).float().expand(30, WORDS) if name == VICTIM else (one.x > 0).float()
        data[name] = Data(x=rows.clone(), y=one.y, edge_index=one.edge_index)
    return data


class Liar:
    """A server that has signed in three silos and broadcasts what it likes."""

    def __init__(self, running: Any) -> None:
        self.approved: Approved = running.approved
        folder, named = running.root / CERTIFICATES, self.approved.federation.server
        address = Address(named.host, named.port, folder / CERTIFICATE, folder / KEY)
        self.grid = Grid(address, self.approved.federation.nodes, running.root / "superlink.log", 120)
        self.silos = Silos(self.grid, self.approved, tolerant=True)
        self.silos.gather(3, 0, 60)
        self.silos.connect(self.approved.run, -1, "")
        self.prepared = terms_in(self.approved).prepared
        self.seen: list[tuple[Any, ...]] = []
        self.courier = Courier(self.approved.run, self, Transcript(keep=lambda *_: False, public={}))
        set_up(self.prepared.bound, self.courier, self.silos.names)
        self.seen.clear()

    def exchange(self, requests: dict[str, bytes]) -> dict[str, bytes]:
        answers = self.reach(requests)
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
        return answers

    def reach(self, requests: dict[str, bytes]) -> dict[str, Any]:
        answers = self.silos.reach(requests)
        answer = answers[VICTIM]
        step = Message.from_bytes(requests[VICTIM]).step
        self.seen.append((step, type(answer).__name__, len(answer) if isinstance(answer, bytes) else 0))
        return answers

    def broadcasts(self, given: dict[str, torch.Tensor], number: int) -> tuple[Any, ...]:
        """What the victim was seen to do in one exchange of a round."""
        self.seen.clear()
        (channel,) = (one for one in self.prepared.algorithm.in_use if one.name == "update")
        Round(number, self.silos.names, self.prepared.bound, self.courier).reduce(channel, given)
        return tuple(self.seen)

    def close(self) -> None:
        self.grid.close()


@pytest.mark.parametrize("policy", ["masked", "local_dp"])
def test_a_lying_server_reads_no_word_and_gets_no_round_twice(policy: str) -> None:
    words = [True, False, False, True]
    noise = ["--epsilon", "8", "--unit", "client", "--norm", "1"] if policy == "local_dp" else []
    asked = ["--algorithm", "fedavg", "--policy", policy, "--rounds", str(WORDS), *noise]
    with silos.deployment(with_words(words), *asked, "--set", "training.hidden=[4,4]") as running:
        liar = Liar(running)
        try:
            schema = liar.prepared.federation.schema
            state = liar.prepared.algorithm.init(schema, 0)
            behaved = [liar.broadcasts(huge_at(state, word), word + 1) for word in range(WORDS)]
            assert len(set(behaved)) == 1 and {kind for _, kind, _ in behaved[0]} == {"bytes"}
            before = [len(read_ledger(_ledger(running, name))) for name in running.data]
            with pytest.raises(HostileMessage, match="rounds never go back"):
                liar.broadcasts(state, 1)
            assert [len(read_ledger(_ledger(running, name))) for name in running.data] == before
            assert min(before) >= WORDS
        finally:
            liar.close()


def _ledger(running: Any, name: str) -> Path:
    (path,) = running.folder(name).ledgers().values()
    return path


def test_runs_end_right_although_processes_are_killed() -> None:
    rows = silos.kills(argparse.Namespace(times=12, seed=1))
    assert all(row["runs"] == row["runs that ended right"] for row in rows)
    assert all(row["with the weights of one process"] in ("", row["runs"]) for row in rows)
    assert not any(row["ledgers below what was sent"] for row in rows)
