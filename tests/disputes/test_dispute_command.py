"""The command ``dispute`` over a simulated run: all parties in one folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import secure_fedgraph as sfg
from secure_fedgraph.cli.main import main

RUN = (
    *("run", "--algorithm", "fedavg", "--data", "synthetic-citation", "--clients", "3", "--rounds", "2"),
    *("--set", "dataset.nodes=90", "--set", "training.hidden=[8,4]", "--quiet"),
)


def typed(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, [str(one) for one in words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.filterwarnings("ignore")
def test_one_command_settles_it_and_report_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ("--policy", "masked", "--set", "protection.disputes=1", "--out", out)
    assert typed(*RUN, *asked)[0] == 0
    status, said, _ = typed("dispute", out, 2, "--json")
    found = json.loads(said)
    assert (status, found["named"], found["adds_up"]) == (0, {}, True)
    assert [one["name"] for one in found["owners"]] == ["owner-0", "owner-1", "owner-2"]
    charged = (out / "ledger.jsonl").read_bytes()
    assert charged.count(b"opened to an auditor") == 3
    assert typed("dispute", out, 2)[0] == 0  # once more is charged no more
    assert (out / "ledger.jsonl").read_bytes() == charged
    assert typed("dispute", "--keygen", tmp_path / "key")[0] == 0
    status, _, said = typed("dispute", out, 2, "--auditor", tmp_path / "key.pub")
    assert (status, "another auditor" in said) == (2, True)
    status, _, said = typed("dispute", out, 1)
    assert (status, "no record of a sum of round 1" in said) == (2, True)
    status, _, said = typed("report", out)
    assert (status, "uploads of round 2 were opened to an auditor" in said) == (0, True)
    assert typed("dispute", "--keygen", tmp_path / "key")[0] == 2
    assert typed("dispute", tmp_path, 2)[0] == 2  # no run
    for words in ((), (out, 2, "--auditor", tmp_path / "key"), (out, 2, "--judge", tmp_path / "key.pub")):
        assert typed("dispute", *words)[0] == 2
    begun = out / "checkpoint" / "experiment.json"
    begun.write_text(begun.read_text().replace('"rounds": 2', '"rounds": 3'))
    status, _, said = typed("dispute", out, 2)
    assert (status, "experiment.json" in said.replace("\n", "")) == (2, True)


def test_what_is_damaged_is_named_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, shared, decoy = tmp_path / "run", tmp_path / "shared.jsonl", tmp_path / "decoy.jsonl"
    asked = ("--policy", "masked", "--set", "protection.disputes=2", "--out", out, "--ledger", shared)
    assert typed(*RUN, *asked)[0] == 0
    owner, other = (out / "disputes" / "owners" / name for name in ("owner-0", "owner-1"))
    for name in ("key", "stranger"):
        assert typed("dispute", "--keygen", tmp_path / name)[0] == 0
    assert typed("dispute", "--keygen", tmp_path / "nope" / "key")[0] == 2
    assert typed("dispute", out, 2, "--auditor", tmp_path / "key.pub")[0] == 0
    place, charged = out / "disputes" / "00002-update", shared.read_bytes()
    for agrees in (owner, other):
        status, said, _ = typed("dispute", place, 2, "--sign", agrees)
        assert (status, "no other auditor" in said) == (0, True)
    kept, request = json.loads((owner / "openings.json").read_text()), place / "request.json"
    wanted = json.loads(request.read_text())
    copied, linked = Path(shutil.copytree(owner, tmp_path / "copied")), tmp_path / "linked"
    linked.symlink_to(owner)
    decoy.touch()
    for where, ledger in ((owner, decoy), (owner, tmp_path / "none"), (copied, ""), (linked, "")):
        typed_ledger = ("--ledger", ledger) if ledger else ()
        status, _, said = typed("dispute", place, 2, "--open", where, *typed_ledger)
        assert (status, "--ledger" in said) == (2, True), said
    wrong_sums: list[Any] = [
        {"exchange": 1.5},
        {"exchange": 2**70},
        {"signers": "x"},
        {"seeds": "zz"},
        {"round": None},
    ]
    damaged: list[tuple[Path, Any]] = [
        (owner / "openings.json", {**kept, "sums": [kept["sums"][-1] | one]}) for one in wrong_sums
    ]
    damaged += [(owner / "openings.json", {**kept, "roster": []}), (owner / "openings.json", {})]
    wrong_facts: list[Any] = [
        {"owners": "owner-0"},
        {"owners": []},
        {"round": 2.0},
        {"auditor": "00" * 32},
        {"run": None},
    ]
    damaged += [
        (request, wanted | one) for one in [*wrong_facts, {"owners": ["../a"]}, {"channel": "\ud800"}]
    ]
    signed: list[Any] = [{"signature": 1}, [], {"signature": "z"}]
    damaged += [(place / "signed" / "owner-1.json", one) for one in signed]
    for path, value in [*damaged, *((path, None) for path in {path for path, _ in damaged})]:
        right = path.read_bytes()
        path.write_text("[" * 100_000 if value is None else json.dumps(value))
        status, _, said = typed("dispute", place, 2, "--open", owner, "--ledger", shared)
        assert (status, str(path) in said.replace("\n", "")) == (2, True), (value, said)
        path.write_bytes(right)
    (place / "opened" / "owner-0.json").mkdir(parents=True)
    assert typed("dispute", place, 2, "--open", owner, "--ledger", shared)[0] == 2
    (place / "opened" / "owner-0.json").rmdir()
    assert shared.read_bytes() == charged
    request.write_text(json.dumps(wanted | {"auditor": (tmp_path / "stranger.pub").read_text()}))
    for step in ("--sign", "--open"):
        status, _, said = typed("dispute", place, 2, step, owner)
        assert status in (2, 3)
    status, _, said = typed("dispute", place, 2, "--sign", owner)
    assert (status, "for another auditor" in said) == (3, True)
    request.write_text(json.dumps(wanted | {"owners": ["owner-1", "owner-2"]}))
    assert typed("dispute", place, 2, "--sign", owner)[0] == 3
    request.write_text(json.dumps(wanted))
    status, _, said = typed("report", out, "--ledger", shared)
    assert (status, "asked to open round 2" in said) == (0, True)
    signature = place / "signed" / "owner-1.json"
    signature.write_text(json.dumps({"signature": "00" * 64}))
    status, _, said = typed("dispute", place, 2, "--open", owner, "--ledger", shared)
    assert (status, str(signature) in said.replace("\n", "")) == (3, True)
    (sums,) = (out / "disputes" / "sums").glob("00002-*.sum")
    sums.write_bytes(sums.read_bytes()[:-9])
    status, _, said = typed("dispute", out, 2, "--auditor", tmp_path / "key.pub")
    assert (status, str(sums) in said.replace("\n", "")) == (2, True)
    assert shared.read_bytes() == charged


def test_a_figure_that_an_opening_breaks_is_not_shown(tmp_path: Path) -> None:
    noise = ("--policy", "distributed_dp", "--norm", "1", "--multiplier", "1", "--set", "protection.quorum=3")
    out = tmp_path / "run"
    shared = ("--ledger", tmp_path / "shared.jsonl")
    assert typed(*RUN, *noise, "--set", "protection.disputes=1", "--out", out, *shared)[0] == 0
    assert typed("report", out, *shared)[0] == 0
    status, _, said = typed("dispute", out, 2)
    assert (status, "add --ledger" in said) == (2, True)
    assert typed("dispute", out, 2, *shared)[0] == 0
    status, _, said = typed("report", out, *shared)
    assert (status, "the charges come to inf" in said) == (4, True)


@pytest.mark.filterwarnings("ignore")
def test_owners_own_data_are_typed_again(tmp_path: Path) -> None:
    silos = list[str]()
    for name, graph in sfg.federate("synthetic-citation", clients=3, nodes=90).owners.items():
        torch.save(graph, tmp_path / f"{name}.pt")
        silos += ["--silo", f"{name}={tmp_path / name}.pt"]
    asked = ("--policy", "masked", "--set", "protection.disputes=1", "--rounds", "1", "--quiet", *silos)
    assert typed("run", "--algorithm", "fedavg", *asked, "--out", tmp_path / "run")[0] == 0
    assert typed("dispute", tmp_path / "run", 1)[0] == 2
    assert not (tmp_path / "run" / "disputes" / "00001-update").exists()
    assert typed("dispute", tmp_path / "run", 1, *silos)[0] == 0
