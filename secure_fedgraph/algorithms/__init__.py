"""The algorithms, by the names that the command line uses."""

from __future__ import annotations

import sys

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.apflgate.algorithm import Apfl, ApflGate, FedGate
from secure_fedgraph.algorithms.d_fedgnn import DFedGnn
from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fedavg import FedAvg, FedProx, Local
from secure_fedgraph.algorithms.fedego.algorithm import FedEgo
from secure_fedgraph.algorithms.fedego.released import FedEgoReleased
from secure_fedgraph.algorithms.fedgcn.algorithm import FedGcn
from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge, GraphFedRidge
from secure_fedgraph.algorithms.fedsage import FedSage, GlobSage, LocSage
from secure_fedgraph.algorithms.fedsageplus import FedSagePlus, LocSagePlus
from secure_fedgraph.algorithms.fedsgc import FedSgc
from secure_fedgraph.algorithms.fedsgd.algorithm import FedSgd, GraphFedSgd
from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.variants.alone import GlasuCentralized, GlasuStandalone
from secure_fedgraph.algorithms.glasu.variants.fedbcd import FedBCD, FedBCDOneLabelHolder
from secure_fedgraph.algorithms.glasu.variants.one_label_holder import GlasuOneLabelHolder
from secure_fedgraph.algorithms.glasu.variants.simulated import GlasuSimulated
from secure_fedgraph.algorithms.graphfl import GraphFL
from secure_fedgraph.registry import Registry, check_subclass, classes_below


def _own() -> dict[str, type[Algorithm]]:
    classes = classes_below(sys.modules[__name__], Algorithm, "name")
    return dict(sorted(classes.items()))


def _checked(name: str, candidate: object) -> type[Algorithm]:
    return check_subclass(name, candidate, Algorithm, "name")


ALGORITHMS: Registry[type[Algorithm]] = Registry("algorithm", "secure_fedgraph.algorithms", _own, _checked)
"""Every algorithm by its name: each class in this folder with a ``name``, and those of other packages."""

__all__ = [
    "ALGORITHMS",
    "Apfl",
    "ApflGate",
    "DFedGnn",
    "FairGraphFL",
    "FedAvg",
    "FedBCD",
    "FedBCDOneLabelHolder",
    "FedEgo",
    "FedEgoReleased",
    "FedGate",
    "FedGcn",
    "FedProx",
    "FedRidge",
    "FedSage",
    "FedSagePlus",
    "FedSgc",
    "FedSgd",
    "Glasu",
    "GlasuCentralized",
    "GlasuOneLabelHolder",
    "GlasuSimulated",
    "GlasuStandalone",
    "GlobSage",
    "GraphFL",
    "GraphFedRidge",
    "GraphFedSgd",
    "LocSage",
    "LocSagePlus",
    "Local",
]


def __getattr__(name: str) -> type[Algorithm]:
    """Every other algorithm of this folder by its class's name."""
    for kind in ALGORITHMS.own.values():
        if kind.__name__ == name:
            return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
