"""F1, F2 and F8: single updates, by comparing rounds, by collusion, and by drawing the noise again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from secure_fedgraph.attacks.attack import COALITION, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.linear import groups, held, means
from secure_fedgraph.attacks.weights.updates import update_unit
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

MEAN_UPDATE, FIRST_UPDATE, DENOISED = "mean update", "first update", "update without its noise"
NOISE = "noise drawn again"
UNWEIGHTED = ("fedavg", "fedprox", "fedsage", "gin-fedavg")
"""Algorithms whose next broadcast is the last one plus the mean of the updates."""


def vector(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """All values of an upload, in the order in which it travels."""
    return np.concatenate([np.asarray(v, dtype=np.float64).reshape(-1) for v in values.values()])


class CohortDifferencing(Attack):
    """F1: single updates from sums over cohorts that change from round to round.

    With ``Q`` the participation matrix, ``Q U = S``. Client i is singled out where its unit vector lies in
    the row space of ``Q``, for example by two sums that differ in one drop-out. Where updates do not drift
    that gives the update exactly, otherwise its expected value under Gaussian drift
    (:func:`~secure_fedgraph.attacks.linear.means`).

    References:
        So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage, AAAI 2023; Pasquini et
        al., Eluding Secure Aggregation, CCS 2022.
    """

    id = "f1-cohort-differencing"
    subject = "updates from changing cohorts"
    family = "aggregation"
    summary = "single owners' updates, from sums over changing cohorts"
    channel = "update"
    reads_sums = True
    controls = (
        Control(
            "drop-outs and small steps",
            {
                "rounds": 10,
                "clients": 10,
                "dropouts": 0.1,
                "training.batch": "full",
                "training.optimizer": "sgd",
                "training.fanout": [15, 15],
            },
        ),
    )
    depends_on = ("rounds", "clients", "dropouts", "protection.batch")
    stops = "fixed cohorts; whole batches of clients (protection.batch); noise"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean update of every owner that the cohorts single out."""
        names, cohorts, sums = self._system(view)
        _, single = held(cohorts)
        if not single.any():
            raise Blind(
                f"{self.id}: {len(sums)} sums of channel {self.channel!r} are over cohorts whose differences "
                "single nobody out"
            )
        estimates = means(cohorts, sums)
        chosen = [name for name, one in zip(names, single, strict=True) if one]
        values = dict(zip(chosen, estimates[single], strict=True))
        return Guess(MEAN_UPDATE, values, {name: (name,) for name in chosen}, len(sums))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean sum of every group of owners that the cohorts single out: all together at least."""
        names, cohorts, sums = self._system(view)
        together = groups(cohorts)
        joint = np.stack([cohorts[:, members[0]] for members in together], axis=1)
        (_, single), estimates = held(joint), means(joint, sums)
        values, targets = {}, {}
        for members, one, estimate in zip(together, single, estimates, strict=True):
            if one:
                key = " + ".join(names[i] for i in members)
                values[key], targets[key] = estimate, tuple(names[i] for i in members)
        if not values:
            raise Blind(f"{self.id}: no group of owners is singled out")
        return Guess(MEAN_UPDATE, values, targets, len(sums))

    def _system(self, view: View) -> tuple[list[str], np.ndarray, np.ndarray]:
        seen = self.opened_sums(view)
        names = sorted({name for one in seen for name in one.clients})
        cohorts = np.array([[name in one.clients for name in names] for one in seen], dtype=np.float64)
        return names, cohorts, np.stack([vector(one.values) for one in seen])


class OwnShareSubtraction(Attack):
    """F2: colluding owners subtract their own uploads from the sum; the other owners' sum remains.

    They need not see the sum itself: of an unweighted mean it is the step between two broadcasts. If all
    owners but one collude, they read the last one's update, however it is hidden on its way.

    References:
        Bonawitz et al., CCS 2017, section 6: the ideal functionality gives the sum, and own inputs are known.
    """

    id = "f2-own-share-subtraction"
    subject = "the update of the one that does not collude"
    family = "aggregation"
    summary = "the one honest owner's update, from the sum less the coalition's"
    adversaries = (COALITION,)
    channel = "update"
    first_rounds = 2
    controls = (Control("two rounds", {"rounds": 2}),)
    depends_on = ("clients",)
    stops = "noise from outside the coalition (distributed_dp); more honest owners"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The first update of the only owner outside the coalition."""
        rest, others, used = self._rest(view)
        if len(others) > 1:
            raise Blind(
                f"{self.id}: {len(others)} owners are outside the coalition, and it has their sum only"
            )
        return Guess(FIRST_UPDATE, {others[0]: rest}, {others[0]: others}, used)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The sum of all who are outside."""
        rest, others, used = self._rest(view)
        key = " + ".join(others)
        return Guess(FIRST_UPDATE, {key: rest}, {key: others}, used)

    def _rest(self, view: View) -> tuple[np.ndarray, tuple[str, ...], int]:
        clients = tuple(view.public["clients"])
        mine = [name for name in clients if name in view.parties]
        own = self._own(view, mine)
        total, contributors = self._sum(view, clients, own)
        others = tuple(name for name in contributors if name not in mine)
        if not others:
            raise Blind(f"{self.id}: nobody outside the coalition contributed")
        taken = [vector(own[name]) for name in mine if name in contributors]
        return total - np.sum(taken, axis=0), others, len(taken) + 1

    def _own(self, view: View, mine: Sequence[str]) -> dict[str, Mapping[str, np.ndarray]]:
        if not mine:
            raise Blind(f"{self.id}: no owner is in this view, so there is nothing to subtract")
        seen = [*view.own_uploads(self.channel), *self._readable(view)]
        first = min((one.round for one in seen), default=0)
        uploads = {one.clients[0]: one.values for one in reversed(seen) if one.round == first}
        missing = [name for name in mine if name not in uploads]
        if missing:
            raise Blind(f"{self.id}: what {missing[0]} uploaded was not kept in full in this view")
        return uploads

    def _readable(self, view: View) -> list[Seen]:
        return [s for s in view.uploads(self.channel) if s.clients[0] in view.parties]

    def _sum(
        self, view: View, clients: tuple[str, ...], own: Mapping[str, Mapping[str, np.ndarray]]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        sums = view.sums(self.channel)
        if sums:
            first = min(sums, key=lambda seen: seen.round)
            return vector(first.values), first.clients
        if view.public["algorithm"] not in UNWEIGHTED or view.public["settings"].get("weighted"):
            raise Blind(f"{self.id}: the step between broadcasts is no plain mean of the updates")
        broadcasts = {seen.round: seen.values for seen in view.asked(self.channel)}
        if len(broadcasts) < 2:
            raise Blind(f"{self.id}: one broadcast shows no step: it takes two rounds")
        first_round, second = sorted(broadcasts)[:2]
        before, after = broadcasts[first_round], broadcasts[second]
        scale = len(clients) / update_unit(before)
        shown = {k: scale * (np.asarray(after[k], float) - np.asarray(before[k], float)) for k in before}
        # values beside the weights do not change the broadcast: only the coalition's own are known
        kept = {k: sum(np.asarray(one[k], float) for one in own.values()) for k in next(iter(own.values()))}
        return vector({k: shown.get(k, mine) for k, mine in kept.items()}), clients


class RedrawnNoise(Attack):
    """F8: noise with a public seed is drawn again and subtracted.

    A generator seeded with public values (a global seed, the round's number) gives everybody the same noise.
    If noise comes from the operating system, drawing again gives different noise, and subtracting that makes
    the upload worse.
    """

    id = "f8-redrawn-noise"
    subject = "updates without their noise"
    family = "aggregation"
    summary = "updates without their noise, from a public seed"
    channel = "update"
    first_rounds = 1
    grants = ("the code that draws the noise, run again with every public seed",)
    needs = (NOISE,)
    stops = "noise from the operating system, as every policy draws it"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Every single upload less the noise that was drawn again for it."""
        uploads = self.single_uploads(view)
        noise = self._noise(knowledge)
        values = {
            seen.clients[0]: vector(seen.values) - noise[seen.round, seen.clients[0]]
            for seen in uploads
            if (seen.round, seen.clients[0]) in noise
        }
        return Guess.of_owners(DENOISED, values, len(uploads))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The first sum less every share of its noise."""
        seen, noise = min(self.opened_sums(view), key=lambda one: one.round), self._noise(knowledge)
        drawn = [noise[seen.round, name] for name in seen.clients if (seen.round, name) in noise]
        key = " + ".join(seen.clients)
        return Guess(DENOISED, {key: vector(seen.values) - np.sum(drawn, axis=0)}, {key: seen.clients}, 1)

    def _noise(self, knowledge: Knowledge) -> Mapping[tuple[int, str], np.ndarray]:
        noise: Mapping[tuple[int, str], np.ndarray] = knowledge.facts[NOISE]
        if not noise:
            raise Blind(f"{self.id}: no client adds noise to channel {self.channel!r}")
        return noise
