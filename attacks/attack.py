"""The base of attacks: they read a view and what they were granted, and guess. Audits hold the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from secure_fedgraph.core.errors import BadInput, SecureFedGraphError, check_number
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER

CLIENT, COALITION, OUTSIDER = "client", "coalition", "outsider"
LAST = "last client"
__all__ = [
    "CLIENT",
    "COALITION",
    "LAST",
    "OUTSIDER",
    "SERVER",
    "Attack",
    "Blind",
    "Control",
    "Guess",
    "Judge",
    "Knowledge",
    "Maker",
]


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


@dataclass(frozen=True)
class Control:
    """Further settings under which an attack is run, to show how far it reaches.

    Args:
        name: what a table calls it.
        settings: dotted keys, as ``--set`` has them.
    """

    name: str
    settings: Mapping[str, Any]


class Judge(Protocol):
    """Compares a guess with the truth.

    Args:
        guess: what an attack wrote down.
        finished: an ``audits.finished_run.FinishedRun``: the run and the truth about it.

    Returns:
        a ``secure_fedgraph.audits.judgement.Judgement``. No attack imports either, as no attack may see the
        truth.
    """

    def __call__(self, guess: Guess, finished: Any, /) -> Any: ...


class Maker(Protocol):
    """Makes one fact that an attack is granted, from the same finished run."""

    def __call__(self, finished: Any, /) -> object: ...


class Attack(ABC):
    """One way to learn something private from what was sent.

    An attack has two aims: :meth:`run` attacks single owners, :meth:`residual` what remains when a defence
    hides the single uploads.

    Class attributes name the adversaries, the channels read, what is granted and the cost; ``list attacks``
    prints them.

    Args:
        effort: processor seconds that one search may take; None for the attack's own limits. An attack that
            does not search ignores it.

    Raises:
        BadInput: for an effort that is not a positive number of seconds.
    """

    id: ClassVar[str]
    """Its name on the command line and in results; what stands before the first hyphen is its code."""
    title: ClassVar[str] = ""
    """What it learns, as tables of a report say it; ``summary`` where it is empty."""
    subject: ClassVar[str] = ""
    """The same in a few words, for headings; the words of ``id`` where it is empty."""
    family: ClassVar[str]
    summary: ClassVar[str]
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
    cost: ClassVar[str] = "seconds"
    controls: ClassVar[tuple[Control, ...]] = ()
    """Settings where it must succeed, or where its reach ends; printed beside the configured settings."""
    depends_on: ClassVar[tuple[str, ...]] = ()
    """Dotted keys of the settings that decide how far it gets: printed with every cell."""
    stops: ClassVar[Mapping[str, str]] = {}
    """By adversary what would stop it: printed with every cell that leaks."""
    searches: ClassVar[bool] = False
    """Whether it searches, for as long as ``effort`` or limits of its own allow."""

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        """All channels that it can read something from."""
        return (cls.channel, *cls.also_reads)

    @classmethod
    def in_words(cls) -> dict[str, str]:
        """``title`` and ``subject``, for results: the only words about attacks that a report has."""
        return {
            "title": cls.title or cls.summary,
            "subject": cls.subject or " ".join(cls.id.split("-")[1:]) or cls.id,
        }

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

    @abstractmethod
    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """A guess about all contributors together, from the opened sums.

        Raises:
            Blind: where the view holds no sum either.
        """

    def single_uploads(self, view: View) -> list[Any]:
        """The single uploads of this attack's channel, or Blind with the view's reason."""
        uploads = view.uploads(self.channel)
        if not uploads:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        return uploads

    def opened_sums(self, view: View) -> list[Any]:
        """The opened sums of this attack's channel, or Blind."""
        sums = view.sums(self.channel)
        if not sums:
            raise Blind(f"{self.id}: no sum of channel {self.channel!r} was opened in this view")
        return sums
