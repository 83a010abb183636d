"""An audit in Python: three policies, every attack on weights, one row a cell.

The same grid as `secure-fedgraph audit`; a cell is refused, blind, or a score with an interval and the best
trivial guess beside it. Generated data, offline.
"""

from __future__ import annotations

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid.grid import audit
from secure_fedgraph.audits.grid.report import verdict
from secure_fedgraph.experiment.config import Experiment

ON_WEIGHTS = [kind for kind in ATTACKS.values() if kind.family == "weights"]


def main() -> None:
    """Runs the grid and prints it."""
    experiment = Experiment(
        algorithm="fedsage",
        data="synthetic-citation",
        clients=3,
        rounds=2,
        dataset={"nodes": 300, "features": 600},
        protection={"norm": 1.0, "multiplier": 2.0},
    )
    found = audit(experiment, ["plaintext", "masked", "local_dp"], ON_WEIGHTS, seeds=[0])
    for cell in found.cells:
        what = f"{cell['policy']:10} {cell['attack']:22} {cell['settings']['aim']:24}"
        if cell["outcome"] == "score":
            interval = f"[{cell['low']:.3f}, {cell['high']:.3f}]"
            print(f"{what} {cell['score']:.3f} {interval} trivial {cell['baseline']:.3f}: {cell['verdict']}")
        else:
            print(f"{what} {cell['outcome']}: {cell['reason']}")
    print(verdict(found.cells))


if __name__ == "__main__":
    main()
