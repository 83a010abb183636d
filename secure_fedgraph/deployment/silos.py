"""The server's way to silos on other machines: who is there, what was asked, and who came back."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from secure_fedgraph.backends.failures import failure_in
from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import HostileMessage, Refused, SecureFedGraphError
from secure_fedgraph.core.guarantee import Relation, Unit
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.deployment.aligning import END, packed, unpacked
from secure_fedgraph.deployment.alignment import Letter as AlignmentLetter
from secure_fedgraph.deployment.alignment import new_alignment, relay
from secure_fedgraph.deployment.charge_report import ChargeReport, report_in
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.greeting import NONCE, session_in
from secure_fedgraph.deployment.silo_messages import (
    ALIGN,
    ASK,
    BEGIN,
    CHARGES,
    DONE,
    EXAM,
    HELLO,
    RELEASE,
    SAVE,
    Letter,
    Post,
)
from secure_fedgraph.graph.silos.aligned import digest_of_training_rows
from secure_fedgraph.protocol.transport import Answer, Lost

_LOG = logging.getLogger("secure_fedgraph.server")

SOON, AGAIN = 0.01, 0.5
"""Seconds from one look for answers to the next, and from one greeting of all silos to the next."""
GREETING = 3.0
"""Seconds that a silo has to answer a greeting."""
ASK_AFTER = 2.0
"""Seconds after which a silo that has not answered is asked whether it is still there."""
GONE_AFTER = 20.0
"""Seconds without any sign after which it counts as away."""
PATIENCE = 3600.0
"""Seconds that a silo has for one answer."""


class Rejoined(SecureFedGraphError):
    """A silo is back: the run is taken up again at its last round, with all who are there."""


@dataclass
class _Waiting:
    """One question that is open."""

    silo: str
    since: float
    heard: float
    pings: dict[str, bytes] = field(default_factory=dict)


class Silos:
    """The silos of a federation, as a run reaches them.

    Guarantees:
        - a silo is who the roster says: each connection signs the server's fresh nonce with the identity key;
        - a silo that does not answer, or was started again since, is away and not lost: its answers are
          errors that exchanges which survive drop-outs go on without, and when it is back the run is taken
          up again at the end of the round, with it;
        - a broken way is mended, and what was on it counts as not answered;
        - what silos charged is what they signed; a silo without a report counts as charged without noise.

    Args:
        post: the way.
        approved: the federation's file, which every silo has to have approved.
        patience: seconds that a silo has for one answer.
        tolerant: whether the run goes on without silos that are away. Otherwise a round of which one kept no
            memory is not kept.
        on_event: called with a line for people: who came, who left.
    """

    def __init__(
        self,
        post: Post,
        approved: Approved,
        patience: float = PATIENCE,
        tolerant: bool = False,
        on_event: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._post, self._approved, self._patience, self._say = post, approved, patience, on_event
        self._tolerant = tolerant
        self._federation = approved.federation
        self._sessions: dict[str, str] = {}
        self._begun: dict[str, str] = {}
        """Silo -> the session that the run was begun in."""
        self._refusals: dict[str, str] = {}
        self._run, self._after = "", -1
        self._train: np.ndarray | None = None
        self._rejoin = False
        self.reports: dict[str, ChargeReport] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All silos of the federation."""
        return self._federation.names

    @property
    def roster(self) -> Mapping[str, bytes]:
        """Silo -> public identity key, from the federation's file."""
        return self._federation.roster

    @property
    def here(self) -> tuple[str, ...]:
        """The silos that answered the last greeting."""
        return tuple(name for name in self.names if name in self._sessions)

    @property
    def present(self) -> tuple[str, ...]:
        """The silos that take part now."""
        return tuple(name for name in self.names if name in self._begun)

    def gather(self, least: int, grace: float, until: float) -> tuple[str, ...]:
        """Waits until all silos are there, or at least some after a time of grace.

        Args:
            least: how many there have to be.
            grace: seconds that the others have once these are there.
            until: seconds that are waited at most.

        Returns:
            Who is there.

        Raises:
            Lost: where too few came, naming who is missing.
            Refused: where a silo refuses this federation's file, with what it says.
        """
        start, enough = time.monotonic(), None
        while True:
            self._greet(self.names, GREETING)
            if refusal := next(iter(self._refusals.values()), ""):
                raise Refused(refusal)
            here, now = self.here, time.monotonic()
            if len(here) == len(self.names):
                return here
            if len(here) >= least:
                enough = enough or now
                if now - enough >= grace:
                    return here
            if now - start >= until:
                missing = ", ".join(name for name in self.names if name not in here)
                raise Lost(
                    f"{missing} did not come within {until:g} s: start it with 'secure-fedgraph silo "
                    "start', and the server again"
                )
            time.sleep(AGAIN)

    def connect(self, run: str, after: int, label: str) -> Silos:
        """Begins a run, or takes it up again, at every silo that is there.

        Raises:
            Lost: where one does not begin it, and the run does not go on without it.
            SecureFedGraphError: what a silo refuses with.
        """
        self._run, self._after, self._rejoin = run, after, False
        self._begun = {}
        order: wire.Tree = {"digest": self._approved.digest, "run": run, "after": after, "label": label}
        if self._train is not None:
            order["train"] = self._train
        answers = self._ask(dict.fromkeys(self.here, Letter(BEGIN, wire.encode(order))))
        for name, answer in answers.items():
            if isinstance(answer, Lost):
                self._away(name, str(answer))
                self._sessions.pop(name, None)
                if not self._tolerant:
                    raise answer
            elif isinstance(answer, Exception):
                raise answer
            else:
                self._begun[name] = self._sessions[name]
        if not self._begun:
            raise Lost("no silo is there any more")
        return self

    @property
    def common(self) -> str:
        """As ``Reached.common``: of the training rows of columns."""
        return "" if self._train is None else digest_of_training_rows(self._train)

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """As :meth:`~secure_fedgraph.running.remote_clients.Reached.exchange`."""
        return _or_raised(self.reach(requests))

    def reach(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        """As :meth:`~secure_fedgraph.running.remote_clients.Reached.reach`.

        Raises:
            Rejoined: before anything is sent, where a silo came back.
        """
        if self._rejoin:
            raise Rejoined("a silo is back")
        asked = {name: Letter(ASK, raw) for name, raw in requests.items() if name in self._begun}
        came = self._ask(asked)
        answers: dict[str, Answer] = {name: came.get(name, Lost(f"{name} is away")) for name in requests}
        for name, answer in answers.items():
            if isinstance(answer, Lost):
                self._away(name, str(answer))
        return answers

    def save(self, label: str, committed: str) -> None:
        """Has every silo that is there keep its memory, and looks who is back.

        Raises:
            Lost: where one kept none, and the run does not go on without it.
        """
        order = Letter(SAVE, wire.encode({"label": label, "committed": committed}))
        for name, answer in self._ask(dict.fromkeys(self.present, order)).items():
            if isinstance(answer, Lost):
                self._away(name, str(answer))
                if not self._tolerant:
                    raise answer
            elif isinstance(answer, Exception):
                raise answer
        away = [name for name in self.names if name not in self._begun]
        if away:
            self._greet(away, ASK_AFTER)
            self._rejoin = any(name in self._sessions for name in away)

    def load(self, label: str) -> None:
        """Nothing: a silo loads its memory when the run is begun."""

    def charges(self) -> Sequence[Charge]:
        """What the silos report; a silo without a valid report counts as charged without noise."""
        charges: list[Charge] = []
        answers = self._ask(dict.fromkeys(self.present, Letter(CHARGES, wire.encode({}))))
        for name in self.names:
            answer = answers.get(name, Lost(f"{name} is away"))
            try:
                if isinstance(answer, Exception):
                    raise answer
                report = report_in(answer, self.roster[name], self._approved.digest, self._run, name)
            except SecureFedGraphError as error:
                self._say(
                    f"{name} gave no report of its charges ({error}): it counts as charged without noise"
                )
                charges.append(Charge(name, self._run, -1, -1, "no report", Unit.CLIENT, Relation.ZERO_OUT))
            else:
                self.reports[name] = report
                charges += report.charges
        return charges

    def release(self, model: Mapping[str, torch.Tensor]) -> None:
        """Gives the trained model to every silo that is there; who does not take it is named and left out."""
        tree: wire.Tree = {name: value.detach() for name, value in model.items()}
        for name, answer in self._ask(
            dict.fromkeys(self.present, Letter(RELEASE, wire.encode(tree)))
        ).items():
            if isinstance(answer, Exception):
                self._say(f"{name} did not take the trained model: {answer}")

    def exam(self) -> dict[str, np.ndarray]:
        """The split and the labels of validation and test rows, from the first silo; all are given the split.

        Raises:
            SecureFedGraphError: where it gives none.
        """
        holder = self.names[0]
        shown = wire.decode(_or_raised(self._ask({holder: Letter(EXAM, wire.encode({}))}))[holder])
        parts = {}
        for key, kind in (
            ("train", np.uint8),
            ("validation", np.uint8),
            ("test", np.uint8),
            ("labels", np.int64),
        ):
            value = shown.get(key)
            if not isinstance(value, np.ndarray) or value.dtype != kind or value.ndim != 1:
                raise HostileMessage(f"{holder}'s split lacks {key!r}")
            parts[key] = value
        if len({len(value) for value in parts.values()}) != 1:
            raise HostileMessage(f"{holder}'s split has parts of different lengths")
        classes = self._federation.data.classes
        if int(parts["labels"].min(initial=0)) < -1 or int(parts["labels"].max(initial=0)) >= classes:
            raise HostileMessage(f"{holder}'s labels are not numbers of the {classes} classes")
        self._train = parts["train"]
        return parts

    def align(self) -> None:
        """Carries the letters of one alignment of rows until every silo has the common order.

        Raises:
            SecureFedGraphError: what a silo refuses with, or that it is away.
        """
        alignment = new_alignment()

        def exchange(letters: Mapping[str, Sequence[AlignmentLetter]]) -> dict[str, list[AlignmentLetter]]:
            asked = {
                name: Letter(ALIGN, wire.encode({"alignment": alignment, **packed([*one])}))
                for name, one in letters.items()
            }
            return {name: unpacked(wire.decode(body)) for name, body in _or_raised(self._ask(asked)).items()}

        relay(self.names, exchange)
        end = Letter(ALIGN, wire.encode({"alignment": alignment, END: 1}))
        _or_raised(self._ask(dict.fromkeys(self.names, end)))

    def close(self) -> None:
        """Nothing: the silos go on, and the way is its maker's to close."""

    def _away(self, name: str, why: str) -> None:
        if name in self._begun:
            why = why.removeprefix(f"{name} ")
            why = "" if why == "is away" else f" ({why})"
            self._say(f"{name} is away{why}: 'secure-fedgraph silo start' there brings it back")
        self._begun.pop(name, None)
        self._sessions.pop(name, None)

    def _greet(self, names: Iterable[str], patience: float) -> None:
        """Asks who is there; each answers with a signature over a fresh nonce."""
        nonce = secrets.token_bytes(NONCE)
        letter = Letter(HELLO, self._greeting(nonce))
        known = dict(self._sessions)
        for name, answer in self._collect(dict.fromkeys(names, letter), patience).items():
            if isinstance(answer, Letter):
                try:
                    session = self._session_in(name, answer, nonce)
                    self._refusals.pop(name, None)
                except SecureFedGraphError as error:
                    self._refusals[name] = str(error)
                    continue
                self._sessions[name] = session
                if known.get(name) != session:
                    self._say(f"{name} is here")
            else:
                self._sessions.pop(name, None)

    def _greeting(self, nonce: bytes) -> bytes:
        return wire.encode({"nonce": nonce.hex(), "digest": self._approved.digest})

    def _session_in(self, name: str, letter: Letter, nonce: bytes) -> str:
        return session_in(letter, self._post.node_of(name), nonce, self._approved, name)

    def _ask(self, letters: Mapping[str, Letter]) -> dict[str, bytes | Exception]:
        """Each silo's answer, or its error, or that it is away."""
        answers: dict[str, bytes | Exception] = {}
        for name, answer in self._collect(letters, self._patience).items():
            if isinstance(answer, Letter):
                done = answer.kind == DONE
                answers[name] = (
                    answer.body if done else failure_in(answer.body, name, "its own log says more")
                )
            else:
                answers[name] = answer
        return answers

    def _collect(self, letters: Mapping[str, Letter], patience: float) -> dict[str, Letter | Lost]:
        """Sends letters and waits for the answers.

        A silo that takes long is greeted meanwhile: it answers greetings while it works, under the session
        that it has. Another session is another process, which knows nothing of the question.
        """
        if not letters:
            return {}
        answers: dict[str, Letter | Lost] = {}
        try:
            tickets = self._post.send(letters)
        except OSError as error:
            return {name: Lost(f"{name} cannot be reached: {error}") for name in letters}
        start = time.monotonic()
        open_ = {ticket: _Waiting(name, start, start) for name, ticket in tickets.items() if ticket}
        for name, ticket in tickets.items():
            if not ticket:
                answers[name] = Lost(f"{name} is not signed in")
        while open_:
            pings = {ping: ticket for ticket, one in open_.items() for ping in one.pings}
            asked = time.monotonic()
            try:
                came = self._post.collect([*open_, *pings])
            except OSError as error:
                answers |= {
                    one.silo: Lost(f"{one.silo} cannot be reached: {error}") for one in open_.values()
                }
                break
            now = time.monotonic()
            for ticket, letter in came.items():
                if ticket in open_:
                    silo = open_.pop(ticket).silo
                    answers[silo] = Lost(f"{silo} did not take the question") if letter is None else letter
            for ping, ticket in pings.items():
                if ping in came and ticket in open_:
                    one = open_[ticket]
                    if not self._still_there(one, came[ping], one.pings.pop(ping), now):
                        answers[one.silo] = Lost(f"{one.silo} was started again")
                        del open_[ticket]
            for ticket, one in list(open_.items()):
                if now - one.heard > GONE_AFTER or now - start > patience:
                    answers[one.silo] = Lost(f"{one.silo} gave no answer for {now - start:.0f} s")
                    del open_[ticket]
            if patience > 2 * ASK_AFTER:
                self._ping(open_, now)
            if open_:
                time.sleep(max(asked + SOON - time.monotonic(), 0))  # the way waits for answers by itself
        # sums of floats depend on the order, which must not be that of the arrivals
        return {name: answers[name] for name in letters}

    def _ping(self, open_: Mapping[str, _Waiting], now: float) -> None:
        due = [one for one in open_.values() if not one.pings and now - one.heard > ASK_AFTER]
        for one in due:
            nonce = secrets.token_bytes(NONCE)
            try:
                ticket = self._post.send({one.silo: Letter(HELLO, self._greeting(nonce))})[one.silo]
            except OSError:
                return
            if ticket:
                one.pings[ticket] = nonce

    def _still_there(self, one: _Waiting, letter: Letter | None, nonce: bytes, now: float) -> bool:
        """Whether the process that has the question is the one that was asked."""
        if letter is None:
            return True  # silence decides
        try:
            session = self._session_in(one.silo, letter, nonce)
        except SecureFedGraphError:
            return False
        one.heard = now
        return self._sessions.get(one.silo) in (session, None)


def _or_raised(answers: Mapping[str, bytes | Exception]) -> dict[str, bytes]:
    """The answers, where all are; else the first error is raised."""
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
    return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}
