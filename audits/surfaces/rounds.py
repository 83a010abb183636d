"""Updates over rounds: the noise stage run again for attackers, and judges of reconstructed updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import norm

from secure_fedgraph.attacks.attack import Guess
from secure_fedgraph.attacks.rounds import DENOISED, FIRST_UPDATE, MEAN_UPDATE, NOISE, vector
from secure_fedgraph.audits import intervals, scoring
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.judgement import Judge, Judgement, Maker
from secure_fedgraph.core.protection.contracts import Scope
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.wire import decode
from secure_fedgraph.protocol.transcript import SERVER

CHANNEL = "update"
SHOWN = 48
"""Values of an update that are kept for pictures."""
Updates = Mapping[tuple[int, str], np.ndarray]


def noise(finished: FinishedRun) -> dict[tuple[int, str], np.ndarray]:
    """(round, client) -> what the noise stage of the clients gives when it is called again, on zeros.

    The stage draws from the same source as in the run: the operating system, or a seed. Empty where no client
    adds noise, and of a run that was read from its folder.
    """
    if finished.policy is None or CHANNEL not in finished.transcript.public.get("channels", {}):
        return {}
    stage = next((s for s in finished.policy[CHANNEL].stages if isinstance(s, Gaussian)), None)
    if stage is None or stage.by == "server":
        return {}
    by_upload = {}
    for note in finished.transcript.made:
        if note.channel == CHANNEL:
            width = len(vector(decode(finished.transcript.body(note.number))))
            scope = Scope("", note.round, note.exchange, note.channel, finished.federation.names)
            drawn = np.asarray(stage.apply(np.zeros((1, width)), scope), dtype=np.float64).reshape(-1)
            by_upload[note.round, note.reader] = drawn * stage.step if stage.by == "shares" else drawn
    return by_upload


def updates(finished: FinishedRun) -> dict[tuple[int, str], np.ndarray]:
    """(round, client) -> its update before any protection."""
    readable = {
        (seen.round, seen.clients[0]): vector(seen.values)
        for seen in finished.transcript.view(SERVER).uploads(CHANNEL)
    }
    notes = [note for note in finished.transcript.made if note.channel == CHANNEL]
    return readable | {(n.round, n.reader): vector(decode(finished.transcript.body(n.number))) for n in notes}


def _mean(made: Updates, owners: tuple[str, ...], counted: Mapping[int, tuple[str, ...]]) -> np.ndarray:
    """The mean of the owners' sum over the rounds in which they counted."""
    rounds = [r for r, names in counted.items() if set(owners) <= set(names)]
    of_each = [np.sum([made[r, owner] for owner in owners], axis=0) for r in rounds]
    return np.asarray(np.mean(of_each, axis=0))


def _first(made: Updates, owners: tuple[str, ...], counted: Mapping[int, tuple[str, ...]]) -> np.ndarray:
    first = min(counted)
    return np.asarray(np.sum([made[first, owner] for owner in owners], axis=0))


def _judge(truth: Callable[..., np.ndarray], trivial: str) -> Judge:
    def judge(guess: Guess, finished: FinishedRun) -> Judgement:
        """Cosines with the true updates; the baseline is those of the sums or uploads as they are."""
        made = updates(finished)
        sums = finished.transcript.view(SERVER).sums(CHANNEL)
        counted = {seen.round: seen.clients for seen in sums}
        true = {t: truth(made, owners, counted) for t, owners in guess.targets.items()}
        plain = _as_it_is(guess, finished)
        if guess.about != DENOISED:
            mean: np.ndarray = np.mean([vector(s.values) / len(s.clients) for s in sums], axis=0)
            plain = dict.fromkeys(guess.targets, mean)
        score = _score(guess.values, true, {trivial: plain})
        return Judgement(
            score, {t: _shown(v) for t, v in true.items()}, {t: _shown(v) for t, v in guess.values.items()}
        )

    return judge


def _as_it_is(guess: Guess, finished: FinishedRun) -> dict[str, np.ndarray]:
    """What the server read, with its noise."""
    view = finished.transcript.view(SERVER)
    seen = [*view.uploads(CHANNEL), *view.sums(CHANNEL)]
    first = min(one.round for one in seen)
    by_owners = {one.clients: vector(one.values) for one in reversed(seen) if one.round == first}
    return {target: by_owners[owners] for target, owners in guess.targets.items() if owners in by_owners}


def _score(
    guesses: Mapping[str, np.ndarray],
    true: Mapping[str, np.ndarray],
    plain: Mapping[str, Mapping[str, np.ndarray]],
) -> scoring.Score:
    cosines = [_cosine(guesses[target], value) for target, value in true.items()]
    width = sum(map(len, true.values()))
    errors = [
        float(np.linalg.norm(guesses[t] - v) / max(float(np.linalg.norm(v)), 1e-30)) for t, v in true.items()
    ]
    trivial = {n: float(np.mean([_cosine(v[t], w) for t, w in true.items()])) for n, v in plain.items()}
    return scoring.Score(
        metric="cosine with the update",
        kind=scoring.ScoreKind.COSINE,
        value=float(np.mean(cosines)),
        **intervals.bounds(lambda error: _of_cosines(cosines, width, error)),
        baselines={**trivial, "the best of a thousand random directions": float(3.1 / np.sqrt(width))},
        details={
            "updates": float(len(cosines)),
            "lowest_cosine": min(cosines),
            "largest_relative_error": max(errors),
        },
    )


def _of_cosines(cosines: list[float], width: int, error: float) -> tuple[float, float]:
    """Student's interval over updates, which are few and of the same sums, or a cosine's own where wider.

    One cosine has an error of about one over the root of how many values it is over (Fisher's z).
    """
    mean = float(np.mean(cosines))
    low, high = intervals.mean(cosines, error) if cosines[1:] else (mean, mean)
    middle = np.arctanh(np.clip(mean, -1 + 1e-15, 1 - 1e-15))
    spread = norm.ppf(1 - error) / np.sqrt(width)
    return float(max(-1.0, min(low, np.tanh(middle - spread)))), float(
        min(1.0, max(high, np.tanh(middle + spread)))
    )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    size = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / size) if size > 0 else 0.0


def _shown(value: np.ndarray) -> np.ndarray:
    return np.round(value[:SHOWN], 6)


JUDGES: Mapping[str, Judge] = {
    MEAN_UPDATE: _judge(_mean, "the cohorts' mean update"),
    FIRST_UPDATE: _judge(_first, "the cohorts' mean update"),
    DENOISED: _judge(_first, "the upload as it is"),
}
MAKERS: Mapping[str, Maker] = {NOISE: noise}
