"""The base of attacks: they read a view and what they were granted, and guess. Audits hold the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from secure_fedgraph.core.errors import BadInput, SecureFedGraphError, check_number
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER as SERVER
from secure_fedgraph.protocol.transcript import Seen

CLIENT, COALITION, OUTSIDER = "client", "coalition", "outsider"
LAST = "last client"
ALL = "all owners together"
FEATURES = "node features"
"""What a guess made of recovered rows is about: the judge of that name compares them with nodes."""


class Blind(SecureFedGraphError):
    """The view holds nothing that this attack could read. That is not the same as guessing badly."""


@dataclass(frozen=True)
class Knowledge:
    """What the threat model grants an attacker beyond its view, spelled out and printed.

    Args:
        granted: one sentence for each thing granted.
        facts: the things.
    """

    granted: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Guess:
    """What an attack says about private data: never a metric.

    Args:
        about: what is guessed; the judge of that name scores it.
        values: for each target an array: scores or a reconstruction.
        targets: for each target the owners that it is about: one, or several where only their union shows.
        messages: how many messages were read.
        stopped: for each target whose search was stopped early, the processor seconds that it had run. The
            score of such a target is a lower bound.
    """

    about: str
    values: Mapping[str, np.ndarray] = field(repr=False)
    targets: Mapping[str, tuple[str, ...]]
    messages: int
    stopped: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_owners(cls, about: str, values: Mapping[str, np.ndarray], messages: int) -> Guess:
        """A guess whose targets are one owner each."""
        return cls(about, values, {name: (name,) for name in values}, messages)


@dataclass(frozen=True)
class Control:
    """Further settings under which an attack is run, to show how far it reaches.

    Args:
        name: what a table calls it.
        settings: dotted keys, as ``--set`` has them.
    """

    name: str
    settings: Mapping[str, Any]


Judge = Callable[[Guess, Any], Any]
"""Compares a guess with an ``audits.finished_run.FinishedRun``: the run and the truth about it.

It returns a ``secure_fedgraph.audits.judgement.Judgement``. No attack imports either, as none may see the
truth.
"""
Maker = Callable[[Any], Any]
"""Makes one fact that an attack is granted, from the same finished run."""


class Attack(ABC):
    """One way to learn something private from what was sent.

    An attack has two aims: :meth:`run` attacks single owners, :meth:`residual` what remains when a defence
    hides the single uploads.

    Class attributes name the adversaries, the channels read and what is granted; ``list attacks`` prints
    them.

    Args:
        effort: processor seconds that one search may take; None for the attack's own limits. An attack that
            does not search ignores it.

    Raises:
        BadInput: for an effort that is not a positive number of seconds.
    """

    id: ClassVar[str]
    """Its name on the command line and in results; what stands before the first hyphen is its code."""
    subject: ClassVar[str] = ""
    """What it learns in a few words, for headings; the words of ``id`` where it is empty."""
    family: ClassVar[str]
    summary: ClassVar[str]
    """What it learns, as lists and tables of a report say it."""
    adversaries: ClassVar[tuple[str, ...]] = ("server",)
    """Whose view it can read: ``server``; ``client``, the first owner by name; ``last client``, the last one,
    where the first has nothing to learn; ``coalition``, all owners but the last; ``outsider``, who reads no
    message and has what was published."""
    behaviour: ClassVar[str] = "honest-but-curious"
    channel: ClassVar[str]
    also_reads: ClassVar[tuple[str, ...]] = ()
    """Further channels that must be kept in full for it."""
    partition: ClassVar[str] = ""
    """A partition that its algorithms take, where others have channels of the same names; empty for any."""
    first_rounds: ClassVar[int | None] = None
    """How many rounds it reads, from the first in which a channel is used; all of them where None."""
    reads_sums: ClassVar[bool] = False
    """Whether it learns about single owners from sums alone: channels declare what subtraction reveals."""
    grants: ClassVar[tuple[str, ...]] = ()
    """What the threat model grants beside the view, a sentence each."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the facts behind those sentences; ``audits/surfaces`` or :meth:`makers` makes them."""
    controls: ClassVar[tuple[Control, ...]] = ()
    """Settings where it must succeed, or where its reach ends; printed beside the configured settings."""
    depends_on: ClassVar[tuple[str, ...]] = ()
    """Dotted keys of the settings that decide how far it gets: printed with every cell."""
    stops: ClassVar[str | Mapping[str, str]] = ""
    """What would stop it, by adversary where that differs: printed with every cell that leaks."""
    nothing_left: ClassVar[str] = "nothing of a single owner is left in a sum"
    """Why :meth:`residual` is blind, of an attack that has none."""
    searches: ClassVar[bool] = False
    """Whether it searches, for as long as ``effort`` or limits of its own allow."""

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        """All channels that it can read something from."""
        return (cls.channel, *cls.also_reads)

    @classmethod
    def stopped_by(cls) -> Mapping[str, str]:
        """Adversary -> what would stop it."""
        return dict.fromkeys(cls.adversaries, cls.stops) if isinstance(cls.stops, str) else cls.stops

    @classmethod
    def in_words(cls) -> dict[str, str]:
        """``title`` and ``subject``, for results: the only words about attacks that a report has."""
        subject = cls.subject or " ".join(cls.id.split("-")[1:]) or cls.id
        return {"title": cls.summary, "subject": subject}

    @classmethod
    def judge(cls) -> Judge | None:
        """The judge of its guesses; None for the one in ``audits/surfaces`` that ``Guess.about`` names.

        An attack of another package overrides this and returns its own judge. Import what the judge needs
        from ``secure_fedgraph.audits`` inside this method.
        """
        return None

    @classmethod
    def makers(cls) -> Mapping[str, Maker]:
        """Makers of facts in ``needs`` that ``audits/surfaces`` has none of, by name."""
        return {}

    def __init__(self, effort: float | None = None) -> None:
        if effort is not None:
            check_number("effort", effort)
        if effort is not None and not 0 < effort < float("inf"):
            raise BadInput(f"effort {effort:g} is no limit: give processor seconds above 0, e.g. 20")
        self.effort = effort

    @abstractmethod
    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A guess about each owner.

        Raises:
            Blind: where the view holds no single upload that can be read.
        """

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """A guess about all contributors together, from the opened sums.

        Raises:
            Blind: where the view holds no sum either, or none that says something.
        """
        raise Blind(f"{self.id}: {self.nothing_left}")

    def single_uploads(self, view: View, channel: str = "") -> list[Seen]:
        """The single uploads of a channel, this attack's by default, or Blind with the view's reason."""
        channel = channel or self.channel
        uploads = view.uploads(channel) if channel in view.public.get("channels", {channel}) else []
        if not uploads:
            raise Blind(f"{self.id}: {view.why_unreadable(channel)}")
        return uploads

    def opened_sums(self, view: View, channel: str = "") -> list[Seen]:
        """The opened sums of a channel, this attack's by default, or Blind."""
        channel = channel or self.channel
        sums = view.sums(channel)
        if not sums:
            raise Blind(f"{self.id}: no sum of channel {channel!r} was opened in this view")
        return sums

    def channel_in_use(self, view: View, *names: str) -> str:
        """The first of these channels that the run has, by default of those it reads; else its own."""
        used = view.public.get("channels", {})
        return next((name for name in names or self.reads() if name in used), self.channel)


class OfFirstUpdate(Attack):
    """An attack on weight updates, one at a time: on each owner's first, or on the first opened sum."""

    family = "weights"
    channel = "update"
    first_rounds = 1
    stops = "masked, homomorphic (single owners); local_dp (all), which costs accuracy"
    about: ClassVar[str]
    """The judge of its guesses."""

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """What the first upload of each owner says about it."""
        uploads = self.single_uploads(view, self.channel_in_use(view))
        first = min(seen.round for seen in uploads)
        used = {seen.clients[0]: seen for seen in uploads if seen.round == first}
        return self._guess(view, knowledge, used)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """What the first opened sum says about all owners in it."""
        sums = self.opened_sums(view, self.channel_in_use(view))
        return self._guess(view, knowledge, {ALL: min(sums, key=lambda seen: seen.round)})

    def read(self, view: View, knowledge: Knowledge, seen: Seen) -> np.ndarray | Stopped:
        """What one message says."""
        raise NotImplementedError

    def _guess(self, view: View, knowledge: Knowledge, messages: Mapping[str, Seen]) -> Guess:
        values, stopped = {}, {}
        for target, seen in messages.items():
            read = self.read(view, knowledge, seen)
            values[target] = read.values if isinstance(read, Stopped) else read
            if isinstance(read, Stopped):
                stopped[target] = round(read.seconds, 1)
        targets = {target: seen.clients for target, seen in messages.items()}
        return Guess(self.about, values, targets, len(messages), stopped)

    def broadcast(self, view: View, seen: Seen) -> Mapping[str, Any]:
        """What the clients were given before a message on its channel, or Blind."""
        channel = self.channel_in_use(view)
        given = next((one.values for one in view.asked(channel) if one.round == seen.round), None)
        if given is None:
            raise Blind(f"{self.id}: the view lacks the weights that were sent")
        return given


@dataclass(frozen=True)
class Stopped:
    """What a search had when it was stopped, after so many processor seconds."""

    values: np.ndarray = field(repr=False)
    seconds: float
