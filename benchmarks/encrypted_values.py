"""FairGraphFL's values computed on ciphertexts beside those computed in the clear, and what the server saw.

    python benchmarks/encrypted_values.py [--data proteins] [--rounds 1] [--seed 0]

The same agents, model and seed are run twice. One round is comparable number by number; later rounds drift
apart, because a tiny difference may move a coordinate of a reward over the edge of what was earned.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import execute
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER, everything

FIGURES = ("values", "alignment", "payoffs")
PIECE = 4
"""Consecutive weights that are looked for, as four- and as eight-byte numbers."""


def main() -> None:
    """Runs both, and prints the largest differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="proteins")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    (plain, fast), (hidden, slow) = (
        _run(given, v, p) for v, p in (("plain", "plaintext"), ("encrypted", "strictest"))
    )
    one, two = (found.algorithm.notes(found.state) for found in (plain, hidden))
    table = Table(
        "figure", "agents", "from", "to", "largest difference", title=f"{given.data}, seed {given.seed}"
    )
    for figure in FIGURES:
        clear, blind = (np.array(list(notes[figure].values()), dtype=float) for notes in (one, two))
        told = (len(clear), f"{clear.min():.4f}", f"{clear.max():.4f}", f"{abs(clear - blind).max():.1e}")
        table.add_row(figure, *map(str, told))
    console = Console()
    console.print(table)
    view = hidden.transcript.view(SERVER)
    pieces = _pieces(plain.transcript.view(SERVER))
    seen = {
        name: _found(run.transcript.view(SERVER), run, pieces)
        for name, run in (("plain", plain), ("encrypted", hidden))
    }
    console.print(f"updates that the server could read: {len(view.uploads('valued_update'))}")
    console.print(
        f"pieces of {PIECE} weights of the clear updates found in what it got: {seen['encrypted']} of "
        f"{len(pieces)} (in the clear run {seen['plain']})"
    )
    console.print(f"seconds: {fast:.1f} in the clear, {slow:.1f} encrypted")


def _run(given: argparse.Namespace, valuation: str, policy: str) -> tuple[Any, float]:
    config = {"algorithm": "fairgraphfl", "data": given.data, "policy": policy, "rounds": given.rounds}
    experiment = load(None, {**config, "seed": given.seed}, [f"training.valuation={valuation}"])
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the motifs stay in plaintext in both
        run = execute(experiment, None, keep=everything)
    return run, time.perf_counter() - started


def _pieces(view: View) -> set[bytes]:
    """Short runs of weights of every clear update, as bytes."""
    found = set()
    for seen in view.uploads("update"):
        flat = np.concatenate([np.asarray(v, dtype="<f4").ravel() for v in seen.values.values()])
        for at in range(0, flat.size - PIECE, 512):
            piece = flat[at : at + PIECE]
            if np.count_nonzero(piece) == PIECE:
                found |= {piece.tobytes(), piece.astype("<f8").tobytes()}
    return found


def _found(view: View, run: Any, pieces: set[bytes]) -> int:
    got = b"".join(run.transcript.body(note.number) for note in view.sent)
    return sum(piece in got for piece in pieces)


if __name__ == "__main__":
    main()
