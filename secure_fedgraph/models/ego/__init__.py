"""FedEgo's networks: on ego-graphs, on mashes, and the one without mashes."""
