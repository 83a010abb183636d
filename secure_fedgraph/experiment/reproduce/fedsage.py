"""FedSage's Tables 2, 4, 5 and 6: accuracy by owners, an averaged generator, batches and local epochs."""

from __future__ import annotations

from typing import Any

from secure_fedgraph.experiment.reproduce.tables import Case, Cell, PaperTable

PAPER = "Zhang et al., Subgraph federated learning with missing neighbor generation, NeurIPS 2021"
METHODS = {
    "LocSage": "locsage",
    "LocSage+": "locsage+",
    "FedSage": "fedsage",
    "FedSage+": "fedsage+",
    "GlobSage": "globsage",
}
OWNERS = (3, 5, 10)
FIGURES: dict[str, dict[str, tuple[float, ...]]] = {
    "Cora": {
        "LocSage": (0.5762, 0.4431, 0.2798),
        "LocSage+": (0.5644, 0.4533, 0.2851),
        "FedSage": (0.8656, 0.8645, 0.8626),
        "FedSage+": (0.8686, 0.8648, 0.8632),
        "GlobSage": (0.8701,) * 3,
    },
    "CiteSeer": {
        "LocSage": (0.6789, 0.5612, 0.4240),
        "LocSage+": (0.6848, 0.5676, 0.4323),
        "FedSage": (0.7241, 0.7226, 0.7158),
        "FedSage+": (0.7454, 0.7440, 0.7392),
        "GlobSage": (0.7561,) * 3,
    },
    "PubMed": {
        "LocSage": (0.8447, 0.8039, 0.7148),
        "LocSage+": (0.8481, 0.8046, 0.7039),
        "FedSage": (0.8708, 0.8696, 0.8692),
        "FedSage+": (0.8775, 0.8755, 0.8749),
        "GlobSage": (0.8776,) * 3,
    },
    "MSAcademic": {
        "LocSage": (0.8188, 0.7426, 0.5918),
        "LocSage+": (0.8393, 0.7480, 0.5927),
        "FedSage": (0.9327, 0.9391, 0.9262),
        "FedSage+": (0.9359, 0.9414, 0.9314),
        "GlobSage": (0.9681,) * 3,
    },
}
DATA = {"Cora": "cora", "CiteSeer": "citeseer", "PubMed": "pubmed", "MSAcademic": "coauthor-cs"}
TOLERANCES = {"Cora": 0.025, "CiteSeer": 0.03, "PubMed": 0.015, "MSAcademic": 0.025}
ALONE = 0.08
"""How far the owners by themselves may be: the partition decides it."""
SHARED = {"Cora": 0.8619, "CiteSeer": 0.7326, "PubMed": 0.8721, "MSAcademic": 0.9210}
"""Table 4: the generator averaged too."""
MINUTES = {"cora": 0.4, "citeseer": 0.8, "pubmed": 2.0, "coauthor-cs": 10.0}


def _case(method: str, data: str, owners: int, **training: Any) -> Case:
    algorithm = METHODS[method]
    several = {} if algorithm == "globsage" else {"clients": owners}
    named = "".join(f" {key}={value}" for key, value in training.items())
    whose = "" if algorithm == "globsage" else f" M={owners}"
    minutes = MINUTES[data] * (8 if algorithm in ("fedsage+", "locsage+") else 1)
    config = {"algorithm": algorithm, "data": data, "rounds": 50, "training": training, **several}
    return Case(f"{algorithm} {data}{whose}{named}", config, minutes)


def _tolerance(method: str, column: str) -> float:
    return ALONE if method.startswith("LocSage") else TOLERANCES[column]


def _second() -> tuple[Cell, ...]:
    cells = []
    for method in METHODS:
        for column, by_method in FIGURES.items():
            for owners, figure in zip(OWNERS, by_method[method], strict=True):
                case = _case(method, DATA[column], owners)
                # of owners by themselves ``global`` is the mean over their models, as the paper has it
                cells.append(
                    Cell(method, f"{column} M={owners}", figure, _tolerance(method, column), "global", case)
                )
    return tuple(cells)


def _fourth() -> tuple[Cell, ...]:
    cells = []
    for column, data in DATA.items():
        named, tolerance = f"{column} M=3", TOLERANCES[column]
        first = 0.7393 if column == "CiteSeer" else FIGURES[column]["FedSage"][0]
        cells += [
            Cell("FedSage", named, first, tolerance, "global", _case("FedSage", data, 3)),
            Cell(
                "FedSage+, NeighGen averaged", named, SHARED[column], tolerance, "global",
                _case("FedSage+", data, 3, generator="shared"),
            ),
            Cell(
                "FedSage+", named, FIGURES[column]["FedSage+"][0], tolerance, "global",
                _case("FedSage+", data, 3),
            ),
        ]  # fmt: skip
    return tuple(cells)


def _of_pubmed(key: str, values: dict[int, tuple[float, float]]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            method, f"{key} {value}", figures[place], TOLERANCES["PubMed"], "global",
            _case(method, "pubmed", 5, **{key: value}),
        )
        for place, method in enumerate(("FedSage", "FedSage+"))
        for value, figures in values.items()
    )  # fmt: skip


TABLES = (
    PaperTable(
        "fedsage-2", "accuracy on the global test set, by number of owners", PAPER, 5, "last",
        _second(), 10, ("Cora M=3", "CiteSeer M=3"),
    ),
    PaperTable(
        "fedsage-4", "a generator of each owner's own against one that is averaged", PAPER, 5, "last",
        _fourth(), 10, ("Cora M=3",),
    ),
    PaperTable(
        "fedsage-5", "batch size, PubMed, five owners", PAPER, 5, "last",
        _of_pubmed("batch", {1: (0.8682, 0.8782), 16: (0.8733, 0.8814), 64: (0.8696, 0.8755)}),
        3, ("batch 64",),
    ),
    PaperTable(
        "fedsage-6", "local epochs, PubMed, five owners", PAPER, 5, "last",
        _of_pubmed("epochs", {1: (0.8696, 0.8755), 3: (0.8663, 0.8740), 5: (0.8591, 0.8740)}),
        3, ("epochs 1",),
    ),
)  # fmt: skip
