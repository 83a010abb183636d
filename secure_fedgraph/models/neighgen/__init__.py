"""FedSage+'s neighbour generator: the network, its losses, its training, its feedback between clients."""
