"""Models: plain torch modules that know no federation."""

from secure_fedgraph.models.gnn import GraphSage

__all__ = ["GraphSage"]
