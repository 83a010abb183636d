"""Differential privacy of what a client computes on: features, labels and links that are randomised once."""
