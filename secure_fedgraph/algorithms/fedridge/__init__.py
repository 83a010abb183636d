"""Federated ridge regression in one exchange."""
