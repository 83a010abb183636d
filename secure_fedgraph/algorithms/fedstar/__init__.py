"""FedStar: agents share what they learn of structure, and keep what they learn of features."""
