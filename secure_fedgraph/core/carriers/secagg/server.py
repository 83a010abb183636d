"""Masked sums for the server: double masks, shares of both seeds, and drop-outs at every step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from secure_fedgraph.core.carriers.secagg import advertisements, client, openings, ring_words
from secure_fedgraph.core.carriers.secagg.advertisements import KeyAdvertisements, is_bytes
from secure_fedgraph.core.carriers.secagg.neighbours import (
    COMPLETE,
    SumThresholds,
    around,
    circle,
    colluders_among,
    max_colluders,
    opens_whole,
    thresholds,
)
from secure_fedgraph.core.carriers.secagg.unmasking import SumSession, Unmasked
from secure_fedgraph.core.carriers.tolerant_ask import TolerantAsk, keep_valid, require
from secure_fedgraph.core.channel import Domain, Reveal
from secure_fedgraph.core.crypto import verify
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.protection.contracts import (
    DIFFERENCES,
    SUBTRACTION,
    Ask,
    BindContext,
    Carrier,
    NoiseKeys,
    Party,
    Scope,
)
from secure_fedgraph.core.protection.noise_components import ONE_PART, NoiseComponents
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.core.wire import Tree

ABANDONED = 16
"""Sums of a run that may stay unfinished by default, beyond the share that may drop out."""
PARTS = (
    "a server that lies about who dropped out may open a sum in parts, of two honest uploads or more, where "
    "enough clients collude or are reported as dropped out: a larger quorum prevents it"
)
"""The excess of sums over clients that mask with some of the others only, at a small quorum."""


@dataclass(frozen=True)
class Masked(Carrier):
    """Adds a key stream of its own and one for each neighbour to an upload; survivors help to take them off.

    Five exchanges a sum. *Advertise*: a fresh key and a commitment to the own mask's seed, signed by the
    identity. *Share*: shares of both seeds, sealed to each neighbour. *Answer*: the upload under both masks.
    *Agree*: each client signs the list of those whose upload arrived. *Unmask*: for each of its neighbours a
    client reveals the share of the own mask's seed if it is on the list, else of the mask key's seed.

    Guarantees:
        - to anybody who lacks its own mask's seed or one of its pairs' keys, an upload's words are uniform in
          the ring: to the server, and to a coalition with up to ``colluders`` of the roster;
        - the server learns one sum: over more than half of the cohort, at least the quorum, and at least two
          clients more than may collude. A client signs one list and reveals once, for a list that
          ``(cohort + colluders) // 2 + 1`` clients signed, so two lists cannot both be answered; and it never
          reveals both shares for one client. Colluders are a share of the roster: the server picks cohorts;
        - below that many survivors nothing is opened; above, the sum is exact in the ring;
        - a client with an invalid answer at any step is left out as if it had dropped out at that step, and
          wrong shares from some of those that hold them are corrected. One that dealt shares of other secrets
          than it advertised is noticed at the end only: nothing is opened then, and the error names it;
        - any secret that shares can give back serves one sum, and is compared with what was advertised;
        - masks and signatures of clients that were shown different keys, cohorts or broadcasts do not fit;
        - a client hands out keys of its noise with its one answer to *unmask*, for the list that it signed,
          and only of the parts that no sum over that list needs; and it does only where no part of the sum
          can be opened by itself (:func:`~secure_fedgraph.core.carriers.secagg.neighbours.opens_whole`). A
          survivor that is gone by then keeps its noise in the sum. A client that hands out wrong keys adds
          noise to the sum by that.
    Needs:
        - a roster of identity keys that the server did not hand out;
        - for cohorts above 32, where clients mask with some neighbours only: at most ``colluders`` of the
          roster that work with the server. A server that lies about who dropped out may then open the sum in
          parts, each of at least two honest uploads, except with the probability that the module
          ``neighbours`` states; one that follows the protocol opens the whole.

    Args:
        bits: of the ring and of a word on the wire: 16, 20 or 32.
        colluders: the share of the roster that may work with the server, from 0 to below 1.
        dropouts: the share of a cohort that may drop out by chance, for the number of neighbours in large
            cohorts.
        batch: clients are summed in whole batches of this many, so that any two sums, of any rounds, differ
            by whole batches; 1 is off. A drop-out costs its batch: of clients that answer with probability
            ``q``, ``q**batch`` are summed.
        abandoned: how many of the sums that a client uploads for may stay unfinished in a run, beyond the
            share ``dropouts`` of them; after that it takes part in no more.
        disputes: for how many rounds clients sign what they upload, and keep the seeds that open it to an
            auditor (:mod:`~secure_fedgraph.core.carriers.secagg.openings`); 0 is never.
        quorum, batches, roster, noise_components: filled in by binding.
        session: the server's half of one sum, filled in by :meth:`prepare`.

    Raises:
        BadInput: for settings out of range.

    References:
        Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017
        (figure 4); Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020;
        So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage, AAAI 2023 (batches);
        Jiang, Wang, Chen, Dordis, EuroSys 2024 (noise that is taken off once drop-outs are known).
    """

    bits: int = 32
    colluders: float = 0.1
    dropouts: float = 0.2
    batch: int = 1
    abandoned: int = ABANDONED
    disputes: int = 0
    quorum: int = 2
    roster: int = 0
    batches: tuple[tuple[str, ...], ...] = ()
    noise_components: NoiseComponents = ONE_PART
    session: SumSession | None = field(default=None, repr=False, compare=False)

    name = "masked"
    takes = Domain.RING
    gives = Domain.MASKED
    reveals = frozenset({Reveal.SUM})
    agrees_on_keys = True
    tolerates_dropouts = True
    steps_after_upload = (client.AGREE, client.UNMASK)
    confirming_step = client.UNMASK

    def __post_init__(self) -> None:
        if self.bits not in ring_words.WIDTHS:
            raise BadInput(f"bits {self.bits}: masked words have 16, 20 or 32; set protection.bits=32")
        for key in ("colluders", "dropouts"):
            if not 0 <= getattr(self, key) < 1:
                raise BadInput(f"{key} {getattr(self, key)}: a share of the cohort, from 0 to below 1")
        if self.abandoned < 0:
            raise BadInput(f"abandoned {self.abandoned}: a number of sums, from 0")
        if self.disputes < 0:
            raise BadInput(f"disputes {self.disputes}: a number of rounds, from 0; 0 is off")
        if self.batch < 1:
            raise BadInput(f"batch {self.batch}: a number of clients, from 1; 1 is off")

    @property
    def ring(self) -> int:  # type: ignore[override]
        """Words are added modulo this."""
        return 1 << self.bits

    def bind(self, context: BindContext) -> Masked:
        """Fixes the quorum and the batches.

        Raises:
            BadInput: for batches larger than the federation.
        """
        names, size = sorted(context.clients), self.batch
        if size > len(names):
            raise BadInput(f"batch {size}: there are {len(names)} clients; set protection.batch=1, or fewer")
        count = len(names) // size  # the last batch takes what is left over
        cuts = [*(size * i for i in range(count)), len(names)]
        batches = tuple(tuple(names[a:b]) for a, b in pairwise(cuts)) if size > 1 else ()
        # a sum that goes back to its contributors protects nobody where they are too few, drop-outs or not
        min_clients = 1 if context.channel.accept_too_few else context.channel.min_clients
        return replace(
            self,
            quorum=max(context.quorum, min_clients),
            batches=batches,
            roster=len(names),
            noise_components=context.noise_components,
        )

    def removes_noise(self, context: BindContext) -> bool:
        """Whether clients hand out keys where everybody answers: if not, they never do."""
        count = len(context.clients)
        numbers = thresholds(count, count, self.colluders, self.dropouts, count)
        return opens_whole(numbers, count, count, colluders_among(count, self.colluders))

    def excess(self, context: BindContext, effect_words: str = "") -> tuple[str, ...]:
        """What sums give away by subtraction."""
        difference = DIFFERENCES
        if self.batch > 1:
            difference = (
                f"two sums that differ in one batch of {self.batch} clients give that batch's by subtraction"
            )
        said = (difference, openings.EXCESS.format(self.disputes)) if self.disputes else (difference,)
        if len(context.clients) == 2:
            return *said, SUBTRACTION
        return (*said, PARTS) if self._parts_open(context) else said

    def _parts_open(self, context: BindContext) -> bool:
        """Whether colluders and clients reported as gone may be as many as a client's neighbours: where they
        stand between two parts of the circle, the parts share no mask. A complete graph has no parts."""
        count = len(context.clients)
        if count <= COMPLETE:
            return False
        degree = thresholds(count, count, self.colluders, self.dropouts, count).degree
        return degree <= max_colluders(count, self.colluders) + count - max(context.quorum, 2)

    def contributors(self, uploaded: tuple[str, ...]) -> tuple[str, ...]:
        """Those in whole batches."""
        present = set(uploaded)
        left_out = {name for batch in self.batches if not present.issuperset(batch) for name in batch}
        return tuple(name for name in uploaded if name not in left_out)

    # --- the client's half ----------------------------------------------------------------------------------

    def answer(self, step: str, given: Tree, scope: Scope, party: Party) -> Tree:
        """Advertise, share, agree, unmask: in this order, each once."""
        requirements = self._requirements
        if step == client.ADVERTISE:
            return client.advertise(given, scope, party, requirements)
        if step == client.SHARE:
            return client.share(given, scope, party, requirements)
        if step == client.AGREE:
            return client.agree(given, scope, party, requirements)
        if step == client.UNMASK:
            return client.unmask(given, scope, party, requirements)
        return super().answer(step, given, scope, party)

    def keep_noise_keys(self, keys: tuple[bytes, ...], party: Party) -> None:
        """Keeps them among the secrets of the sum."""
        client.keep_noise_keys(keys, party)

    def accept(self, part: Tree, scope: Scope, party: Party) -> None:
        """Takes the neighbours' shares, before the algorithm works."""
        client.accept(part, scope, party, self._requirements)

    def seal(self, matrix: np.ndarray, scope: Scope, party: Party) -> np.ndarray:
        """The masked words, one for each value, packed at the ring's width."""
        plus, minus = client.mask_keys(scope, party)
        whole = matrix if matrix.dtype.kind == "i" else matrix.astype(np.int64)
        words = whole.reshape(-1).astype(ring_words.word(self.bits))  # two's complement; always a copy
        ring_words.accumulate(words, plus=plus, minus=minus)
        return ring_words.pack(words, self.bits)

    def wrap(self, tree: Tree, scope: Scope, party: Party) -> Tree:
        """With disputes: the upload's signature beside it, once the seeds that open it are kept."""
        if not self.disputes:
            return tree
        return openings.signed_and_kept(tree, scope, party, self.disputes, self.signers)

    def abandon(self, party: Party) -> None:
        """The latest sum's secrets are gone: its survivors are not signed and its masks not opened."""
        client.abandon(party)

    def binding_mark(self, scope: Scope, party: Party) -> str:
        """A hash of the broadcast that the client was given and the keys that it was handed."""
        return client.latest(party).bound_to.hex()

    @property
    def signers(self) -> int:
        """How many owners have to sign before an upload is opened: two such quorums share an honest owner."""
        return max(self.quorum, (self.roster + max_colluders(self.roster, self.colluders)) // 2 + 1)

    @property
    def _requirements(self) -> client.ClientRequirements:
        return client.ClientRequirements(
            self.quorum,
            self.roster,
            self.colluders,
            self.dropouts,
            self.contributors,
            self.abandoned,
            self.noise_components,
        )

    # --- the server's half ----------------------------------------------------------------------------------

    def prepare(self, ask: Ask, cohort: tuple[str, ...], channel: str, sums: int = 1) -> Masked:
        """Collects keys and sealed shares before the uploads are asked for, for one sum or for several.

        Raises:
            Refused: where too few clients are left.
        """
        sums = min(sums, self._most_sums(cohort))
        task: Tree = {client.SUMS: sums} if sums > 1 else {}
        offers = ask(client.ADVERTISE, dict.fromkeys(cohort, task))
        scope, roster = (ask.scope, ask.roster) if isinstance(ask, TolerantAsk) else (None, {})
        adverts = keep_valid(
            ask,
            offers,
            lambda name, tree: advertisements.check_advert(name, tree, scope, roster.get(name), sums),
        )
        copied = advertisements.copies(adverts)
        adverts = keep_valid(ask, adverts, lambda name, _: advertisements.check_not_copied(name, copied))
        least = max(self._thresholds(cohort, len(cohort)).signatures, self.quorum)
        require(ask, len(adverts), least, len(cohort), channel, "had advertised a key")
        advertised = KeyAdvertisements.of(adverts, sums)
        numbers = self._thresholds(cohort, len(advertised.names))
        neighbours = around(circle(advertised.names, advertised.digest), numbers.degree)

        def check(name: str, tree: Tree) -> None:
            if not is_bytes(tree.get("shares"), (len(neighbours[name]), client.sealed_shares(sums))):
                raise HostileMessage(
                    f"channel {channel!r}: {name} shared its secrets with others than its neighbours"
                )

        replies = keep_valid(
            ask, ask(client.SHARE, dict.fromkeys(advertised.names, advertised.to_tree())), check
        )
        require(ask, len(replies), least, len(cohort), channel, "had shared its secrets")
        shares = {name: tree["shares"] for name, tree in replies.items()}
        session = SumSession(cohort, advertised, numbers, least, neighbours, shares, sums=sums, place=scope)
        return replace(self, session=session.of_sum(0))

    def following(self, uploaded: Iterable[str]) -> Masked | None:
        """This carrier prepared for the next sum of its set-up.

        Args:
            uploaded: whose uploads the last sum holds. Where somebody is missing the set-up is over, so that
                a client that comes back takes part in the next sum.
        """
        session = self._session
        if set(uploaded) != set(session.cohort) or session.number + 1 >= session.sums:
            return None
        return replace(self, session=session.of_sum(session.number + 1))

    def _most_sums(self, cohort: tuple[str, ...]) -> int:
        return client.most_sums(len(cohort), self._thresholds(cohort, len(cohort)).degree)

    def upload_requests(self, cohort: tuple[str, ...]) -> dict[str, Tree]:
        """Each client that is still present, with the shares that its neighbours sealed to it."""
        return self._session.upload_requests()

    def committed(self, replies: dict[str, Tree], scope: Scope, ask: Ask) -> dict[str, Tree]:
        """With disputes: those that their owners signed."""
        if not self.disputes:
            return replies
        roster = ask.roster if isinstance(ask, TolerantAsk) else {}
        check = partial(openings.check_signed, self._session, scope, roster)
        return keep_valid(ask, replies, check)

    def evidence(self, replies: Mapping[str, Tree], scope: Scope) -> Tree:
        """With disputes: what an auditor needs besides the seeds."""
        if not self.disputes:
            return {}
        return {"kept": self.disputes, **openings.evidence(self._session, scope, replies)}

    def check(self, data: Any, layout: Layout, name: str) -> None:
        """Checks that an upload holds words of this ring, as many as its layout promises."""
        ring_words.checked(data, self.bits, layout, name)

    def open_sum(self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask) -> np.ndarray:
        """The sum over the contributors, centred.

        Raises:
            Refused: where too few clients are left, at any step; nothing was opened then.
        """
        return self.open_sum_with_keys(sealed, layout, scope, ask)[0]

    def open_sum_with_keys(
        self, sealed: Mapping[str, Any], layout: Layout, scope: Scope, ask: Ask
    ) -> tuple[np.ndarray, NoiseKeys]:
        """The same, and the keys of noise in it that it does not need.

        Raises:
            Refused: as :meth:`open_sum`.
        """
        if not set(sealed) <= set(self._session.shares):
            raise HostileMessage(f"channel {scope.channel!r}: an upload came from outside the cohort")
        # checked before the total is made: a layout's promise allocates nothing
        uploads = {name: ring_words.unpack(data, self.bits, layout, name) for name, data in sealed.items()}
        survivors = self.contributors(tuple(uploads))
        found = self.unmasking(survivors, scope, ask)
        self._session.noise_keys_shown.update(found.noise_keys)
        total = np.zeros(layout.rows * layout.width, dtype=ring_words.word(self.bits))
        ring_words.accumulate(total, [uploads[name] for name in survivors], found.plus, found.minus)
        return ring_words.centred(total, self.bits).reshape(layout.rows, layout.width), found.noise_keys

    def unmasking(self, survivors: Iterable[str], scope: Scope, ask: Ask) -> Unmasked:
        """Has the survivors agree and unmask: the keys of the streams that still mask their sum.

        A server that cannot hold all uploads adds them up as they come and takes these off at the end.
        """
        session, channel = self._session, scope.channel
        names, of = tuple(sorted(survivors)), len(session.cohort)
        bound_to = advertisements.context(scope, session.advertised)
        require(ask, len(names), session.least, of, channel, "had uploaded")
        survivor_list = {"survivors": "\n".join(names)}
        roster = ask.roster if isinstance(ask, TolerantAsk) else {}
        agreed = advertisements.agreement(bound_to, names)
        signed = keep_valid(
            ask,
            ask(client.AGREE, dict.fromkeys(names, survivor_list)),
            lambda name, tree: _check_signature(name, tree, agreed, roster.get(name)),
        )
        require(ask, len(signed), session.least, of, channel, "had signed the list of survivors")
        unneeded = self.noise_components.unneeded(len(names))
        # clients check no more, unless they have keys to hand out: more signatures leave fewer who could lie
        shown = dict(signed if unneeded else list(signed.items())[: session.least])
        bad = colluders_among(of, self.colluders, self.roster)
        if not opens_whole(session.thresholds, len(session.advertised.names), len(shown), bad):
            unneeded = 0
        noise_keys: dict[str, tuple[bytes, ...]] = {}

        def check(name: str, tree: Tree) -> None:
            session.check_shares(name, tree, channel)
            noise_keys[name] = session.noise_keys(name, tree, unneeded, channel)

        revealed = keep_valid(ask, ask(client.UNMASK, dict.fromkeys(signed, _signatures(shown))), check)
        plus, minus = session.keys(names, revealed, bound_to, channel, ask)
        return Unmasked(plus, minus, noise_keys if unneeded else {})

    def _thresholds(self, cohort: tuple[str, ...], present: int) -> SumThresholds:
        return thresholds(len(cohort), present, self.colluders, self.dropouts, self.roster)

    @property
    def _session(self) -> SumSession:
        if self.session is None:
            raise HostileMessage("a masked sum is prepared before it is asked for")
        return self.session


def _check_signature(name: str, tree: Tree, agreed: bytes, identity: bytes | None) -> None:
    row = tree.get("signature")
    if not is_bytes(row, (64,)):
        raise HostileMessage(f"{name} signed the list of survivors with something that is no signature")
    try:
        if identity is not None:
            verify(identity, bytes(row), agreed)
    except HostileMessage:
        raise HostileMessage(
            f"{name} signed another list of survivors than it was shown, or was given another broadcast"
        ) from None


def _signatures(signed: Mapping[str, Tree]) -> Tree:
    return {
        "names": "\n".join(signed),
        "signatures": np.stack([tree["signature"] for tree in signed.values()]),
    }
