"""secure-fedgraph: federated graph learning under a privacy budget, with its leaks measured.

>>> import secure_fedgraph as sfg
>>> federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)
>>> run = sfg.train(sfg.FedSage(), federation, policy=sfg.policies.masked(), rounds=2, seed=0)
>>> run.privacy(unit="client", delta=1e-5)["epsilon"]  # masking alone is never differential privacy
'inf'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from secure_fedgraph.loading import postpone_what_torch_geometric_loads  # before torch is loaded

if TYPE_CHECKING:
    from secure_fedgraph import algorithms, attacks, errors, policies
    from secure_fedgraph.algorithm import Algorithm, Settings
    from secure_fedgraph.algorithms import (
        Apfl,
        ApflGate,
        DFedGnn,
        FairGraphFL,
        FedAvg,
        FedBCD,
        FedBCDOneLabelHolder,
        FedEgo,
        FedEgoReleased,
        FedGate,
        FedGcn,
        FedProx,
        FedSage,
        FedSagePlus,
        Glasu,
        GlasuCentralized,
        GlasuOneLabelHolder,
        GlasuSimulated,
        GlasuStandalone,
        GlobSage,
        GraphFL,
        Local,
        LocSage,
        LocSagePlus,
    )
    from secure_fedgraph.audits.grid.grid import audit
    from secure_fedgraph.comparison import compare
    from secure_fedgraph.core.channel import Channel, Reveal
    from secure_fedgraph.core.guarantee import Unit
    from secure_fedgraph.core.spending.budget import Budget
    from secure_fedgraph.core.upload import Upload
    from secure_fedgraph.evaluation import ScoreWarning
    from secure_fedgraph.experiment.config import Experiment
    from secure_fedgraph.federation import Federation, federate
    from secure_fedgraph.forms import FormWarning
    from secure_fedgraph.graph.data import datasets
    from secure_fedgraph.graph.data.own_graph import DataWarning
    from secure_fedgraph.graph.schema import Schema
    from secure_fedgraph.privacy.budget_warnings import EarlyStopWarning
    from secure_fedgraph.protocol import Transcript, View
    from secure_fedgraph.protocol.dropouts import Dropouts
    from secure_fedgraph.running.loop import train
    from secure_fedgraph.running.run import Run
    from secure_fedgraph.seams import ClientContext, RoundApi

postpone_what_torch_geometric_loads()  # before torch-geometric is loaded
__version__ = "0.1.0"

# Where each public name stands. A name is imported when it is first used, so that `import secure_fedgraph`
# and the light commands load no torch.
_HOMES = {
    "Algorithm": "algorithm",
    "Apfl": "algorithms",
    "ApflGate": "algorithms",
    "Budget": "core.spending.budget",
    "Channel": "core.channel",
    "ClientContext": "seams",
    "DFedGnn": "algorithms",
    "DataWarning": "graph.data.own_graph",
    "Dropouts": "protocol.dropouts",
    "EarlyStopWarning": "privacy.budget_warnings",
    "Experiment": "experiment.config",
    "FairGraphFL": "algorithms",
    "FedAvg": "algorithms",
    "FedBCD": "algorithms",
    "FedBCDOneLabelHolder": "algorithms",
    "FedEgo": "algorithms",
    "FedEgoReleased": "algorithms",
    "FedGate": "algorithms",
    "FedGcn": "algorithms",
    "FedProx": "algorithms",
    "FedSage": "algorithms",
    "FedSagePlus": "algorithms",
    "Federation": "federation",
    "FormWarning": "forms",
    "Glasu": "algorithms",
    "GlasuCentralized": "algorithms",
    "GlasuOneLabelHolder": "algorithms",
    "GlasuSimulated": "algorithms",
    "GlasuStandalone": "algorithms",
    "GlobSage": "algorithms",
    "GraphFL": "algorithms",
    "LocSage": "algorithms",
    "LocSagePlus": "algorithms",
    "Local": "algorithms",
    "Reveal": "core.channel",
    "RoundApi": "seams",
    "Run": "running.run",
    "Schema": "graph.schema",
    "ScoreWarning": "evaluation",
    "Settings": "algorithm",
    "Transcript": "protocol",
    "Unit": "core.guarantee",
    "Upload": "core.upload",
    "View": "protocol",
    "audit": "audits.grid.grid",
    "compare": "comparison",
    "federate": "federation",
    "train": "running.loop",
}
_MODULES = {
    "algorithms": "algorithms",
    "attacks": "attacks",
    "datasets": "graph.data.datasets",
    "errors": "errors",
    "policies": "policies",
}
__all__ = sorted([*_HOMES, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__version__"]
