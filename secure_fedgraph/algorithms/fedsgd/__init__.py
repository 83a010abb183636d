"""Federated steps under one shared noise: each is one sum of clipped gradients over all owners."""
