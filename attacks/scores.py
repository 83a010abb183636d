"""I1 and I3: how many test nodes an owner has, and of which classes, from the scores that it sends."""

from __future__ import annotations

import numpy as np

from secure_fedgraph.attacks.attack import ALL, Attack, Blind, Guess, Knowledge
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

TEST_SIZES = "numbers of test nodes"
TEST_SHARES = "class shares of test nodes"
COUNTED_SHARES = "class shares of counted test nodes"
METRICS = "metrics"
"""The channel of owners' scores (``Algorithm.METRICS``), open where ``evaluation=in_band``."""
COUNTED = "scores"
"""The channel on which their test items are counted (``Algorithm.SCORES``)."""
BINS = (32, 256)
"""Of a class, under noise and without."""
MOST = 2000
"""Numbers of test nodes that are tried: beyond, fractions are nearer to each other than scores are exact."""
EXACT = 2e-7
"""How far a score that travels as a 32-bit number is from its fraction, at most, for a score of 1."""
STOPS = "evaluation=at_home (no score is sent), or masked"


class ScoredSizes(Attack):
    """I1: an owner's accuracies are fractions with one denominator, its number of test nodes.

    A score of 0.6833333 says 41 of 60, or 82 of 120. The accuracies of a few rounds together leave one number
    that makes all of them fractions: the smallest one. It is exact unless all right answers share a divisor.

    The size of an owner's data is what payoffs by size, weights in an average and messages by the batch give
    away too; here nobody declared it.
    """

    id = "i1-test-sizes"
    subject = "numbers of test nodes"
    family = "scores"
    summary = "an owner's number of test nodes, from its accuracies"
    channel = METRICS
    nothing_left = "a sum of several owners' shares has no denominator that is one owner's"
    depends_on = ("rounds", "evaluation")
    stops = STOPS

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """A number of test nodes for each owner ``[1]``; 0 where it has none."""
        uploads = self.single_uploads(view)
        shares: dict[str, list[np.ndarray]] = {}
        for seen in uploads:
            if "accuracy" in seen.values:
                shares.setdefault(seen.clients[0], []).append(seen.values["accuracy"].ravel())
        values = {owner: np.array([denominator(np.concatenate(mine))]) for owner, mine in shares.items()}
        if not values:
            raise Blind(f"{self.id}: owners send another score than the share of right answers")
        return Guess.of_owners(TEST_SIZES, values, len(uploads))


def denominator(shares: np.ndarray) -> int:
    """The smallest number that makes all shares fractions of it; 0 where none up to 2000 does.

    >>> denominator(np.array([41 / 60, 1 / 4], dtype=np.float32))
    60
    """
    tried = np.arange(1, MOST + 1)
    parts = np.asarray(shares, dtype=np.float64)[:, None] * tried
    fits = (np.abs(parts - parts.round()) <= EXACT * tried).all(0)
    return int(tried[fits][0]) if len(shares) and np.any(shares) and fits.any() else 0


class CountedScores(Attack):
    """I3: the cells into which an owner's test items are counted add up to its classes and its size.

    Each true class has cells of its own, whatever the model said. Exact counts say it of every owner whose
    upload can be read; under masks their sum says it of all owners. Under noise each has noise for one item.
    """

    id = "i3-counted-scores"
    subject = "class shares of counted test nodes"
    family = "scores"
    summary = "class shares of an owner's test nodes, from its counts by true class"
    channel = COUNTED
    depends_on = ("evaluation",)
    stops = "evaluation=at_home; masks leave the shares over all owners, noised under a budget"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of each owner's test nodes ``[classes]``."""
        uploads = self.single_uploads(view)
        values = {seen.clients[0]: self._shares(view, seen) for seen in uploads}
        return Guess.of_owners(COUNTED_SHARES, values, len(uploads))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The class shares of all owners' test nodes together."""
        sums = self.opened_sums(view)
        return Guess(COUNTED_SHARES, {ALL: self._shares(view, sums[-1])}, {ALL: sums[-1].clients}, len(sums))

    def _shares(self, view: View, seen: Seen) -> np.ndarray:
        counts = by_class(np.asarray(seen.values["test"], dtype=np.float64).ravel(), view)
        if counts is None:
            raise Blind(f"{self.id}: what is counted is of no single class")
        return np.asarray(counts / max(counts.sum(), 1e-12))


def by_class(cells: np.ndarray, view: View) -> np.ndarray | None:
    """What the items of each class add up to, from cells; None of a task without classes."""
    classes = int(view.public["schema"]["classes"])
    for bins in BINS:
        if classes == 2 and len(cells) == 2 * bins:
            counts = cells.reshape(2, bins).sum(axis=1)
        elif classes > 2 and len(cells) == classes**2 + 2 * classes * bins:
            counts = cells[: classes**2].reshape(classes, classes).sum(axis=1)
        else:
            continue
        return np.asarray(np.maximum(counts, 0.0))
    return None
