"""What an algorithm sees of a client and of a round: the two types to write an algorithm against.

An algorithm has two halves. An answer runs in a client and sees a :class:`ClientContext`; ``Algorithm.round``
runs on the server and sees a :class:`RoundApi`. Both list all that an algorithm may use, so an editor
completes ``client.`` and ``round.``. At run time they are a :class:`~secure_fedgraph.client.Client` and a
:class:`~secure_fedgraph.round.Round`; a test can give any object of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch_geometric.data import Data

from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.parcel import Parcel
from secure_fedgraph.graph.schema import Schema

Gradient = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""One a record, ``[b, ...]``; or, of weights ``[out, in]``, factors ``[b, rows, out]`` and ``[b, rows, in]``,
whose outer products, summed over a record's rows, are its gradient."""


class NoisyTraining(Protocol):
    """Training by noisy steps (DP-SGD): the client's policy sets it up, and its ledger is charged."""

    @property
    def unit(self) -> str:
        """Whose data one record is: ``node`` or ``graph``."""

    def run(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, Gradient]],
        occurrences: int = 1,
        penalty: Callable[[], Any] | None = None,
    ) -> None:
        """Takes one round's steps, in place.

        Args:
            optimizer: of these parameters.
            parameters: by name; they are updated.
            records: the number of records; public.
            gradients: chosen records ``[b]`` -> for each parameter one gradient a record.
            occurrences: how many records one unit's removal may change. 1 is for a record that is the
                unit's own and goes with it; if a record stays and changes, count it and one more.
            penalty: adds the gradient of a loss term that depends on no data.
        """


class ClientContext(Protocol):
    """The client that answers: one owner's graph, its memory and its randomness.

    An answer uses this and what it was given, and nothing else.
    """

    @property
    def name(self) -> str:
        """The client's public name."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The public names of all clients, this one too."""

    @property
    def round(self) -> int:
        """The number of the round that is being answered, from 1."""

    @property
    def graph(self) -> Data:
        """The owner's own graph, with ``x``, ``edge_index``, ``y`` and the masks of its split.

        Where the policy randomizes inputs, this is the randomized graph. Read it only: what is written into
        it stays there, for later runs of the same federation too.
        """

    @property
    def schema(self) -> Schema:
        """Public facts about the data: its kind, its columns and its classes."""

    @property
    def memory(self) -> dict[str, Any]:
        """What this client keeps from round to round, and what a resumed run has again.

        Plain values only: tensors, numbers, text, and lists and dictionaries of them. If an answer fails, or
        its sum is abandoned, all entries are as before it, except those whose names begin with ``drawn ``,
        ``frozen`` or ``released ``: what was sampled once, and what counts releases.
        """

    @property
    def scratch(self) -> dict[str, Any]:
        """What this client keeps within a round, of any kind. It is empty again in the next round."""

    @property
    def training(self) -> NoisyTraining | None:
        """The noisy steps that this client must train by; None where its policy asks for none."""

    @property
    def true_labels(self) -> float:
        """The probability that a label of :attr:`graph` is true: 1 unless the policy randomizes labels."""

    def generator(self, purpose: str) -> torch.Generator:
        """A seeded generator for one purpose in this round: the same purpose gives the same numbers again.

        It protects nobody, since the seed is public; see :meth:`secret_order`.

        Args:
            purpose: any word, such as ``"batches"``; another word gives independent numbers.
        """

    def secret_order(self, size: int) -> torch.Tensor:
        """A random order that nobody can predict or repeat, from the operating system.

        Args:
            size: how many things are ordered.

        Returns:
            A permutation of ``0 .. size - 1``, ``[size]``, int64.
        """

    def noised(self, channel: Channel) -> bool:
        """Whether noise covers what one unit adds to an upload, against anybody: by this client's own policy.

        Args:
            channel: one of its algorithm's.
        """

    def sampled(self) -> torch.Tensor:
        """The units whose parts the answer gives, where its channel samples them: nobody else knows which.

        Coins of the operating system took each with the probability that the channel declares
        (:class:`~secure_fedgraph.core.channel.UnitContributionSampled`); the parts of others are left
        out of the sum.

        Returns:
            Numbers of nodes, or of graphs, ascending, ``[k]``, int64.

        Raises:
            BadInput: on a channel that samples none.
        """

    def link_priorities(self, links: torch.Tensor) -> torch.Tensor:
        """A pseudo-random number for each link, under a secret key of this client: the same in every round.

        Args:
            links: ``[2, E]``.

        Returns:
            ``[E]``, int64.
        """


class Total(Protocol):
    """What :meth:`RoundApi.reduce` opens: the sum of the contributors' uploads."""

    @property
    def total(self) -> dict[str, torch.Tensor]:
        """The sum, by tensor name."""

    @property
    def contributors(self) -> tuple[str, ...]:
        """The clients whose uploads are in the sum: those that did not drop out."""

    @property
    def cut(self) -> int:
        """How many of the uploads held values beyond what their protection carries, which were cut."""

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each value of the total: public, 0 without noise."""

    @property
    def mean(self) -> dict[str, torch.Tensor]:
        """The sum divided by the number of contributors, float32."""


class Valuation(Protocol):
    """What :meth:`RoundApi.value` opens: a weighted mean, and how far each upload agrees with it."""

    @property
    def aggregate(self) -> dict[str, torch.Tensor]:
        """The weighted mean, by tensor name."""

    @property
    def alignment(self) -> dict[str, float]:
        """By client: the cosine of its upload with the mean."""

    @property
    def lengths(self) -> dict[str, float]:
        """By client: the L2 norm of its upload."""

    @property
    def cut(self) -> int:
        """How many of the uploads were longer than the carrier takes, and were shortened."""


class RoundApi(Protocol):
    """The round that the server runs: whom to ask, and the verbs that ask on the declared channels.

    Each verb fits one kind of channel and opens what the channel declares and nothing more. A verb that does
    not match the declaration raises :class:`~secure_fedgraph.core.errors.Incompatible`.
    """

    @property
    def number(self) -> int:
        """The round's number, from 1."""

    @property
    def cohort(self) -> tuple[str, ...]:
        """The names of the clients that are asked in this round."""

    def among(self, clients: tuple[str, ...]) -> RoundApi:
        """The same round with a part of its cohort: what is asked is of these alone, and so is a sum.

        Clients answer no sum of fewer than their quorum.

        Args:
            clients: of the cohort, each once.
        """

    def reduce(self, channel: Channel, given: Mapping[str, Any] | None = None) -> Total:
        """Asks every client of the cohort and opens the sum of what they answer.

        Args:
            channel: declared with ``Reveal.SUM``.
            given: what every client is given.
        """

    def gather(
        self, channel: Channel, given: Mapping[str, Any] | None = None
    ) -> dict[str, dict[str, torch.Tensor]]:
        """Asks every client of the cohort and opens each answer.

        Args:
            channel: declared with ``Reveal.EACH``.
            given: what every client is given.

        Returns:
            Client -> tensor name -> tensor.
        """

    def value(
        self, channel: Channel, weights: Mapping[str, float], given: Mapping[str, Any] | None = None
    ) -> Valuation:
        """Asks every client and opens the weighted mean of the answers, and how far each agrees with it.

        Args:
            channel: declared with ``Reveal.VALUES``. No single answer is opened.
            weights: client -> its weight in the mean, not negative.
            given: what every client is given.

        Raises:
            Refused: for weights that would leave the mean nearly one client's answer.
        """

    def scatter(self, channel: Channel, given: Mapping[str, Mapping[str, Any]]) -> None:
        """Gives each named client its own values; nothing comes back.

        Args:
            channel: declared with ``Reveal.NOTHING``.
            given: client -> values.
        """

    def collect(self, channel: Channel, given: Mapping[str, Any] | None = None) -> dict[str, Parcel]:
        """Asks every client for what it offers the others, and opens nothing: the server only passes it on.

        Args:
            channel: a peer channel declared with ``Reveal.EACH``.
            given: what every client is given.

        Returns:
            Client -> its offer, for :meth:`reduce_for`.
        """

    def reduce_for(self, channel: Channel, offer: Parcel, given: Mapping[str, Any] | None = None) -> None:
        """Has the others answer one client's offer, and hands the sum to that client, its only reader.

        Args:
            channel: a peer channel declared with ``Reveal.SUM``.
            offer: from :meth:`collect`.
            given: what every other client is given besides.
        """

    def share(
        self,
        channel: Channel,
        given: Mapping[str, Any] | None = None,
        senders: tuple[str, ...] | None = None,
        readers: tuple[str, ...] | None = None,
        among: tuple[str, ...] | None = None,
    ) -> tuple[tuple[str, str], ...]:
        """Asks some clients and hands their answers to the other clients to read; nothing opens here.

        Args:
            channel: a peer channel declared with ``Reveal.EACH``.
            given: what every sender is given.
            senders: who answers; the whole cohort by default.
            readers: who reads; the whole cohort by default.
            among: for whom a sealed answer is made, senders and readers; the whole cohort by default.

        Returns:
            Who read whose answer, ``(sender, reader)``.
        """
