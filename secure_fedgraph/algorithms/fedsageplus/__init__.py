"""FedSage+ and LocSage+: owners generate the neighbours that they miss, and train on the completed graphs."""

from secure_fedgraph.algorithms.fedsageplus.algorithm import FedSagePlus, LocSagePlus
from secure_fedgraph.algorithms.fedsageplus.settings import GeneratorSettings

__all__ = ["FedSagePlus", "GeneratorSettings", "LocSagePlus"]
