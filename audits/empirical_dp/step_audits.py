"""Audits of noise that is drawn inside a client: noisy training steps and randomised links.

Steps are called as training calls them, on worst-case records
(:mod:`~secure_fedgraph.audits.empirical_dp.worst_cases`). What one step reveals is a trade-off between two
errors, which the claim gives exactly: for the mirrored pair of ``docs/guarantees.md`` a half-line is the best
test of one step, so errors that are smaller than the claimed noise allows refute it. The largest noise that
the errors allow, composed over the steps by the accountant, is the lower bound on epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm

from secure_fedgraph.audits.empirical_dp.epsilon import Lower, two_worlds
from secure_fedgraph.audits.empirical_dp.mechanisms import CONFIDENCE
from secure_fedgraph.audits.empirical_dp.worst_cases import Records, unit_in_records
from secure_fedgraph.core.accounting import epsilon as accounting
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks

_RANGE = (1e-3, 1e3)
"""The range of noise multipliers that is searched."""


@dataclass(frozen=True)
class StepAudit:
    """The outcome of an audit of noisy steps.

    Args:
        claim: epsilon of all the steps, as they are charged.
        lower: a lower bound on the true one, by the claim's own trade-off curve.
        any_noise: of a single step, from the same scores without a hypothesis.
        one_step: the claim for a single step.
        noise: the largest multiplier that the scores allow, and what is claimed.
    """

    claim: float
    lower: Lower
    any_noise: Lower
    one_step: float
    noise: tuple[float, float]

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower.refutes(self.claim) or self.any_noise.refutes(self.one_step)

    @property
    def reached(self) -> float:
        """The share of the claim that the lower bound reaches."""
        return self.lower.epsilon / self.claim

    def sentence(self) -> str:
        """The verdict, in words with its numbers."""
        return (
            f"noisy steps: a claim of epsilon {self.claim:.3g} {'BROKEN' if self.broken else 'holds'}: "
            f"at least {self.lower.epsilon:.3g} from {self.lower.scores_in} trials, which show "
            f"{self.lower.ceiling:.3g} at most; noise of {self.noise[0]:.3g}, {self.noise[1]:.3g} claimed"
        )


def scores(private_steps: PrivateSteps, records: Records, present: bool, trials: int) -> np.ndarray:
    """Scores of single steps, one a trial: touched records that were drawn, plus the steps' noise."""
    expected = max(private_steps.rate * records.number, 1.0)
    parts = []
    for _ in range(math.ceil(trials / records.blocks)):
        parameters = {
            name: torch.nn.Parameter(torch.zeros(records.blocks, dtype=torch.float64))
            for name in records.names
        }
        training = Training(replace(private_steps, steps=1), "zero-out")
        training.run(
            torch.optim.SGD(parameters.values(), lr=1.0),
            parameters,
            records.number,
            records.gradients(present),
            records.touched,
        )
        moved = torch.stack([p.detach() for p in parameters.values()]).sum(0)
        parts.append((-moved * expected / private_steps.clip / math.sqrt(records.tensors)).numpy())
    return np.concatenate(parts)


def audit_steps(
    private_steps: PrivateSteps,
    occurrences: int = 1,
    *,
    trials: int = 10_000,
    blocks: int = 500,
    others: int = 0,
    delta: float = 1e-5,
    confidence: float = CONFIDENCE,
    touched: int = 0,
    scored: Callable[[bool, int], np.ndarray] | None = None,
) -> StepAudit:
    """Compares the charge of noisy steps with what worst-case records show of a single one.

    Args:
        private_steps: the steps; its number of steps is what the claim is for.
        occurrences: records of a unit, as they are charged.
        trials: of each world.
        blocks: trials in one call; 1 where an implementation may mix records.
        others: records beside the unit's own in each block.
        delta: the claim's.
        confidence: that right steps are not accused; either bound has half of what is left.
        touched: how many records the unit really is in; by default as charged.
        scored: (with the unit, trials) -> single steps' scores, as :func:`scores` gives them; by default of
            worst-case records.
    """
    records = unit_in_records(private_steps, touched or occurrences, blocks, others)
    if scored is None:
        ins, outs = (scores(private_steps, records, present, trials) for present in (True, False))
    else:
        ins, outs = scored(True, trials), scored(False, trials)
    confidence = (1 + confidence) / 2
    # the distribution that is charged for, which need not be the real one
    event: Any = private_steps.events(occurrences, "zero-out", 1)[0]
    law = _ThresholdErrors(event.rate, getattr(event, "occurrences", 1), records.vanishing)
    claimed = event.noise_multiplier
    cut = law.threshold(claimed, ins.size, confidence)
    allowed = law.noise(ins, outs, cut, confidence)
    most = law.noise(ins[:0], outs[:0], cut, confidence, ins.size)

    def epsilon(noise: float) -> float:
        one = replace(event, noise_multiplier=noise)
        with np.errstate(over="ignore"):  # the ceiling's losses overflow exp
            return accounting.epsilon([one], delta).epsilon

    charged = private_steps.events(occurrences, "zero-out", records.blocks * records.tensors)
    details = {"noise": allowed, "threshold": cut}
    lower = Lower(
        epsilon(allowed) if allowed < _RANGE[1] else 0.0,
        epsilon(most),
        "the claim's own trade-off",
        delta,
        confidence,
        ins.size,
        outs.size,
        details,
    )
    one = accounting.epsilon(
        replace(private_steps, steps=1).events(occurrences, "zero-out", 1), delta
    ).epsilon
    return StepAudit(
        accounting.epsilon(charged, delta).epsilon,
        lower,
        two_worlds(ins, outs, delta, confidence),
        one,
        (allowed, claimed),
    )


@dataclass(frozen=True)
class _ThresholdErrors:
    """Errors of half-lines on one step's score: binomially many records, under Gaussian noise."""

    rate: float
    occurrences: int
    vanishing: bool

    def above(self, cut: np.ndarray | float, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """P(score > cut), with the unit and in the other world."""
        j = np.arange(self.occurrences + 1)
        weight = binom.pmf(j, self.occurrences, self.rate)
        cut = np.atleast_1d(np.asarray(cut, dtype=np.float64))[:, None]
        present = norm.sf((cut - j) / noise) @ weight
        return present, norm.sf((cut + (0 * j if self.vanishing else j)) / noise) @ weight

    def missed(self, false_positive: float, noise: float) -> float:
        """The least false negatives at a rate of false positives: the trade-off curve."""
        far = self.occurrences + 40 * noise
        cut = brentq(lambda t: float(self.above(t, noise)[1][0]) - false_positive, -far, far, xtol=1e-9)
        return 1 - float(self.above(cut, noise)[0][0])

    def allowed(self, false_positive: float, false_negative: float) -> float:
        """The largest noise whose curve is not above these errors."""

        def over(log: float) -> float:
            return self.missed(false_positive, math.exp(log)) - false_negative

        low, high = math.log(_RANGE[0]), math.log(_RANGE[1])
        if not 0 < false_positive < 1 or over(high) <= 0:
            return _RANGE[1]
        return _RANGE[0] if over(low) >= 0 else math.exp(brentq(over, low, high, xtol=1e-6))

    def noise(
        self, ins: np.ndarray, outs: np.ndarray, cut: float, confidence: float, trials: int = 0
    ) -> float:
        """The largest noise that the scores allow; without scores, what the best guesser's errors allow."""
        alpha, trials = (1 - confidence) / 2, trials or ins.size
        if not ins.size:  # a guesser that sees any touched record, and misses only where none was drawn
            wrong_in, wrong_out = round(trials * (1 - self.rate) ** self.occurrences), 0
        else:
            wrong_in, wrong_out = int((ins <= cut).sum()), int((outs > cut).sum())
        return self.allowed(_upper(wrong_out, trials, alpha), _upper(wrong_in, trials, alpha))

    def threshold(self, noise: float, trials: int, confidence: float) -> float:
        """The threshold that shows most where the noise is as claimed; it depends on no score."""
        alpha, best, least = (1 - confidence) / 2, 0.0, math.inf
        cuts = np.linspace(-1, 1, 9) * (noise + self.occurrences * self.rate) * 1.5
        for cut in sorted(cuts, key=abs):
            p, q = (float(v[0]) for v in self.above(cut, noise))
            largest = self.allowed(
                _upper(round(trials * q), trials, alpha), _upper(round(trials * (1 - p)), trials, alpha)
            )
            if largest < least:
                best, least = float(cut), largest
        return best


def _upper(errors: int, trials: int, alpha: float) -> float:
    return float(beta.ppf(1 - alpha, errors + 1, trials - errors)) if errors < trials else 1.0


def audit_links(
    links: RandomisedLinks, trials: int = 10_000, confidence: float = CONFIDENCE, cliques: int = 40
) -> Lower:
    """A lower bound on the epsilon of randomised links, by pairs whose reported link is always kept.

    Nodes are in cliques of eight with equal features, so a reported link within one is among the most similar
    pairs; half of these pairs, drawn by coins, are linked. As many links between cliques make sure that
    enough are kept. Each pair within a clique is a trial.

    Args:
        links: under audit.
        trials: pairs of each kind, about.
        confidence: that right links are not accused.
        cliques: how many at a time.
    """
    size, rng = 8, np.random.default_rng()
    base = np.arange(cliques)[:, None] * size
    ends = np.array([(a, b) for a in range(size) for b in range(a + 1, size)])
    first, second = ((base + ends[:, i]).reshape(-1) for i in (0, 1))
    nodes = cliques * size
    x = torch.eye(cliques).repeat_interleave(size, dim=0)
    far = np.stack([np.arange(nodes), (np.arange(nodes) + size) % nodes])
    more = np.concatenate([far, np.stack([far[0], (far[0] + 2 * size) % nodes])], axis=1)
    seen: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    while sum(map(len, seen[0])) < trials:
        linked = rng.random(len(first)) < 0.5
        own = np.concatenate([np.stack([first[linked], second[linked]]), more], axis=1)
        drawn = _of_all_clients(links, torch.from_numpy(own), x).numpy()
        reported = np.isin(first * nodes + second, drawn[0] * nodes + drawn[1]).astype(float)
        seen[0].append(reported[linked])
        seen[1].append(reported[~linked])
    return two_worlds(np.concatenate(seen[0]), np.concatenate(seen[1]), 0.0, confidence, threshold=0.5)


def _of_all_clients(links: RandomisedLinks, own: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """What all clients that hold the same links answer together; one client's answers where each pays."""
    if not isinstance(links, DividedLinks):
        return links.randomized(own, x)
    parts = [links.at(place, links.clients) for place in range(links.clients)]
    return torch.cat([part.randomized(own, x) for part in parts], dim=1)
