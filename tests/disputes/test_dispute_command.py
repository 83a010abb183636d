"""The command ``dispute`` over a simulated run: all parties in one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

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
    assert (status, found["named"], found["adds_up"]) == (0, [], True)
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


def test_a_figure_that_an_opening_breaks_is_not_shown(tmp_path: Path) -> None:
    noise = ("--policy", "distributed_dp", "--norm", "1", "--multiplier", "1", "--set", "protection.quorum=3")
    out = tmp_path / "run"
    assert typed(*RUN, *noise, "--set", "protection.disputes=1", "--out", out)[0] == 0
    assert typed("report", out)[0] == 0
    assert typed("dispute", out, 2)[0] == 0
    status, _, said = typed("report", out)
    assert (status, "the charges come to inf" in said) == (4, True)
