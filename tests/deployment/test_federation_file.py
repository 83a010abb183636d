"""A federation's file, cards, folders and certificates: what is refused, and that nothing private is open."""

from __future__ import annotations

import json
import re
import stat
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from banks import bank, banks, federation_of
from click.testing import CliRunner
from torch_geometric.data import Data

from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.certificates import (
    CERTIFICATE,
    KEY,
    check_certificate,
    make_certificates,
)
from secure_fedgraph.deployment.federation_file import (
    held_by,
    parsed,
    read_card,
    read_federation,
    write_federation,
)
from secure_fedgraph.deployment.own_data import data_at, own_part
from secure_fedgraph.deployment.silo_folder import SiloFolder
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.graph.tables.schema import DateColumn, Label, TableSchema


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("file")
    return federation_of(
        root, banks(2), algorithm="fedavg", policy="plaintext", rounds=2
    ).approved.content.decode()


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('schema = "secure-fedgraph/federation/1"', 'schema = "other"', "schema"),
        ("cohort = 0", "cohort = 5", "cohort = 5: there are 2 silos"),
        ("cohort = 0", "cohort = true", "cohort ('True')"),
        ("holders = 1", "holders = true", "data.holders ('True')"),
        ("cohort = 0", f"cohort = {'1' * 5000}", "is no TOML"),
        ("cohort = 0", "surprise = 0", "surprise"),
        ("port = 9092", "port = 99999", "server.port"),
        ('host = "127.0.0.1"', 'host = "a b"', "server.host"),
        ('name = "bank-b"', 'name = "bank-a"', "bank-a has the name of another silo"),
        ('name = "bank-b"', 'name = "BANK-A"', "has the name of another silo"),
        ('name = "bank-b"', 'name = "../b"', "owner '../b'"),
        ('name = "bank-b"', 'name = "server"', "means a party of its own"),
        ('kind = "node"', 'kind = "edge"', "data.kind"),
        ("features = 4", "features = 99999999999", "data.features"),
        ('policy = "plaintext"', 'policy = "plaintext"\nclients = 7', "clients = 7 does not belong"),
        ('policy = "plaintext"', 'policy = "plaintext"\ndevice = "cuda"', "device = 'cuda' does not belong"),
        ("-----BEGIN CERTIFICATE-----", "-----BEGIN SOMETHING-----", "server.authority"),
    ],
)
def test_each_key_is_checked_and_named(text: str, old: str, new: str, key: str) -> None:
    assert old in text
    with pytest.raises(BadInput, match=r"federation\.toml(: | is no)") as refused:
        parsed(text.replace(old, new, 1).encode(), "federation.toml")
    assert key in str(refused.value) and "\n" not in str(refused.value)


def test_a_date_of_the_schema_is_read_back_as_it_was_written(text: str, tmp_path: Path) -> None:
    opened = DateColumn(name="opened", low=0, high=4200, day=date(2021, 1, 1))
    tables = TableSchema(columns=(opened,), label=Label(columns=("late",), classes=("no", "yes")))
    federation = parsed(text.encode(), "it").federation
    dated = federation.model_copy(update={"tables": tables, "data": held_by({}, None, 2, tables)})
    write_federation(dated, tmp_path / "federation.toml")
    assert read_federation(tmp_path / "federation.toml").federation.tables == tables


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a = ", b"x" * 300_000, b"[" * 5000])
def test_what_is_no_federation_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"federation\.toml"):
        read_federation(path)


def test_a_key_of_another_kind_is_refused(text: str) -> None:
    identity = next(line for line in text.splitlines() if line.startswith("identity"))
    with pytest.raises(BadInput, match=r"identity.*64 hexadecimal digits"):
        parsed(text.replace(identity, 'identity = "ab"', 1).encode(), "it")
    node = next(line for line in text.splitlines() if line.startswith("node"))
    with pytest.raises(BadInput, match=r"node.*OpenSSH"):
        parsed(text.replace(node, 'node = "ssh-rsa AAAA"', 1).encode(), "it")


def test_settings_that_cannot_run_are_refused_by_every_silo(text: str) -> None:
    for old, new in (('algorithm = "fedavg"', 'algorithm = "my:Own"'), ('"fedavg"', '"pooled"')):
        with pytest.raises(BadInput):
            terms_in(parsed(text.replace(old, new, 1).encode(), "it"))
    with pytest.raises(BadInput, match=r"^it: epsilon = true"):
        terms_in(parsed(text.replace("rounds = 2", "epsilon = true", 1).encode(), "it"))
    summed = text.replace('"plaintext"', '"masked"', 1)
    with pytest.raises(BadInput, match=r"^it: cohort = 1"):
        terms_in(parsed(summed.replace("cohort = 0", "cohort = 1", 1).encode(), "it"))
    with pytest.raises(BadInput, match="may not score silos in the clear"):
        terms_in(parsed(text.replace("rounds = 2", 'rounds = 2\nevaluation = "referee"').encode(), "it"))


def test_a_silos_folder_is_private_and_keeps_its_keys(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1)
    silos.serve(silos.start_all())
    folder = tmp_path / "bank-a"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    before = (folder / "identity.key").read_bytes()
    with pytest.raises(BadInput, match="a silo keeps its keys"):
        SiloFolder(folder).make_keys()
    assert (folder / "identity.key").read_bytes() == before


def test_a_changed_approval_is_refused(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1)
    kept = tmp_path / "bank-a" / "federation.toml"
    kept.write_bytes(kept.read_bytes() + b"\n")
    with pytest.raises(BadInput, match="is not the file that was approved"):
        silos.folder("bank-a").approved()


def test_a_stranger_and_a_changed_node_key_are_refused(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1)
    stranger = SiloFolder(tmp_path / "stranger")
    stranger.make_keys()
    with pytest.raises(BadInput, match="no silo of this federation has the identity"):
        stranger.approve(silos.approved)
    (tmp_path / "bank-a" / "node.key").write_bytes((tmp_path / "stranger" / "node.key").read_bytes())
    with pytest.raises(BadInput, match="has another node key for bank-a"):
        silos.folder("bank-a").approve(silos.approved)
    (tmp_path / "bank-a" / "identity.key").write_bytes(b"short")
    with pytest.raises(BadInput, match="is damaged"):
        silos.folder("bank-a").keys()


def test_a_silo_is_not_started_twice(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1)
    lock = silos.folder("bank-a").lock()
    typed = ["silo", "start", str(tmp_path / "bank-a"), "--data", silos.place("bank-a")]
    done = CliRunner().invoke(main, typed)
    lock.release()
    assert done.exit_code == 2 and "is running in" in done.stderr and done.stderr.count("\n") == 1


def other(**fields: Any) -> Data:
    return Data(**{**bank(1).to_dict(), **fields})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bank(1, features=5), "features is 5 at bank-a's data and 4 at the federation's file"),
        (bank(1, classes=4), "4 classes or answers, and the federation's file has"),
        (other(edge_weight=bank(1).edge_index[0].float()), "edge_weight is True at bank-a's data"),
        (other(class_names=["no", "yes"]), "names its classes"),
        ([bank(1)], "a list of graphs"),
    ],
)
def test_data_that_do_not_fit_the_file_are_refused(
    tmp_path: Path, data: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1)
    monkeypatch.setattr("secure_fedgraph.deployment.own_data.data_at", lambda *_: data)
    with pytest.raises(BadInput) as refused:
        own_part(terms_in(silos.approved), "bank-a", "anywhere")
    assert said in str(refused.value)


def test_certificates_that_cannot_serve_are_refused(tmp_path: Path) -> None:
    host = "bank.example"
    make_certificates(tmp_path / "old", host, days=-1)
    for name in ("one", "two"):
        make_certificates(tmp_path / name, host)
    (tmp_path / "garbage").write_bytes(b"garbage")
    certificate, key = tmp_path / "one" / CERTIFICATE, tmp_path / "one" / KEY
    check_certificate(certificate, key, host)
    for wrong, its_key, said in (
        (tmp_path / "old" / CERTIFICATE, tmp_path / "old" / KEY, "holds from .* check the clock"),
        (certificate, tmp_path / "two" / KEY, "is not the key of"),
        (tmp_path / "none", tmp_path / "none", "is missing"),
        (tmp_path / "garbage", key, "PEM"),
    ):
        with pytest.raises(BadInput, match=said):
            check_certificate(wrong, its_key, host)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("made_for", "asked", "fits"),
    [
        ("bank.example", "bank.example", True),
        ("bank.example", "BANK.example", True),
        ("*.example", "bank.example", True),
        ("*.example", "a.bank.example", False),
        ("bank.example", "shop.example", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "bank.example", False),
    ],
)
def test_a_certificate_is_for_the_host_of_the_file(
    tmp_path: Path, made_for: str, asked: str, fits: bool
) -> None:
    make_certificates(tmp_path, made_for)
    if fits:
        check_certificate(tmp_path / CERTIFICATE, tmp_path / KEY, asked)
        return
    with pytest.raises(BadInput, match=f"is for {re.escape(made_for)}, and silos reach"):
        check_certificate(tmp_path / CERTIFICATE, tmp_path / KEY, asked)


def test_data_that_cannot_be_read_are_named_by_the_option_that_was_typed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^--data: '.*nowhere' is no file$"):
        data_at("bank-a", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"^--data: 'a,b,c': give a folder"):
        data_at("bank-a", "a,b,c")


def test_two_silos_of_one_name_and_a_file_that_is_there_are_refused(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1)
    run = CliRunner()
    for place in ("x", "y"):
        done = run.invoke(
            main, ["silo", "keygen", str(tmp_path / place), "--name", "same", "--data", silos.place("bank-a")]
        )
        assert done.exit_code == 0, done.stderr
    cards = [str(tmp_path / place / "card.toml") for place in ("x", "y")]
    assert read_card(Path(cards[0])).features == 4
    asked = ["federation", "init", *cards, "--host", "127.0.0.1", "--out", str(tmp_path / "f.toml")]
    done = run.invoke(main, asked)
    assert done.exit_code == 2 and "two cards are called 'same'" in done.stderr
    done = run.invoke(main, [*asked[:3], *asked[4:-1], str(tmp_path / "federation.toml")])
    assert done.exit_code == 2 and "is there already" in done.stderr


def test_check_prints_what_would_leave_and_sends_nothing(tmp_path: Path) -> None:
    silos = federation_of(
        tmp_path,
        banks(3),
        algorithm="fedavg",
        policy="distributed_dp",
        rounds=3,
        epsilon=8.0,
        unit="client",
        training={"hidden": [4, 4]},
    )
    typed = [
        "silo",
        "check",
        str(tmp_path / "bank-a"),
        str(tmp_path / "federation.toml"),
        "--data",
        silos.place("bank-a"),
    ]
    done = CliRunner().invoke(main, [*typed, "--json"])

    said = json.loads(done.stdout)
    assert {row["channel"]: row["uploads"] for row in said["channels"]} == {"update": 3, "metrics": 3}
    assert set(terms_in(silos.approved).prepared.bound["update"].excess) <= {
        line.split(": ", 1)[-1] for line in said["released"]
    }
    result = silos.serve(silos.start_all())
    assert said["epsilon"]["client"]["server"] == result["privacy"]["client"]["readers"]["server"] <= 8
    shown = CliRunner().invoke(main, typed).stdout
    assert "distributed_dp" in shown and silos.approved.digest in shown
    # the next check counts what was spent
    again = json.loads(CliRunner().invoke(main, [*typed, "--json"]).stdout)
    assert again["epsilon"]["client"]["server"] > said["epsilon"]["client"]["server"]
    assert again["epsilon_of_this_run"] == said["epsilon_of_this_run"] == said["epsilon"]


def test_ledger_and_status_say_how_far_a_silo_came(tmp_path: Path) -> None:
    silos = federation_of(
        tmp_path,
        banks(3),
        algorithm="fedavg",
        policy="distributed_dp",
        rounds=2,
        epsilon=8.0,
        unit="client",
        training={"hidden": [4, 4]},
    )
    run, folder = CliRunner(), str(tmp_path / "bank-a")
    started = silos.start_all()
    assert not json.loads(run.invoke(main, ["silo", "status", folder, "--json"]).stdout)["over"]
    result = silos.serve(started)
    said = json.loads(run.invoke(main, ["silo", "ledger", folder, "--json"]).stdout)
    assert said["total"]["client"]["server"] == result["privacy"]["client"]["epsilon"]
    assert [row["uploads"] for row in said["runs"]] == [4]
    status = json.loads(run.invoke(main, ["silo", "status", folder, "--json"]).stdout)
    assert (status["name"], status["round"], status["uploads"], status["over"]) == ("bank-a", 2, 4, True)
    assert status["approved"] == silos.approved.digest and 0 <= status["own_tests"]["accuracy"] <= 1
