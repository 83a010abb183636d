"""FedSage and its two bounds: LocSage (no exchange) and GlobSage (all data pooled)."""

from __future__ import annotations

from typing import ClassVar

from secure_fedgraph.algorithms.fedavg import FedAvg, Local
from secure_fedgraph.algorithms.fedsgd.graph_sage import FedSageSteps
from secure_fedgraph.algorithms.training.settings import TrainingSettings

PAPER = "Zhang et al., NeurIPS 2021"


class FedSage(FedAvg):
    """FedAvg of GraphSAGE over subgraphs that miss their cross-owner links.

    The paper's settings are the defaults: two mean-aggregator layers of 64 and 32, five neighbours a layer
    with replacement, batches of 64, one local epoch a round, 50 rounds, Adam with rate 0.001, unweighted
    averaging. Every owner keeps its own Adam moments.

    References:
        Zhang et al., Subgraph Federated Learning with Missing Neighbor Generation, NeurIPS 2021, section 3.
    """

    name = "fedsage"
    steps_on_sums = FedSageSteps
    summary = "GraphSAGE averaged over subgraph owners"
    reference = PAPER
    kinds: ClassVar[tuple[str, ...]] = ("node",)


class LocSage(Local):
    """GraphSAGE trained by every owner alone, each model tested on the global graph.

    References:
        Zhang et al., NeurIPS 2021, Table 2.
    """

    name = "locsage"
    summary = "GraphSAGE by every owner alone (FedSage's lower bound)"
    reference = PAPER
    kinds: ClassVar[tuple[str, ...]] = ("node",)


class GlobSage(FedSage):
    """GraphSAGE trained on the union of all owners' training nodes with every link. Not federated.

    References:
        Zhang et al., NeurIPS 2021, Table 2.
    """

    name = "globsage"
    summary = "GraphSAGE on all data pooled (FedSage's upper bound; not federated)"
    reference = PAPER
    pools = True
    Settings: ClassVar[type[TrainingSettings]] = TrainingSettings
    """Without weights: there is one client."""
