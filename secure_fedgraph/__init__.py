"""secure-fedgraph: federated graph learning under a privacy budget, with its leaks measured.

>>> import secure_fedgraph as sfg
>>> federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)
>>> run = sfg.train(sfg.FedSage(), federation, policy=sfg.policies.masked(), rounds=2, seed=0)
>>> run.privacy(unit="client", delta=1e-5)["epsilon"]  # masking alone is never differential privacy
'inf'
"""

# isort: off
from secure_fedgraph import threads as threads  # first: before torch is loaded

# isort: on
from secure_fedgraph import errors, policies
from secure_fedgraph.algorithm import Algorithm, Settings
from secure_fedgraph.algorithms import (
    Apfl,
    ApflGate,
    FairGraphFL,
    FedAvg,
    FedBCD,
    FedEgo,
    FedGate,
    FedProx,
    FedSage,
    FedSagePlus,
    Glasu,
    GlasuCentralized,
    GlasuSimulated,
    GlasuStandalone,
    GlobSage,
    Local,
    LocSage,
    LocSagePlus,
)
from secure_fedgraph.federation import Federation, federate
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.privacy.spending.budget import Budget
from secure_fedgraph.protocol import Channel, Reveal, Transcript, Unit, Upload, View
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.train import Run, train

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Apfl",
    "ApflGate",
    "Budget",
    "Channel",
    "DataWarning",
    "Dropouts",
    "FairGraphFL",
    "FedAvg",
    "FedBCD",
    "FedEgo",
    "FedGate",
    "FedProx",
    "FedSage",
    "FedSagePlus",
    "Federation",
    "Glasu",
    "GlasuCentralized",
    "GlasuSimulated",
    "GlasuStandalone",
    "GlobSage",
    "LocSage",
    "LocSagePlus",
    "Local",
    "Reveal",
    "Run",
    "Settings",
    "Transcript",
    "Unit",
    "Upload",
    "View",
    "errors",
    "federate",
    "policies",
    "train",
]
