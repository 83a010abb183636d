"""The auditor: opens one round's uploads from what their owners signed, and says who sent what it may not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.secagg import advertisements, openings, ring_words
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements, is_bytes
from secure_fedgraph.core.carriers.secagg.openings import Request
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.crypto import KEY_BYTES, AgreementKey, unseal, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Scope
from secure_fedgraph.core.protection.gaussian import Clip
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.disputes.record import TOTAL

FAR = 3.0
"""An upload stands apart where it is so many times as long as the median of the others, or all zero."""
SURE = 12.0
"""Deviations of noise that no honest upload reaches: the chance is below 2**-100."""
CLEARED, APART, BROKE, SILENT = "cleared", "stands apart", "broke the policy", "not opened"
NAMED = (BROKE, APART, SILENT)

Seeds = Mapping[int, tuple[bytes, bytes]]


@dataclass
class Finding:
    """What an auditor found about one owner's uploads of a round.

    Args:
        norm: of the longest of its uploads.
        cosine: of that upload with the one of the others that it agrees with most.
        reasons: why it is not cleared, one sentence each.
    """

    name: str
    verdict: str = CLEARED
    norm: float = 0.0
    cosine: float = 0.0
    reasons: list[str] = field(default_factory=list)

    def blame(self, verdict: str, reason: str) -> None:
        """Adds a reason; the verdict is the worst of all."""
        order = (CLEARED, APART, SILENT, BROKE)
        self.verdict = max(self.verdict, verdict, key=order.index)
        self.reasons.append(reason)


@dataclass(frozen=True)
class Judgement:
    """What an auditor found: about each owner, and about the server's sum.

    Args:
        sums: whether the opened uploads add up to the sum that the server used; None where not all opened.
    """

    findings: tuple[Finding, ...]
    sums: bool | None

    @property
    def named(self) -> dict[str, list[str]]:
        """The owners that are not cleared, by verdict: a proof, a suspicion and an absence are not one."""
        of = {verdict: [one.name for one in self.findings if one.verdict == verdict] for verdict in NAMED}
        return {verdict: names for verdict, names in of.items() if names}


def judge(
    request: Request,
    signatures: Mapping[str, bytes],
    opened: Mapping[str, wire.Tree],
    record: Sequence[wire.Tree],
    key: AgreementKey,
    roster: Mapping[str, bytes],
    bound: Bound,
) -> Judgement:
    """Opens a round's uploads and checks them.

    Args:
        signatures: owner -> its signature of the request; nothing is opened without a quorum of them.
        opened: owner -> what :func:`~secure_fedgraph.core.carriers.secagg.openings.opened` gave.
        record: the server's, of every sum of that round and channel.
        key: the auditor's.
        roster: the owners' public keys, from their operator and not from the server.
        bound: the channel's protection, from the policy that the owners agreed on.

    Raises:
        BadInput: for a record of another round, or one whose signatures are not its owners': that is the
            server's fault, and says nothing of any owner.
        Refused: for fewer signatures than owners insist on.
    """
    if not isinstance(bound.carrier, Masked) or not bound.carrier.disputes:
        raise BadInput(f"{request.channel!r} is not masked with protection.disputes in this run's policy")
    signed = {*signatures} & roster.keys()
    for name in signed:
        verify(roster[name], signatures[name], request.statement)
    if len(signed) < bound.carrier.signers:
        raise Refused(f"{len(signed)} owners signed the request, and it takes {bound.carrier.signers}")
    if not record:
        raise BadInput(f"the server's record holds no sum of round {request.round}, {request.channel!r}")
    findings = {name: Finding(name) for name in request.owners}
    seeds = {}
    for name, finding in findings.items():
        try:
            seeds[name] = read_opening(opened.get(name, {}), name, request, key, roster)
        except HostileMessage as error:
            finding.blame(SILENT, str(error))
    found = [_judge_sum(_Sum(one, request, roster, bound), seeds, findings) for one in record]
    sums = None if None in found else all(found)
    return Judgement(tuple(findings.values()), sums)


def read_opening(
    tree: wire.Tree, name: str, request: Request, key: AgreementKey, roster: Mapping[str, bytes]
) -> dict[int, tuple[bytes, bytes]]:
    """Exchange -> an owner's two seeds of that sum.

    Raises:
        HostileMessage: for one that is missing, or that its owner did not sign for this request.
    """
    if not tree:
        raise HostileMessage("it did not open its upload")
    place, parts = request.bound_to(name), ("public", "content", openings.SIGNATURE)
    public, content, signature = (bytes(tree.get(one, b"")) for one in parts)
    verify(roster[name], signature, place + public + content)
    inner = wire.decode(unseal(key.shared_with(public, place), content, place))
    rows, exchanges = inner.get("seeds"), inner.get("exchanges")
    if not isinstance(exchanges, np.ndarray) or not is_bytes(rows, (exchanges.size, 2 * KEY_BYTES)):
        raise HostileMessage("what it opened holds no seeds")
    seeds = [(row[:KEY_BYTES].tobytes(), row[KEY_BYTES:].tobytes()) for row in rows]
    return dict(zip(exchanges.reshape(-1).tolist(), seeds, strict=True))


class _Sum:
    """One sum of the server's record, with every signature checked.

    Raises:
        BadInput: where the record is not what the owners signed.
    """

    def __init__(
        self, record: wire.Tree, request: Request, roster: Mapping[str, bytes], bound: Bound
    ) -> None:
        assert isinstance(bound.carrier, Masked)
        self.record, self.bound, self.bits = record, bound, bound.carrier.bits
        try:
            self._check(request, roster)
        except (HostileMessage, AttributeError, KeyError, TypeError, ValueError):
            raise BadInput(
                f"the server's record of round {request.round} is not what owners signed: the server, or "
                "whoever handed it over, changed it; nobody is judged by it"
            ) from None

    def _check(self, request: Request, roster: Mapping[str, bytes]) -> None:
        record, sums = self.record, int(self.record["sums"])
        self.exchange, cohort = int(record["exchange"]), tuple(record["cohort"].split("\n"))
        place = Scope(request.run, request.round, int(record["advertised"]), request.channel, cohort)
        self.scope = replace(place, exchange=self.exchange, history_head=record["given"])
        deck = {one: record[f"deck/{one}"] for one in ("names", *advertisements.FIELDS)}
        whole = KeyAdvertisements.from_tree(deck, sums)
        self.deck = whole if sums == 1 else whole.of_sum(int(record["number"]))
        self.context = advertisements.context(self.scope, self.deck)
        uploads = {key.removeprefix("upload/"): record[key] for key in record if key.startswith("upload/")}
        if not uploads.keys() <= {*request.owners}:
            raise ValueError("an upload that owners did not sign for")
        self.replies = {name: wire.decode(body) for name, body in uploads.items()}
        self.senders = {
            name: [one for one in record[f"senders/{name}"].split("\n") if one] for name in uploads
        }
        for name, reply in self.replies.items():
            public, committed, signature = (whole.row(name, one) for one in advertisements.FIELDS)
            verify(roster[name], signature, advertisements.statement(place, name, public, committed))
            said = openings.upload_statement(self.context, self.senders[name], reply, name)
            verify(roster[name], bytes(reply[openings.SIGNATURE]), said)
        self.layout = Layout.from_text(next(iter(self.replies.values()))["layout"])
        used = [np.asarray(record[TOTAL + name], np.float64) for name, _ in self.layout.fields]
        self.total = np.concatenate([one.reshape(self.layout.rows, -1) for one in used], axis=1)
        self.noise = {}
        for name in uploads:
            raw = record.get(f"noise/{name}", b"")
            if not isinstance(raw, bytes) or len(raw) % KEY_BYTES:
                raise ValueError("what is no key of noise")
            self.noise[name] = [raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES)]

    def words(self, name: str, seeds: tuple[bytes, bytes]) -> np.ndarray:
        """An upload without its masks, in the ring's numbers.

        Raises:
            HostileMessage: for seeds that are not those that it signed for.
        """
        own = AgreementKey.from_seed(seeds[0])
        if own.public != self.deck.row(name, "public"):
            raise HostileMessage("it opened another mask key than it had signed")
        if advertisements.commitment(seeds[1]) != self.deck.row(name, "commitment"):
            raise HostileMessage("it opened another mask than it had signed")
        plus, minus = [advertisements.own_key(seeds[1], self.context)], list[bytes]()
        for other in self.senders[name]:
            pair = own.shared_with(self.deck.row(other, "public"), advertisements.pair_info(self.context))
            (plus if name < other else minus).append(pair)
        size = self.layout.rows * self.layout.width + self.bound.tallies
        form = Layout((("words", (size,)),))
        words = np.array(ring_words.unpack(self.replies[name]["data"], self.bits, form, name))
        ring_words.accumulate(words, plus=minus, minus=plus)
        return ring_words.centred(words, self.bits).astype(np.int64)

    def adds_up(self, words: Mapping[str, np.ndarray]) -> bool:
        """Whether uploads give the sum that the server says it used."""
        ring = 1 << self.bits
        total = (sum(words.values()) + ring // 2) % ring - ring // 2
        matrix, _ = self.bound.split(np.asarray(total).reshape(1, -1), self.layout)
        for stage in self.bound.stages:
            for name in words:
                keys = self.noise[name]
                matrix = stage.take_off(matrix, keys) if keys else matrix
        return np.array_equal(self._values(matrix).reshape(self.layout.rows, -1), self.total)

    def values(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An upload's values, and its tallies."""
        matrix, tally = self.bound.split(words.reshape(1, -1), self.layout)
        return self._values(matrix).reshape(-1), tally

    def _values(self, matrix: np.ndarray) -> np.ndarray:
        for stage in reversed(self.bound.stages):
            matrix = stage.undo(matrix, self.scope)
        return np.asarray(matrix, dtype=np.float64)


def _judge_sum(one: _Sum, seeds: Mapping[str, Seeds], findings: Mapping[str, Finding]) -> bool | None:
    """Adds to the findings; whether the uploads add up, where all of them opened."""
    words: dict[str, np.ndarray] = {}
    for name in one.replies:
        if name not in seeds:
            continue
        try:
            if one.exchange not in seeds[name]:
                raise HostileMessage(f"it opened no seeds of exchange {one.exchange}")
            words[name] = one.words(name, seeds[name][one.exchange])
        except (HostileMessage, KeyError) as error:
            findings[name].blame(BROKE, str(error))
    values = {}
    for name, opened in words.items():
        values[name], tally = one.values(opened)
        for reason in _beyond_policy(one.bound, values[name], tally):
            findings[name].blame(BROKE, reason)
    if values:
        _compare(values, findings)
    return one.adds_up(words) if len(words) == len(one.replies) else None


def _beyond_policy(bound: Bound, values: np.ndarray, tally: np.ndarray) -> list[str]:
    """What no client that follows the policy sends."""
    noise, found = bound.deviation(1, 1), []
    largest, norm = float(np.abs(values).max(initial=0.0)), float(np.linalg.norm(values))
    limit = min(getattr(stage, "limit", math.inf) for stage in bound.stages)
    if largest > limit + SURE * noise:
        found.append(f"a value of {largest:.4g} is beyond the limit {limit:.4g}")
    if any(not 0 <= one <= 1 for one in tally.tolist()):
        found.append("the word that counts cut uploads is neither 0 nor 1")
    for stage in bound.stages:
        most = math.inf if not isinstance(stage, Clip) or stage.aside else stage.norm
        if norm > most * (1 + 1e-6) + noise * (math.sqrt(values.size) + SURE):
            found.append(f"a norm of {norm:.4g} is beyond the clip {most:.4g}")
    return found


def _compare(values: Mapping[str, np.ndarray], findings: Mapping[str, Finding]) -> None:
    """Who stands apart from the others of one sum."""
    norms = {name: float(np.linalg.norm(one)) for name, one in values.items()}
    for name, one in values.items():
        along = [
            float(one @ values[other]) / norms[other] for other in values if other != name and norms[other]
        ]
        if norms[name] >= (found := findings[name]).norm:
            found.norm, found.cosine = norms[name], max(along, default=0.0) / (norms[name] or 1.0)
        others = [norms[other] for other in values if other != name and norms[other]]
        usual = median(others) if others else math.inf
        if norms[name] > FAR * usual:
            found.blame(
                APART, f"a norm of {norms[name]:.4g} is over {FAR:g} times the others' median, {usual:.4g}"
            )
        if others and not norms[name]:
            found.blame(APART, "all that it sent is zero")
