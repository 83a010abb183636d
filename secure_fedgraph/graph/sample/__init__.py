"""Samples of one party's graph: trees, layers, ego-graphs; bounds on how often a node occurs."""
