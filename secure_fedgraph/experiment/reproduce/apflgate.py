"""APFLGate's poster: area under the curve on BBBP, mean absolute error on Ciao."""

from __future__ import annotations

from typing import Any

from secure_fedgraph.experiment.reproduce.tables import Case, Cell, PaperTable

PAPER = "APFLGate (poster)"
BBBP = {0.1: 0.8480, 0.25: 0.8472, 0.5: 0.8458, 0.75: 0.8440, 0.9: 0.8429}
"""alpha -> AUC at tau = 10."""
CIAO = {0.1: 0.7921, 0.25: 0.7895, 0.5: 0.7891, 0.75: 0.7891, 0.9: 0.7891}
MINUTES = {"bbbp": 12.0, "ciao": 12.0}


def _case(algorithm: str, data: str, **training: Any) -> Case:
    """One experiment. What users and products usually give is no part of the poster's network."""
    if data == "ciao":
        training = {"local_steps": 5, "learning_rate": 0.03, "habits": False, **training}
    named = "".join(f" {key}={value}" for key, value in training.items())
    config = {"algorithm": algorithm, "data": data, "rounds": 100, "training": training}
    return Case(f"{algorithm} {data}{named}", config, MINUTES[data])


def _cells(
    data: str, measure: str, tolerance: float, apfl: tuple[float, float], fedgate: float
) -> tuple[Cell, ...]:
    column = f"{'BBBP' if data == 'bbbp' else 'Ciao'}, {measure.upper()}"
    by_alpha = BBBP if data == "bbbp" else CIAO
    cells = [
        Cell("APFL", column, apfl[1], tolerance, measure, _case("apfl", data, alpha=apfl[0])),
        Cell("FedGATE", column, fedgate, tolerance, measure, _case("fedgate", data)),
    ]
    for alpha, figure in by_alpha.items():
        case = _case("apflgate", data, alpha=alpha)
        cells.append(Cell(f"APFLGate, alpha {alpha:g}", column, figure, tolerance, measure, case))
    return tuple(cells)


TABLES = (
    PaperTable(
        "apflgate-1", "area under the curve on BBBP, 16 clients", PAPER, 3, "best_on_test",
        _cells("bbbp", "auc", 0.05, (0.1, 0.7492), 0.7703), 8, ("BBBP, AUC",),
    ),
    PaperTable(
        "apflgate-2", "mean absolute error on Ciao, 28 clients", PAPER, 3, "best_on_test",
        _cells("ciao", "mae", 0.02, (0.25, 0.8054), 0.8055), 8, ("Ciao, MAE",),
    ),
)  # fmt: skip
