"""APFLGate: a gate mixes a federated and a personal model."""
