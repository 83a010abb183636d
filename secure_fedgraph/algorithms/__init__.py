"""The algorithms, by the names that the command line uses."""

from __future__ import annotations

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.apflgate.algorithm import Apfl, ApflGate, FedGate
from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fedavg import FedAvg, FedProx
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.algorithms.fedsage import FedSage, GlobSage, LocSage
from secure_fedgraph.algorithms.fedsageplus import FedSagePlus, LocSagePlus
from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.variants import (
    FedBCD,
    GlasuCentralized,
    GlasuSimulated,
    GlasuStandalone,
)
from secure_fedgraph.algorithms.local import Local
from secure_fedgraph.algorithms.training.gin_classifier import GinFedAvg, GinLocal

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        Local,
        FedAvg,
        FedProx,
        FedSage,
        FedSagePlus,
        GlobSage,
        LocSage,
        LocSagePlus,
        FedEgo,
        Glasu,
        GlasuCentralized,
        GlasuStandalone,
        GlasuSimulated,
        FedBCD,
        Apfl,
        FedGate,
        ApflGate,
        FairGraphFL,
        GinFedAvg,
        GinLocal,
    )
}

__all__ = [
    "ALGORITHMS",
    "Apfl",
    "ApflGate",
    "FairGraphFL",
    "FedAvg",
    "FedBCD",
    "FedEgo",
    "FedGate",
    "FedProx",
    "FedSage",
    "FedSagePlus",
    "GinFedAvg",
    "GinLocal",
    "Glasu",
    "GlasuCentralized",
    "GlasuSimulated",
    "GlasuStandalone",
    "GlobSage",
    "LocSage",
    "LocSagePlus",
    "Local",
]
