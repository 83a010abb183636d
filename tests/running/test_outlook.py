"""What the rest of a run costs, foreseen after its first rounds, beside what it came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import secure_fedgraph as sfg
from secure_fedgraph.running.outlook import Outlook

DATA = sfg.federate("synthetic-citation", clients=3, seed=0, partition="random", nodes=120, features=16)


def foreseen(algorithm: Any, policy: str, rounds: int, **options: Any) -> tuple[list[Outlook], Any]:
    seen: list[Outlook] = []
    return seen, sfg.train(algorithm, DATA, policy, rounds=rounds, on_outlook=seen.append, **options)


@pytest.mark.parametrize(
    ("algorithm", "policy", "options"),
    [
        (sfg.FedSage(), "plaintext", {}),
        (sfg.FedSage(), "masked", {}),  # whose first round agrees on keys
        (sfg.FedSage(), "masked", {"evaluation": "in_band"}),
        (sfg.FedGcn(), "plaintext", {}),  # which sends sums of features before its first round
    ],
)
def test_bytes_are_foreseen_within_a_tenth(algorithm: Any, policy: str, options: dict[str, Any]) -> None:
    rounds = 16 if options else 6  # scores of items are counted once, at the end, which no round foretells
    (said,), run = foreseen(algorithm, policy, rounds, **options)
    traffic = run.transcript.traffic()
    assert said.rounds == rounds - 2
    assert said.up == pytest.approx(traffic["up"], rel=0.1)
    assert said.down == pytest.approx(traffic["down"], rel=0.1)
    assert said.left > 0 and said.memory > 50e6


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_that_is_over_has_no_outlook(rounds: int) -> None:
    assert foreseen(sfg.FedSage(), "plaintext", rounds)[0] == []


def test_a_resumed_run_foresees_what_is_left(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise Killed

    with pytest.raises(Killed):
        foreseen(sfg.FedSage(), "masked", 8, out=tmp_path, on_round=stop)
    (said,), run = foreseen(sfg.FedSage(), "masked", 8, out=tmp_path, resume=True)
    assert said.rounds == 3  # rounds 4 and 5 were seen
    assert said.up == pytest.approx(run.transcript.traffic()["up"], rel=0.1)
