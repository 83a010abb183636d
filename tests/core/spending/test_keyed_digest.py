"""Digests of private data: the owner knows its data again, and nobody else can test a guess."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.spending.keyed_digest import KEYED, kept_key
from secure_fedgraph.core.spending.ledger import Charge, Ledger
from secure_fedgraph.graph.data.canonical import content_digest
from secure_fedgraph.graph.data.datasets import load

PLAIN = "d" * 64


def charge(data: str = PLAIN, **more: Any) -> Charge:
    return Charge("a", "run", 1, 1, "update", "client", "zero-out", data=data, **more)


class TestLedger:
    def test_a_line_does_not_confirm_a_guess(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.jsonl")
        ledger.charge(charge())
        assert PLAIN not in (tmp_path / "ledger.jsonl").read_text()
        assert all(one.data != PLAIN and one.data.startswith(KEYED) for one in ledger.charges)
        other = Ledger(tmp_path / "another.jsonl")
        other.charge(charge())
        assert other.charges[0].data != ledger.charges[0].data

    def test_other_runs_that_share_it_know_the_data_again(self, tmp_path):
        Ledger(tmp_path / "ledger.jsonl").charge(charge())
        again = Ledger(tmp_path / "ledger.jsonl")
        again.charge(charge())
        with pytest.raises(BadInput, match="other data"):
            again.charge(charge("e" * 64))

    def test_an_older_ledger_is_read_on(self, tmp_path):
        (tmp_path / "ledger.jsonl").write_text(charge().to_line())
        Ledger(tmp_path / "ledger.jsonl").charge(charge())
        with pytest.raises(BadInput, match="other data"):
            Ledger(tmp_path / "ledger.jsonl").charge(charge("e" * 64))

    def test_only_its_owner_reads_the_key(self, tmp_path):
        Ledger(tmp_path / "ledger.jsonl").charge(charge())
        key = tmp_path / "ledger.jsonl.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(key.name)] == [key.name]


class TestKey:
    def test_it_is_made_once(self, tmp_path):
        assert (
            kept_key(tmp_path / "a" / "key") == kept_key(tmp_path / "a" / "key") != kept_key(tmp_path / "b")
        )

    @pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
    def test_what_is_none_is_refused(self, tmp_path, content):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(BadInput, match="holds no key"):
            kept_key(tmp_path / "key")

    def test_a_link_in_its_place_is_refused(self, tmp_path):
        (tmp_path / "elsewhere").write_bytes(bytes(32))
        (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(BadInput, match="holds no key"):
            kept_key(tmp_path / "key")


class TestFacts:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("secure_fedgraph.federation.cache_folder", lambda: tmp_path)

    def own(self) -> Data:
        graph = load("synthetic-citation", nodes=60, features=16).graph
        return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)

    def test_a_users_own_graph_is_not_confirmed(self):
        graph = self.own()
        facts = [sfg.federate(graph, clients=2).facts for _ in range(2)]
        assert content_digest(graph) not in json.dumps(facts)
        assert facts[0]["digest"] == facts[1]["digest"]
        graph.x[0] = torch.rand(16)
        assert sfg.federate(graph, clients=2).facts["digest"] != facts[0]["digest"]

    def test_a_public_data_sets_content_hash_stays(self):
        made = load("synthetic-citation", nodes=60, features=16)
        assert sfg.federate(made, clients=2).facts["digest"] == made.digest

    def test_a_folder_that_cannot_be_written(self, monkeypatch):
        def refused(path: Path) -> bytes:
            raise PermissionError(path)

        monkeypatch.setattr("secure_fedgraph.federation.kept_key", refused)
        facts = [sfg.federate(self.own(), clients=2).facts["digest"] for _ in range(2)]
        assert facts[0] == facts[1] and facts[0].startswith(KEYED)
