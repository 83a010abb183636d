"""A finished run as conformance reads it, and what a check has to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.core.wire import Tree
from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, Sent
from secure_fedgraph.running.run import Run

LEVEL = 1e-6
"""The probability that chance alone makes a right run fail, over all statistical checks together."""
MOST = 20_000_000
"""Bytes of each channel that are read; what a channel sends later is counted and not opened."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it was promised.

    Args:
        check: the name of the check.
        where: a channel, a client or a party.
        what: a sentence with the figures.
    """

    check: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.where}: {self.what}"


@dataclass
class Record:
    """A finished run, decoded once for all checks.

    Args:
        run: with its transcript kept in full.
        level: for all statistical tests together.
        most: bytes of each channel that are read, beyond its first message.
        result: of a run that was read from disk, as its file has it.

    Raises:
        BadInput: for a transcript that kept no upload.
    """

    run: Run
    level: float = LEVEL
    most: int = MOST
    result: RunResult | None = field(default=None, repr=False)
    replies: list[tuple[Sent, Tree]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        transcript = self.run.transcript
        kept = [s for s in transcript.sent if s.kept and REFEREE not in (s.sender, s.recipient)]
        if transcript.sent and not kept:
            raise BadInput("the run kept no message: conformance needs keep=everything (transcript=full)")
        self.replies, read = [], Counter[str]()
        for sent in kept:
            if sent.step == ANSWER and sent.sender != SERVER and not sent.channel.startswith(CARRIER):
                if not read[sent.channel] or read[sent.channel] + sent.bytes <= self.most:
                    tree = Message.from_bytes(transcript.body(sent.number)).tree()
                    self.replies.append((sent, tree))
                read[sent.channel] += sent.bytes

    @property
    def bounds(self) -> dict[str, Bound]:
        """Channel -> its protection, without those that go to the referee."""
        return {n: b for n, b in self.run.policy.bounds.items() if b.channel.to != REFEREE}

    @cached_property
    def each(self) -> float:
        """The level of one test: at most three are made of each reply and of each value that was opened."""
        return self.level / max(3 * (len(self.replies) + len(self.run.transcript.opened)), 1)

    def charged(self) -> Iterator[Charge]:
        """What this run charged for uploads."""
        return (c for c in self.run.charges if c.channel in self.run.policy.bounds)


def norm_of(bound: Bound) -> float:
    """The length that a protection clips to; 1 without a clip."""
    return next((float(stage.norm) for stage in bound.stages if isinstance(stage, Clip)), 1.0)


def noise_of(bound: Bound | None) -> Gaussian | None:
    """A protection's noise, where it has some."""
    return next((s for s in bound.stages if isinstance(s, Gaussian)), None) if bound is not None else None
