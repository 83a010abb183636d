"""A silo that aligns: how many alignments it begins, and what it answers when something goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from aligning import numbered
from banks import Silos, federation_of
from torch_geometric.data import Data

import secure_fedgraph.deployment.aligning as aligning_module
from secure_fedgraph.core import wire
from secure_fedgraph.deployment.aligning import (
    END,
    MOST_ALIGNMENTS,
    Aligner,
    packed,
    terms_of_alignment,
    unpacked,
)
from secure_fedgraph.deployment.alignment import Hub, relay
from secure_fedgraph.deployment.alignment import Letter as AlignmentLetter
from secure_fedgraph.deployment.silo_messages import ALIGN, DONE, FAILED, Letter

ROWS = numbered(3, 77, 130, 199)


@pytest.fixture
def silos(tmp_path: Path) -> Silos:
    links, y = torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 1, 0, 1])
    data = {
        "a-bank": Data(x=torch.ones(4, 2), y=y, edge_index=links, id=ROWS),
        "shop": Data(x=torch.ones(4, 2), edge_index=links, id=ROWS),
    }
    options = {"algorithm": "glasu-one-label-holder", "policy": "plaintext", "rounds": 2}
    return federation_of(tmp_path, dict(data), rows="id", **options)


def process(silos: Silos, name: str = "shop") -> Aligner:
    folder = silos.folder(name)
    return Aligner(folder, folder.keys(), silos.approved, ROWS)


def ask(silo: Aligner, alignment: str, letters: list[AlignmentLetter], **more: wire.Value) -> Letter:
    return silo.answer(Letter(ALIGN, wire.encode({"alignment": alignment, **packed(letters), **more})))


def failed(answer: Letter) -> wire.Tree:
    assert answer.kind == FAILED
    return wire.decode(answer.body)


def guessed(silos: Silos, silo: Aligner, alignment: str, guesses: list[str]) -> list[str]:
    """What a hub that plays together with the server learns from one alignment."""
    keys = silos.folder("a-bank").keys()
    hub = Hub(terms_of_alignment(silos.approved, alignment), keys.identity, guesses)
    begun = ask(silo, alignment, [])
    if begun.kind == FAILED:
        return []
    offer = hub.start()
    ask(silo, alignment, offer)
    (request,) = [hub.receive(one) for one in unpacked(wire.decode(begun.body))]
    (answer,) = unpacked(wire.decode(ask(silo, alignment, request).body))
    hub.receive(answer)
    return [guesses[place] for place in hub._ordered]


def test_a_hub_and_the_server_guess_in_so_many_alignments_and_no_more(silos: Silos) -> None:
    silo, learned = process(silos), []
    for number in range(MOST_ALIGNMENTS + 1):
        names = numbered(*range(50 * number, 50 * number + 50))
        learned += guessed(silos, silo, f"guess-{number}", names)
    assert learned == ROWS[:-1]  # the last is in the list that was refused
    assert failed(ask(silo, "guess", []))["class"] == "Refused"


def test_a_process_that_is_started_again_goes_on_counting(silos: Silos) -> None:
    kinds = [ask(process(silos), "again", []).kind for _ in range(MOST_ALIGNMENTS + 1)]
    assert kinds == [DONE] * MOST_ALIGNMENTS + [FAILED]


def test_nothing_is_answered_where_the_count_cannot_be_kept(
    silos: Silos, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    silo = process(silos)
    with monkeypatch.context() as patch:
        patch.setattr("secure_fedgraph.core.files.write", full)
        assert failed(ask(silo, "one", []))["class"] == "SecureFedGraphError"
    (offer,) = Hub(
        terms_of_alignment(silos.approved, "one"), silos.folder("a-bank").keys().identity, ROWS
    ).start()
    assert failed(ask(silo, "one", [offer]))["class"] == "HostileMessage"  # it has not begun


def test_an_end_that_is_no_number_is_refused(silos: Silos) -> None:
    answer = ask(process(silos), "one", [], **{END: np.zeros(3)})
    assert failed(answer)["class"] == "HostileMessage"


def test_of_an_unexpected_error_only_its_class_leaves(silos: Silos, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tree: wire.Tree) -> list[AlignmentLetter]:
        raise ValueError("customer-00003")

    monkeypatch.setattr(aligning_module, "unpacked", broken)
    assert failed(ask(process(silos), "one", [])) == {"class": "ValueError", "text": ""}


def test_a_result_that_cannot_be_kept_is_not_called_aligned_and_may_be_ended_again(
    silos: Silos, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {name: process(silos, name) for name in ("a-bank", "shop")}

    def exchange(
        letters: Mapping[str, Sequence[AlignmentLetter]],
    ) -> dict[str, list[AlignmentLetter]]:
        answers = {name: ask(owners[name], "one", [*some]) for name, some in letters.items()}
        return {name: unpacked(wire.decode(answer.body)) for name, answer in answers.items()}

    relay(("a-bank", "shop"), exchange)

    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(aligning_module, "keep_alignment", full)
        assert "No space left on device" in str(failed(ask(owners["shop"], "one", [], **{END: 1}))["text"])
    assert owners["shop"].aligned is None and not owners["shop"].ended
    assert ask(owners["shop"], "one", [], **{END: 1}).kind == DONE
