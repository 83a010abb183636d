"""The record, and the views that are cut from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parties import Toy, session, vectors

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.message import Message
from secure_fedgraph.policies import local_dp, masked, plaintext
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import everything, nothing, readable


def message(
    number: int = 1, sender: str = "server", recipient: str = "a", channel: str = "update"
) -> Message:
    return Message("r", 1, number, channel, "answer", sender, recipient, ("a",), wire.encode({"w": 1.5}))


def filled(transcript: Transcript) -> Transcript:
    for m in (
        message(1),
        message(1, "a", "server"),
        message(2, recipient="b"),
        message(2, "b", "server"),
        message(3, "referee", "a", "exam"),
        message(3, "a", "referee", "exam"),
    ):
        transcript.record(m, m.to_bytes())
    transcript.record_opened("server", 1, 1, message(1).channel, ("a", "b"), {"w": np.array([3.0])})
    transcript.record_opened("referee", 1, 3, "exam", ("a",), {"w": np.array([4.0])})
    return transcript


def test_what_a_party_saw():
    transcript = filled(Transcript())
    assert [(s.sender, s.recipient) for s in transcript.view("a").sent] == [("server", "a"), ("a", "server")]
    assert len(transcript.view("server").sent) == 4
    assert len(transcript.view("a", "b").sent) == 4
    assert transcript.view("a").opened == ()
    assert [o.contributors for o in transcript.view("server").opened] == [("a", "b")]
    assert transcript.view("c").sent == ()
    assert repr(transcript.view("a", "server")) == "View(a, server: 4 messages, 1 opened)"


def test_the_referees_traffic_is_counted_and_in_nobodys_view():
    transcript = filled(Transcript())
    size = len(message().to_bytes())
    referee = len(message(3, "referee", "a", "exam").to_bytes()) * 2
    assert transcript.traffic() == {"up": 2 * size, "down": 2 * size, "evaluation": referee}
    for parties in (("server",), ("a",), ("a", "b", "server")):
        view = transcript.view(*parties)
        assert not any("referee" in (s.sender, s.recipient) for s in view.sent)
        assert not any(o.reader == "referee" for o in view.opened)


def test_only_what_was_asked_for_is_kept():
    transcript = filled(Transcript(keep=lambda channel, round: channel == "exam"))
    assert [s.kept for s in transcript.sent] == [False] * 4 + [True] * 2
    assert transcript.body(4) == message(3, "referee", "a", "exam").to_bytes()
    with pytest.raises(KeyError):
        transcript.body(0)
    assert nothing("a", 1) is False
    assert everything("a", 1) is True


def test_a_folder_holds_the_bodies_and_is_read_again(tmp_path):
    folder = tmp_path / "deep" / "transcript"
    transcript = filled(Transcript(folder, everything, {"policy": "x"}))
    assert transcript._bodies == {}
    assert len(list(folder.glob("*.sfg"))) == 8
    transcript.close()
    again = Transcript.load(folder)
    assert again.sent == transcript.sent
    assert again.opened == transcript.opened
    assert again.public == {"policy": "x"}
    assert again.body(0) == message(1).to_bytes()
    assert again.view("server").sums("update")[0].values["w"].tolist() == [3.0]


def test_a_body_that_a_killed_process_had_not_noted_is_removed_as_the_run_goes_on(tmp_path):
    """Otherwise a later message that is not kept would take its number, and the record read as damaged."""
    folder = tmp_path / "transcript"
    noted = len(filled(Transcript(folder, everything)).sent)
    (folder / f"{noted + 5:06d}.sfg").write_bytes(b"half")
    again = Transcript(folder, nothing, go_on=True)
    again.close()
    assert len(Transcript.load(folder).sent) == noted
    assert len(list(folder.glob("*.sfg"))) == 8


def test_no_folder():
    with pytest.raises(BadInput, match="no transcript in /nowhere: run again with"):
        Transcript.load(Path("/nowhere"))


def test_a_view_reads_plaintext_uploads_and_no_masked_ones():
    seen = session(plaintext()).set_up()
    seen.round().reduce(Toy.UPDATE, {"times": 1.0})
    view = seen.transcript.view("server")
    found = {u.clients[0]: u.values["w"] for u in view.uploads("update")}
    assert {n: v.tolist() for n, v in found.items()} == {n: v.tolist() for n, v in vectors(seen).items()}
    assert [a.clients for a in view.asked("update")] == [(n,) for n in seen.clients]
    assert view.asked("update")[0].values["times"] == 1.0
    assert view.sums("update")[0].clients == tuple(seen.clients)
    own = seen.transcript.view("owner-1").uploads("update")
    assert [u.clients for u in own] == [("owner-1",)]

    hidden = session(masked()).set_up()
    hidden.round().reduce(Toy.UPDATE)
    view = hidden.transcript.view("server")
    assert view.uploads("update") == []
    assert len(view.sums("update")) == 1
    assert view.why_unreadable("update") == "every upload of channel 'update' is masked under policy masked"


def test_why_unreadable():
    made = session(local_dp(1.0, 1.0)).set_up()
    view = made.transcript.view("server")
    assert view.why_unreadable("egos") == "the algorithm has no channel 'egos'"
    assert view.why_unreadable("update") == "no upload of channel 'update' was kept in full in this view"


def test_readable_scales_grid_numbers():
    reply = {"domain": "ring", "layout": "1\nw:2", "grid": 0.25, "data": np.array([4, -1])}
    assert readable(reply, Unit.CLIENT)["w"].tolist() == [1.0, -0.25]
    assert readable({**reply, "domain": "masked"}, Unit.CLIENT) is None
    assert readable({}, Unit.CLIENT) is None
    with pytest.raises(HostileMessage):
        readable({**reply, "data": np.array([1.0, np.nan])}, Unit.CLIENT)
