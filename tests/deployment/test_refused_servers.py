"""A server that names another file, run, round or label than its silos approved is refused by each of "
"them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from banks import Calls, Silos, banks, federation_of

from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.message import Message
from secure_fedgraph.deployment import silos as ways
from secure_fedgraph.deployment.charge_report import report_in, signed_report
from secure_fedgraph.deployment.federation_file import Approved, parsed
from secure_fedgraph.deployment.greeting import proof_of, session_in
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.silo_messages import (
    ASK,
    BEGIN,
    CHARGES,
    DONE,
    EXAM,
    FAILED,
    HELLO,
    SAVE,
    Letter,
)
from secure_fedgraph.deployment.terms import terms_in


@pytest.fixture
def silos(tmp_path: Path) -> Silos:
    return federation_of(
        tmp_path,
        banks(2),
        algorithm="fedavg",
        policy="plaintext",
        rounds=2,
        training={"hidden": [4, 4]},
        resumptions=2,
    )


def order(approved: Approved, **other: Any) -> Letter:
    said = {"digest": approved.digest, "run": approved.run, "after": -1, "label": "", **other}
    return Letter(BEGIN, wire.encode(said))


def refusal(letter: Letter) -> tuple[str, str]:
    assert letter.kind == FAILED
    said = wire.decode(letter.body)
    return said["class"], said["text"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('policy = "plaintext"', 'policy = "masked"'),
        ('algorithm = "fedavg"', 'algorithm = "fedsage"'),
        ("rounds = 2", "rounds = 3"),
        ('name = "bank-b"', 'name = "bank-x"'),
        ("port = 9092", "port = 9093"),
    ],
)
def test_a_server_of_another_file_is_refused_by_each_silo(silos: Silos, old: str, new: str) -> None:
    text = silos.approved.content.decode()
    assert old in text
    other = parsed(text.replace(old, new).encode(), "another")
    post = silos.start_all()
    for resident in silos.residents.values():
        for kind in (HELLO, BEGIN):
            said = wire.decode(order(other, nonce="00" * 32).body)
            letter = Letter(kind, wire.encode(said))
            answer = resident.hello(letter, 0) if kind == HELLO else resident.answer(letter)
            assert refusal(answer)[0] == "Refused" and other.digest[:16] in refusal(answer)[1]
    with pytest.raises(Refused, match="give every silo and the server the same file"):
        ways.Silos(post, other).gather(2, 0, 5)
    assert not any((silos.root / name / "runs").exists() for name in silos.data)  # nothing was begun


def test_a_byte_more_is_another_file(silos: Silos) -> None:
    other = parsed(silos.approved.content + b"\n", "another")
    resident = silos.start("bank-a")
    assert "bank-a approved the federation's file" in refusal(resident.answer(order(other)))[1]


def test_an_approval_is_for_one_run(silos: Silos) -> None:
    resident = silos.start("bank-a")
    assert wire.decode(resident.answer(order(silos.approved)).body)["session"] == resident.session
    again = silos.start("bank-a")  # another process knows it too
    kind, text = refusal(again.answer(order(silos.approved, run="f" * 16)))
    assert kind == "Refused" and f"one run, {silos.approved.run}" in text


def test_a_run_is_taken_up_again_as_often_as_the_file_says(silos: Silos) -> None:
    for _ in range(3):  # the first time, and two resumptions
        assert silos.start("bank-a").answer(order(silos.approved)).kind == "done"
    assert "begun 3 times" in refusal(silos.start("bank-a").answer(order(silos.approved)))[1]


def test_a_run_does_not_begin_anew_in_another_folder(silos: Silos) -> None:
    post = silos.start_all()
    silos.serve(post)
    begun = [silos.folder(name).times_begun(silos.approved) for name in silos.data]
    with pytest.raises(Refused, match=r"has answered exchange \d+ of this run.*--out of before"):
        silos.serve(post, out="elsewhere")
    assert begun == [silos.folder(name).times_begun(silos.approved) for name in silos.data]


def test_only_the_interrupted_round_is_answered_again(silos: Silos) -> None:
    post = silos.start_all()
    silos.serve(post)
    last = max(Message.from_bytes(letter.body).exchange for _, letter in post.letters if letter.kind == ASK)
    labels = [wire.decode(letter.body)["label"] for _, letter in post.letters if letter.kind == SAVE]
    later = {"after": last + 100}
    for label in ("", "99999-00000000"):  # the second one is not there, so the newest memory is
        answer = silos.start("bank-a").answer(order(silos.approved, label=label, **later))
        if label:
            assert wire.decode(answer.body)["label"] == max(labels)
        else:
            kind, text = refusal(answer)
            assert kind == "Refused" and "has answered round 2 of this run" in text


def test_data_that_do_not_fit_are_said_at_home_and_not_to_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = federation_of(
        tmp_path,
        banks(2),
        algorithm="graphfl",
        policy="plaintext",
        rounds=2,
        training={"hidden": [4], "fanout": [2], "support": 200, "query": 8},
        allow_plaintext=True,
    )
    with pytest.raises(BadInput, match=r"\d+ training nodes"):
        few.start("bank-a")
    terms = terms_in(few.folder("bank-a").approved())
    graph = few.data["bank-a"].clone()
    graph.train_mask = torch.ones(graph.num_nodes, dtype=torch.bool)  # changed since the silo was started
    resident = Resident(few.folder("bank-a"), few.folder("bank-a").keys(), terms, graph)
    kind, text = refusal(resident.answer(order(few.approved)))
    assert kind == "Refused" and not set(text) & set("0123456789") and "60 training nodes" in caplog.text


def test_nothing_is_answered_before_a_run_is_begun(silos: Silos) -> None:
    resident = silos.start("bank-a")
    for kind in (ASK, SAVE, CHARGES):
        assert "has begun no run" in refusal(resident.answer(Letter(kind, wire.encode({}))))[1]


def test_a_round_beyond_the_last_is_refused(silos: Silos) -> None:
    resident = silos.start("bank-a")
    resident.answer(order(silos.approved))
    names = ("bank-a", "bank-b")
    request = Message(
        silos.approved.run, 3, 5, "update", "answer", "server", "bank-a", names, wire.encode({}), b""
    )
    kind, text = refusal(resident.answer(Letter(ASK, request.to_bytes())))
    assert kind == "HostileMessage" and "asked for round 3, and this run has 2" in text


@pytest.mark.parametrize("label", ["../../etc", "00001-0000000g", "x" * 100])
def test_labels_are_no_paths(silos: Silos, label: str) -> None:
    resident = silos.start("bank-a")
    resident.answer(order(silos.approved))
    letter = Letter(SAVE, wire.encode({"label": label, "committed": ""}))
    assert "no label of a round" in refusal(resident.answer(letter))[1]


def test_labels_of_data_are_given_to_a_referee_of_columns_alone(silos: Silos) -> None:
    resident = silos.start("bank-a")
    assert "no referee" in refusal(resident.answer(Letter(EXAM, wire.encode({}))))[1]


@pytest.mark.parametrize("body", [b"", b"\x00" * 40, wire.encode({"digest": 1}), wire.encode({})])
def test_garbage_is_refused_and_the_silo_goes_on(silos: Silos, body: bytes) -> None:
    resident = silos.start("bank-a")
    for kind in (BEGIN, ASK, SAVE, CHARGES, EXAM, "other"):
        assert resident.answer(Letter(kind, body)).kind == FAILED
    assert resident.hello(Letter(HELLO, body), 0).kind == FAILED
    assert resident.answer(order(silos.approved)).kind == "done"


def test_a_greeting_is_signed_by_the_rosters_key_for_this_connection(silos: Silos) -> None:
    post = silos.start_all()
    way = ways.Silos(post, silos.approved)
    assert way.gather(2, 0, 5) == ("bank-a", "bank-b")
    resident = silos.residents["bank-b"]
    # a member that answers under another's name, and a greeting that was signed for another connection
    stranger = Identity.generate()
    resident._keys = replace(resident._keys, identity=stranger)
    with pytest.raises(Refused, match="signature"):
        ways.Silos(post, silos.approved).gather(2, 0, 5)
    proof = proof_of("d", 1, b"n" * 32, "s", "bank-a")
    assert (
        len({proof, proof_of("d", 2, b"n" * 32, "s", "bank-a"), proof_of("d", 1, b"n" * 32, "t", "bank-a")})
        == 3
    )


def test_an_answer_to_a_greeting_shows_one_silo_for_one_question(silos: Silos) -> None:
    silos.start_all()
    nonce, approved = b"n" * 32, silos.approved

    def answer(name: str, asked: bytes = nonce, node: int = 7) -> Letter:
        said = wire.encode({"nonce": asked.hex(), "digest": approved.digest})
        return silos.residents[name].hello(Letter(HELLO, said), node)

    shown = session_in(answer("bank-a"), 7, nonce, approved, "bank-a")
    assert shown == silos.residents["bank-a"].session
    honest = wire.decode(answer("bank-a").body)
    another = {**wire.decode(answer("bank-b").body), "name": "bank-a"}
    lies = [honest | {"signature": one} for one in ("00" * 64, "no hex", 1)]
    lies += [another, honest | {"name": "bank-b"}, honest | {"session": "other"}, {"name": "bank-a"}]
    bodies = [wire.encode(lie) for lie in lies] + [b"", b"garbage"]
    replayed = [answer("bank-a", b"m" * 32), answer("bank-a", node=8), answer("bank-b")]
    for letter in [Letter(DONE, body) for body in bodies] + replayed:
        with pytest.raises(HostileMessage):
            session_in(letter, 7, nonce, approved, "bank-a")


def test_a_report_of_charges_is_the_silos_own(silos: Silos, tmp_path: Path) -> None:
    silos.serve(silos.start_all())
    path = next((silos.root / "bank-a" / "runs").glob("*/ledger.jsonl"))
    keys, run, digest = silos.folder("bank-a").keys(), silos.approved.run, silos.approved.digest
    body = signed_report(keys.identity, digest, run, "bank-a", path)
    report = report_in(body, keys.identity.public, digest, run, "bank-a")
    assert len(report.charges) == len(path.read_text().splitlines()) > 0
    assert not any(charge.data for charge in report.charges)  # what recognises the data stays
    for changed, where in (
        (body[:-1], (digest, run, "bank-a")),
        (body, ("0" * 64, run, "bank-a")),
        (body, (digest, "other", "bank-a")),
        (body, (digest, run, "bank-b")),
        (b"", (digest, run, "bank-a")),
    ):
        with pytest.raises(HostileMessage):
            report_in(changed, keys.identity.public, *where)


def test_a_silo_without_a_report_counts_as_charged_without_noise(tmp_path: Path) -> None:
    silos = federation_of(
        tmp_path, banks(3), algorithm="fedavg", policy="masked", rounds=1, training={"hidden": [4, 4]}
    )
    said: list[str] = []

    def lying(silo: str, letter: Letter) -> None:
        if letter.kind == CHARGES and silo == "bank-b":
            resident = silos.residents[silo]
            resident._keys = replace(resident._keys, identity=Identity.generate())

    silos.start_all()
    result = silos.serve(Calls(silos, lying), events=said)
    assert result["privacy"]["client"]["epsilon"] == "inf"
    assert any("bank-b gave no report" in line for line in said)
    assert sorted(path.stem for path in (tmp_path / "out" / "charges").iterdir()) == ["bank-a", "bank-c"]


def test_an_unexpected_error_stays_at_home(
    silos: Silos, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resident = silos.start("bank-a")
    resident.answer(order(silos.approved))

    def failing(self: object, raw: bytes) -> bytes:
        raise RuntimeError("row 17 has label secret")

    monkeypatch.setattr("secure_fedgraph.client.Client.handle", failing)
    names = ("bank-a", "bank-b")
    request = Message(
        silos.approved.run, 1, 5, "update", "answer", "server", "bank-a", names, wire.encode({}), b""
    )
    with caplog.at_level(logging.DEBUG):
        answer = resident.answer(Letter(ASK, request.to_bytes()))
    assert refusal(answer) == ("RuntimeError", "")
    assert "secret" not in caplog.text and "RuntimeError" in caplog.text
