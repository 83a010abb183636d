"""The recipes, for ``sfg.policies.masked()`` and the like."""

from secure_fedgraph.privacy.policy import (
    Policy,
    central_dp,
    distributed_dp,
    homomorphic,
    local_dp,
    masked,
    plaintext,
    sealed,
    strictest,
)

__all__ = [
    "Policy",
    "central_dp",
    "distributed_dp",
    "homomorphic",
    "local_dp",
    "masked",
    "plaintext",
    "sealed",
    "strictest",
]
