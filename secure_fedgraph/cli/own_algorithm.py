"""Tries out a user's own algorithm: all that it reads and sends must go through its channels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from secure_fedgraph.algorithms.plugins import is_own
from secure_fedgraph.errors import BadInput, Refused
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import execute, weights
from secure_fedgraph.protocol import Transcript, wire
from secure_fedgraph.protocol.message import CARRIER, Message
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, everything

ROUNDS = 2
AGAIN = 3
"""How many more isolated runs must equal the first before a difference counts: coins may agree by chance."""
Answer = tuple[int, str, str]


def check_own(experiment: Experiment) -> None:
    """Runs a user's own algorithm for two rounds in one process and again with its clients in their own.

    Clients in processes of their own share nothing with each other or with the server. So an answer or a
    state that differs there was computed from something that came through no channel. One that differs in
    every run was drawn from the operating system, which is allowed. Algorithms of this package are not tried
    out.

    Raises:
        Refused: naming the channel and the client, or what else differs.
    """
    if not is_own(experiment.algorithm):
        return
    rounds = min(ROUNDS, experiment.rounds or ROUNDS)
    settled: dict[str, Any] = {
        "policy": "plaintext",
        "epsilon": None,
        "protection": {},
        "steps": {},
        "rounds": rounds,
    }
    short = experiment.model_copy(update={**settled, "ledger": None, "checkpoint_every": 0})
    together = _run(short, isolated=False)
    try:
        apart = _run(short, isolated=True)
    except BadInput:
        raise
    except Exception as error:
        raise Refused(
            f"algorithm {experiment.algorithm!r} breaks the protocol: it runs in one process and not with "
            f"its clients in processes of their own ({error}), so something in it reads past its channels"
        ) from None
    differs = _first_difference(together, apart)
    if differs and all(not _first_difference(apart, _run(short, isolated=True)) for _ in range(AGAIN)):
        raise Refused(
            f"algorithm {experiment.algorithm!r} breaks the protocol: with clients in processes of their own "
            f"{differs} is not the same, so it reads a peer or sends outside its channels; put all that an "
            "answer needs into client.graph, client.memory or what it is given"
        )


@dataclass(frozen=True)
class _Tried:
    answers: Mapping[Answer, bytes]
    weights: str | None


def _run(experiment: Experiment, isolated: bool) -> _Tried:
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        run = execute(experiment.model_copy(update={"isolated": isolated}), Path(folder), keep=everything)
        return _Tried(dict(_answers(run.transcript)), weights(run))


def _answers(transcript: Transcript) -> Iterator[tuple[Answer, bytes]]:
    """What clients answered, without what names the run."""
    for sent in transcript.sent:
        asked_by_referee = REFEREE in (sent.sender, sent.recipient)
        if sent.sender != SERVER and not asked_by_referee and not sent.channel.startswith(CARRIER):
            tree = Message.from_bytes(transcript.body(sent.number)).tree()
            yield (sent.exchange, sent.channel, sent.sender), wire.encode(tree)


def _first_difference(one: _Tried, other: _Tried) -> str:
    """What differs, in words; nothing where all is the same."""
    for answer in sorted(one.answers.keys() | other.answers.keys()):
        if one.answers.get(answer) != other.answers.get(answer):
            return f"{answer[2]}'s answer on channel {answer[1]!r}"
    return "" if one.weights == other.weights else "what the server's half makes of the answers"
