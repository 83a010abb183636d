"""Lower bounds on epsilon: pure functions of what a score was with a canary and without it.

Each holds with the stated confidence for every mechanism that meets its needs, so an epsilon that is claimed
below it is refuted. Beside it stands its ceiling: what a mechanism without any noise would have given with as
many trials. A bound near its ceiling says that the audit was too small, not that the mechanism is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import dp_accounting as dp
import numpy as np
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

from secure_fedgraph.core.errors import BadInput

GUESSED = (1.0, 0.5, 0.2, 0.1, 0.05)
"""Shares of the canaries that the one-run bounds guess on; each share pays its part of the confidence."""
_THRESHOLDS = 1000
_LARGEST = 200.0
_FINE = 1e-4


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
        details: further figures, by name.
    """

    epsilon: float
    ceiling: float
    method: str
    delta: float
    confidence: float
    scores_in: int
    scores_out: int
    details: Mapping[str, float] = field(default_factory=dict)

    def refutes(self, claim: float) -> bool:
        """Whether it is above what was claimed."""
        return self.epsilon > claim


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
        - independent trials: one score a run, or canaries whose scores do not depend on each other's.

    Args:
        scores_in, scores_out: with the canary and without it; higher where it is thought to be in.
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

    bound, most, cut, (n_in, n_out) = _by_threshold(ins, outs, confidence, threshold, of_errors)
    return Lower(bound, most, "two worlds", delta, confidence, n_in, n_out, {"threshold": cut})


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
        mu: np.ndarray = np.maximum(ndtri(1 - false_positive) - ndtri(false_negative), 0.0)
        return mu

    mu, most, cut, (n_in, n_out) = _by_threshold(ins, outs, confidence, threshold, of_errors)
    return Lower(
        of_mu(mu, delta),
        of_mu(most, delta),
        "Gaussian",
        delta,
        confidence,
        n_in,
        n_out,
        {"mu": mu, "threshold": cut},
    )


def one_run(scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float = 0.95) -> Lower:
    """From one run with many canaries, each of which an independent fair coin put in or left out.

    It guesses on equally many of the highest and of the lowest scores, in shares of :data:`GUESSED`. Ties
    count as wrong. It holds for any mechanism, and canaries may interfere. It is loose, more so for a larger
    epsilon.

    Needs:
        - fair, independent, secret coins: ``scores_in`` are those whose coin said in.

    References:
        Steinke, Nasr, Jagielski, Privacy Auditing with One (1) Training Run, NeurIPS 2023, theorem 5.2.
    """
    ins, outs = _checked(scores_in, scores_out, delta, confidence)

    def refuted(canaries: int, guesses: int, right: int, alpha: float) -> Callable[[float], bool]:
        return lambda epsilon: _by_chance(canaries, guesses, right, epsilon, delta) <= alpha

    return _one_run(ins, outs, delta, confidence, "one run", refuted, lambda epsilon: epsilon)


def one_run_gaussian(
    scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float = 0.95
) -> Lower:
    """As :func:`one_run`, for mechanisms that are no worse than a Gaussian one: tighter.

    Needs:
        - as :func:`one_run`, and a claim about Gaussian noise as :func:`gaussian`.

    References:
        Mahloujifar, Melis, Chaudhuri, Auditing f-Differential Privacy in One Run, ICML 2025, algorithm 3.
    """
    ins, outs = _checked(scores_in, scores_out, delta, confidence, least=math.ulp(0.0))

    def refuted(canaries: int, guesses: int, right: int, alpha: float) -> Callable[[float], bool]:
        return lambda mu: _too_many_right(canaries, guesses, right, alpha, mu)

    return _one_run(ins, outs, delta, confidence, "one run, Gaussian", refuted, lambda mu: of_mu(mu, delta))


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
) -> tuple[float, float, float, tuple[int, int]]:
    """The bound, its ceiling, the threshold and the numbers of scores that the bound is over."""
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
    return (
        float(of_errors(*errors)[0]),
        float(of_errors(*none)[0]),
        threshold,
        (int(ins.size), int(outs.size)),
    )


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


def _one_run(
    ins: np.ndarray,
    outs: np.ndarray,
    delta: float,
    confidence: float,
    method: str,
    refuted: Callable[[int, int, int, float], Callable[[float], bool]],
    epsilon: Callable[[float], float],
) -> Lower:
    canaries, alpha = ins.size + outs.size, (1 - confidence) / len(GUESSED)
    best, most, details = 0.0, 0.0, {"guesses": 0.0, "right": 0.0}
    for share in GUESSED:
        each = max(int(share * canaries) // 2, 1)
        guesses, right = 2 * each, _right(ins, outs, each)
        bound = _first_kept(refuted(canaries, guesses, right, alpha))
        most = max(most, _first_kept(refuted(canaries, guesses, guesses, alpha)))
        if bound > best:
            best, details = bound, {"guesses": float(guesses), "right": float(right)}
    return Lower(
        epsilon(best), epsilon(most), method, delta, confidence, int(ins.size), int(outs.size), details
    )


def _right(ins: np.ndarray, outs: np.ndarray, each: int) -> int:
    """Right guesses, where so many of the highest scores are said to be in and so many of the lowest out."""
    scores = np.concatenate([ins, outs])
    inside = np.arange(scores.size) < ins.size
    # of equal scores the wrong guesses come first
    highest = np.lexsort((inside, -scores))[:each]
    lowest = np.lexsort((~inside, scores))[:each]
    return int(inside[highest].sum() + (~inside[lowest]).sum())


def _first_kept(refuted: Callable[[float], bool]) -> float:
    """The smallest parameter that is not refuted; all smaller ones are."""
    low, step = 0.0, 0.25
    if not refuted(low):
        return low
    while refuted(low + step):
        low += step
        if low > _LARGEST:
            return low
    high = low + step
    while high - low > _FINE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _by_chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely an (epsilon, delta)-DP mechanism allows so many right guesses at most (the p-value)."""
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or not right:
        return min(tail, 1.0)
    fewer = np.arange(1, right + 1)
    near = (binom.sf(right - 1 - fewer, guesses, chance) - tail) / fewer
    return min(tail + 2 * canaries * delta * float(near.max()), 1.0)


def _too_many_right(canaries: int, guesses: int, right: int, alpha: float, mu: float) -> bool:
    """Whether a mu-GDP mechanism lets a guesser be right so often with a probability below ``alpha`` only.

    Suppose it were ``alpha``. For a canary drawn at random, let ``r`` be the probability that it is guessed
    rightly in the event of at least ``i`` right guesses, and ``h`` that it is guessed wrongly. A right guess
    becomes a wrong one when the canary's coin falls the other way, so the trade-off function bounds ``r`` at
    ``i + 1`` by ``h`` at ``i``; that forces ``h`` up, down to ``i = 0``, where the event is certain and
    ``r + h`` has to be the share that is guessed on.
    """
    r, h = alpha * right / canaries, alpha * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        forced = float(ndtr(ndtri(r) - mu))
        if forced > h:
            r, h = r + (forced - h) * i / (guesses - i), forced
            if r + h > guesses / canaries:
                return True
    return False


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
