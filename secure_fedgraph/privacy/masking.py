"""Masked sums for the server: double masks, shares of both seeds, and drop-outs at every step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from secure_fedgraph.crypto import AgreementKey
from secure_fedgraph.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.privacy import masking_deck as decks
from secure_fedgraph.privacy import masking_session as client
from secure_fedgraph.privacy import masking_words as ring_words
from secure_fedgraph.privacy.masking_deck import Deck
from secure_fedgraph.privacy.neighbours import Shape, around, circle, shape
from secure_fedgraph.privacy.party import Party
from secure_fedgraph.privacy.protection import DIFFERENCES, SUBTRACTION, Ask, Carrier, Scope, Terms
from secure_fedgraph.privacy.secret_sharing import BYTES, candidates
from secure_fedgraph.protocol.channel import Domain, Reveal
from secure_fedgraph.protocol.upload import Layout
from secure_fedgraph.protocol.wire import Tree

Keys = tuple[list[bytes], list[bytes]]
"""Keys of streams to add to a total of masked words, and of those to subtract."""


@dataclass(frozen=True)
class Masked(Carrier):
    """Adds a key stream of its own and one for each neighbour to an upload; survivors help to take them off.

    Five exchanges a sum. *Advertise*: a fresh key and a commitment to the own mask's seed, signed by the
    identity. *Share*: shares of both seeds, sealed to each neighbour. *Answer*: the upload under both masks.
    *Agree*: each client signs the list of those whose upload arrived. *Unmask*: for each of its neighbours a
    client reveals the share of the own mask's seed if it is on the list, else of the mask key's seed.

    Guarantees:
        - to anybody who lacks its own mask's seed or one of its pairs' keys, an upload's words are uniform in
          the ring: to the server, and to a coalition with up to ``colluders`` of the cohort;
        - the server learns one sum, over more than half of the cohort and never fewer than the quorum: a
          client signs one list and reveals once, for a list that ``(cohort + colluders) // 2 + 1`` clients
          signed, so two lists cannot both be answered, and never both shares for one client;
        - below that many survivors nothing is opened; above, the sum is exact in the ring;
        - any secret that shares can give back serves one sum, and is compared with what was advertised;
        - clients that were shown other keys, another cohort or another broadcast do not mask or sign as one.
    Needs:
        - a roster of identity keys that the server did not hand out;
        - for cohorts above 32, where clients mask with some neighbours only: at most ``colluders`` of the
          cohort with the server. One that lies about who dropped out may then open the sum in parts, each of
          at least two honest uploads but with the probability that the module of neighbours states; one that
          follows the protocol opens the whole.

    Args:
        bits: of the ring and of a word on the wire: 16, 20 or 32.
        colluders: the share of a cohort that may work with the server, from 0 to below 1.
        dropouts: the share of it that may drop out by chance, for the number of neighbours in large cohorts.
        batch: clients are summed in whole batches of this many, so that no two sums, of whatever rounds, tell
            fewer apart; 1 is off. A drop-out costs its batch: of clients that answer with probability ``q``,
            ``q**batch`` are summed.
        quorum, batches: filled in by binding.
        dealt: the server's half of one sum, filled in by :meth:`prepare`.

    Raises:
        BadInput: for settings out of range.

    References:
        Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017
        (figure 4); Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020;
        So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage, AAAI 2023 (batches).
    """

    bits: int = 32
    colluders: float = 0.1
    dropouts: float = 0.2
    batch: int = 1
    quorum: int = 2
    batches: tuple[tuple[str, ...], ...] = ()
    dealt: Dealt | None = field(default=None, repr=False, compare=False)

    name = "masked"
    takes = Domain.RING
    gives = Domain.MASKED
    reveals = frozenset({Reveal.SUM})
    agrees_on_keys = True
    tolerates_dropouts = True

    def __post_init__(self) -> None:
        if self.bits not in ring_words.WIDTHS:
            raise BadInput(f"bits {self.bits}: masked words have 16, 20 or 32; set protection.bits=32")
        for key in ("colluders", "dropouts"):
            if not 0 <= getattr(self, key) < 1:
                raise BadInput(f"{key} {getattr(self, key)}: a share of the cohort, from 0 to below 1")
        if self.batch < 1:
            raise BadInput(f"batch {self.batch}: a number of clients; 1 sums whoever is there")

    @property
    def ring(self) -> int:  # type: ignore[override]
        """Words are added modulo this."""
        return 1 << self.bits

    def bind(self, terms: Terms) -> Masked:
        """Fixes the quorum and the batches.

        Raises:
            BadInput: for batches larger than the federation.
        """
        names, size = sorted(terms.clients), self.batch
        if size > len(names):
            raise BadInput(f"batch {size}: there are {len(names)} clients; set protection.batch=1, or fewer")
        count = len(names) // size  # the last batch takes what is left over
        cuts = [*(size * i for i in range(count)), len(names)]
        batches = tuple(tuple(names[a:b]) for a, b in pairwise(cuts)) if size > 1 else ()
        return replace(self, quorum=max(terms.quorum, 2), batches=batches)

    def excess(self, terms: Terms, traces: str = "") -> tuple[str, ...]:
        """What sums give away by subtraction."""
        told = DIFFERENCES
        if self.batch > 1:
            told = (
                f"two sums that differ in one batch of {self.batch} clients give that batch's by subtraction"
            )
        return (told, SUBTRACTION) if len(terms.clients) == 2 else (told,)

    def contributors(self, uploaded: tuple[str, ...]) -> tuple[str, ...]:
        """Those in whole batches."""
        there = set(uploaded)
        left_out = {name for batch in self.batches if not there.issuperset(batch) for name in batch}
        return tuple(name for name in uploaded if name not in left_out)

    # --- the client's half ----------------------------------------------------------------------------------

    def answer(self, step: str, given: Tree, scope: Scope, party: Party) -> Tree:
        """Advertise, share, agree, unmask: in this order, each once."""
        insists = client.Insists(self.quorum, self.colluders, self.dropouts, self.contributors)
        if step == client.ADVERTISE:
            return client.advertise(scope, party, insists)
        if step == client.SHARE:
            return client.share(given, scope, party, insists)
        if step == client.AGREE:
            return client.agree(given, scope, party, insists)
        if step == client.UNMASK:
            return client.unmask(given, scope, party)
        return super().answer(step, given, scope, party)

    def accept(self, part: Tree, scope: Scope, party: Party) -> None:
        """Takes the neighbours' shares, before the algorithm works."""
        client.accept(part, scope, party)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> np.ndarray:
        """The masked words, one for each value, packed at the ring's width."""
        plus, minus = client.mask_keys(scope, party)
        words = np.array(matrix, dtype=np.int32, order="C").reshape(-1)  # always a copy
        words = words.astype("<u2") if self.bits == 16 else words.view("<u4")
        ring_words.accumulate(words, plus=plus, minus=minus)
        return ring_words.pack(words, self.bits)

    # --- the server's half ----------------------------------------------------------------------------------

    def prepare(self, ask: Ask, cohort: tuple[str, ...], channel: str) -> Masked:
        """Collects keys and sealed shares before the uploads are asked for.

        Raises:
            Refused: where too few clients are left.
        """
        adverts = ask(client.ADVERTISE, {name: {} for name in cohort})
        least = max(shape(len(cohort), len(cohort), self.colluders, self.dropouts).signatures, self.quorum)
        _enough(adverts, least, len(cohort), channel, "had advertised a key")
        deck = Deck.of(adverts)
        numbers = shape(len(cohort), len(deck.names), self.colluders, self.dropouts)
        neighbours = around(circle(deck.names, deck.digest), numbers.degree)
        replies = ask(client.SHARE, dict.fromkeys(deck.names, deck.to_tree()))
        _enough(replies, least, len(cohort), channel, "had shared its secrets")
        for name, tree in replies.items():
            rows = tree.get("shares")
            wanted = (len(neighbours[name]), client.SEALED_SHARES)
            if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape != wanted:
                raise HostileMessage(
                    f"channel {channel!r}: {name} shared its secrets with others than its neighbours"
                )
        shares = {name: tree["shares"] for name, tree in replies.items()}
        return replace(self, dealt=Dealt(cohort, deck, numbers, least, neighbours, shares))

    def parts(self, cohort: tuple[str, ...]) -> dict[str, Tree]:
        """Each client that is still there, with the shares that its neighbours sealed to it."""
        return self._dealt.parts()

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum over the contributors, centred.

        Raises:
            Refused: where too few clients are left, at any step; nothing was opened then.
        """
        if not set(sealed) <= set(self._dealt.shares):
            raise HostileMessage(f"channel {scope.channel!r}: an upload came from outside the cohort")
        # checked before the total is made: a layout's promise allocates nothing
        found = {name: ring_words.unpack(data, self.bits, layout, name) for name, data in sealed.items()}
        survivors = self.contributors(tuple(found))
        plus, minus = self.unmasking(survivors, scope, ask)
        total = np.zeros(layout.rows * layout.width, dtype=ring_words.word(self.bits))
        ring_words.accumulate(total, [found[name] for name in survivors], plus, minus)
        return ring_words.centred(total, self.bits).reshape(layout.rows, layout.width)

    def unmasking(self, survivors: Iterable[str], scope: Scope, ask: Ask) -> Keys:
        """Has the survivors agree and unmask: the keys of the streams that their sum is still under.

        A server that cannot hold all uploads adds them up as they come and takes these off at the end.
        """
        dealt, channel = self._dealt, scope.channel
        names = tuple(sorted(survivors))
        _enough(names, dealt.least, len(dealt.cohort), channel, "had uploaded")
        shown = {"survivors": "\n".join(names)}
        signed = ask(client.AGREE, dict.fromkeys(names, shown))
        _enough(signed, dealt.least, len(dealt.cohort), channel, "had signed the list of survivors")
        given = _signatures(dict(list(signed.items())[: dealt.least]))  # who checks them checks no more
        revealed = ask(client.UNMASK, dict.fromkeys(signed, given))
        return dealt.keys(names, revealed, decks.context(scope, dealt.deck), channel)

    @property
    def _dealt(self) -> Dealt:
        if self.dealt is None:
            raise HostileMessage("a masked sum is prepared before it is asked for")
        return self.dealt


@dataclass(frozen=True)
class Dealt:
    """What the server knows of one sum before the uploads: keys, graph, and shares that it cannot open."""

    cohort: tuple[str, ...]
    deck: Deck
    shape: Shape
    least: int
    neighbours: Mapping[str, tuple[str, ...]]
    shares: Mapping[str, np.ndarray]

    @cached_property
    def held(self) -> dict[str, tuple[str, ...]]:
        """Client -> whose shares it holds, its own among them, sorted."""
        there = set(self.shares)
        return {n: tuple(sorted({*self.neighbours[n], n} & there)) for n in self.shares}

    def parts(self) -> dict[str, Tree]:
        """The sealed shares by reader."""
        found: dict[str, Tree] = {}
        places = {name: {n: i for i, n in enumerate(self.neighbours[name])} for name in self.shares}
        for reader, held in self.held.items():
            senders = [name for name in held if name != reader]
            rows = [self.shares[name][places[name][reader]] for name in senders]
            stacked = np.stack(rows) if rows else np.empty((0, client.SEALED_SHARES), dtype=np.uint8)
            found[reader] = {client.SENDERS: "\n".join(senders), client.SHARES: stacked}
        return found

    def keys(
        self, survivors: tuple[str, ...], revealed: Mapping[str, Tree], bound_to: bytes, channel: str
    ) -> Keys:
        """The keys of what is left in the sum: survivors' own masks, pairs with those that dropped out."""
        alive, by_owner = set(survivors), self._by_owner(revealed, channel)
        needed = [n for n in self.shares if n in alive or alive.intersection(self.neighbours[n])]
        # before anything is put together: below the threshold of one, nothing of anybody is
        for name in needed:
            _enough(by_owner.get(name, ()), self.shape.shares, len(self.neighbours[name]) + 1, channel,
                    f"of those that hold shares of {name}'s secrets had revealed one")  # fmt: skip
        plus: list[bytes] = []
        minus: list[bytes] = []
        info = decks.pair_info(bound_to)
        for name in needed:
            if name in alive:
                minus.append(decks.own_key(self._own_seed(name, by_owner[name]), bound_to))
                continue
            key = self._mask_key(name, by_owner[name])
            for other in alive.intersection(self.neighbours[name]):
                pair = key.shared_with(self.deck.row(other, "public"), info)
                (minus if other < name else plus).append(pair)  # the lower name had added it
        return plus, minus

    def _by_owner(self, revealed: Mapping[str, Tree], channel: str) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for holder, tree in revealed.items():
            rows, owners = tree.get("shares"), self.held[holder]
            if (
                not isinstance(rows, np.ndarray)
                or rows.dtype != np.uint8
                or rows.shape != (len(owners), BYTES)
            ):
                raise HostileMessage(f"channel {channel!r}: {holder} revealed something that is no shares")
            for owner, row in zip(owners, rows, strict=True):
                share = int.from_bytes(row.tobytes(), "little")
                found.setdefault(owner, {})[self.deck.places[holder] + 1] = share
        return found

    def _own_seed(self, name: str, shares: Mapping[int, int]) -> bytes:
        committed = self.deck.row(name, "commitment")
        for seed in self._seeds(shares):
            if decks.commitment(seed) == committed:
                return seed
        raise _wrong(name)

    def _mask_key(self, name: str, shares: Mapping[int, int]) -> AgreementKey:
        public = self.deck.row(name, "public")
        for seed in self._seeds(shares):
            key = AgreementKey.from_seed(seed)
            if key.public == public:
                return key
        raise _wrong(name)

    def _seeds(self, shares: Mapping[int, int]) -> Iterable[bytes]:
        return (found.to_bytes(BYTES, "little") for found in candidates(shares, self.shape.shares))


def _wrong(name: str) -> HostileMessage:
    return HostileMessage(
        f"the shares of {name}'s secret do not give what {name} advertised: it, or those that hold them, "
        "lied; nothing was opened"
    )


def _signatures(signed: Mapping[str, Tree]) -> Tree:
    for name, tree in signed.items():
        row = tree.get("signature")
        if not isinstance(row, np.ndarray) or row.dtype != np.uint8 or row.shape != (64,):
            raise HostileMessage(f"{name} signed the list of survivors with something that is no signature")
    return {
        "names": "\n".join(signed),
        "signatures": np.stack([tree["signature"] for tree in signed.values()]),
    }


def _enough(found: Any, needed: int, of: int, channel: str, had: str) -> None:
    if len(found) < needed:
        raise Refused(
            f"channel {channel!r}: only {len(found)} of {of} clients {had} and {needed} are needed: "
            "nothing was opened"
        )
