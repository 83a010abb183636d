"""Noise that is correlated across rounds, beside independent noise: every client is in every round.

    python benchmarks/correlated_noise.py [--rounds 20] [--json]

A row is a factorisation ``C`` of the noise (a round's noise is a row of ``C^-1 z``) and a read-out of the
rounds. ``error`` is its root mean squared error over that of independent noise of one size, at the same
privacy; ``independent`` is the same for independent noise whose size differs by round and that is at least
as good at every read-out (``docs/guarantees.md``, "Noise that is correlated across rounds").
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np

_TURNS = 5_000
_CLOSE = 1e-10


def covering(second: np.ndarray, seed: int = 0) -> np.ndarray:
    """The least diagonal matrix above ``X = C^T C``, ``[T]``: its trace is the squared sensitivity of ``C``.

    Clients move round t by a vector ``v_t`` of length 1 at most. The sum over s, t of ``X_st v_s v_t`` is
    largest where each ``v_t`` points along ``sum_s X_st v_s``; the lengths of these are the diagonal.
    """
    rounds = len(second)
    along = np.random.default_rng(seed).normal(size=(rounds, rounds + 1))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    lengths = np.zeros(rounds)
    for _ in range(_TURNS):
        pulled = second @ along
        before, lengths = lengths, np.linalg.norm(pulled, axis=1)
        along = pulled / lengths[:, None]
        if np.abs(lengths - before).max() < _CLOSE * lengths.max():
            break
    return lengths


def error(second: np.ndarray, readout: np.ndarray, squared_sensitivity: float) -> float:
    """The root of the summed squared errors of a read-out ``A``, at a noise multiplier of 1."""
    return float(np.sqrt(squared_sensitivity * np.trace(readout @ np.linalg.solve(second, readout.T))))


def root_of_sums(rounds: int, band: int) -> np.ndarray:
    """The square root of the matrix of prefix sums, cut to a band (Fichtenberger et al. 2023)."""
    column = np.zeros(rounds)
    column[0] = 1.0
    for k in range(1, min(band, rounds)):
        column[k] = column[k - 1] * (1 - 1 / (2 * k))
    places = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.where(places >= 0, column[np.clip(places, 0, None)], 0.0)


READOUTS: dict[str, Callable[[int], np.ndarray]] = {
    "the model after every round": lambda rounds: np.tril(np.ones((rounds, rounds))),
    "the last model": lambda rounds: np.ones((1, rounds)),
    "the mean of all models": lambda rounds: np.arange(rounds, 0, -1.0)[None] / rounds,
}


def table(rounds: int) -> list[dict[str, Any]]:
    """The rows."""
    bands = sorted({2, min(5, rounds), rounds})
    noises = {f"band of {band}": root_of_sums(rounds, band) for band in bands}
    rows: list[dict[str, Any]] = []
    for name, make in READOUTS.items():
        readout = make(rounds)
        plain = error(np.eye(rounds), readout, rounds)
        columns = np.linalg.norm(readout, axis=0)
        rows.append({"name": f"{name}: best sizes by round", "independent": columns.sum() / plain})
        for noise, factor in noises.items():
            second = factor.T @ factor
            diagonal = covering(second)
            rows.append(
                {
                    "name": f"{name}: {noise}",
                    "error": error(second, readout, diagonal.sum()) / plain,
                    "independent": error(np.diag(diagonal), readout, diagonal.sum()) / plain,
                }
            )
    return [
        {"size": rounds, **{k: round(v, 3) if k != "name" else v for k, v in row.items()}} for row in rows
    ]


def main() -> None:
    """Prints the rows."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=20)
    asked.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = asked.parse_args()
    rows = table(given.rounds)
    if given.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
