"""The algorithms, by the names that the command line uses."""

from __future__ import annotations

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fedavg import FedAvg, FedProx
from secure_fedgraph.algorithms.fedsage import FedSage, GlobSage, LocSage
from secure_fedgraph.algorithms.fedsageplus import FedSagePlus, LocSagePlus
from secure_fedgraph.algorithms.local import Local

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (Local, FedAvg, FedProx, FedSage, FedSagePlus, GlobSage, LocSage, LocSagePlus)
}

__all__ = [
    "ALGORITHMS",
    "FedAvg",
    "FedProx",
    "FedSage",
    "FedSagePlus",
    "GlobSage",
    "LocSage",
    "LocSagePlus",
    "Local",
]
