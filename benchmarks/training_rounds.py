"""Processor seconds of a round of FedSage and of one scoring, on any checkout of this package.

    PYTHONPATH=CHECKOUT python benchmarks/training_rounds.py [--data cora] [--rounds 12] [--batches 64,full]

Three owners, plaintext, one thread. The first two rounds are left out; the median of the others is printed
beside a digest of the final weights: two checkouts that print the same digest train the same model. A round
holds the training of all owners, what they send, and the scoring.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from itertools import pairwise
from statistics import median

import torch

import secure_fedgraph as sfg


def main() -> None:
    """Prints a line a batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cora")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batches", default="64,full")
    args = parser.parse_args()
    torch.set_num_threads(1)  # two threads on a shared machine measure the neighbours
    federation = sfg.federate(args.data, clients=3, seed=0)
    for batch in args.batches.split(","):
        algorithm = sfg.FedSage(batch=batch if batch == "full" else int(batch))
        ends: list[float] = []
        run = sfg.train(
            algorithm,
            federation,
            "plaintext",
            rounds=args.rounds,
            on_round=lambda row, ends=ends: ends.append(time.process_time()),
        )
        took = [after - before for before, after in pairwise(ends[1:])]
        scorings = []
        for _ in range(5):
            started = time.process_time()
            algorithm.predict(run.state, federation.referee.test_set.inputs, federation.schema)
            scorings.append(time.process_time() - started)
        weights = b"".join(value.numpy().tobytes() for _, value in sorted(run.state.items()))
        print(
            f"{args.data}, batch {batch}: {median(took):.4f} s a round, {median(scorings):.4f} s a scoring, "
            f"weights {hashlib.sha256(weights).hexdigest()[:12]}, accuracy {run.accuracy['global']:.4f}"
        )


if __name__ == "__main__":
    main()
