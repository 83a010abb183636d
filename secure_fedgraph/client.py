"""A client: one owner's graph, its memory, and the one door through which anything leaves it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

from secure_fedgraph.errors import HostileMessage
from secure_fedgraph.privacy import key_agreement
from secure_fedgraph.privacy.ledger import Charge, Ledger
from secure_fedgraph.privacy.party import Party
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.privacy.protection import Bound, Scope
from secure_fedgraph.protocol import wire
from secure_fedgraph.protocol.channel import Reveal
from secure_fedgraph.protocol.message import ANSWER, CARRIER, Message, digest
from secure_fedgraph.protocol.transcript import REFEREE, SERVER
from secure_fedgraph.protocol.upload import Upload

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from secure_fedgraph.algorithm import Algorithm
    from secure_fedgraph.graph.schema import Schema


class Client:
    """One party that owns data.

    Guarantees:
        - :meth:`handle` is the only way out: whatever it returns was computed for a declared channel and
          sealed by the protection bound to it; a channel without a protection does not leave;
        - the ledger is charged before the reply exists;
        - an exchange number is answered once: the identical request gets the identical bytes again at no
          charge, a different one under the same or a lower number is refused;
        - cohorts smaller than the protection's quorum, with strangers, or without this client, are refused.

    Args:
        party: name, identity and roster.
        graph: this owner's subgraph. Nobody else reads it.
        schema: public facts about the data.
        algorithm: whose answers this client gives.
        policy: the protections it insists on; its own copy, never read from the wire.
        run: the run's public name.
        ledger: where it charges.
        seed: for sampling and initialisation, which protect nobody.
    """

    def __init__(
        self,
        party: Party,
        graph: Data,
        schema: Schema,
        algorithm: Algorithm,
        policy: BoundPolicy,
        run: str,
        ledger: Ledger,
        seed: int,
    ) -> None:
        self.graph = graph
        self.schema = schema
        self.memory: dict[str, Any] = {}
        self.round = 0
        self._party = party
        self._algorithm = algorithm
        self._policy = policy
        self._run = run
        self._ledger = ledger
        self._seed = seed
        self._answered = -1
        self._last: tuple[str, bytes] = ("", b"")

    @property
    def name(self) -> str:
        """This client's public name."""
        return self._party.name

    def generator(self, purpose: str) -> torch.Generator:
        """A seeded generator for one purpose in this round. Never for anything that protects somebody."""
        label = f"{self._seed}/{self.name}/{self.round}/{purpose}".encode()
        seed = int.from_bytes(hashlib.sha256(label).digest()[:8], "little") >> 1
        return torch.Generator().manual_seed(seed)

    def handle(self, raw: bytes) -> bytes:
        """Answers one request: the only door out.

        Args:
            raw: a :class:`~secure_fedgraph.protocol.message.Message` as bytes.

        Returns:
            The reply's bytes.

        Raises:
            HostileMessage: for a request that no honest server sends.
            Refused: where privacy says no.
        """
        request = Message.from_bytes(raw)
        self._check_address(request)
        if self._last[0] == digest(raw):
            return self._last[1]
        self._refuse_replays(request)
        self.round = request.round
        reply = request.reply(wire.encode(self._answer(request))).to_bytes()
        self._last = (digest(raw), reply)
        return reply

    def _answer(self, request: Message) -> wire.Tree:
        given = wire.decode(request.body)
        scope = Scope(request.run, request.round, request.exchange, request.channel, request.cohort)
        if request.channel.startswith(CARRIER):
            return self._set_up(request, given, scope)
        bound = self._policy[request.channel]
        self._check_reader(request, bound)
        if request.step != ANSWER:
            return bound.carrier.answer(request.step, given, scope, self._party)
        return self._upload(bound, given, scope)

    def _set_up(self, request: Message, given: wire.Tree, scope: Scope) -> wire.Tree:
        carriers = self._policy.carriers
        name = request.channel.removeprefix(CARRIER)
        if name == key_agreement.NAME and any(carrier.agrees_on_keys for carrier in carriers.values()):
            return key_agreement.answer(request.step, given, scope, self._party)
        if name not in carriers:
            raise HostileMessage(f"{self.name} uses no {request.channel!r}")
        return carriers[name].answer(request.step, given, scope, self._party)

    def _upload(self, bound: Bound, given: wire.Tree, scope: Scope) -> wire.Tree:
        channel = bound.channel
        if len(scope.cohort) < bound.protection.quorum:
            raise HostileMessage(
                f"channel {channel.name!r}: {self.name} answers cohorts of at least "
                f"{bound.protection.quorum} and was asked in one of {len(scope.cohort)}"
            )
        work = getattr(self._algorithm, self._algorithm.answers[channel.name])
        upload = work(self, {name: _tensor(value) for name, value in given.items()})
        if channel.reveal is Reveal.NOTHING:
            if upload is not None:
                raise HostileMessage(
                    f"channel {channel.name!r} declares that nothing comes back, and something did"
                )
            return {}
        if not isinstance(upload, Upload):
            raise TypeError(
                f"channel {channel.name!r}: an answer returns an Upload, not {type(upload).__name__}"
            )
        if channel.to != REFEREE:
            self._ledger.charge(
                Charge(
                    client=self.name,
                    run=scope.run,
                    round=scope.round,
                    exchange=scope.exchange,
                    channel=channel.name,
                    unit=channel.unit.value,
                    relation=bound.terms.relation,
                    multipliers=bound.multipliers(),
                )
            )
        return bound.seal(upload, scope, self._party)

    def _check_address(self, request: Message) -> None:
        if request.run != self._run or request.recipient != self.name:
            raise HostileMessage(
                f"a request for {request.recipient!r} in run {request.run!r} reached {self.name}"
            )
        cohort = set(request.cohort)
        if (
            len(cohort) != len(request.cohort)
            or self.name not in cohort
            or not cohort <= set(self._party.roster)
        ):
            raise HostileMessage(
                f"{self.name} was asked in a cohort that repeats a client, names a stranger, or lacks it"
            )

    def _check_reader(self, request: Message, bound: Bound) -> None:
        reader = REFEREE if bound.channel.to == REFEREE else SERVER
        if request.sender != reader:
            raise HostileMessage(
                f"channel {bound.channel.name!r} is read by the {reader}, not by {request.sender!r}"
            )

    def _refuse_replays(self, request: Message) -> None:
        if request.exchange <= self._answered:
            raise HostileMessage(
                f"exchange {request.exchange} was already answered by {self.name} and is asked again with "
                "something else: a number serves one request"
            )
        self._answered = request.exchange


def _tensor(value: wire.Value) -> Any:
    return torch.tensor(value) if hasattr(value, "dtype") else value
