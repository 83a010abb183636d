"""A silo, the server or the way ends at any instant: the run ends right, and no ledger is below what was "
"sent."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from banks import Calls, Killed, Silos, banks, federation_of

import secure_fedgraph as sfg
from secure_fedgraph.core import wire
from secure_fedgraph.core.message import CARRIER, Message
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.deployment.silo_messages import ASK, BEGIN, DONE, SAVE, Letter
from secure_fedgraph.experiment.results import weights
from secure_fedgraph.protocol.transport import Lost

HIDDEN = {"hidden": [4, 4]}


class Restarting(Calls):
    """A way on which one silo's process ends at its n-th letter, before or after it computed the answer.

    It is started again at the next greeting of the server.
    """

    def __init__(self, silos: Silos, victim: str, at: int, computed: bool) -> None:
        super().__init__(silos, self._seen)
        self.victim, self.at, self.computed = victim, at, computed
        self.count = 0
        self.sent: dict[str, int] = {}

    def _seen(self, silo: str, letter: Letter) -> None:
        if silo == self.victim:
            self.count += 1
            if self.count == self.at and not self.computed:
                raise Killed

    def after(self, silo: str, letter: Letter) -> None:
        if silo == self.victim and self.count == self.at and self.computed:
            raise Killed

    def send(self, letters):  # type: ignore[no-untyped-def]
        for name, letter in letters.items():
            if letter.kind == "hello" and name not in self.silos.residents:
                self.silos.start(name)
        tickets = super().send(letters)
        for name, ticket in tickets.items():
            answer, letter = self._answers.get(ticket), letters[name]
            if answer is not None and answer.kind == DONE and letter.kind == ASK:
                self._note(name, Message.from_bytes(letter.body))
        return tickets

    def _note(self, name: str, request: Message) -> None:
        if request.step == "answer" and not request.channel.startswith(CARRIER):
            self.sent[name] = self.sent.get(name, 0) + 1


def check_ledgers(silos: Silos, post: Restarting) -> None:
    for name, uploads in post.sent.items():
        (path,) = silos.folder(name).ledgers().values()
        assert len(read_ledger(path)) >= uploads


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("at", sorted(random.Random(19).sample(range(1, 13), 3)))
def test_a_silo_in_plaintext_is_waited_for_and_the_weights_are_the_same(
    tmp_path: Path, at: int, computed: bool
) -> None:
    data = banks(2)
    silos = federation_of(tmp_path, data, algorithm="fedavg", policy="plaintext", rounds=3, training=HIDDEN)
    silos.start_all()
    post = Restarting(silos, "bank-b", at, computed)
    result = silos.serve(post)
    run = sfg.train(sfg.algorithms.ALGORITHMS["fedavg"](**HIDDEN), sfg.federate(data), "plaintext", rounds=3)
    assert result["weights"] == weights(run)
    assert [row["round"] for row in result["rounds"]] == [1, 2, 3]
    check_ledgers(silos, post)


@pytest.mark.parametrize("at", sorted(random.Random(20).sample(range(4, 45), 6)))
def test_masked_sums_go_on_without_a_silo_and_it_takes_part_again(tmp_path: Path, at: int) -> None:
    silos = federation_of(tmp_path, banks(4), algorithm="fedavg", policy="masked", rounds=4, training=HIDDEN)
    silos.start_all()
    post = Restarting(silos, "bank-b", at, computed=bool(at % 2))
    said: list[str] = []
    result = silos.serve(post, events=said)
    assert [row["round"] for row in result["rounds"]] == [1, 2, 3, 4]
    check_ledgers(silos, post)
    rounds = [
        Message.from_bytes(letter.body).round
        for name, letter in post.letters
        if letter.kind == ASK and name == "bank-b"
    ]
    assert max(rounds) == 4, said  # it is asked again once it is back


def test_a_silo_that_stays_away_is_named_and_the_run_can_be_taken_up_again(tmp_path: Path) -> None:
    data = banks(2)
    silos = federation_of(tmp_path, data, algorithm="fedavg", policy="plaintext", rounds=2, training=HIDDEN)
    silos.start_all()

    def gone(silo: str, letter: Letter) -> None:
        if silo == "bank-b" and letter.kind == ASK and Message.from_bytes(letter.body).round == 2:
            raise Killed

    said: list[str] = []
    with pytest.raises(Lost, match="bank-b did not come within 1 s"):
        silos.serve(Calls(silos, gone), wait=1.0, events=said)
    assert (
        "bank-b is away (did not take the question): 'secure-fedgraph silo start' there brings it back"
        in said
    )
    assert not (tmp_path / "out" / "result.json").exists()
    result = silos.serve(silos.start_all())
    run = sfg.train(sfg.algorithms.ALGORITHMS["fedavg"](**HIDDEN), sfg.federate(data), "plaintext", rounds=2)
    assert result["weights"] == weights(run)


class Cut(Exception):
    """Where a test ends the server."""


@pytest.mark.parametrize(
    ("kind", "number"), [(BEGIN, 1), (BEGIN, 2), (SAVE, 1), (SAVE, 2), (SAVE, 5), (ASK, 1), (ASK, 4)]
)
def test_a_killed_server_goes_on_where_it_was(tmp_path: Path, kind: str, number: int) -> None:
    data = banks(2)
    silos = federation_of(tmp_path, data, algorithm="fedavg", policy="plaintext", rounds=3, training=HIDDEN)
    silos.start_all()
    count = 0

    def cut(silo: str, letter: Letter) -> None:
        nonlocal count
        count += letter.kind == kind
        if count == number:
            raise Cut

    with pytest.raises(Cut):
        silos.serve(Calls(silos, cut))
    result = silos.serve(Calls(silos))  # the silos' processes are the same
    run = sfg.train(sfg.algorithms.ALGORITHMS["fedavg"](**HIDDEN), sfg.federate(data), "plaintext", rounds=3)
    assert result["weights"] == weights(run)


def test_a_broken_way_loses_letters_and_nothing_else(tmp_path: Path) -> None:
    data = banks(2)
    silos = federation_of(tmp_path, data, algorithm="fedavg", policy="plaintext", rounds=3, training=HIDDEN)

    class Breaking(Calls):
        left = 9

        def collect(self, tickets):  # type: ignore[no-untyped-def]
            self.left -= 1
            if self.left in (0, -4):
                self._answers.clear()
                raise ConnectionError("the SuperLink ended")
            return super().collect(tickets)

    silos.start_all()
    result = silos.serve(Breaking(silos))
    run = sfg.train(sfg.algorithms.ALGORITHMS["fedavg"](**HIDDEN), sfg.federate(data), "plaintext", rounds=3)
    assert result["weights"] == weights(run)


def test_a_late_silo_takes_part_from_the_next_round_on(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(4), algorithm="fedavg", policy="masked", rounds=4, training=HIDDEN)
    silos.start_all()
    silos.residents.pop("bank-d")
    post = Calls(silos)

    def start(row: dict[str, object]) -> None:
        if row["round"] == 2:
            silos.start("bank-d")

    silos.serve(post, start_with=3, on_round=start)
    asked = {
        Message.from_bytes(letter.body).round
        for name, letter in post.letters
        if name == "bank-d" and letter.kind == ASK
    }
    assert asked - {0} == {3, 4}


def test_a_full_disk_at_a_silo_is_named_and_charges_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = federation_of(
        tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=2, training=HIDDEN
    )
    from secure_fedgraph.core import files

    append, full = files.AppendedFile.append, True

    def refusing(file: files.AppendedFile, content: bytes, **given: bool) -> None:
        if full and "bank-b" in str(file.path) and b'"round": 2' in content:
            raise OSError(28, "No space left on device")
        append(file, content, **given)

    monkeypatch.setattr(files.AppendedFile, "append", refusing)
    with pytest.raises(sfg.errors.SecureFedGraphError, match="bank-b cannot write to its own folder"):
        silos.serve(silos.start_all())
    full = False
    silos.serve(silos.start_all())
    (path,) = silos.folder("bank-b").ledgers().values()
    rounds = [(one.round, one.channel) for one in read_ledger(path)]
    assert len(rounds) == len(set(rounds))


def test_a_folder_belongs_to_one_federation(tmp_path: Path) -> None:
    silos = federation_of(
        tmp_path, banks(2), algorithm="fedavg", policy="plaintext", rounds=1, training=HIDDEN
    )
    silos.serve(silos.start_all())
    with pytest.raises(sfg.errors.BadInput, match="is finished"):
        silos.serve(silos.start_all())
    other = federation_of(
        tmp_path / "other", banks(2), algorithm="fedavg", policy="plaintext", rounds=1, training=HIDDEN
    )
    other.root = tmp_path
    with pytest.raises(sfg.errors.BadInput, match="another federation's file"):
        other.serve(Calls(other))


def test_the_memory_of_a_silo_that_missed_a_label_is_its_newest(tmp_path: Path) -> None:
    silos = federation_of(tmp_path, banks(2), algorithm="apflgate", policy="plaintext", rounds=1)
    resident = silos.start("bank-a")
    said = {"digest": silos.approved.digest, "run": silos.approved.run, "after": -1, "label": ""}
    assert resident.answer(Letter(BEGIN, wire.encode(said))).kind == DONE
    kept = Letter(SAVE, wire.encode({"label": "00001-aaaaaaaa", "committed": ""}))
    assert resident.answer(kept).kind == DONE
    again = silos.start("bank-a")
    answer = again.answer(Letter(BEGIN, wire.encode({**said, "label": "00005-bbbbbbbb"})))
    assert wire.decode(answer.body)["label"] == "00001-aaaaaaaa"
