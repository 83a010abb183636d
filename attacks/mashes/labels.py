"""What the server reads of FedEgo's mashes; B2 and B3: the labels in them, and the noise on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from secure_fedgraph.attacks.attack import ALL, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.models.ego.model import EgoSage
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

EGOS, ACROSS, REDUCTION = "egos", "egos_across", "reduction"
WEIGHT, BIAS = "reduction.weight", "reduction.bias"
BATCH_LABELS, NOISED = "labels of batches", "mashes under repeated noise"
ROUNDS = (1, 2, 5, 10, 20, 50)
NONE = 1e-4
"""A standard deviation below this is rounding."""
SMALL = {"training.hidden": [64, 64], "training.epochs": 1}
RELEASED = {
    **SMALL,
    "algorithm": "fedego-released",
    "training.batching": "released",
    "clients": 10,
    "partition": "random",
    "rounds": 5,
}
"""The released code's batches, of ten owners that share nobody: 162 to 164 training nodes each on Cora."""
SAME_SHARE = 1e-4
"""How far sums of label shares are apart, relative to their mean, where nothing but a clip changed them."""
STOPS = (
    "masked mash=across (single owners; the union stays open); noise only on mashes released once "
    "(mash_rounds)"
)


@dataclass(frozen=True)
class Mashed:
    """The mashes of one round, and the reduction that made them.

    Args:
        rows: ``[mashes, positions, width]`` mean reduced features.
        labels: ``[mashes, positions, classes]``.
        weight: ``[features, width]`` of the reduction, or None where it cannot be read.
        bias: ``[width]``.
    """

    round: int
    clients: tuple[str, ...]
    rows: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    weight: np.ndarray | None = field(repr=False)
    bias: np.ndarray | None = field(repr=False)

    def reduced(self, x: Any) -> np.ndarray:
        """What the reduction makes of features ``[nodes, features]``, dense or sparse.

        Raises:
            Blind: where the view holds no reduction.
        """
        if self.weight is None or self.bias is None:
            raise Blind("the reduction layers that made the mashes cannot be read in this view")
        return np.asarray(np.maximum(np.asarray(x @ self.weight) + self.bias, 0))

    def sizes(self, batch: int, whole: bool) -> np.ndarray:
        """How many ego-graphs each mash mixes, ``[mashes]``; 0 where no number fits its label shares.

        Args:
            batch: the public number.
            whole: whether all mix that many; else the last one's size is the smallest that makes all its
                label shares whole numbers.
        """
        shares = self.labels.reshape(len(self.labels), -1)
        counts = np.where(_whole(shares, batch), batch, 0)
        if not whole:
            counts[-1] = next((n for n in range(1, batch + 1) if _whole(shares[-1:], n)[0]), 0)
        return counts


def _whole(shares: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(np.abs(shares * size - np.rint(shares * size)).max(1) < 1e-3)


class MashAttack(Attack):
    """What all attacks on mashes read: the mashes of each client, or their sums, and the reductions.

    A client mashes with the reduction that it has just trained: what it was given, and how it moved. A frozen
    one follows from the seed that it is told.
    """

    family = "mash"
    adversaries: ClassVar[tuple[str, ...]] = ("server",)
    channel = EGOS
    also_reads: ClassVar[tuple[str, ...]] = (ACROSS, REDUCTION)
    first_rounds = 20
    depends_on: ClassVar[tuple[str, ...]] = ("training.batching", "training.batch", "rounds")
    stops = STOPS

    def client_mashes(self, view: View) -> dict[str, list[Mashed]]:
        """Client -> its mashes, round by round.

        Raises:
            Blind: where no single upload can be read.
        """
        uploads = self.single_uploads(view, self.channel_in_use(view, ACROSS, EGOS))
        moved = view.uploads(REDUCTION) if REDUCTION in view.public["channels"] else []
        reductions = _reductions(view, moved, lambda one: (one.clients[0], one.round))
        by_client: dict[str, list[Mashed]] = {}
        for seen in uploads:
            (client,) = seen.clients
            weights = reductions.get((client, seen.round), (None, None))
            by_client.setdefault(client, []).append(_mashed(seen, weights, 1))
        return {client: unclipped(rounds) for client, rounds in by_client.items()}

    def summed_mashes(self, view: View) -> list[Mashed]:
        """The opened sums as means over contributors, round by round.

        Raises:
            Blind: where no sum was opened.
        """
        sums = self.opened_sums(view, ACROSS)
        reductions = _reductions(view, view.sums(REDUCTION), lambda one: one.round)
        return unclipped(
            [_mashed(seen, reductions.get(seen.round, (None, None)), len(seen.clients)) for seen in sums]
        )

    def sizes(self, view: View, mashed: Mashed) -> np.ndarray:
        """How many ego-graphs each of a client's mashes mixes."""
        settings, sums = view.public["settings"], ACROSS in view.public["channels"]
        return mashed.sizes(int(settings["batch"]), _batching(view) == "secret" or sums)

    def fixed(self, view: View) -> bool:
        """Whether a mash has the same members in every round."""
        return _batching(view) == "released"


def _batching(view: View) -> str:
    """Who may know which ego-graphs are mashed together: a setting of fedego-released alone."""
    return str(view.public["settings"].get("batching", "secret"))


def spread(rounds: Sequence[Mashed], coordinates: int) -> Sequence[Mashed]:
    """Some of the rounds, evenly spread, that together have at most so many coordinates; one at least."""
    kept = min(len(rounds), max(1, coordinates // rounds[0].rows.shape[2]))
    return [rounds[i] for i in np.linspace(0, len(rounds) - 1, kept).round().astype(int)]


def unclipped(rounds: Sequence[Mashed]) -> list[Mashed]:
    """Mashes as long as they were before a clip: a centre's label shares then add up to 1.

    Without noise each round's factor is exact; under noise it is the mean over all rounds, where that is
    three standard errors away from 1.
    """
    sums = [one.labels[:, 0].sum(1) for one in rounds]
    whole = np.concatenate(sums)
    error = whole.std(ddof=1) / np.sqrt(len(whole)) if len(whole) > 1 else np.inf
    usual = float(whole.mean())
    if not (0.02 < usual < 1 - 1e-4 and 1 - usual > 3 * error):
        return list(rounds)
    exact = all(np.ptp(one) < SAME_SHARE * one.mean() for one in sums)
    factors = [float(one.mean()) if exact else usual for one in sums]
    return [
        replace(one, rows=one.rows / factor, labels=one.labels / factor)
        for one, factor in zip(rounds, factors, strict=True)
    ]


def noise_of(rounds: Sequence[Mashed]) -> float:
    """The noise's standard deviation on a coordinate; without it a centre's label shares add up to 1."""
    over = np.concatenate([one.labels[:, 0].sum(1) - 1 for one in rounds])
    return float(np.sqrt((over**2).mean() / rounds[0].labels.shape[2]))


Weights = tuple[Any, ...]
"""The weight and the bias of a reduction, or twice None."""


def _mashed(seen: Any, weights: Weights, contributors: int) -> Mashed:
    rows, labels = (np.asarray(seen.values[k], dtype=np.float64) / contributors for k in ("rows", "labels"))
    return Mashed(seen.round, seen.clients, rows, labels, *weights)


def _reductions(view: View, seen: Iterable[Seen], place: Callable[[Seen], Any]) -> dict[Any, Weights]:
    """By place the reduction of an upload, or the cohort's average one of a sum.

    Args:
        place: a message's client and round, or its round alone.
    """
    if REDUCTION not in view.public["channels"]:
        frozen, asked = _frozen(view), (one for name in (EGOS, ACROSS) for one in view.asked(name))
        return {} if frozen is None else dict.fromkeys(map(place, asked), frozen)
    given = {place(one): one.values for one in view.asked(REDUCTION)}
    return {
        at: (
            before[WEIGHT] + one.values[WEIGHT] / len(one.clients),
            before[BIAS] + one.values[BIAS] / len(one.clients),
        )
        for one in seen
        if (before := given.get(at := place(one))) is not None
    }


def _frozen(view: View) -> Weights | None:
    """The reduction of a public seed, where it is never trained."""
    settings, schema = view.public["settings"], view.public["schema"]
    seeds = [s.values["seed"] for channel in (EGOS, ACROSS) for s in view.asked(channel)]
    if settings.get("reduction") != "frozen" or not seeds:
        return None
    model = EgoSage(schema["features"], schema["classes"], settings["hidden"][0], tuple(settings["fanout"]))
    model.initialise(int(seeds[0]))
    with torch.no_grad():
        return model.reduction.weight.numpy(), model.reduction.bias.numpy()


class MashLabels(MashAttack):
    """B2: the label histogram of every batch, exactly.

    The label part of a mash's centre is a mean of one-hot labels: times its size it is a histogram. The size
    is the smallest number that makes every entry whole.
    """

    id = "b2-mash-labels"
    subject = "labels of mashed batches by class"
    summary = "the label histogram of every mashed batch, from its centre's soft label"
    stops = "masked mash=across (single owners; their sum stays exact), or noise on labels, once"
    controls = (Control("a remainder of one", {**RELEASED, "training.batch": 23}),)

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each client ``[mashes, classes]`` labels, of its first round."""
        first_round = {client: rounds[0] for client, rounds in self.client_mashes(view).items()}
        size = int(view.public["settings"]["batch"])
        values = {}
        for client, mashed in first_round.items():
            sizes = self.sizes(view, mashed)  # under noise none fits: the public one then
            values[client] = _histograms(mashed, np.where(sizes > 0, sizes, size))
        return Guess.of_owners(BATCH_LABELS, values, len(values))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The histograms of the sums, each over all contributors: the size is public there."""
        first = self.summed_mashes(view)[0]
        size = int(view.public["settings"]["batch"]) * len(first.clients)
        sizes = np.full(len(first.rows), size)
        return Guess(BATCH_LABELS, {ALL: _histograms(first, sizes)}, {ALL: first.clients}, 1)


def _histograms(mashed: Mashed, sizes: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(mashed.labels[:, 0] * sizes[:, None]))


class MashAverage(MashAttack):
    """B3: mashes under noise, as the mean over the rounds that sent them.

    The mean of T releases of one value with fresh noise has a variance of sigma^2 / T. With a frozen
    reduction and kept batches every round releases the same mash; where the reduction is trained, its labels
    at least stay the same.
    """

    id = "b3-mash-average"
    subject = "mashes without their repeated noise"
    summary = "mashes without their fresh noise, as the mean over rounds"
    also_reads = (ACROSS,)
    first_rounds = 50
    stops = "one release used again (mash_rounds), or a budget over all rounds"
    controls = (
        Control(
            "fifty noised rounds",
            {
                **RELEASED,
                "policy": "local_dp",
                "protection.norm": 1000.0,  # beyond every upload: the noise is measured, not the clip
                "protection.multiplier": 3e-4,
                "training.batch": 32,
                "training.reduction": "frozen",
                "rounds": 50,
            },
        ),
    )

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """For each client ``[prefixes, mashes, width + classes]`` means over the first 1, 2, 5 ... rounds."""
        by_client = self.client_mashes(view)
        values = {client: self._means(view, rounds) for client, rounds in by_client.items()}
        return Guess.of_owners(NOISED, values, sum(len(r) for r in by_client.values()))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same of the opened sums."""
        rounds = self.summed_mashes(view)
        return Guess(NOISED, {ALL: self._means(view, rounds)}, {ALL: rounds[0].clients}, len(rounds))

    def _means(self, view: View, rounds: Sequence[Mashed]) -> np.ndarray:
        if not self.fixed(view):
            raise Blind(f"{self.id}: batches are drawn afresh, so that no two rounds send the same mash")
        if noise_of(rounds) < NONE:
            raise Blind(f"{self.id}: there is no noise to average away")
        if len(rounds) < 2:
            raise Blind(f"{self.id}: mashes were released in one round only: there is nothing to average")
        centres = np.stack([np.concatenate([r.rows[:, 0], r.labels[:, 0]], axis=1) for r in rounds])
        means = np.cumsum(centres, axis=0) / np.arange(1, len(rounds) + 1)[:, None, None]
        return means[[t - 1 for t in prefixes(len(rounds))]]


def prefixes(rounds: int) -> list[int]:
    """After how many rounds a mean is taken."""
    return [t for t in ROUNDS if t <= rounds]
