"""The command line as its users have it: names, files, exit statuses, one JSON object, one-line errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import call, held

from secure_fedgraph.cli import running
from secure_fedgraph.cli.commands.runs import AUDIT_EXAMPLES, COMPARE_EXAMPLES, RUN_EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--data", "synthetic-citation", "--rounds", "1", "--set", "training.hidden=[8,4]"]
SMALL += ["--set", "dataset.nodes=90", "--set", "dataset.features=200"]
NOISE = ["--norm", "1", "--multiplier", "1"]


def run(*arguments: str) -> Result:
    return call("run", *SMALL, *arguments)


def process(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with real streams and a real status."""
    command, environment = [sys.executable, "-m", "secure_fedgraph", *words], {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def fails(result: Result, status: int, words: str) -> None:
    """One line on stderr that says it, nothing on stdout, no traceback."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert re.search(words, result.stderr), result.stderr
    assert result.stderr.startswith("secure-fedgraph: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr


# What a run gives


def test_a_run_leaves_its_files_and_says_where_the_page_is() -> None:
    done = run("--policy", "masked", "--out", "out")
    assert done.exit_code == 0, done.output
    assert {"result.json", "report.html", "ledger.jsonl", "transcript"} <= {
        p.name for p in Path("out").iterdir()
    }
    assert "Report: out/report.html" in done.stdout
    assert Path("out/report.html").read_text().startswith("<!")
    result = held("out/result.json")
    assert result["schema"] == "secure-fedgraph/run/1"
    assert result["config"]["policy"] == "masked"
    lines = Path("out/ledger.jsonl").read_text().splitlines()
    assert len(lines) == 3  # one upload of each of three clients
    assert {json.loads(line)["channel"] for line in lines} == {"update"}
    assert "masked" in done.stdout and "inf" in done.stdout


def test_json_is_one_object_on_stdout_and_nothing_else() -> None:
    done = run("--policy", "plaintext", "--json", "--out", "out")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == held("out/result.json")
    assert done.stdout.count("\n") == 1


def test_quiet_prints_nothing() -> None:
    done = run("--policy", "plaintext", "--quiet", "--out", "out")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert Path("out/result.json").is_file()


def test_without_out_a_folder_of_its_own_is_made() -> None:
    done = run("--policy", "plaintext", "--quiet")
    assert done.exit_code == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"run-fedsage-synthetic-citation-\d{8}-\d{6}", folder.name)


def test_what_is_left_in_plaintext_is_allowed_by_name_and_said_in_one_line() -> None:
    pooled = ["--algorithm", "globsage", "--out", "out"]
    fails(run(*pooled), 3, "leaves channel 'update' of globsage in plaintext")
    done = run(*pooled, "--allow-plaintext")
    assert done.exit_code == 0
    assert "'update' left in plaintext" in done.stdout.splitlines()[0]
    assert re.search(r"secure-fedgraph: warning: channel 'update' is left in plaintext", done.stderr)
    assert "Not federated" in done.stdout


def test_several_seeds_give_their_mean_and_each_its_own_folder() -> None:
    done = run("--policy", "plaintext", "--seed", "3", "--seeds", "2", "--out", "out", "--json")
    assert done.exit_code == 0, done.output
    mean = json.loads(done.stdout)
    each = [held(f"out/seed-{seed}/result.json") for seed in (3, 4)]
    assert mean["seed"] == [3, 4]
    assert [one["seed"] for one in each] == [3, 4]
    assert mean["accuracy"]["global"] == pytest.approx(sum(o["accuracy"]["global"] for o in each) / 2)
    assert mean["accuracy"]["std"].keys() == {"global", "local"}
    assert each[0]["data"]["digest"] != each[1]["data"]["digest"]  # generated data follow the seed
    assert Path("out/report.html").is_file()


def test_a_file_flags_and_set_in_that_order() -> None:
    Path("e.toml").write_text(
        'data = "synthetic-citation"\npolicy = "plaintext"\nrounds = 4\nseed = 5\nclients = 2\n'
        "[dataset]\nnodes = 90\nfeatures = 16\n[training]\nhidden = [8, 4]\n"
    )
    done = call(
        "run", "e.toml", "--seed", "6", "--set", "rounds=2", "--set", "seed=6", "--json", "--out", "out"
    )
    assert done.exit_code == 0, done.output
    config = json.loads(done.stdout)["config"]
    assert (config["rounds"], config["seed"], config["clients"]) == (2, 6, 2)


def test_overwrite_replaces_a_result() -> None:
    assert run("--policy", "plaintext", "--quiet", "--out", "out").exit_code == 0
    fails(
        run("--policy", "masked", "--out", "out"),
        2,
        "already holds result.json: give another --out, or --overw",
    )
    assert held("out/result.json")["config"]["policy"] == "plaintext"
    assert run("--policy", "masked", "--out", "out", "--overwrite", "--quiet").exit_code == 0
    assert held("out/result.json")["config"]["policy"] == "masked"
    assert len(Path("out/ledger.jsonl").read_text().splitlines()) == 3


# What is refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "coral"], "unknown dataset 'coral': did you mean 'cora'"),
        (["--lr", "0.1"], "did you mean --set training.learning_rate=VALUE?"),
        (["--set", "lr=0.1"], "unknown key 'lr': did you mean 'training.learning_rate'"),
        (["--set", "dataset.node=3"], "'node': did you mean 'nodes'"),
        (["--set", "round=3"], "'round': did you mean 'rounds'"),
        (["--set", "training.batch=0"], "'batch' = 0"),
        (["--algorithm", "fedavg", "--set", "training.network=gcn"], "'gcn'"),
        (["--algorithm", "glasu", "--data", "proteins"], "data = 'proteins'.*glasu learns from kind node"),
        (
            ["--algorithm=apflgate", "--data=bbbp", "--partition=louvain"],
            "apflgate runs on dirichlet, random$",
        ),
        (["--rounds", "x"], "'x' is not a valid integer"),
        (["--clients", "400"], "400"),
        (["--seeds", "0"], "0"),
        (["nowhere.toml"], "'nowhere.toml' is not there"),
        (["--frobnicate"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_status_2_in_one_sentence_before_anything_is_written(
    arguments: list[str], words: str
) -> None:
    fails(run(*arguments, "--out", "out"), 2, words)
    assert [p for p in Path("out").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "masked", "--clients", "1"], "masked needs at least 2 .* and there is 1"),
        (["--policy", "homomorphic", "--clients", "1"], "homomorphic needs at least 2"),
        (["--policy", "masked", "--algorithm", "globsage"], "masked needs at least 2"),
        (["--policy", "masked", "--set", "protection.quorum=4"], "masked needs at least 4"),
        (
            ["--policy", "masked", "--unit", "client", "--epsilon", "8"],
            "masked: no noise protects",
        ),
        (["--policy", "central_dp", "--epsilon", "8"], "give --against outsider, or use distributed_dp"),
        (["--policy", "local_dp", "--unit", "client", *NOISE, "--epsilon", "1"], "for one round .*4.38"),
        (["--policy", "local_dp", "--norm=1", "--multiplier=0.001", "--epsilon=1"], "a larger --multiplier"),
    ],
)
def test_what_privacy_refuses_is_status_3_before_round_1(arguments: list[str], words: str) -> None:
    fails(run(*arguments, "--out", "out"), 3, words)
    assert not Path("out/ledger.jsonl").exists()


def test_uploads_beyond_the_limit_are_cut_counted_and_said_once() -> None:
    done = run("--policy", "masked", "--set", "protection.limit=0.0001", "--out", "out")
    assert done.exit_code == 0
    assert done.stderr.count("protection.limit=0.0002") == 1
    cut = held("out/result.json")["cut"]
    assert [note["round"] for note in cut] == list(range(1, len(cut) + 1))
    assert {note["channel"] for note in cut} == {"update"}
    assert all(0 < note["uploads"] <= note["of"] and note["limit"] == 0.0001 for note in cut)


def test_an_unexpected_error_is_status_1_and_points_at_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr(running, "execute", broken)
    fails(run("--out", "out"), 1, r"RuntimeError: wires crossed \(run with --debug for the traceback\)")
    done = run("--out", "out", "--debug")
    assert done.exit_code == 1
    assert "Traceback" in done.stderr and "wires crossed" in done.stderr


def test_no_error_steers_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("wires \x1b[31mcrossed\x07")

    monkeypatch.setattr(running, "run", broken)
    fails(call("run"), 1, r"RuntimeError: wires \?\[31mcrossed\? ")


def test_a_traceback_only_with_debug() -> None:
    done = run("--policy", "maskd", "--debug")
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("secure-fedgraph: unknown policy 'maskd'")


def test_an_interrupt_is_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "execute", interrupted)
    done = run("--out", "out")
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr.strip() == "secure-fedgraph: interrupted"


@pytest.mark.parametrize(("out", "named"), [("out", "out"), ("-dash", "./-dash")])
def test_sigterm_prints_how_to_go_on_and_hands_the_signal_back(
    monkeypatch: pytest.MonkeyPatch, out: str, named: str
) -> None:
    real, rounds = running.execute, []

    def terminated(experiment: Any, folder: Path, on_round: Any, **more: Any) -> Any:
        def stop(row: Any) -> None:
            on_round(row)
            rounds.append(row)
            os.kill(os.getpid(), signal.SIGTERM)

        return real(experiment, folder, stop, **more)

    monkeypatch.setattr(running, "execute", terminated)
    before = signal.getsignal(signal.SIGTERM)
    done = run(f"--out={out}", "--rounds", "3")
    assert (done.exit_code, len(rounds)) == (143, 1)
    assert f"go on with: secure-fedgraph resume {named}" in done.stderr
    assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setattr(running, "execute", real)
    assert call("resume", named, "--json").exit_code == 0


def test_a_folder_that_is_moved_away_is_named_and_the_run_goes_on_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = running.execute

    def moved(experiment: Any, folder: Path, on_round: Any, **more: Any) -> Any:
        def move(row: Any) -> None:
            on_round(row)
            Path("out").rename("elsewhere")

        return real(experiment, folder, move, **more)

    with monkeypatch.context() as patched:
        patched.setattr(running, "execute", moved)
        done = run("--out", "out", "--rounds", "3")
    assert done.exit_code == 1
    assert "then go on with: secure-fedgraph resume out" in done.stderr
    Path("elsewhere").rename("out")
    assert call("resume", "out", "--json").exit_code == 0


def test_a_run_that_lacks_its_page_alone_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(running, "write_report", interrupted)
        done = run("--out", "out")
    assert done.exit_code == 130
    assert "go on with: secure-fedgraph resume out" in done.stderr
    assert call("resume", "out").exit_code == 0
    assert Path("out/report.html").is_file()


# audit


def test_an_audit_measures_policy_by_policy() -> None:
    done = call("audit", *SMALL, "--policy", "plaintext,masked", "--attack", "all", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "a1-vocabulary-support" in done.stdout
    result = held("out/audit.json")
    assert result["schema"] == "secure-fedgraph/audit/1"
    assert {"config", "seed", "versions", "cells"} <= result.keys()
    keys = {
        *("algorithm", "policy", "attack", "adversary", "channel", "outcome", "metric", "score", "low"),
        *("high", "baseline", "baselines", "ceiling", "verdict", "reason", "seed", "accuracy", "bytes"),
        *("seconds", "settings"),
    }
    assert all(keys <= cell.keys() for cell in result["cells"])
    assert {cell["outcome"] for cell in result["cells"]} == {"score", "blind"}
    assert Path("out/report.html").is_file()


def test_an_audit_of_one_attack_over_seeds_as_json() -> None:
    arguments = ["--policy", "plaintext", "--attack", "a1", "--seeds", "2", "--json", "--out", "out"]
    done = call("audit", *SMALL, *arguments)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert {cell["attack"] for cell in result["cells"]} == {"a1-vocabulary-support"}
    assert sorted({cell["seed"] for cell in result["cells"]}) == [0, 1]


def test_an_audit_where_every_word_is_held_is_still_json() -> None:
    small = [a.replace("features=200", "features=8") for a in SMALL]
    done = call("audit", *small, "--policy", "masked", "--attack", "a1", "--json", "--out", "out")
    assert done.exit_code == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert any(cell["verdict"].startswith("nothing to learn") for cell in cells)


def test_an_audit_of_fedsage_plus_by_two_adversaries(monkeypatch: pytest.MonkeyPatch) -> None:
    from secure_fedgraph.attacks import GeneratorBatch, GeneratorColumns, GeneratorSingle

    for kind in (GeneratorSingle, GeneratorBatch, GeneratorColumns):
        monkeypatch.setattr(kind, "controls", kind.controls[:1] if kind is GeneratorSingle else ())
    small = ["--algorithm", "fedsage+", *SMALL, "--set", "training.generator_hidden=[16,256]"]
    small += ["--set", "training.generator_epochs=2", "--set", "training.federated_epochs=1"]
    small += ["--set", "training.exchange_batch=4", "--set", "training.minimum_batch=1"]
    done = call("audit", *small, "--policy", "plaintext,strictest", "--attack", "neighgen", "--out", "out")
    assert done.exit_code == 0, done.output
    result = held("out/audit.json")
    assert {c["adversary"] for c in result["cells"]} == {"server", "client"}
    outcome = {
        (c["policy"], c["attack"][:2], c["adversary"], c["settings"]["aim"]): c
        for c in result["cells"]
        if c["attack"] != "c2-neighgen-columns" and c["settings"]["variant"] == "as configured"
    }
    assert outcome["plaintext", "c2", "server", "each owner"]["verdict"] == "exact"
    assert outcome["plaintext", "c2", "client", "each owner"]["verdict"] == "exact"
    assert outcome["strictest", "c2", "server", "each owner"]["outcome"] == "blind"
    assert outcome["strictest", "c2", "client", "what the defence leaves"]["score"] == 1.0
    printed = " ".join(done.stdout.split())
    assert "What would stop c2-neighgen-batch" in printed
    assert "training.feedback=prototypes" in printed
    assert "c2-neighgen-batch (by client)" in result["verdict"]
    narrowed = ["--policy", "strictest", "--attack", "c2-neighgen-batch", "--adversary", "server", "--json"]
    only = json.loads(call("audit", *small, *narrowed, "--out", "b").stdout)["cells"]
    assert {c["outcome"] for c in only} == {"blind"}


def test_an_audit_of_a_kept_run_leaves_the_run_as_it_was() -> None:
    assert run("--policy", "plaintext", "--set", "transcript=full", "--quiet", "--out", "out").exit_code == 0
    before = {name: Path(f"out/{name}").read_bytes() for name in ("result.json", "ledger.jsonl")}
    done = call("audit", "out", "--json")
    assert done.exit_code == 0, done.output
    cells = json.loads(done.stdout)["cells"]
    assert next(c for c in cells if c["attack"] == "a1-vocabulary-support")["outcome"] == "score"
    fails(call("audit", "out"), 2, "out already holds audit.json: give another --out, or --overwrite")
    assert call("audit", "out", "--overwrite", "--quiet").exit_code == 0
    assert call("audit", "out", "--out", "elsewhere", "--quiet").exit_code == 0
    assert Path("elsewhere/audit.json").is_file()
    assert {name: Path(f"out/{name}").read_bytes() for name in before} == before


def test_an_audit_of_a_kept_run_equals_the_audit_that_made_it() -> None:
    small = [*SMALL, "--policy", "plaintext", "--seed", "2"]
    assert call("run", *small, "--set", "transcript=full", "--quiet", "--out", "out").exit_code == 0
    later = json.loads(call("audit", "out", "--attack", "a1", "--json").stdout)["cells"]
    made = json.loads(call("audit", *small, "--attack", "a1", "--json", "--out", "b").stdout)["cells"]
    assert [c["score"] for c in later] == [c["score"] for c in made]


def test_an_audit_of_a_run_without_a_transcript_says_the_mend() -> None:
    assert run("--policy", "plaintext", "--quiet", "--out", "out").exit_code == 0
    fails(call("audit", "out"), 2, "--set transcript=full")
    assert not Path("out/audit.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attack", "a9"], "unknown attack 'a9'"),
        (["--attack", "weight"], "did you mean 'weights'"),
        (["--policy", "plaintext,maskd"], "did you mean 'masked'"),
        (["--policy", "plaintext,central_dp"], "give --norm 1.0"),
        (["--adversary", "servr"], "'servr'.*did you mean 'server'"),
        (["--algorithm", "fedsag"], "did you mean 'fedsage'"),
        (["nowhere"], "nowhere holds no result.json"),
        (["nowhere", "--policy", "masked"], "--policy"),
        (["nowhere", "--rounds", "3"], "--rounds cannot change the finished run in nowhere"),
        (["nowhere", "--set", "rounds=3"], "--set cannot change the finished run"),
    ],
)
def test_an_audit_that_cannot_be(arguments: list[str], words: str) -> None:
    fails(call("audit", *arguments, "--out", "out"), 2, words)
    assert not Path("out").exists()


def test_an_audit_notes_a_policy_that_is_refused() -> None:
    done = call(
        "audit", *SMALL, "--clients", "1", "--policy", "masked", "--attack", "a1", "--json", "--out", "o"
    )
    assert done.exit_code == 0
    assert {c["outcome"] for c in json.loads(done.stdout)["cells"]} == {"refused"}


# list, report, help


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("algorithms", ["local", "fedavg", "fedprox", "fedsage", "globsage", "locsage"]),
        ("policies", ["plaintext", "local_dp", "central_dp", "masked", "homomorphic", "strictest"]),
        ("datasets", ["cora", "synthetic-citation"]),
    ],
)
def test_lists_hold_what_works_today(what: str, names: list[str]) -> None:
    rows = json.loads(call("list", what, "--json").stdout)[what]
    assert set(names) <= {row["name"] for row in rows}
    assert all(row["summary"] for row in rows)
    table = call("list", what)
    assert table.exit_code == 0
    assert all(name in table.stdout for name in names)


def test_the_list_of_attacks() -> None:
    rows = {row["id"]: row for row in json.loads(call("list", "attacks", "--json").stdout)["attacks"]}
    assert {"a1-vocabulary-support", "a4-label-counts"} <= rows.keys()
    assert rows["a4-label-counts"]["controls"]["one full step"]["training.optimizer"] == "sgd"
    assert rows["a1-vocabulary-support"]["reads"] == "update"
    assert call("list", "attacks").exit_code == 0


def test_all_that_is_known_of_one_name() -> None:
    said = call("list", "d5-gradient-labels").stdout
    assert "summary: " in said and "adversaries: server" in said and "package: secure-fedgraph" in said
    assert json.loads(call("list", "fedsage", "--json").stdout)["name"] == "fedsage"


def test_an_unknown_list() -> None:
    fails(call("list", "algoritms"), 2, "did you mean 'algorithms'")


def test_report_rebuilds_the_page() -> None:
    assert run("--policy", "plaintext", "--quiet", "--out", "out").exit_code == 0
    page = Path("out/report.html")
    first = page.read_bytes()
    page.unlink()
    done = call("report", "out")
    assert (done.exit_code, done.stdout) == (0, "out/report.html\n")
    assert page.read_bytes() == first
    fails(call("report", "nowhere"), 2, "nowhere holds no")


@pytest.mark.parametrize("command", ["run", "audit", "list", "report"])
def test_help_everywhere_with_an_example(command: str) -> None:
    for flag in ("-h", "--help"):
        done = call(command, flag)
        assert done.exit_code == 0
        assert f"secure-fedgraph {command} " in done.stdout.split("Example")[1]


def test_the_examples_of_the_help_are_accepted() -> None:
    # their flags and names at least: each is run with one more flag that is refused last
    for text in (RUN_EXAMPLES, AUDIT_EXAMPLES, COMPARE_EXAMPLES):
        for line in text.splitlines():
            words = line.split("#")[0].split()[1:]
            if words and words[0] in ("run", "audit", "compare") and "runs/masked" not in words[1:2]:
                done = call(*[w for w in words if not w.endswith(".toml")], "--set", "stop=1")
                fails(done, 2, "unknown key 'stop'")


def test_the_group_names_its_commands_and_version() -> None:
    done = call("-h")
    assert done.exit_code == 0
    assert all(command in done.stdout for command in ("run", "audit", "list", "report"))
    assert "Exit status" in done.stdout
    assert re.search(r"\d+\.\d+", call("--version").stdout)
    fails(call("compar"), 2, "No such command 'compar'")


# The same through a shell


def test_statuses_and_streams_of_real_processes() -> None:
    done = process("run", *SMALL, "--policy", "plaintext", "--json", "--out", "a")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["command"].startswith("secure-fedgraph run --data synthetic-citation")
    refused = process("run", *SMALL, "--policy", "masked", "--clients", "1", "--out", "b")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith("secure-fedgraph: channel 'update': masked needs at least 2")
    bad = process("run", "--policy", "maskd", "--out", "c")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


# A privacy budget


def test_a_run_stops_with_its_finished_rounds_and_a_shared_ledger_adds_up() -> None:
    # two releases with multiplier 1 cost 6.57, three 8.5: the third round is not in 8
    noise = ["--policy", "local_dp", *NOISE, "--unit", "client", "--epsilon", "8", "--rounds", "3"]
    stopped = run(*noise, "--out", "a", "--ledger", "shared.jsonl")
    assert stopped.exit_code == 3 and len(stopped.stdout.splitlines()) == 1  # what was about to run
    assert "owner-0's next message would exceed the budget" in stopped.stderr
    announced = stopped.stderr.splitlines()[0]
    assert "warning: the budget of epsilon 8 for one client stops this run after 2 of 3 rounds" in announced
    assert len(Path("shared.jsonl").read_text().splitlines()) == 6
    again = run(*noise, "--out", "b", "--ledger", "shared.jsonl")
    assert again.exit_code == 3 and "would exceed the budget of epsilon 8" in again.stderr
    assert len(Path("shared.jsonl").read_text().splitlines()) == 6
    other = run(*noise, "--seed", "1", "--out", "c", "--ledger", "shared.jsonl")
    assert other.exit_code == 2 and "with other data" in other.stderr


def test_resume_takes_a_larger_budget() -> None:
    spent = run("--policy", "local_dp", "--norm", "1", "--multiplier", "2", "--rounds", "3", "--out", "b",
                "--unit", "client", "--epsilon", "3")  # fmt: skip
    assert spent.exit_code == 3 and "would exceed the budget" in spent.stderr
    fails(call("resume", "b", "--epsilon", "2"), 2, "the run was started with 3; give more")
    gone_on = call("resume", "b", "--epsilon", "30", "--quiet")
    assert gone_on.exit_code == 0, gone_on.stderr
    result = held("b/result.json")
    assert result["budget"]["epsilon"] == 30 and 3 < result["budget"]["spent"] < 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "0"], "epsilon = 0"),
        (["--epsilon", "-1"], "epsilon = -1"),
        (["--epsilon", "nan"], "epsilon = nan"),
        (["--epsilon", "inf"], "epsilon = inf"),
        (["--epsilon", "8", "--delta", "1"], "delta = 1"),
        (["--epsilon", "8", "--unit", "person"], "unit = 'person'"),
        (["--epsilon", "8", "--unit", "graph"], "unit 'graph': these data have client, node, edge"),
        (["--epsilon", "8", "--against", "eve"], "against = 'eve'"),
        (["--epsilon", "8", "--set", "budget.upload=2"], "budget.upload: no channel of that name pays"),
        (
            ["--epsilon", "8", "--unit", "client", "--set", "budget.update=0"],
            "budget.update = 0.*a positive number",
        ),
    ],
)
def test_figures_that_are_no_budget(arguments: list[str], words: str) -> None:
    fails(run("--policy", "local_dp", *arguments, "--out", "out"), 2, words)


def test_noise_that_leaves_nothing_to_learn_is_refused_and_an_earlier_result_stays() -> None:
    assert run("--policy", "masked", "--rounds", "1", "--out", "out").exit_code == 0
    before = Path("out/result.json").read_bytes()
    drowned = ["--policy", "distributed_dp", "--unit", "client", "--epsilon", "0.1", "--out", "out"]
    fails(run(*drowned, "--overwrite"), 3, "would learn nothing: give --unit node")
    assert Path("out/result.json").read_bytes() == before
    fails(run(*drowned[:-1], "new"), 3, "times what the signal can be at most.*--anyway")
    assert not Path("new").exists()
    assert run(*drowned, "--overwrite", "--anyway", "--rounds", "1").exit_code == 0
