"""C1 and C2 on FedSage+: an answering owner's raw features, from the gradient that it sends back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.generator_gradients import batch, single
from secure_fedgraph.attacks.sparse_rows import FEATURES
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER, Seen

SLOTS = 5
_WEIGHT, _BIAS = "outer.weight", "outer.bias"
_SHORT = {"rounds": 1, "training.generator_epochs": 2, "training.federated_epochs": 1}


def _exchange(nodes: int) -> Control:
    settings = {"training.exchange_batch": nodes, "training.minimum_batch": 1, **_SHORT}
    return Control(f"exchange batch {nodes}", settings)


@dataclass(frozen=True)
class Solved:
    """What was recovered from one gradient.

    Args:
        rows: ``[rows, words]``.
        stopped: the processor seconds after which the search was stopped; None where it finished.
    """

    rows: np.ndarray = field(repr=False)
    stopped: float | None = None


@dataclass(frozen=True)
class Question:
    """What was asked, as the adversary knows it: the last layer that was sent, and how many vectors.

    Args:
        offer: the offer's values by name: ``fgen.*``, ``z``, ``counts``, ``seed``.
        scale: the public factor of the loss.
    """

    offer: Mapping[str, np.ndarray] = field(repr=False)
    scale: float

    @property
    def counts(self) -> np.ndarray:
        """How many vectors each node of the batch asks for, ``[nodes]``."""
        return np.asarray(self.offer["counts"]).astype(int)

    def layer(self, name: str) -> np.ndarray:
        """A parameter of the generator's last layer."""
        return np.array(self.offer[f"fgen.{name}"], dtype=np.float32)


class _GeneratorFeedback(Attack):
    """What C1 and C2 share: which messages they read, of the first exchange with an answer in it.

    :meth:`run` reads the answers of single owners, :meth:`residual` the sum that was delivered to the owner
    that asked. ``values`` are rows of features, one for every vector that was asked for; rows that were not
    recovered are NaN.
    """

    family = "neighgen"
    adversaries: ClassVar[tuple[str, ...]] = (SERVER, "client")
    channel = "feedback"
    also_reads = ("generator",)
    first_rounds = 1
    depends_on = ("training.exchange_batch",)
    stops: ClassVar[Mapping[str, str]] = {
        "server": "sealed messages: masked, homomorphic, strictest",
        "client": "training.feedback=prototypes; seals and masks do not",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of each owner that answered the exchange."""
        answers = self._answers(view)
        question = self._question(view, answers[0])
        solved = {seen.clients[0]: self._rows(view, question, seen, 1) for seen in answers}
        return _guess(solved, {s.clients[0]: s.clients for s in answers}, len(answers))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of all owners that answered, from their sum."""
        first = min(self.opened_sums(view), key=lambda seen: seen.exchange)
        question = self._question(view, first)
        solved = self._rows(view, question, first, len(first.clients))
        return _guess({ALL: solved}, {ALL: first.clients}, 1)

    def recover(self, gradient: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """Rows from one gradient at the parameters."""
        raise NotImplementedError

    def _answers(self, view: View) -> list[Seen]:
        passed = [
            note.exchange
            for note in view.sent
            if note.kept
            and (note.channel, note.step) == (self.channel, ANSWER)
            and note.sender not in {SERVER, *view.parties}
        ]
        if passed:  # a server's view: the answers pass through the server
            answers = view.uploads(self.channel, min(passed))
        elif self.channel in view.public.get("channels", {}):
            answers = view.delivered(self.channel)
            answers = [seen for seen in answers if seen.exchange == min(s.exchange for s in answers)]
        else:
            answers = []
        if not answers:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        return answers

    def _question(self, view: View, answer: Seen) -> Question:
        offer = view.offer(self.channel, answer.exchange)
        if offer is None:
            raise Blind(f"{self.id}: the generator that the answers are about cannot be read in this view")
        return Question(offer.values, 1 / (len(offer.values["counts"]) * SLOTS))

    def _rows(self, view: View, question: Question, answer: Seen, owners: int) -> Solved:
        expected = int(question.counts.sum()) * owners
        words, stopped = int(view.public["schema"]["features"]), None
        if not np.any(answer.values[_BIAS]):
            rows = np.zeros((0, words))
        else:
            solved = self._solved(answer.values, question, owners)
            rows, stopped = solved.rows, solved.stopped
        missing = np.full((max(0, expected - len(rows)), words), np.nan)
        return Solved(np.concatenate([rows, missing]).astype(np.float32), stopped)

    def _solved(self, values: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """Solves a gradient; one that two adversaries see is solved once."""
        gradient = {name: np.array(values[name], dtype=np.float64) for name in (_WEIGHT, _BIAS)}
        mark = hashlib.sha256(f"{self.id}/{owners}/{question.scale}/{self.effort}".encode())
        mark.update(question.layer(_WEIGHT).tobytes())
        mark.update(gradient[_WEIGHT].tobytes())
        key = mark.hexdigest()
        if key not in _SOLVED:
            solved = self.recover(gradient, question, owners)
            _SOLVED[key] = Solved(_binary_rows(solved.rows), solved.stopped)
            while len(_SOLVED) > 16:
                del _SOLVED[next(iter(_SOLVED))]
        return _SOLVED[key]


_SOLVED: dict[str, Solved] = {}


def _guess(solved: Mapping[str, Solved], targets: Mapping[str, tuple[str, ...]], messages: int) -> Guess:
    stopped = {target: one.stopped for target, one in solved.items() if one.stopped is not None}
    return Guess(FEATURES, {t: one.rows for t, one in solved.items()}, targets, messages, stopped)


class _SearchStalled(Exception):
    """A search recovered no node within its patience."""


class GeneratorSingle(_GeneratorFeedback):
    """C1: all neighbours of one node, in closed form.

    The gradient of the last layer is one outer product ``g h'``: it gives ``h`` with its noise and dropout,
    so neither protects, and with the generator that was sent ``h`` gives the rest.
    """

    id = "c1-neighgen-single"
    title = "raw features of an answering owner's nodes, from the gradient of one node"
    subject = "raw features from single-node gradients"
    summary = "features of an answering owner's node, from the gradient of one node"
    cost = "two matrix products"
    controls = (_exchange(1),)

    def recover(self, gradient: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """As many rows as one node asks for, of one owner; of a sum or a batch, a mixture of theirs."""
        rows = single(
            gradient[_WEIGHT],
            gradient[_BIAS],
            question.layer(_WEIGHT),
            question.layer(_BIAS),
            question.scale,
            slots=SLOTS,
        )
        return Solved(rows[~np.isnan(rows).any(1)])


class GeneratorBatch(_GeneratorFeedback):
    """C2: all neighbours of a batch, by separating the nodes' sparse activations.

    Each answering owner draws its own noise, so a sum over J owners of a batch of n is one batch of n * J,
    and as open. The search is for independent components (``contrast``).
    """

    id = "c2-neighgen-batch"
    title = "raw features of the answering owners' nodes, from the gradient of a batch"
    subject = "raw node features"
    summary = "features of the answering owners' nodes, from the gradient of a batch"
    cost = "seconds at 16 nodes, a quarter of a minute at 64, about five processor minutes at 128"
    controls = tuple(map(_exchange, (1, 8, 32, 64)))
    searches = True
    search: ClassVar[str] = "contrast"
    seconds: ClassVar[float] = 480.0
    """Processor seconds that a search may take where no effort is given."""
    patience: ClassVar[float] = 40.0
    """Processor seconds after which a search that has recovered no node gives up."""

    def recover(self, gradient: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """Rows of every node whose activation was recovered in time."""
        words = question.layer(_WEIGHT).shape[0] // SLOTS
        seconds, patience = (self.effort or own for own in (self.seconds, self.patience))
        started = time.thread_time()

        def hopeful(count: int, rank: int) -> None:
            if not count and time.thread_time() > started + patience:
                raise _SearchStalled

        try:
            result = batch(
                gradient[_WEIGHT],
                gradient[_BIAS],
                question.layer(_WEIGHT),
                question.layer(_BIAS),
                question.scale,
                len(question.counts) * owners,
                seconds=seconds,
                slots=SLOTS,
                search=self.search,
                progress=hopeful,
            )
        except _SearchStalled:
            return Solved(np.zeros((0, words)), patience)
        rows = np.concatenate([np.zeros((0, words)), *(row.features for row in result.rows)])
        return Solved(rows[~np.isnan(rows).any(1)], None if result.complete else seconds)


class GeneratorColumns(GeneratorBatch):
    """C2 with the published search, whose cost grows exponentially with the batch: where it ends."""

    id = "c2-neighgen-columns"
    title = "the same with the published search, whose cost grows exponentially"
    subject = "raw node features, by the published search"
    summary = "the same by the published search (SPEAR), exponential in the batch"
    adversaries = (SERVER,)
    cost = "half a minute at 32 nodes; at 64 it gives up after 40 processor seconds without a node"
    controls = tuple(map(_exchange, (8, 32, 64)))
    search = "columns"
    seconds = 90.0


def _binary_rows(rows: np.ndarray) -> np.ndarray:
    """Rows rounded where nearly all features are 0 or 1; rows far from that are no nodes and are dropped.

    Small dense features are near 0 too, but have no ones: such rows are returned unchanged.
    """
    near = np.abs(rows - rows.round().clip(0, 1))
    if not len(rows) or (near < 0.25).mean() < 0.9 or (rows > 0.75).any(1).mean() < 0.5:
        return rows
    words: np.ndarray = rows[(near < 0.25).all(1)].round().clip(0, 1) + 0.0
    return words
