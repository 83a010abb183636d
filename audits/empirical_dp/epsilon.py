"""Lower bounds on epsilon: pure functions of what a score was with a unit and without it.

Each holds with the stated confidence for every mechanism that meets its needs, so an epsilon that is claimed
below it is refuted. Beside it stands its ceiling: what a mechanism without any noise would have given with as
many trials. A bound near its ceiling says that the audit was too small, not that the mechanism is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import dp_accounting as dp
import numpy as np
from scipy.special import betaincinv, ndtri

from secure_fedgraph.core.errors import BadInput

_THRESHOLDS = 1000


@dataclass(frozen=True)
class Lower:
    """A lower bound on epsilon at one delta.

    Args:
        epsilon: with the stated confidence, the mechanism is not ``(epsilon', delta)``-DP for any
            ``epsilon'`` below; 0 where the scores show nothing.
        ceiling: the most that the method could have given with these numbers of scores.
        method: its name.
        delta, confidence: as asked for.
        scores_in, scores_out: how many scores the bound was taken over.
    """

    epsilon: float
    ceiling: float
    method: str
    delta: float
    confidence: float
    scores_in: int
    scores_out: int

    def refutes(self, claim: float) -> bool:
        """Whether it is above what was claimed."""
        return self.epsilon > claim


@dataclass(frozen=True)
class Audit:
    """A claim, and what trials show of it.

    Args:
        claim: the epsilon that the ledger charges, at ``lower.delta``.
        lower: a lower bound on the true one, on the hypothesis that the noise has the claimed shape;
            ``lower.ceiling`` is the audit's power.
        any_noise: the same scores' bound without that hypothesis; weaker.
        one_step: the claim that ``any_noise`` is about, where it is a smaller one.
        noise: the most noise that the scores allow, where that is what was bounded.
    """

    claim: float
    lower: Lower
    any_noise: Lower
    one_step: float | None = None
    noise: float = math.nan

    @property
    def any_noise_breaks(self) -> bool:
        """Whether the claim is refuted without a hypothesis."""
        return self.any_noise.refutes(self.claim if self.one_step is None else self.one_step)

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower.refutes(self.claim) or self.any_noise_breaks

    @property
    def best(self) -> Lower:
        """The larger bound."""
        return max((self.lower, self.any_noise), key=lambda lower: lower.epsilon)

    @property
    def reached(self) -> float:
        """The share of the claim that the lower bound reaches."""
        return self.lower.epsilon / self.claim if 0 < self.claim < math.inf else math.nan


def two_worlds(
    scores_in: np.ndarray,
    scores_out: np.ndarray,
    delta: float,
    confidence: float = 0.95,
    *,
    threshold: float | None = None,
) -> Lower:
    """From the errors of one threshold: ``log((1 - FN - delta) / FP)``, and the same with both exchanged.

    Both error rates are Clopper and Pearson's upper limits. It holds for any mechanism. It is weak: it sees
    no further than the rarest error that so many trials show.

    Needs:
        - independent trials: one score a run.

    Args:
        scores_in, scores_out: with the unit and without it; higher where it is thought to be in.
        delta: 0 is possible here.
        confidence: that the bound holds.
        threshold: one that was fixed before the scores were seen. Without one every other score chooses it,
            and the bound is taken over the rest.

    References:
        Kairouz, Oh, Viswanath, ICML 2015, theorem 2.1; Jagielski, Ullman, Oprea, NeurIPS 2020.
    """
    ins, outs = _checked(scores_in, scores_out, delta, confidence)

    def of_errors(false_positive: np.ndarray, false_negative: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            ways = [
                np.where(hit > 0, np.log(np.maximum(hit, 1e-300) / error), 0.0)
                for hit, error in (
                    (1 - delta - false_negative, false_positive),
                    (1 - delta - false_positive, false_negative),
                )
            ]
        return np.maximum(np.maximum(*ways), 0.0)

    bound, most, (n_in, n_out) = _by_threshold(ins, outs, confidence, threshold, of_errors)
    return Lower(bound, most, "two worlds", delta, confidence, n_in, n_out)


def gaussian(
    scores_in: np.ndarray,
    scores_out: np.ndarray,
    delta: float,
    confidence: float = 0.95,
    *,
    threshold: float | None = None,
) -> Lower:
    """From the errors of one threshold, for mechanisms that are no worse than a Gaussian one: tight.

    ``mu >= Phi^-1(1 - FP) - Phi^-1(FN)``, and epsilon is that of a Gaussian mechanism of this mu, from the
    exact curve.

    Needs:
        - a mechanism whose claim is about Gaussian noise (mu-GDP, without subsampling): the bound refutes
          that claim;
        - independent trials, as :func:`two_worlds`.

    Args:
        delta: above 0.

    References:
        Dong, Roth, Su, JRSS B 2022; Nasr et al., Tight Auditing of Differentially Private Machine Learning,
        USENIX Security 2023.
    """
    ins, outs = _checked(scores_in, scores_out, delta, confidence, least=math.ulp(0.0))

    def of_errors(false_positive: np.ndarray, false_negative: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(ndtri(1 - false_positive) - ndtri(false_negative), 0.0))

    mu, most, (n_in, n_out) = _by_threshold(ins, outs, confidence, threshold, of_errors)
    return Lower(of_mu(mu, delta), of_mu(most, delta), "Gaussian", delta, confidence, n_in, n_out)


def of_mu(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism with a sensitivity of ``mu`` standard deviations, from the exact curve.

    >>> round(of_mu(1.0, 1e-5), 2)
    4.38
    """
    return float(dp.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def _by_threshold(
    ins: np.ndarray,
    outs: np.ndarray,
    confidence: float,
    threshold: float | None,
    of_errors: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[float, float, tuple[int, int]]:
    """The bound, its ceiling and the numbers of scores that the bound is over."""
    alpha = (1 - confidence) / 2  # half for either error rate
    if threshold is None:
        if min(ins.size, outs.size) < 2:
            raise BadInput("an audit that chooses its threshold needs two scores or more of either world")
        chosen = np.quantile(np.concatenate([ins[::2], outs[::2]]), np.linspace(0, 1, _THRESHOLDS))
        bounds = of_errors(*_errors(ins[::2], outs[::2], chosen, alpha))
        threshold = float(chosen[int(bounds.argmax())])
        ins, outs = ins[1::2], outs[1::2]
    errors = _errors(ins, outs, np.array([threshold]), alpha)
    none = upper_limit(np.zeros(1), outs.size, alpha), upper_limit(np.zeros(1), ins.size, alpha)
    return (float(of_errors(*errors)[0]), float(of_errors(*none)[0]), (int(ins.size), int(outs.size)))


def _errors(
    ins: np.ndarray, outs: np.ndarray, thresholds: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Upper limits of the false positive and false negative rates; scores from a threshold on count as in."""
    false_positives = outs.size - np.searchsorted(np.sort(outs), thresholds, side="left")
    false_negatives = np.searchsorted(np.sort(ins), thresholds, side="left")
    return upper_limit(false_positives, outs.size, alpha), upper_limit(false_negatives, ins.size, alpha)


def upper_limit(errors: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """Clopper and Pearson's one-sided upper limit."""
    wrong = np.minimum(errors, trials - 1)  # with all trials wrong there is no beta distribution
    return np.where(errors < trials, betaincinv(wrong + 1.0, trials - wrong, 1 - alpha), 1.0)


def _checked(
    scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    if not least <= delta < 1:
        raise BadInput(f"delta {delta}: an audit needs one {'above' if least else 'from'} 0 and below 1")
    if not 0 < confidence < 1:
        raise BadInput(f"confidence {confidence}: give a number between 0 and 1, such as 0.95")
    arrays = tuple(np.asarray(scores, dtype=np.float64).reshape(-1) for scores in (scores_in, scores_out))
    for name, scores in zip(("scores_in", "scores_out"), arrays, strict=True):
        if not scores.size:
            raise BadInput(f"{name} is empty: an audit needs scores of both worlds")
        if np.isnan(scores).any():
            raise BadInput(
                f"{name} holds NaN: score what was released, or leave the trial out of both worlds"
            )
    return arrays[0], arrays[1]
