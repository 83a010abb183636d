"""Resume: a run that was interrupted anywhere ends as one that was not, and a checkpoint that is not this
run's, not whole or not of this version is refused and left as it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.glasu import at_home
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.storage.checkpoint import lock
from secure_fedgraph.storage.party_store import read_json, write_json

ROUNDS = 3


class Killed(Exception):
    """Stands for kill -9, at an instant that a test chooses."""


@pytest.fixture(scope="module", autouse=True)
def _foreseeable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small.foreseeable(patch)
        yield


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=90, features=16, seed=0)


def train(name: str, federation: sfg.Federation, policy: str = "masked", **more: Any) -> sfg.train:
    return sfg.train(
        small.algorithm(name), federation, getattr(sfg.policies, policy)(), **{"rounds": ROUNDS, **more}
    )


def killed_after(messages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run dies when that many asks have gone out and been answered, so in the middle of a round."""
    ask, count = Courier.ask, [0]

    def counted(self: Courier, *args: Any, **how: Any) -> Any:
        if count[0] == messages:
            raise Killed
        count[0] += 1
        return ask(self, *args, **how)

    monkeypatch.setattr(Courier, "ask", counted)


def interrupted(
    name: str, federation: sfg.Federation, out: Path, messages: int, policy: str = "masked", **more: Any
) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        killed_after(messages, patch)
        try:
            train(name, federation, policy, out=out, **more)
        except Killed:
            return True
    return False


def same(one: Any, other: Any) -> bool:
    return one.state.keys() == other.state.keys() and all(
        torch.equal(value, other.state[key]) for key, value in one.state.items()
    )


@pytest.mark.parametrize("policy", ["plaintext", "masked"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_killed_anywhere_and_resumed_is_the_same_run(
    name: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small.federation(name)
    if policy == "masked" and ALGORITHMS[name].pools:
        pytest.skip("a pooled baseline has one client, which masks refuse")
    if policy == "masked" and name in small.BY_UPDATE:
        pytest.skip("its values need every update, which masks refuse")
    # no two runs toss the same secret coins: here all fall on heads
    if name.startswith(("fedsgd", "fedsage-steps", "fedgcn-steps")):
        coins = "secure_fedgraph.core.protection.bound.secret_coins"
        monkeypatch.setattr(coins, lambda units, _: torch.arange(units))
    if name == "glasu-at-home":  # nor mixes columns alike
        monkeypatch.setattr(at_home, "os", SimpleNamespace(urandom=bytes))
    whole = train(name, federation, policy)
    for messages in (0, 3, 4, 11, 19):
        out = tmp_path / str(messages)
        if not interrupted(name, federation, out, messages, policy):
            break
        run = train(name, federation, policy, out=out, resume=True)
        assert same(run, whole), messages
        assert list(run.history) == list(whole.history)
        assert len(run.charges) >= len(whole.charges)


def test_a_run_killed_again_and_again(federation: sfg.Federation, tmp_path: Path) -> None:
    whole, kills = train("fedsage+", federation), 0
    more: dict[str, Any] = {}
    # set-up is two asks and a generator epoch seven, so ten asks get one round further each time
    while interrupted("fedsage+", federation, tmp_path, 10, **more):
        kills, more = kills + 1, {"resume": True}
    run = train("fedsage+", federation, out=tmp_path, resume=True)  # finished, and says so again
    assert kills >= 2
    assert same(run, whole)
    exchanges = [(s.recipient, s.exchange, s.digest) for s in run.transcript.sent if s.sender == "server"]
    assert len({(r, e) for r, e, _ in exchanges}) == len(exchanges)  # no number was used twice


def test_every_upload_that_was_sent_is_charged_the_interrupted_ones_too(
    federation: sfg.Federation, tmp_path: Path
) -> None:
    assert interrupted("fedsage+", federation, tmp_path, 9)
    run = train("fedsage+", federation, out=tmp_path, resume=True)
    charged = {(c.client, c.exchange, c.channel) for c in read_ledger(tmp_path / "ledger.jsonl")}
    sent = {
        (s.sender, s.exchange, s.channel)
        for s in run.transcript.sent
        if s.recipient == "server" and s.step == ANSWER and s.channel in ("generator", "feedback", "update")
    }
    assert sent <= charged
    assert len(charged) == len(run.charges)  # none of them twice: numbers went on
    assert len(sent) > len(train("fedsage+", federation).charges)  # the interrupted round was paid again
    assert Transcript.load(tmp_path / "transcript").sent == run.transcript.sent


def test_keys_are_fresh_and_none_is_kept(federation: sfg.Federation, tmp_path: Path) -> None:
    assert interrupted("fedavg", federation, tmp_path, 12)
    run = train("fedavg", federation, out=tmp_path, resume=True, keep=lambda channel, round: True)
    advertised = [s for s in run.transcript.sent if s.step == "advertise" and s.recipient == "server"]
    assert len(advertised) == 6 + 9  # keys of the run, twice, and fresh ones for each of three sums
    assert len({s.digest for s in advertised}) == 15
    everything = b"".join(p.read_bytes() for p in (tmp_path / "checkpoint").rglob("*") if p.is_file())
    for note in (s for s in advertised if s.kept):
        public = wire.decode(Message.from_bytes(run.transcript.body(note.number)).body)["public"]
        assert bytes(public) not in everything
    for word in (b"secret", b"agreement", b"identity", b"private"):
        assert word not in everything


def test_requests_from_before_the_kill_are_refused_after_it(
    federation: sfg.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interrupted("fedavg", federation, tmp_path, 2, "plaintext", keep=lambda channel, round: True)
    clients: list[Any] = []
    make_clients = sfg.Federation.make_clients
    monkeypatch.setattr(
        sfg.Federation, "make_clients", lambda self, *a: clients.extend(make_clients(self, *a)) or clients
    )
    run = train("fedavg", federation, "plaintext", out=tmp_path, resume=True)
    old = next(s for s in run.transcript.sent if s.channel == "update" and s.recipient == "owner-0")
    assert old.kept
    with pytest.raises(HostileMessage, match="was already answered"):
        clients[0].handle(run.transcript.body(old.number))


def test_checkpoints_every_few_rounds(federation: sfg.Federation, tmp_path: Path) -> None:
    whole = train("fedavg", federation, rounds=5)
    for every, kept in ((2, 4), (0, None)):
        out = tmp_path / str(every)
        # set-up 2, then per round the five asks of a masked sum: die in the fifth round
        assert interrupted("fedavg", federation, out, 22, rounds=5, checkpoint_every=every)
        if kept is None:
            with pytest.raises(BadInput, match="'run'"):
                train("fedavg", federation, rounds=5, out=out, resume=True)
            continue
        assert read_json(out / "checkpoint" / "checkpoint.json")["round"] == kept
        assert same(train("fedavg", federation, rounds=5, out=out, resume=True), whole)


def test_a_torn_ledger_counts_as_no_noise_and_is_charged_on(
    federation: sfg.Federation, tmp_path: Path
) -> None:
    dp = sfg.policies.local_dp(1.0, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        killed_after(2, patch)
        with pytest.raises(Killed):
            sfg.train(small.algorithm("fedavg"), federation, dp, rounds=ROUNDS, out=tmp_path)
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes() + path.read_bytes().split(b"\n")[0][:-9])  # killed while it wrote
    run = sfg.train(small.algorithm("fedavg"), federation, dp, rounds=ROUNDS, out=tmp_path, resume=True)
    assert run.privacy("client")["epsilon"] == "inf"
    assert (tmp_path / "ledger.torn").read_bytes().startswith(b'{"client"')
    assert len(read_ledger(path)) == len(run.charges)


@pytest.fixture
def stopped(federation: sfg.Federation, tmp_path: Path) -> Path:
    """A run that died in its second round, between the shares and the uploads of a sum."""
    assert interrupted("fedavg", federation, tmp_path / "run", 9)
    return tmp_path / "run"


def committed(run: Path, file: str) -> Path:
    """A file that a resume reads: shelves also hold the round before, until the next one is whole."""
    label = read_json(run / "checkpoint" / "checkpoint.json")["label"]
    if "/" not in file:
        return run / "checkpoint" / file
    (folder, *_) = sorted((run / "checkpoint").glob(file.rpartition("/")[0]))
    shelf = folder / f"{label}.json"
    parts = [part["file"] for part in read_json(shelf)["parts"].values()]
    return shelf if file.endswith(".json") else folder / parts[0]


def untouched(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def test_another_runs_checkpoint_is_refused(federation: sfg.Federation, stopped: Path) -> None:
    before = untouched(stopped)
    other = sfg.federate("synthetic-citation", clients=3, nodes=96, features=16, seed=0)
    wide = sfg.federate("synthetic-citation", clients=3, nodes=90, features=20, seed=0)
    for change, names in (
        ({"name": "fedprox"}, "its algorithm is fedavg"),
        ({"seed": 1}, "its seed is 0 and .* 1"),
        ({"rounds": 9}, "its rounds is 3"),
        ({"policy": "plaintext"}, "its policy is masked"),
        ({"federation": other}, r"its data\.digest is"),
        ({"federation": wide}, r"its data\.(digest|features) is"),
    ):
        asked = {"name": "fedavg", "federation": federation, "out": stopped, "resume": True, **change}
        with pytest.raises(BadInput, match=f"belongs to another run: {names}"):
            train(**asked)
    with pytest.raises(BadInput, match=r"its settings\.batch is 64 and this one's is 3"):
        sfg.train(sfg.FedAvg(hidden=(8, 8), batch=3), federation, rounds=3, out=stopped, resume=True)
    assert untouched(stopped) == before
    train("fedavg", federation, out=stopped, resume=True)


def test_an_older_checkpoint_is_refused(federation: sfg.Federation, stopped: Path) -> None:
    path = stopped / "checkpoint" / "checkpoint.json"
    kept = read_json(path)
    write_json(path, {**kept, "schema": "secure-fedgraph/checkpoint/0"})
    with pytest.raises(BadInput, match=r"checkpoint\.json.*'secure-fedgraph/checkpoint/0'"):
        train("fedavg", federation, out=stopped, resume=True)


@pytest.mark.parametrize("file", ["checkpoint.json", "exchange.json", "clients/*/*.json", "clients/*/*.part",
                                  "server/*.json", "server/*.part"])  # fmt: skip
@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_a_damaged_checkpoint_is_refused_and_nothing_is_lost(
    federation: sfg.Federation, stopped: Path, file: str, damage: str
) -> None:
    path = committed(stopped, file)
    raw = path.read_bytes()
    middle = len(raw) // 2
    path.write_bytes(
        {"cut": raw[:middle], "empty": b"", "flipped": raw[:-2] + bytes([raw[-2] ^ 1]) + raw[-1:]}[damage]
    )
    before = untouched(stopped)
    with pytest.raises(BadInput, match=f"{path.name} is damaged"):
        train("fedavg", federation, out=stopped, resume=True)
    assert untouched(stopped) == before
    path.write_bytes(raw)
    assert same(train("fedavg", federation, out=stopped, resume=True), train("fedavg", federation))


def test_a_folder_without_a_checkpoint(federation: sfg.Federation, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no checkpoint to resume from"):
        train("fedavg", federation, out=tmp_path, resume=True)
    with pytest.raises(BadInput, match="give out="):
        train("fedavg", federation, resume=True)


def test_one_process_at_a_time(federation: sfg.Federation, stopped: Path) -> None:
    held = lock(stopped / "checkpoint")
    try:
        with pytest.raises(BadInput, match="another process is at work in"):
            train("fedavg", federation, out=stopped, resume=True)
    finally:
        held.release()
    train("fedavg", federation, out=stopped, resume=True)


def test_a_client_without_its_memory_is_named(federation: sfg.Federation, stopped: Path) -> None:
    shutil.rmtree(stopped / "checkpoint" / "clients" / "owner-1")
    with pytest.raises(BadInput, match=r"owner-1/0000\d-\w+\.json is damaged \(it is missing\)"):
        train("fedavg", federation, out=stopped, resume=True)


def test_what_stands_in_the_files(stopped: Path) -> None:
    """No key and no counter of a key stream: the round, the scores, what the run is made of."""
    kept = read_json(stopped / "checkpoint" / "checkpoint.json")
    assert set(kept) == {"schema", "run", "label", "round", "seconds", "history", "ledger", "notes", "facts"}
    lists = list((stopped / "checkpoint" / "clients").glob(f"*/{kept['label']}.json"))
    assert len(lists) == 3
    assert all(set(read_json(path)["parts"]) == {"optimizer", "last round"} for path in lists)
    assert json.dumps(kept["facts"])
