"""FedEgo: clients share mashes of ego-graphs."""
